//! The arguments of one call, read by position and name, and what a call answers with.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use linn::{DType, Device, Error, Scalar, Tensor};

use super::manifest::Arg;

/// The position of an argument that PyTorch takes by name only.
pub const KEY: usize = usize::MAX;

/// What a row answers with.
pub type Answer<T = Output> = Result<T, Fault>;

/// The results of a call.
pub enum Output {
    Tensors(Vec<Tensor>),
    Bool(bool),
    Number(f64),
}

/// Why there is none.
#[derive(Debug)]
pub enum Fault {
    /// linn refused it.
    Linn(Error),
    /// The row does not know the call, or cannot say it to linn.
    Row(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Linn(error)
    }
}

/// Anything that linn's operations return, as an [`Output`].
pub trait Gives {
    fn output(self) -> Output;
}

impl Gives for Tensor {
    fn output(self) -> Output {
        Output::Tensors(vec![self])
    }
}
impl Gives for Vec<Tensor> {
    fn output(self) -> Output {
        Output::Tensors(self)
    }
}
impl Gives for (Tensor, Tensor) {
    fn output(self) -> Output {
        Output::Tensors(vec![self.0, self.1])
    }
}
impl Gives for bool {
    fn output(self) -> Output {
        Output::Bool(self)
    }
}
impl Gives for f32 {
    fn output(self) -> Output {
        Output::Number(f64::from(self))
    }
}

/// The answer of a row, from what linn returned.
pub fn give<T: Gives>(result: linn::Result<T>) -> Answer {
    Ok(result?.output())
}

/// The answer of an in-place row.
pub fn done(result: linn::Result<()>) -> Answer<()> {
    Ok(result?)
}

/// An argument with its tensors on the device.
enum Given {
    Tensor(Tensor),
    List(Vec<Given>),
    Other(Arg),
}

/// A call with its arguments on the device. Every reader takes the position and PyTorch's name; null counts as not given.
pub struct Call {
    device: Device,
    args: Vec<Given>,
    kwargs: BTreeMap<String, Given>,
    /// What was asked for: positions as `#0`, and names.
    read: RefCell<BTreeSet<String>>,
}

#[allow(dead_code, reason = "some readers wait for the rows of operations that linn does not have yet")]
impl Call {
    /// The call of `args` and `kwargs` with `tensors` by name.
    pub fn new(
        device: &Device,
        args: &[Arg],
        kwargs: &BTreeMap<String, Arg>,
        tensors: &BTreeMap<String, Tensor>,
    ) -> Answer<Call> {
        let given = |arg: &Arg| given(arg, tensors);
        let args = args.iter().map(given).collect::<Answer<_>>()?;
        let ignored = |name: &str| name == "device" || name == "requires_grad";
        let kwargs = kwargs.iter().filter(|(name, _)| !ignored(name));
        let kwargs = kwargs.map(|(name, arg)| Ok((name.clone(), given(arg)?))).collect::<Answer<_>>()?;
        Ok(Call { device: device.clone(), args, kwargs, read: RefCell::default() })
    }

