//! All runs of one operator: enqueued one after the other, read together at the end.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use linn::device::SyncDebug;
use linn::tensor::TensorRead;
use linn::{DType, Device, Tensor};

use super::call::{Answer, Call, Fault, Output};
use super::compare::{STRICT, Tolerance, Zeros, difference, untied};
use super::layouts::{Layout, OTHERS, Placed, upload};
use super::manifest::{Arg, Case, Data, Entry, Host};
use super::table::Row;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Case,
    Gradient,
    Special,
    Refusal,
}

/// One thing that is not as PyTorch has it.
#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    /// Which case, special grid or refusal.
    pub index: usize,
    /// Which of its runs.
    pub run: String,
    pub why: String,
}

/// A result on its way to the host.
struct Pending {
    kind: Kind,
    index: usize,
    run: String,
    read: Read,
    want: Host,
    tolerance: Tolerance,
    zeros: Zeros,
    /// For each element the one with zeros in place of arguments below the normal numbers; empty on a driver that keeps these.
    flushed: Vec<usize>,
    /// Only shape and type are given; the elements are open, but finite.
    open: bool,
    /// Of positions: the tensor and dimension that they are of, where equal elements may change places.
    ties: Option<(Host, usize)>,
}

/// One operator under way.
pub struct Operator<'a> {
    pub device: &'a Device,
    pub name: &'a str,
    pub row: &'static Row,
    pub tensors: BTreeMap<String, Host>,
    /// The driver takes numbers below the normal ones for zeros, as WGSL lets it.
    flushes: bool,
    pending: Vec<Pending>,
    failures: Vec<Failure>,
}

/// True where a driver takes numbers below the normal ones for zeros.
pub fn flushes(device: &Device) -> bool {
    let small = Tensor::from_slice(device, &[1], &[1e-40f32]).expect("a small number");
    small.mul_scalar(2.0).and_then(|x| x.to_vec::<f32>()).expect("a product") == [0.0]
}

/// The tensors of a call on the device.
struct Operands {
    /// What the call is given.
    given: BTreeMap<String, Tensor>,
    /// The leaves that collect gradients.
    leaves: BTreeMap<String, Tensor>,
}

