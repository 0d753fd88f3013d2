//! Optimizer steps over many parameters at once, all state on the device. Formulas and their order are PyTorch's.

use bytemuck::Zeroable;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::grid;
use crate::kernel::params::{CountSteps, MOST_GROUPS, Update, UpdateScale};
use crate::kernel::{BF16_STATE, Kernel};
use crate::layout::Layout;
use crate::memory::Category;
use crate::ops::elementwise::{grid_for, index, map};
use crate::ops::{copy, expect_dtype, expect_same_device, foreach, launch, reduce};
use crate::stream::multi::{self, Dispatch, Part, Row};
use crate::stream::{self, BINDING_UNIT};
use crate::tensor::Tensor;

/// What an optimizer does with a parameter, by numbers that hold for all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) op: &'static str,
    pub(crate) kernel: Kernel,
    /// For each part of the state, the place in a row of the kernel's table (0 to 2) that names it.
    pub(crate) slots: &'static [usize],
    pub(crate) a: [f32; 4],
    pub(crate) b: [f32; 4],
    /// Decoupled weight decay, or Nesterov momentum.
    pub(crate) flag: bool,
    /// NAdam's beta1 and momentum decay; (0, 0) elsewhere.
    pub(crate) momentum: (f64, f64),
}

/// A parameter that steps: the number it has in the optimizer, and its group.
pub(crate) struct Stepping<'a> {
    pub(crate) param: &'a Tensor,
    pub(crate) grad: &'a Tensor,
    /// As `Rule::slots`; flat, padded to a multiple of 4.
    pub(crate) state: &'a [Tensor],
    pub(crate) number: usize,
    pub(crate) group: usize,
}

/// What kernels read besides the tensors: the factor on gradients, the step counts, which parameters step, and the tables that say
/// where these are. Uploaded where it has changed.
pub(crate) struct Control {
    words: Tensor,
    /// Parameters, padded to a multiple of 4.
    params: usize,
    active: Vec<u32>,
    table: Vec<u32>,
    /// Whether the factor, and whether to skip, is one of the device's numbers, not 1 and 0.
    given: [bool; 2],
    /// Failures of the device when these were uploaded: one since may have taken an upload with it.
    failures: u64,
}

/// Words of a table's row.
const ROW: usize = 8;

impl Control {
    /// For so many parameters, whose steps are 0.
    #[track_caller]
    pub(crate) fn new(device: &Device, params: usize) -> Result<Control> {
        let padded = params.next_multiple_of(4);
        let len = 4 + 3 * padded + ROW * params;
        let words = Tensor::empty_as("optimizer.step", device, &[len], DType::U32, Category::OptimizerState)?;
        let mut control = Control {
            words,
            params: padded,
            active: vec![0; padded],
            table: Vec::new(),
            given: [false; 2],
            failures: failures(device),
        };
        let one = 1f32.to_bits();
        let head = [&[one, 0, 0, 0][..], &vec![0; padded], &vec![one; padded], &control.active].concat();
        control.write(0, &head)?;
        // As no row is.
        control.table = vec![u32::MAX; ROW * params];
        Ok(control)
    }

    fn table_word(&self) -> usize {
        4 + 3 * self.params
    }

    pub(crate) fn device(&self) -> &Device {
        self.words.device()
    }

    /// The step count of a parameter, `[1]` f32.
    pub(crate) fn steps(&self, number: usize) -> Tensor {
        self.view(4 + number)
    }

    /// The product of NAdam's momenta so far, `[1]` f32.
    pub(crate) fn product(&self, number: usize) -> Tensor {
        self.view(4 + self.params + number)
    }

    fn view(&self, word: usize) -> Tensor {
        Tensor { dtype: DType::F32, ..flat(&self.words, 1, word) }
    }

    #[track_caller]
    fn write(&self, word: usize, words: &[u32]) -> Result<()> {
        match self.words.storage.memory() {
            Some(memory) => stream::upload(self.device(), memory, 4 * word as u64, bytemuck::cast_slice(words), "optimizer.step"),
            None => Ok(()),
        }
    }