    /// An error that names the arguments that no reader asked for.
    pub fn all_read(&self) -> Answer<()> {
        let read = self.read.borrow();
        let names = (0..self.args.len()).map(|at| format!("#{at}")).chain(self.kwargs.keys().cloned());
        let left: Vec<String> = names.filter(|name| !read.contains(name)).collect();
        if left.is_empty() { Ok(()) } else { Err(Fault::Row(format!("the row does not know {}", left.join(", ")))) }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A tensor, or a number as a 0-d one, which promotes like it.
    fn as_tensor(&self, name: &str, given: &Given) -> Answer<Tensor> {
        match given {
            Given::Tensor(tensor) => Ok(tensor.clone()),
            Given::Other(Arg::Int(int)) => Ok(Tensor::new(&self.device, *int as i32)?),
            Given::Other(Arg::Float(float)) => Ok(Tensor::new(&self.device, *float as f32)?),
            _ => Err(wrong(name, "a tensor")),
        }
    }

    fn find(&self, at: usize, name: &str) -> Option<&Given> {
        let found = match self.args.get(at) {
            Some(given) => {
                self.read.borrow_mut().insert(format!("#{at}"));
                Some(given)
            }
            None => {
                self.read.borrow_mut().insert(name.to_string());
                self.kwargs.get(name)
            }
        };
        found.filter(|given| !matches!(given, Given::Other(Arg::Null)))
    }

    /// The first argument, a tensor.
    pub fn input(&self) -> Answer<Tensor> {
        self.tensor(0, "input")
    }

    /// Whether the argument is a tensor; does not count as read.
    pub fn is_tensor(&self, at: usize, name: &str) -> bool {
        matches!(self.args.get(at).or_else(|| self.kwargs.get(name)), Some(Given::Tensor(_)))
    }

    /// Whether the argument is a text; does not count as read.
    pub fn is_text(&self, at: usize, name: &str) -> bool {
        matches!(self.args.get(at).or_else(|| self.kwargs.get(name)), Some(Given::Other(Arg::Text(_))))
    }

    /// Whether the argument is a list, or a vector that stands for one; does not count as read.
    pub fn is_list(&self, at: usize, name: &str) -> bool {
        match self.args.get(at).or_else(|| self.kwargs.get(name)) {
            Some(Given::Tensor(tensor)) => tensor.rank() == 1,
            given => matches!(given, Some(Given::List(_))),
        }
    }

    /// Whether the argument is there and not null; does not count as read.
    pub fn has(&self, at: usize, name: &str) -> bool {
        !matches!(self.args.get(at).or_else(|| self.kwargs.get(name)), None | Some(Given::Other(Arg::Null)))
    }

    pub fn tensor(&self, at: usize, name: &str) -> Answer<Tensor> {
        self.tensor_opt(at, name)?.ok_or_else(|| missing(name))
    }

    pub fn tensor_opt(&self, at: usize, name: &str) -> Answer<Option<Tensor>> {
        self.find(at, name).map(|given| self.as_tensor(name, given)).transpose()
    }

    /// A list of tensors.
    pub fn tensors(&self, at: usize, name: &str) -> Answer<Vec<Tensor>> {
        match self.find(at, name) {
            Some(Given::List(items)) => items.iter().map(|item| self.as_tensor(name, item)).collect(),
            _ => Err(missing(name)),
        }
    }

    /// All positional arguments from `at` on, tensors.
    pub fn tensors_from(&self, at: usize, name: &str) -> Answer<Vec<Tensor>> {
        (at..self.args.len()).map(|at| self.tensor(at, name)).collect()
    }

    pub fn int(&self, at: usize, name: &str) -> Answer<isize> {
        self.find(at, name).map(|given| as_int(name, given)).unwrap_or_else(|| Err(missing(name)))
    }

    pub fn int_or(&self, at: usize, name: &str, default: isize) -> Answer<isize> {
        self.find(at, name).map_or(Ok(default), |given| as_int(name, given))
    }

    pub fn int_opt(&self, at: usize, name: &str) -> Answer<Option<isize>> {
        self.find(at, name).map(|given| as_int(name, given)).transpose()
    }

    /// A count: an int that is not negative.
    pub fn len(&self, at: usize, name: &str) -> Answer<usize> {
        Ok(as_len(self.int(at, name)?))
    }

    pub fn len_or(&self, at: usize, name: &str, default: usize) -> Answer<usize> {
        Ok(as_len(self.int_or(at, name, default as isize)?))
    }

    /// A list of ints, or one int; `None` where it is not given.
    pub fn ints_opt(&self, at: usize, name: &str) -> Answer<Option<Vec<isize>>> {
        self.find(at, name).map(|given| as_ints(name, given)).transpose()
    }

    pub fn ints(&self, at: usize, name: &str) -> Answer<Vec<isize>> {
        self.ints_opt(at, name)?.ok_or_else(|| missing(name))
    }

    /// A list of ints, or one, of which some may be null.
    pub fn ints_or_null(&self, at: usize, name: &str) -> Answer<Vec<Option<isize>>> {
        let item = |item: &Given| match item {
            Given::Other(Arg::Null) => Ok(None),
            item => as_int(name, item).map(Some),
        };
        match self.find(at, name) {
            Some(Given::List(items)) => items.iter().map(item).collect(),
            _ => Ok(self.ints(at, name)?.into_iter().map(Some).collect()),
        }
    }

    /// A list of lists of ints.
    pub fn lists_of_ints(&self, at: usize, name: &str) -> Answer<Vec<Vec<isize>>> {
        match self.find(at, name) {
            Some(Given::List(items)) => items.iter().map(|item| as_ints(name, item)).collect(),
            _ => Err(missing(name)),
        }
    }

    /// A list of ints, or all positional arguments from `at` on.
    pub fn ints_from(&self, at: usize, name: &str) -> Answer<Vec<isize>> {
        match self.args.get(at) {
            Some(Given::Other(Arg::Int(_))) => (at..self.args.len()).map(|at| self.int(at, name)).collect(),
            _ => self.ints(at, name),
        }
    }

    /// A list of counts, or one.
    pub fn lens(&self, at: usize, name: &str) -> Answer<Vec<usize>> {
        Ok(self.ints(at, name)?.into_iter().map(as_len).collect())
    }

    pub fn float(&self, at: usize, name: &str) -> Answer<f64> {
        self.float_opt(at, name)?.ok_or_else(|| missing(name))
    }

    pub fn float_or(&self, at: usize, name: &str, default: f64) -> Answer<f64> {
        Ok(self.float_opt(at, name)?.unwrap_or(default))
    }

    pub fn float_opt(&self, at: usize, name: &str) -> Answer<Option<f64>> {
        self.find(at, name).map(|given| as_float(name, given)).transpose()
    }

    /// Numbers, or one; `None` where it is not given.
    pub fn floats_opt(&self, at: usize, name: &str) -> Answer<Option<Vec<f64>>> {
        match self.find(at, name) {
            Some(Given::List(items)) => items.iter().map(|item| as_float(name, item)).collect::<Answer<_>>().map(Some),
            _ => Ok(self.float_opt(at, name)?.map(|one| vec![one])),
        }
    }

    /// A number whose kind matters: an int, a float or a truth value.
    pub fn scalar(&self, at: usize, name: &str) -> Answer<Scalar> {
        self.scalar_opt(at, name)?.ok_or_else(|| missing(name))
    }

    pub fn scalar_opt(&self, at: usize, name: &str) -> Answer<Option<Scalar>> {
        self.find(at, name)
            .map(|given| match given {
                Given::Other(Arg::Float(float)) => Ok(Scalar::Float(*float)),
                Given::Other(Arg::Int(int)) => Ok(Scalar::Int(*int)),
                Given::Other(Arg::Bool(bit)) => Ok(Scalar::Bool(*bit)),
                _ => Err(wrong(name, "a number")),
            })
            .transpose()
    }

    pub fn bool_or(&self, at: usize, name: &str, default: bool) -> Answer<bool> {
        match self.find(at, name) {
            None => Ok(default),
            Some(Given::Other(Arg::Bool(bit))) => Ok(*bit),
            Some(_) => Err(wrong(name, "a truth value")),
        }
    }

    pub fn text_or<'a>(&'a self, at: usize, name: &str, default: &'a str) -> Answer<&'a str> {
        match self.find(at, name) {
            None => Ok(default),
            Some(Given::Other(Arg::Text(text))) => Ok(text),
            Some(_) => Err(wrong(name, "a text")),
        }
    }

    pub fn dtype_or(&self, at: usize, name: &str, default: DType) -> Answer<DType> {
        match self.find(at, name) {
            None => Ok(default),
            Some(Given::Other(Arg::DType(dtype))) => match dtype.as_str() {
                "float32" => Ok(DType::F32),
                "float16" => Ok(DType::F16),
                "bfloat16" => Ok(DType::BF16),
                "int64" | "int32" => Ok(DType::I32),
                "bool" => Ok(DType::Bool),
                other => Err(Fault::Row(format!("linn has no type {other}"))),
            },
            Some(_) => Err(wrong(name, "a type")),
        }
    }

    /// `dtype`, which has to be that of `x`: operations that convert their operand first are not in linn.
    pub fn keeps_dtype(&self, at: usize, x: &Tensor) -> Answer<()> {
        match self.dtype_or(at, "dtype", x.dtype())? == x.dtype() {
            true => Ok(()),
            false => Err(Fault::Row("dtype: linn computes in the type of the operand".to_string())),
        }
    }
}

fn given(arg: &Arg, tensors: &BTreeMap<String, Tensor>) -> Answer<Given> {
    Ok(match arg {
        Arg::Tensor(name) => Given::Tensor(tensors.get(name).cloned().ok_or_else(|| missing(name))?),
        Arg::List(items) => Given::List(items.iter().map(|item| given(item, tensors)).collect::<Answer<_>>()?),
        other => Given::Other(other.clone()),
    })
}

/// An int; where PyTorch reads a tensor of one element for it, so does this.
fn as_int(name: &str, given: &Given) -> Answer<isize> {
    match given {
        Given::Other(Arg::Int(int)) => Ok(*int as isize),
        Given::Tensor(tensor) if tensor.dtype() == DType::I32 => Ok(tensor.item::<i32>()? as isize),
        _ => Err(wrong(name, "an int")),
    }
}

fn as_float(name: &str, given: &Given) -> Answer<f64> {
    match given {
        Given::Other(Arg::Float(float)) => Ok(*float),
        Given::Other(Arg::Int(int)) => Ok(*int as f64),
        Given::Other(Arg::Bool(bit)) => Ok(f64::from(u8::from(*bit))),
        _ => Err(wrong(name, "a number")),
    }
}

/// A count. What PyTorch refuses because it is negative is a huge count to linn, which has to refuse that.
fn as_len(int: isize) -> usize {
    int as usize
}

/// Ints; where PyTorch reads a vector for them, so does this.
fn as_ints(name: &str, given: &Given) -> Answer<Vec<isize>> {
    match given {
        Given::List(items) => items.iter().map(|item| as_int(name, item)).collect(),
        Given::Tensor(tensor) if tensor.dtype() == DType::I32 && tensor.rank() == 1 => {
            Ok(tensor.to_vec::<i32>()?.into_iter().map(|int| int as isize).collect())
        }
        other => Ok(vec![as_int(name, other)?]),
    }
}

fn missing(name: &str) -> Fault {
    Fault::Row(format!("there is no {name}"))
}

fn wrong(name: &str, kind: &str) -> Fault {
    Fault::Row(format!("{name} is not {kind}"))
}
