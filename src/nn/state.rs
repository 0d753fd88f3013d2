//! Checkpoints: safetensors files with metadata.
//!
//! A file is written beside its place, flushed to the disk and then renamed, so that an interrupted write leaves the old file
//! whole. Values are kept bit for bit. A checksum over all that a file says stands in its metadata and is compared when it is
//! read; files of other programs have none and are read without. Types that the device does not have are converted as
//! [`files`](crate::files) says: i64 tensors (PyTorch's indices) are range-checked and read as i32.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use ::safetensors::tensor::{SafeTensors, TensorView};

use crate::autograd::no_grad;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::files::{Array, safetensors};
use crate::tensor::Tensor;
use crate::tensor::files::{at, to_arrays, write_whole};

/// A loaded file: tensors by name, on the device, and what was written beside them.
pub struct Checkpoint {
    /// Tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// Free text by name.
    pub metadata: BTreeMap<String, String>,
}

/// Writes `tensors` and `metadata` to `path`. All reads are enqueued before the first is waited for.
pub fn save(path: &Path, tensors: &[(String, Tensor)], metadata: &BTreeMap<String, String>) -> Result<()> {
    let tensors: Vec<(String, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.clone(), tensor)).collect();
    let arrays = to_arrays(&tensors)?;
    let bytes: Vec<_> = arrays.values().map(Array::to_le_bytes).collect();
    let views = arrays
        .iter()
        .zip(&bytes)
        .map(|((name, array), bytes)| {
            let view = TensorView::new(safetensors::dtype(array.dtype()), array.shape().to_vec(), bytes);
            Ok((name.as_str(), view.map_err(|why| cannot_write(path, why))?))
        })
        .collect::<Result<Vec<_>>>()?;
    let sum = checksum(metadata, &views.iter().map(|(name, view)| (*name, view)).collect());
    let metadata = metadata.clone().into_iter().chain([(CHECKSUM.to_string(), sum)]).collect();
    let file = ::safetensors::serialize(views, None).map_err(|why| cannot_write(path, why))?;
    let file = with_metadata(file, &metadata).map_err(|why| cannot_write(path, why))?;
    write_whole(path, &file).map_err(|why| cannot_write(path, why))
}

/// Puts metadata into the header of a file that has none, so that equal contents are equal bytes: `safetensors` would write them
/// in the order of a hash map. The length of the header stands before it, in 8 bytes; spaces round it up to 8.
fn with_metadata(mut file: Vec<u8>, metadata: &BTreeMap<String, String>) -> serde_json::Result<Vec<u8>> {
    let len = file.first_chunk().map_or(0, |len| u64::from_le_bytes(*len) as usize);
    let tensors = file[9..8 + len].trim_ascii_end();
    let comma = if tensors == b"}" { "" } else { "," };
    let mut header = format!("{{\"__metadata__\":{}{comma}", serde_json::to_string(metadata)?).into_bytes();
    header.extend(tensors);
    header.resize(header.len().next_multiple_of(8), b' ');
    let new_len = (header.len() as u64).to_le_bytes();
    file.splice(..8 + len, new_len.into_iter().chain(header));
    Ok(file)
}

/// Reads a safetensors file onto `device`.
pub fn load(device: &Device, path: &Path) -> Result<Checkpoint> {
    CheckpointFile::read(path)?.upload(device)
}

/// A file in host memory, found to be whole: what can be known of it before there is a device.
pub struct CheckpointFile {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Free text by name.
    pub metadata: BTreeMap<String, String>,
}

impl CheckpointFile {
    /// Reads a file and compares its checksum.
    pub fn read(path: &Path) -> Result<CheckpointFile> {
        let bytes = fs::read(path).map_err(|why| {
            Error::file(format!("cannot read checkpoint {}: {why}", path.display()), "check the path and its permissions")
        })?;
        if bytes.is_empty() {
            return Err(Error::file(
                format!("{} is empty: a run that reserved the name ended before it saved", path.display()),
                "use another checkpoint; this file can be removed",
            ));
        }
        let file = SafeTensors::deserialize(&bytes).map_err(|why| damaged(path, why))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|why| damaged(path, why))?;
        let mut metadata: BTreeMap<String, String> = header.metadata().clone().unwrap_or_default().into_iter().collect();
        if let Some(saved) = metadata.remove(CHECKSUM) {
            let views: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
            let found = checksum(&metadata, &views.iter().map(|(name, view)| (*name, view)).collect());
            if saved != found {
                return Err(damaged(path, format!("its checksum is {saved}, its contents have {found}")));
            }
        }
        Ok(CheckpointFile { path: path.to_path_buf(), bytes, metadata })
    }

    /// True where it has a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes).is_ok_and(|file| file.tensor(name).is_ok())
    }

    /// Puts the tensors on `device`.
    pub fn upload(self, device: &Device) -> Result<Checkpoint> {
        let CheckpointFile { path, bytes, metadata } = self;
        let file = SafeTensors::deserialize(&bytes).map_err(|why| damaged(&path, why))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            let array = safetensors::of_view(name, &view).map_err(|error| at(error, &path))?;
            let tensor = Tensor::from_array(device, &array)?;
            tensors.insert(name.to_string(), tensor);
        }
        Ok(Checkpoint { tensors, metadata })
    }
}