    /// The factor on gradients and what skips the step, as [`Control::begin`] has them.
    #[track_caller]
    pub(crate) fn numbers(&mut self, numbers: [Option<Tensor>; 2]) -> Result<()> {
        for (word, number) in numbers.iter().enumerate() {
            match number {
                Some(number) => copy::copy_(&self.view(word), number)?,
                None if self.given[word] => self.write(word, &[[1f32.to_bits(), 0][word]])?,
                None => {}
            }
            self.given[word] = number.is_some();
        }
        Ok(())
    }

    /// Says which parameters step, that their gradients are multiplied by the first number (`None`: 1), and that nothing is done
    /// where the second one is not 0.
    #[track_caller]
    pub(crate) fn begin(&mut self, stepping: &[Stepping<'_>], numbers: [Option<Tensor>; 2]) -> Result<()> {
        let failures = failures(self.device());
        if failures != self.failures {
            self.active.fill(u32::MAX);
            self.table.fill(u32::MAX);
            (self.given, self.failures) = ([true; 2], failures);
        }
        self.numbers(numbers)?;
        let mut active = vec![0; self.params];
        stepping.iter().for_each(|one| active[one.number] = 1);
        if active != self.active {
            self.write(4 + 2 * self.params, &active)?;
            self.active = active;
        }
        Ok(())
    }

    /// Counts a step of the parameters that [`Control::begin`] was given, after it: one that is refused is none.
    #[track_caller]
    pub(crate) fn count(&self, rule: &Rule) -> Result<()> {
        let kernel = Kernel::count_steps.form(0);
        let (beta1, decay) = rule.momentum;
        let word = |blocks: usize| index(rule.op, 4 + blocks * self.params);
        let params = CountSteps {
            len: word(1)? - 4,
            steps: word(0)?,
            products: word(1)?,
            flags: word(2)?,
            beta1: beta1 as f32,
            decay: (decay * 0.96f64.ln()) as f32,
            ..CountSteps::zeroed()
        };
        let grid = grid_for(rule.op, kernel, self.params)?;
        launch(rule.op, kernel, DType::F32, &[&self.words], &params, grid)
    }
}

/// Failures of a device so far.
fn failures(device: &Device) -> u64 {
    device.shared().lock().counters.failures
}

/// Enqueues a step of all of them: state and parameters are written, by a dispatch for every set of segments that they lie in.
/// `groups` are (learning rate, weight decay). The parameters are of the control's device, which was told of them.
#[track_caller]
pub(crate) fn step_(control: &mut Control, rule: &Rule, stepping: &[Stepping<'_>], groups: &[(f64, f64)]) -> Result<()> {
    // (type, type of the state, which twelve groups): one kernel and its numbers.
    type Kind = (DType, DType, usize);
    let mut kinds: Vec<(Kind, Vec<&Stepping<'_>>)> = Vec::new();
    for one in stepping {
        let dtype = one.param.dtype();
        let kind = (dtype, one.state.first().map_or(dtype, Tensor::dtype), one.group / MOST_GROUPS);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, members)) => members.push(one),
            None => kinds.push((kind, vec![one])),
        }
    }
    // Each kind has a part of the table to itself, which stays as it is while nothing moves.
    let mut before = 0;
    for ((dtype, state, block), members) in &kinds {
        let groups = &groups[block * MOST_GROUPS..groups.len().min((block + 1) * MOST_GROUPS)];
        step_kind(control, rule, (*dtype, *state), members, before, groups)?;
        before += members.len();
    }
    Ok(())
}