impl<'a> Operator<'a> {
    pub fn new(
        device: &'a Device,
        name: &'a str,
        row: &'static Row,
        tensors: BTreeMap<String, Host>,
        flushes: bool,
    ) -> Operator<'a> {
        Operator { device, name, row, tensors, flushes, pending: Vec::new(), failures: Vec::new() }
    }

    /// For each element of a grid the one whose arguments are the same, but zeros where they are below the normal numbers.
    fn flushed(&self, case: &Case) -> Vec<usize> {
        let columns: Vec<&Vec<f32>> =
            case.tensors().iter().filter_map(|name| self.tensors.get(*name)).filter_map(floats).collect();
        let len = columns.first().map_or(0, |column| column.len());
        let bits = |at: usize, flush: bool| -> Vec<u32> {
            let zero = |x: f32| if flush && x.is_subnormal() { 0f32.copysign(x) } else { x };
            columns.iter().map(|column| zero(column[at]).to_bits()).collect()
        };
        let places: BTreeMap<Vec<u32>, usize> = (0..len).rev().map(|at| (bits(at, false), at)).collect();
        (0..len).map(|at| places.get(&bits(at, true)).copied().unwrap_or(at)).collect()
    }

    /// Runs everything of `entry`, and answers with what is wrong.
    pub fn judge(mut self, entry: &Entry) -> Vec<Failure> {
        for (index, case) in entry.cases.iter().enumerate() {
            self.layouts(index, case);
            if let (true, Some(in_place)) = (entry.inplace, self.row.in_place) {
                self.in_place(index, case, in_place);
            }
        }
        for (index, case) in entry.special.iter().enumerate() {
            let name = "special grid".to_string();
            let run = Run { kind: Kind::Special, index, layout: Layout::Contiguous, name, open: false };
            self.forward(&run, case);
        }
        self.read();
        for (index, case) in entry.errors.iter().enumerate() {
            if let Err(why) = self.refused(case) {
                self.fail(Kind::Refusal, index, "refusal", why);
            }
        }
        self.failures
    }

    fn fail(&mut self, kind: Kind, index: usize, run: &str, why: String) {
        self.failures.push(Failure { kind, index, run: run.to_string(), why });
    }

    /// One case in every layout that its inputs can have.
    fn layouts(&mut self, index: usize, case: &Case) {
        let open = self.row.draws.is_some_and(|draws| draws(case));
        let run = |layout: Layout, name: String| Run { kind: Kind::Case, index, layout, name, open };
        self.forward(&run(Layout::Contiguous, "contiguous".to_string()), case);
        for layout in OTHERS {
            let inputs = case.tensors();
            if inputs.iter().any(|name| self.tensors.get(*name).is_some_and(|host| layout.stored(host).is_some())) {
                self.forward(&run(layout, format!("{layout:?}").to_lowercase()), case);
            }
        }
        if self.row.broadcasts && case.outputs.len() == 1 {
            self.forward(&run(Layout::Broadcast, "broadcast views".to_string()), case);
        }
    }

    /// Forward, and backward where the case has gradients.
    fn forward(&mut self, run: &Run, case: &Case) {
        let result = self.operands(case, run.layout).and_then(|operands| {
            let output = self.call(case, &operands.given, self.row.run)?;
            Ok((operands, output))
        });
        let (operands, output) = match result {
            Ok(found) => found,
            Err(Fault::Linn(error)) if self.row.may_refuse_layouts && run.layout != Layout::Contiguous => {
                if let Err(why) = self.explains(case, &error.to_string()) {
                    self.fail(run.kind, run.index, &run.name, why);
                }
                return;
            }
            Err(fault) => {
                self.fail(run.kind, run.index, &run.name, said(&fault));
                if case.grads.is_some() {
                    self.fail(Kind::Gradient, run.index, &run.name, "there is no result".to_string());
                }
                return;
            }
        };
        if let Err(why) = self.results(run, case, &output) {
            self.fail(run.kind, run.index, &run.name, why);
        }
        // (Where nothing has a gradient, PyTorch's own backward pass has nothing to do.)
        if let (Some(grads), Output::Tensors(outputs)) = (case.grads.as_ref().filter(|grads| !grads.is_empty()), &output) {
            let run = Run { kind: Kind::Gradient, ..run.clone() };
            let result = guarded(self.device, false, || backward(self.device, &self.tensors, case, outputs));
            if let Err(fault) = result {
                return self.fail(run.kind, run.index, &run.name, said(&fault));
            }
            for (input, want) in grads {
                let found = operands.leaves.get(input).and_then(Tensor::grad);
                let result = match (found, want) {
                    (None, None) => Ok(()),
                    (None, Some(_)) => Err(format!("{input} has no gradient")),
                    (Some(_), None) => Err(format!("{input} has a gradient, PyTorch's has none")),
                    (Some(found), Some(want)) => self.expect(&run, &found, &self.tensors[want].clone(), Zeros::Alike),
                };
                if let Err(why) = result {
                    self.fail(run.kind, run.index, &run.name, format!("gradient of {input}: {why}"));
                }
            }
        }
    }

    /// The in-place form, on a contiguous tensor, on strided ones and on an expanded one, which has to be refused.
    fn in_place(&mut self, index: usize, case: &Case, form: fn(&Call) -> Answer<()>) {
        let (Some(Arg::Tensor(target)), [output]) = (case.args.first(), case.outputs.as_slice()) else { return };
        let host = self.tensors[target].clone();
        // Results are stored in the type of the tensor that is changed.
        let want = like(&self.tensors[output], &host);
        let refused = host.shape != want.shape;
        for layout in [Layout::Contiguous, Layout::Transposed, Layout::Gaps, Layout::Margins] {
            let Some(stored) = layout.stored(&want) else { continue };
            let name = format!("in place, {layout:?}").to_lowercase();
            let run = Run { kind: Kind::Case, index, layout, name, open: false };
            let result = self.operands(case, Layout::Contiguous).and_then(|mut operands| {
                let Some(Placed { view, base }) = layout.place(self.device, &host)? else { return Ok(None) };
                operands.given.insert(target.clone(), view);
                operands.given.values_mut().for_each(|tensor| *tensor = tensor.detach());
                self.call(case, &operands.given, form)?;
                Ok(Some(base))
            });
            let result = match result {
                Ok(None) => Ok(()),
                Ok(Some(_)) if refused => Err(format!("shape {:?} took results of shape {:?}", host.shape, want.shape)),
                Ok(Some(base)) => self.expect(&run, &base, &stored, Zeros::Alike),
                Err(Fault::Linn(error)) if refused => self.explains(case, &error.to_string()),
                Err(fault) => Err(said(&fault)),
            };
            if let Err(why) = result {
                self.fail(run.kind, run.index, &run.name, why);
            }
        }
        if let Some(dim) = (0..host.shape.len()).find(|dim| host.shape[*dim] > 1) {
            let result = self.operands(case, Layout::Contiguous).and_then(|mut operands| {
                let row = upload(self.device, &host)?.narrow(dim as isize, 0, 1)?;
                let sizes: Vec<isize> = host.shape.iter().map(|len| *len as isize).collect();
                operands.given.insert(target.clone(), row.expand(&sizes)?);
                operands.given.values_mut().for_each(|tensor| *tensor = tensor.detach());
                self.call(case, &operands.given, form)
            });
            let result = match result {
                Err(Fault::Linn(error)) => self.explains(case, &error.to_string()),
                Err(fault) => Err(said(&fault)),
                Ok(()) => Err("an expanded tensor was changed".to_string()),
            };
            if let Err(why) = result {
                self.fail(Kind::Case, index, "in place, expanded", why);
            }
        }
        if let (Some(grads), false) = (&case.grads, refused) {
            let name = "in place".to_string();
            let run = Run { kind: Kind::Gradient, index, layout: Layout::Contiguous, name, open: false };
            let result = self.operands(case, Layout::Contiguous).and_then(|mut operands| {
                // A result of an operation: a leaf may not be changed.
                let changed = operands.given[target].mul_scalar(1.0)?;
                operands.given.insert(target.clone(), changed.clone());
                self.call(case, &operands.given, form)?;
                guarded(self.device, false, || backward(self.device, &self.tensors, case, &[changed]))?;
                Ok(operands)
            });
            match result {
                Err(fault) => self.fail(run.kind, index, &run.name, said(&fault)),
                Ok(operands) => {
                    for (input, want) in grads {
                        let (Some(leaf), Some(want)) = (operands.leaves.get(input), want) else { continue };
                        let result = match leaf.grad() {
                            Some(found) => self.expect(&run, &found, &self.tensors[want].clone(), Zeros::Alike),
                            None => Err(format!("{input} has no gradient")),
                        };
                        if let Err(why) = result {
                            self.fail(run.kind, index, &run.name, why);
                        }
                    }
                }
            }
        }
    }

    /// The call has to end in an error that explains itself, now or at the next synchronising call.
    fn refused(&self, case: &Case) -> Result<(), String> {
        let result = self.operands(case, Layout::Contiguous).and_then(|operands| {
            guarded(self.device, true, || {
                let call = Call::new(self.device, &case.args, &case.kwargs, &operands.given)?;
                let result = (self.row.run)(&call);
                // What the row itself cannot say comes first.
                if !matches!(result, Err(Fault::Row(_))) {
                    call.all_read()?;
                }
                let output = result?;
                self.device.synchronize()?;
                Ok(output)
            })
        });
        match result {
            Err(Fault::Linn(error)) => self.explains(case, &error.to_string()),
            Err(fault) => Err(said(&fault)),
            Ok(_) => Err("it was not refused".to_string()),
        }
    }

    /// The text names the operation and an operand: the shape, the type or the number of dimensions of a tensor, an index in it,
    /// or another argument.
    fn explains(&self, case: &Case, text: &str) -> Result<(), String> {
        let name =
            self.row.called.unwrap_or(self.name.trim_start_matches("nn.functional.").split('.').next().unwrap_or_default());
        if ![name.to_string(), format!("{name}_")].iter().any(|name| has_word(text, name)) {
            return Err(format!("the error does not name {name}: {text}"));
        }
        let tensors = case.tensors();
        let of_tensors = tensors.iter().filter_map(|name| self.tensors.get(*name)).flat_map(|host| {
            let mut words =
                vec![format!("{:?}", host.shape), format!("{} dimensions", host.shape.len()), format!("{}-d", host.shape.len())];
            match &host.data {
                Data::F32(_) => words.push("f32".to_string()),
                Data::I32(data) => {
                    words.extend(["i32".to_string()].into_iter().chain(data.iter().map(|at| format!("index {at}"))))
                }
                Data::Bool(_) => words.push("bool".to_string()),
                Data::F16(_) => words.push("f16".to_string()),
                Data::Other(name) => words.push(name.clone()),
            }
            words
        });
        let others = case.args.iter().chain(case.kwargs.values()).filter_map(|arg| match arg {
            Arg::Int(int) => Some(int.to_string()),
            Arg::Float(float) => Some(float.to_string()),
            Arg::Text(text) => Some(text.clone()),
            _ => None,
        });
        if tensors.is_empty() || of_tensors.chain(others).any(|word| has_word(text, &word)) {
            return Ok(());
        }
        Err(format!("the error names no operand: {text}"))
    }

    /// The call's tensors in `layout`.
    fn operands(&self, case: &Case, layout: Layout) -> Answer<Operands> {
        let mut operands = Operands { given: BTreeMap::new(), leaves: BTreeMap::new() };
        for name in case.tensors() {
            let host = &self.tensors[name];
            let plain = || upload(self.device, host);
            let mut tensor = match layout {
                Layout::Broadcast => plain()?,
                _ => layout.place(self.device, host)?.map_or_else(plain, |placed| Ok(placed.view))?,
            };
            if case.grads.as_ref().is_some_and(|grads| grads.contains_key(name)) {
                tensor = tensor.detach().requires_grad_(true)?;
                operands.leaves.insert(name.clone(), tensor.clone());
            }
            if let (Layout::Broadcast, Some(out)) = (layout, case.outputs.first().and_then(|out| self.tensors.get(out))) {
                tensor = tensor.expand(&out.shape.iter().map(|len| *len as isize).collect::<Vec<_>>())?;
            }
            operands.given.insert(name.clone(), tensor);
        }
        Ok(operands)
    }

    /// A call of linn: no panic, no unknown argument, no waiting host.
    fn call<T>(&self, case: &Case, tensors: &BTreeMap<String, Tensor>, form: fn(&Call) -> Answer<T>) -> Answer<T> {
        let call = Call::new(self.device, &case.args, &case.kwargs, tensors)?;
        let result = guarded(self.device, self.row.waits.is_some(), || form(&call))?;
        call.all_read()?;
        Ok(result)
    }

    /// Enqueues the comparison of all results.
    fn results(&mut self, run: &Run, case: &Case, output: &Output) -> Result<(), String> {
        let outputs = match (output, &case.value) {
            (Output::Tensors(outputs), None) => outputs,
            (Output::Bool(got), Some(Arg::Bool(want))) if got == want => return Ok(()),
            (Output::Bool(got), want) => return Err(format!("{got} instead of {want:?}")),
            (Output::Number(got), want) => {
                let want = match want {
                    Some(Arg::Float(want)) => *want,
                    Some(Arg::Int(want)) => *want as f64,
                    _ => return Err(format!("{got} instead of {want:?}")),
                };
                let host = |value: f64| Host { shape: Vec::new(), data: Data::F32(vec![value as f32]) };
                return difference(&host(*got), &host(want), STRICT, Zeros::Alike).map_or(Ok(()), Err);
            }
            (Output::Tensors(_), Some(want)) => return Err(format!("tensors instead of {want:?}")),
        };
        if outputs.len() != case.outputs.len() {
            return Err(format!("{} results instead of {}", outputs.len(), case.outputs.len()));
        }
        let zeros = if run.kind == Kind::Special { Zeros::Signed } else { Zeros::Alike };
        for (got, want) in outputs.iter().zip(&case.outputs) {
            let want = self.tensors[want].clone();
            self.expect(run, got, &want, zeros)?;
            if let (Some(dim), Some(Arg::Tensor(input)), Some(pending)) =
                (self.row.ties.and_then(|dim| dim(case)), case.args.first(), self.pending.last_mut())
            {
                let input = self.tensors[input].clone();
                let dim = dim.rem_euclid(input.shape.len().max(1) as i64) as usize;
                pending.ties = Some((input, dim));
            }
            if let (Kind::Special, true, Some(pending)) = (run.kind, self.flushes, self.pending.len().checked_sub(1)) {
                self.pending[pending].flushed = self.flushed(case);
            }
        }
        Ok(())
    }

    /// Enqueues one comparison.
    fn expect(&mut self, run: &Run, got: &Tensor, want: &Host, zeros: Zeros) -> Result<(), String> {
        if got.shape() != want.shape {
            return Err(format!("shape {:?} instead of {:?}", got.shape(), want.shape));
        }
        let Run { kind, index, name, open, .. } = run.clone();
        let read = Read::of(got).map_err(|error| error.to_string())?;
        let tolerance = self.row.tolerance;
        let flushed = Vec::new();
        self.pending.push(Pending {
            kind,
            index,
            run: name,
            read,
            want: want.clone(),
            tolerance,
            zeros,
            flushed,
            open,
            ties: None,
        });
        Ok(())
    }

    /// Waits for all results and compares them.
    fn read(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            let Pending { kind, index, run, read, want, tolerance, zeros, flushed, open, ties } = pending;
            let why = match read.wait(&want) {
                Ok(got) if open => undrawn(&got),
                Ok(got) if let (Some((input, dim)), Data::I32(_)) = (&ties, &want.data) => untied(input, *dim, &got, &want),
                Ok(got) => difference(&got, &want.or_flushed(&got, &flushed, tolerance, zeros), tolerance, zeros),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why {
                self.fail(kind, index, &run, why);
            }
        }
    }
}

