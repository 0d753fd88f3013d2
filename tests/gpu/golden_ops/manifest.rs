//! What the folder holds: the manifest of operators and cases, and the tensors of one operator on the host.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

/// `manifest.json`; see the head of PyTorch's side, `generate.py`.
#[derive(Deserialize)]
pub struct Manifest {
    pub ops: BTreeMap<String, Entry>,
}

/// One operator variant.
#[derive(Deserialize)]
pub struct Entry {
    /// PyTorch has an in-place form.
    pub inplace: bool,
    /// PyTorch's types of the tensors that the file holds as another one.
    pub dtypes: BTreeMap<String, String>,
    pub cases: Vec<Case>,
    pub special: Vec<Case>,
    pub errors: Vec<Case>,
}

/// One call. Strings in `outputs`, `cotangents` and `grads` name tensors.
#[derive(Deserialize)]
pub struct Case {
    pub args: Vec<Arg>,
    #[serde(default)]
    pub kwargs: BTreeMap<String, Arg>,
    #[serde(default)]
    pub outputs: Vec<String>,
    pub value: Option<Arg>,
    /// Of an output.
    #[serde(default)]
    pub cotangents: BTreeMap<String, String>,
    /// Of an input; `None` where it was not used.
    pub grads: Option<BTreeMap<String, Option<String>>>,
}

/// An argument as it was written.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub enum Arg {
    Tensor(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Null,
    /// A list or a tuple.
    List(Vec<Arg>),
    DType(String),
    Device,
}

impl TryFrom<Value> for Arg {
    type Error = String;

    fn try_from(value: Value) -> Result<Arg, String> {
        let unknown = |value: &Value| format!("unknown argument {value}");
        Ok(match value {
            Value::Null => Arg::Null,
            Value::Bool(value) => Arg::Bool(value),
            Value::String(text) => Arg::Text(text),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => Arg::Int(int),
                (None, Some(float)) => Arg::Float(float),
                _ => return Err(unknown(&Value::Number(number))),
            },
            Value::Array(_) => return Err(unknown(&value)),
            Value::Object(ref map) => match map.iter().next().map(|(key, inner)| (key.as_str(), inner)) {
                Some(("t", Value::String(name))) => Arg::Tensor(name.clone()),
                Some(("float", Value::String(text))) => Arg::Float(text.parse().map_err(|_| unknown(&value))?),
                Some(("list" | "tuple", Value::Array(items))) => {
                    Arg::List(items.iter().cloned().map(Arg::try_from).collect::<Result<_, _>>()?)
                }
                Some(("dtype", Value::String(name))) => Arg::DType(name.clone()),
                Some(("device", _)) => Arg::Device,
                _ => return Err(unknown(&value)),
            },
        })
    }
}

impl Arg {
    /// The names of the tensors in it.
    pub fn tensors(&self) -> Vec<&String> {
        match self {
            Arg::Tensor(name) => vec![name],
            Arg::List(items) => items.iter().flat_map(Arg::tensors).collect(),
            _ => Vec::new(),
        }
    }
}

impl Case {
    /// The names of all tensors that the call is given.
    pub fn tensors(&self) -> Vec<&String> {
        self.args.iter().chain(self.kwargs.values()).flat_map(Arg::tensors).collect()
    }
}

/// A tensor on the host, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    pub shape: Vec<usize>,
    pub data: Data,
}

/// Its elements, in PyTorch's type (int64 as i32).
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    F32(Vec<f32>),
    I32(Vec<i32>),
    /// 0 or 1.
    Bool(Vec<u8>),
    F16(Vec<half::f16>),
    /// A type that linn does not have: a call with such a tensor fails.
    Other(String),
}

impl Data {
    /// PyTorch's name of the type.
    pub fn name(&self) -> &str {
        match self {
            Data::F32(_) => "float32",
            Data::I32(_) => "int64",
            Data::Bool(_) => "bool",
            Data::F16(_) => "float16",
            Data::Other(name) => name,
        }
    }

    /// Element `from[i]` at position `i`.
    pub fn picked(&self, from: &[usize]) -> Data {
        match self {
            Data::F32(data) => Data::F32(from.iter().map(|at| data[*at]).collect()),
            Data::I32(data) => Data::I32(from.iter().map(|at| data[*at]).collect()),
            Data::Bool(data) => Data::Bool(from.iter().map(|at| data[*at]).collect()),
            Data::F16(data) => Data::F16(from.iter().map(|at| data[*at]).collect()),
            Data::Other(name) => Data::Other(name.clone()),
        }
    }
}

/// The manifest in `folder`.
pub fn manifest(folder: &Path) -> Manifest {
    let path = folder.join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The tensors of one operator.
pub fn tensors(folder: &Path, op: &str, dtypes: &BTreeMap<String, String>) -> BTreeMap<String, Host> {
    let path = folder.join(format!("{op}.safetensors"));
    let bytes = std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let file = SafeTensors::deserialize(&bytes).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let host = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let words = view.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        let data = match (view.dtype(), dtypes.get(&name).map(String::as_str)) {
            (Dtype::F32, None) => Data::F32(words.map(f32::from_le_bytes).collect()),
            (Dtype::I32, None | Some("int64" | "int32")) => Data::I32(words.map(i32::from_le_bytes).collect()),
            // An index may have any integer type; linn's is i32.
            (Dtype::U8, None) => Data::I32(view.data().iter().map(|byte| i32::from(*byte)).collect()),
            (Dtype::F16, None) => {
                let halves = view.data().chunks_exact(2).map(|half| half::f16::from_le_bytes([half[0], half[1]]));
                Data::F16(halves.collect())
            }
            (Dtype::U8, Some("bool")) => Data::Bool(view.data().to_vec()),
            (stored, None) => Data::Other(format!("{stored:?}")),
            (_, Some(other)) => Data::Other(other.to_string()),
        };
        (name, Host { shape: view.shape().to_vec(), data })
    };
    file.tensors().into_iter().map(host).collect()
}