/// A step of parameters of one kind, behind so many rows of the table.
#[track_caller]
fn step_kind(
    control: &mut Control,
    rule: &Rule,
    (dtype, state): (DType, DType),
    members: &[&Stepping<'_>],
    before: usize,
    groups: &[(f64, f64)],
) -> Result<()> {
    let kernel = rule.kernel.form(if state == dtype { 0 } else { BF16_STATE });
    let device = control.device().clone();
    let limits = device.limits();
    let words = control.words.clone();
    let rows = members.iter().map(|one| row(rule.op, one, &words)).collect::<Result<Vec<_>>>()?;
    loop {
        let extents = multi::locate(&device, &rows);
        let alignment = u64::from(limits.storage_alignment).max(BINDING_UNIT);
        let shares = multi::shares(&extents, alignment, limits.max_storage_buffer_binding_size)
            .map_err(|row| foreach::too_large(rule.op, &device, members[row].param.shape()))?;
        let mut table = Vec::with_capacity(ROW * rows.len());
        let mut dispatches = Vec::with_capacity(shares.len());
        for share in &shares {
            let size = |operand: usize| match operand {
                0 | 1 => dtype.size() as u64,
                2 => 4,
                _ => state.size() as u64,
            };
            let start = |row: usize, operand: usize| {
                let bytes = extents[row][operand].bytes.start - share.windows[operand].bytes.start;
                index(rule.op, (bytes / (4 * size(operand))) as usize)
            };
            let len: usize = share.rows.iter().map(|row| members[*row].param.len()).sum();
            let rounds = grid::rounds(len, kernel.form().constant("WG"), device.class().is_cpu());
            let per_chunk = rounds as usize * kernel.form().constant("WG") as usize * 4;
            let first_row = ROW * before + table.len();
            let mut chunks = 0;
            for row in &share.rows {
                let one = members[*row];
                let number = index(rule.op, one.number)? | ((one.group % MOST_GROUPS) as u32) << 24;
                let (first, len) = (index(rule.op, chunks)?, index(rule.op, one.param.len())?);
                let mut words: [u32; ROW] = [first, len, number, start(*row, 0)?, start(*row, 1)?, 0, 0, 0];
                for (at, slot) in rule.slots.iter().take(one.state.len()).enumerate() {
                    words[5 + slot] = start(*row, 3 + at)?;
                }
                table.extend(words);
                chunks += one.param.len().div_ceil(per_chunk);
            }
            // Where the control's words are in its window.
            let base = start(share.rows[0], 2)?;
            let mut params = Update {
                rows: share.rows.len() as u32,
                chunks: index(rule.op, chunks)?,
                rounds,
                table: base + index(rule.op, (control.table_word() + first_row) / 4)?,
                steps: 4 * base + 4,
                products: 4 * base + index(rule.op, 4 + control.params)?,
                head: base,
                flag: u32::from(rule.flag),
                a: rule.a,
                b: rule.b,
                groups: Default::default(),
            };
            for (to, (lr, weight_decay)) in params.groups.iter_mut().zip(groups) {
                *to = [*lr as f32, *weight_decay as f32, 0.0, 0.0];
            }
            let work = grid::Work::from(grid_for(rule.op, kernel, chunks * kernel.form().constant("WG") as usize)?);
            let dispatch =
                Dispatch { params: bytemuck::bytes_of(&params).to_vec(), work: work.with_elements(len * rows[0].len()) };
            dispatches.push(dispatch);
        }
        let place = ROW * before..ROW * before + table.len();
        if control.table[place.clone()] != table {
            control.write(control.table_word() + place.start, &table)?;
            control.table[place].copy_from_slice(&table);
        }
        // Where blocks have moved since, again.
        if multi::launch(&device, (kernel, dtype), &rows, &extents, &shares, &dispatches)? {
            return Ok(());
        }
    }
}

/// The operands of one parameter, in whole `vec4`s.
fn row<'a>(op: &'static str, one: &'a Stepping<'_>, control: &'a Tensor) -> Result<Row<'a>> {
    let part = |tensor: &'a Tensor| {
        let empty = || Error::shape(op, "an operand has no elements", "report this as a fault of linn");
        let memory = tensor.storage.memory().ok_or_else(empty)?;
        let size = tensor.dtype().size();
        let start = (tensor.layout().offset() * size) as u64;
        Ok(Part { memory, bytes: start..start + (tensor.len().next_multiple_of(4) * size) as u64 })
    };
    [one.param, one.grad, control].into_iter().chain(one.state).map(part).collect()
}