/// Why numbers that were drawn cannot be right.
fn undrawn(got: &Host) -> Option<String> {
    let Some(data) = floats(got) else { return Some(format!("{:?} where f32 was drawn", got.data)) };
    data.iter().find(|x| !x.is_finite()).map(|x| format!("{x} among what was drawn"))
}

fn floats(host: &Host) -> Option<&Vec<f32>> {
    match &host.data {
        Data::F32(data) => Some(data),
        _ => None,
    }
}

/// One run of a case.
#[derive(Clone)]
struct Run {
    kind: Kind,
    index: usize,
    layout: Layout,
    name: String,
    /// Elements are drawn at random.
    open: bool,
}

/// The gradient of the sum over outputs of output * cotangent.
fn backward(device: &Device, tensors: &BTreeMap<String, Host>, case: &Case, outputs: &[Tensor]) -> Answer<()> {
    let mut total: Option<Tensor> = None;
    for (name, out) in case.outputs.iter().zip(outputs) {
        let Some(cotangent) = case.cotangents.get(name) else { continue };
        let part = out.mul(&upload(device, &tensors[cotangent])?)?.sum_all()?;
        total = Some(match total {
            Some(total) => total.add(&part)?,
            None => part,
        });
    }
    Ok(total.map_or(Ok(()), |total| total.backward())?)
}