/// Whether [`Module::load_state_dict`](super::Module::load_state_dict) takes a part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// All names must be there, and no others.
    Yes,
    /// Names that are missing keep their values, others are left out.
    No,
}

/// Names that only a model or only a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncompatibleKeys {
    /// Of the model.
    pub missing: Vec<String>,
    /// Of the file.
    pub unexpected: Vec<String>,
}

/// Copies the tensors called `prefix` + name into `parameters`. Nothing is changed unless every parameter is there with its
/// shape and element type and no tensor under `prefix` is left over.
pub fn load_parameters(parameters: &[(String, Tensor)], tensors: &BTreeMap<String, Tensor>, prefix: &str) -> Result<()> {
    let found =
        parameters.iter().filter_map(|(name, parameter)| Some((name, parameter, tensors.get(&format!("{prefix}{name}"))?)));
    if let Some((name, parameter, tensor)) = found.into_iter().find(|(_, to, from)| to.dtype() != from.dtype()) {
        return Err(Error::file(
            format!("tensor {name} has element type {}, the model wants {}", tensor.dtype(), parameter.dtype()),
            "convert the file, or use another copy of the checkpoint",
        ));
    }
    copy_by_name(parameters, tensors, prefix, Strict::Yes).map(drop)
}

/// [`Module::load_state_dict`](super::Module::load_state_dict) of the module's parameters and buffers.
pub(super) fn load_state_dict(
    own: &[(String, Tensor)],
    tensors: &BTreeMap<String, Tensor>,
    strict: Strict,
) -> Result<IncompatibleKeys> {
    copy_by_name(own, tensors, "", strict)
}

fn copy_by_name(
    own: &[(String, Tensor)],
    tensors: &BTreeMap<String, Tensor>,
    prefix: &str,
    strict: Strict,
) -> Result<IncompatibleKeys> {
    let mut pairs = Vec::new();
    let mut missing = Vec::new();
    let mut wrong = Vec::new();
    for (name, to) in own {
        match tensors.get(&format!("{prefix}{name}")) {
            Some(from) if from.shape() == to.shape() => pairs.push((to, from.detach().to(to.device())?.to_dtype(to.dtype())?)),
            Some(from) => wrong.push(format!("{name} has shape {:?}, the model wants {:?}", from.shape(), to.shape())),
            None => missing.push(name.clone()),
        }
    }
    let known: HashSet<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    let others = tensors.keys().filter_map(|name| name.strip_prefix(prefix)).filter(|name| !known.contains(name));
    let keys = IncompatibleKeys { missing, unexpected: others.map(String::from).collect() };
    let misfit = strict == Strict::Yes && keys != IncompatibleKeys::default();
    if misfit || !wrong.is_empty() {
        let mut facts = Vec::new();
        if misfit {
            facts.push(format!("missing {}; unexpected {}", listed(&keys.missing), listed(&keys.unexpected)));
        }
        facts.extend((!wrong.is_empty()).then(|| listed(&wrong)));
        return Err(Error::file(
            format!("checkpoint does not fit the model: {}", facts.join("; ")),
            "build the model with the sizes and settings that the checkpoint was trained with",
        ));
    }
    no_grad(|| pairs.iter().try_for_each(|(to, from)| to.copy_(from)))?;
    Ok(keys)
}

/// CRC-32 over metadata and tensors (name, element type, shape, bytes) in the order of their names, each piece behind its length.
fn checksum(metadata: &BTreeMap<String, String>, tensors: &BTreeMap<&str, &TensorView<'_>>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    let mut add = |piece: &[u8]| {
        hasher.update(&(piece.len() as u64).to_le_bytes());
        hasher.update(piece);
    };
    for (key, value) in metadata {
        add(key.as_bytes());
        add(value.as_bytes());
    }
    for (name, tensor) in tensors {
        add(name.as_bytes());
        add(format!("{:?} {:?}", tensor.dtype(), tensor.shape()).as_bytes());
        add(tensor.data());
    }
    format!("{:08x}", hasher.finalize())
}

/// The first few of `names`.
fn listed(names: &[String]) -> String {
    match names {
        [] => "nothing".to_string(),
        [.., _] if names.len() <= 4 => names.join(", "),
        _ => format!("{} and {} more", names[..3].join(", "), names.len() - 3),
    }
}

/// Name of the checksum in the metadata.
const CHECKSUM: &str = "linn.crc32";

fn cannot_write(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::file(
        format!("cannot write checkpoint {}: {why}", path.display()),
        "check the folder, its permissions and the free space; an older file of that name is untouched",
    )
}

fn damaged(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::file(
        format!("{} is damaged or not a safetensors file: {why}", path.display()),
        "use another copy of the checkpoint, or train again",
    )
}