/// `len` elements of a storage from `offset` on.
pub(crate) fn flat(of: &Tensor, len: usize, offset: usize) -> Tensor {
    of.with_layout(Layout::vector(len, offset))
}

/// A parameter can be stepped: a float, contiguous, at an offset that is a multiple of 4; its gradient as kernels read it.
#[track_caller]
pub(crate) fn gradient(op: &'static str, param: &Tensor, grad: &Tensor) -> Result<Tensor> {
    expect_same_device(op, &[param, grad])?;
    reduce::expect_float(op, param)?;
    let aligned = |x: &Tensor| x.is_contiguous() && x.layout().offset().is_multiple_of(4);
    if !aligned(param) {
        return Err(Error::shape(
            op,
            format!("a parameter of shape {:?} is a view", param.shape()),
            "pass contiguous tensors that own their memory",
        ));
    }
    expect_dtype(op, grad, param.dtype())?;
    if grad.shape() != param.shape() {
        return Err(Error::shape(
            op,
            format!("a gradient of shape {:?} for a parameter of shape {:?}", grad.shape(), param.shape()),
            "pass the gradient of this parameter",
        ));
    }
    if aligned(grad) { Ok(grad.clone()) } else { copy::copy(grad) }
}

/// What scales gradients, and what skips a step, is one f32.
pub(crate) fn check_scale(op: &'static str, scale: &Tensor) -> Result<()> {
    expect_dtype(op, scale, DType::F32)?;
    match scale.len() {
        1 => Ok(()),
        _ => Err(Error::shape(
            op,
            format!("a grad_scale or found_inf of shape {:?}", scale.shape()),
            "pass a tensor of one element",
        )),
    }
}

/// Moves the scale of a gradient scaler on. State: the scale, the steps since it grew, and what was found (not 0: infinities, then
/// the scale is multiplied by `backoff`; else, at every `interval`th time, by `growth`, unless that is infinite).
#[track_caller]
pub(crate) fn update_scale(state: &Tensor, found: &Tensor, growth: f64, backoff: f64, interval: u32) -> Result<()> {
    const OP: &str = "update_scale";
    let kernel = Kernel::update_scale.form(0);
    let params = UpdateScale {
        growth: growth as f32,
        backoff: backoff as f32,
        interval,
        state: index(OP, state.layout().offset())?,
        found: index(OP, found.layout().offset())?,
        ..UpdateScale::zeroed()
    };
    launch(OP, kernel, DType::F32, &[found, state], &params, grid_for(OP, kernel, 1)?)
}

/// Each value is at least 0 and below `end`; NaN is not.
pub(crate) fn in_range(op: &'static str, values: &[(&str, f64)], end: f64) -> Result<()> {
    match values.iter().find(|(_, value)| !(0.0..end).contains(value)) {
        None => Ok(()),
        Some((name, value)) => {
            let help = if end == 1.0 { "pass a number from 0 up to, not including, 1" } else { "pass a finite number from 0 on" };
            Err(Error::argument(op, format!("{name} is {value}"), help))
        }
    }
}

/// min(1, max_norm / (norm + 1e-6)), of the shape of `norm`, on the device (PyTorch's clip_grad_norm_).
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::ops::optim::clip_coefficient;
/// let norm = Tensor::new(&device, 5.0f32)?;
/// assert_eq!(format!("{:.4}", clip_coefficient(&norm, 1.0)?.item::<f32>()?), "0.2000");
/// assert_eq!(clip_coefficient(&norm, 10.0)?.item::<f32>()?, 1.0);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn clip_coefficient(norm: &Tensor, max_norm: f64) -> Result<Tensor> {
    map("clip_coefficient", Kernel::clip_coefficient, norm, [(max_norm as f32).to_bits(), 1e-6f32.to_bits()])
}