/// Calls `f`: a panic is a fault, and so is a wait of the host, unless it may wait.
fn guarded<T>(device: &Device, may_wait: bool, f: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let waited = || device.stats().queue.host_syncs;
    let before = waited();
    device.set_sync_debug(if may_wait { SyncDebug::Off } else { SyncDebug::Error });
    let result = catch_unwind(AssertUnwindSafe(f));
    device.set_sync_debug(SyncDebug::Off);
    let result = result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Fault::Row(format!("panic: {}", text.unwrap_or_default()))
    })?;
    if !may_wait && waited() != before {
        return Err(Fault::Row("the host waited for the device".to_string()));
    }
    result
}

pub fn said(fault: &Fault) -> String {
    match fault {
        Fault::Linn(error) => error.to_string(),
        Fault::Row(why) => why.clone(),
    }
}

/// `word` stands in `text`, not as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let alone = |at: usize| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    };
    text.match_indices(word).any(|(at, _)| alone(at))
}

/// The elements in the type of `like`, as an in-place operation stores them.
fn like(host: &Host, like: &Host) -> Host {
    let data = match (&host.data, &like.data) {
        (Data::Bool(data), Data::F32(_)) => Data::F32(data.iter().map(|bit| f32::from(*bit)).collect()),
        (Data::Bool(data), Data::I32(_)) => Data::I32(data.iter().map(|bit| i32::from(*bit)).collect()),
        (data, _) => data.clone(),
    };
    Host { data, shape: host.shape.clone() }
}

/// Elements of any type on their way.
enum Read {
    F32(TensorRead<f32>),
    F16(TensorRead<half::f16>),
    I32(TensorRead<i32>),
    Bool(TensorRead<u8>),
    /// A type that no case has.
    Other(DType),
}

impl Read {
    fn of(tensor: &Tensor) -> linn::Result<Read> {
        Ok(match tensor.dtype() {
            DType::F32 => Read::F32(tensor.to_vec_async()?),
            DType::F16 => Read::F16(tensor.to_vec_async()?),
            DType::I32 => Read::I32(tensor.to_vec_async()?),
            DType::Bool => Read::Bool(tensor.to_vec_async()?),
            other => Read::Other(other),
        })
    }

    fn wait(self, want: &Host) -> linn::Result<Host> {
        let data = match self {
            Read::F32(read) => Data::F32(read.wait()?),
            Read::F16(read) => Data::F16(read.wait()?),
            Read::I32(read) => Data::I32(read.wait()?),
            Read::Bool(read) => Data::Bool(read.wait()?),
            Read::Other(dtype) => Data::Other(dtype.to_string()),
        };
        Ok(Host { shape: want.shape.clone(), data })
    }
}
