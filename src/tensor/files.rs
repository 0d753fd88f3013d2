//! Tensors in files of other programs: `.npy`, `.npz` and safetensors (`linn::files` has the formats), and arrays on the host.
//!
//! Reading enqueues uploads; writing waits for the elements. A file is written beside its place, flushed to the disk and then renamed,
//! so that an interrupted write leaves the old file whole. Checkpoints of models are `nn::state`'s, which adds metadata and a checksum.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::files::{Array, Arrays, npy, npz, safetensors};
use crate::tensor::{Tensor, TensorRead};

impl Tensor {
    /// A tensor with the elements of `array`; the copy is enqueued.
    #[track_caller]
    pub fn from_array(device: &Device, array: &Array) -> Result<Tensor> {
        match array.dtype() {
            DType::F32 => Tensor::from_slice(device, array.shape(), &array.to_vec::<f32>()?),
            DType::F16 => Tensor::from_slice(device, array.shape(), &array.to_vec::<half::f16>()?),
            DType::BF16 => Tensor::from_slice(device, array.shape(), &array.to_vec::<half::bf16>()?),
            DType::I32 => Tensor::from_slice(device, array.shape(), &array.to_vec::<i32>()?),
            DType::U32 => Tensor::from_slice(device, array.shape(), &array.to_vec::<u32>()?),
            DType::Bool => Tensor::from_slice(device, array.shape(), &array.to_vec::<u8>()?),
        }
    }

    /// The elements as an array on the host. Blocks until this tensor's own last command has been executed.
    #[track_caller]
    pub fn to_array(&self) -> Result<Array> {
        let mut arrays = to_arrays(&[(String::new(), self)])?;
        // One tensor, one array.
        arrays.pop_first().map_or_else(|| Array::new::<f32>(&[0], &[]), |(_, array)| Ok(array))
    }

    /// The array of a `.npy` file. f64 is rounded to f32, integers become i32 where they fit.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("x.npy");
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// x.t()?.save_npy(&path)?; // as np.save does
    /// assert_eq!(Tensor::load_npy(&device, &path)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be read, is damaged, or has elements that linn has no type for.
    #[track_caller]
    pub fn load_npy(device: &Device, path: impl AsRef<Path>) -> Result<Tensor> {
        let path = path.as_ref();
        Tensor::from_array(device, &npy::parse(&read(path)?).map_err(|error| at(error, path))?)
    }

    /// Writes a `.npy` file, of bf16 as f32. Blocks until the elements are there.
    #[track_caller]
    pub fn save_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), &npy::write(&self.to_array()?))
    }
}

/// The arrays of a `.npz` file, by name. f64 is rounded to f32, integers become i32 where they fit.
///
/// ```
/// # use linn::tensor::files::{load_npz, save_npz};
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("xy.npz");
/// let (x, y) = (Tensor::new(&device, [1.0f32, 2.0])?, Tensor::new(&device, 7i32)?);
/// save_npz(&path, &[("x".into(), &x), ("y".into(), &y)])?; // as np.savez does
/// assert_eq!(load_npz(&device, &path)?["y"].item::<i32>()?, 7);
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] where it cannot be read, is damaged, or has elements that linn has no type for.
#[track_caller]
pub fn load_npz(device: &Device, path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
    let path = path.as_ref();
    upload(device, &npz::parse(&read(path)?).map_err(|error| at(error, path))?)
}

/// Writes tensors by name as a `.npz` file, of bf16 as f32. Blocks until the elements are there.
#[track_caller]
pub fn save_npz(path: impl AsRef<Path>, tensors: &[(String, &Tensor)]) -> Result<()> {
    write(path.as_ref(), &npz::write(&to_arrays(tensors)?)?)
}

/// The tensors of a safetensors file, by name.
///
/// ```
/// # use linn::tensor::files::{load_safetensors, save_safetensors};
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("w.safetensors");
/// let w = Tensor::new(&device, [0.5f32, -1.0])?;
/// save_safetensors(&path, &[("layer.weight".into(), &w)])?;
/// assert_eq!(load_safetensors(&device, &path)?["layer.weight"].to_vec::<f32>()?, [0.5, -1.0]);
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] where it cannot be read, is damaged, or has elements that linn has no type for.
#[track_caller]
pub fn load_safetensors(device: &Device, path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
    let path = path.as_ref();
    upload(device, &safetensors::parse(&read(path)?).map_err(|error| at(error, path))?)
}

/// Writes tensors by name as a safetensors file. Blocks until the elements are there.
#[track_caller]
pub fn save_safetensors(path: impl AsRef<Path>, tensors: &[(String, &Tensor)]) -> Result<()> {
    write(path.as_ref(), &safetensors::write(&to_arrays(tensors)?)?)
}

#[track_caller]
fn upload(device: &Device, arrays: &Arrays) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for (name, array) in arrays {
        tensors.insert(name.clone(), Tensor::from_array(device, array)?);
    }
    Ok(tensors)
}

/// The elements of all tensors. All copies are enqueued on one stream, so the last one to arrive is the only wait.
#[track_caller]
pub(crate) fn to_arrays(tensors: &[(String, &Tensor)]) -> Result<Arrays> {
    enum Read {
        F32(TensorRead<f32>),
        F16(TensorRead<half::f16>),
        BF16(TensorRead<half::bf16>),
        Bool(TensorRead<u8>),
        I32(TensorRead<i32>),
        U32(TensorRead<u32>),
    }
    fn array<T: Element>(tensor: &Tensor, read: TensorRead<T>) -> Result<Array> {
        Array::new(tensor.shape(), &read.wait()?)
    }
    let start = |tensor: &Tensor| {
        Ok(match tensor.dtype() {
            DType::F32 => Read::F32(tensor.to_vec_async()?),
            DType::F16 => Read::F16(tensor.to_vec_async()?),
            DType::BF16 => Read::BF16(tensor.to_vec_async()?),
            DType::Bool => Read::Bool(tensor.to_vec_async()?),
            DType::I32 => Read::I32(tensor.to_vec_async()?),
            DType::U32 => Read::U32(tensor.to_vec_async()?),
        })
    };
    let reads = tensors.iter().map(|(_, tensor)| start(tensor)).collect::<Result<Vec<_>>>()?;
    if let Some((_, tensor)) = tensors.last() {
        tensor.device().current_stream().synchronize()?;
    }
    let mut arrays = Arrays::new();
    for ((name, tensor), read) in tensors.iter().zip(reads) {
        let array = match read {
            Read::F32(read) => array(tensor, read)?,
            Read::F16(read) => array(tensor, read)?,
            Read::BF16(read) => array(tensor, read)?,
            Read::Bool(read) => array(tensor, read)?,
            Read::I32(read) => array(tensor, read)?,
            Read::U32(read) => array(tensor, read)?,
        };
        if arrays.insert(name.clone(), array).is_some() {
            return Err(Error::file(format!("two tensors are called {name:?}"), "give each a name of its own"));
        }
    }
    Ok(arrays)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path)
        .map_err(|why| Error::file(format!("cannot read {}: {why}", path.display()), "check the path and its permissions"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, bytes).map_err(|why| {
        Error::file(
            format!("cannot write {}: {why}", path.display()),
            "check the folder, its permissions and the free space; an older file of that name is untouched",
        )
    })
}

/// The error as one of the file at `path`.
pub(crate) fn at(error: Error, path: &Path) -> Error {
    match error {
        Error::File { fact, help } => Error::File { fact: format!("{}: {fact}", path.display()), help },
        other => other,
    }
}

/// Where links lead, also to a file that does not exist yet.
fn followed(path: &Path) -> PathBuf {
    let mut target = path.to_path_buf();
    // As many as Linux follows; more are a circle.
    for _ in 0..40 {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return target,
        }
    }
    path.to_path_buf()
}

/// Written beside, flushed, renamed; the directory is flushed too, so that the rename survives a power cut. Where the path is
/// a link, the file that it leads to is replaced or made; what is no file (a device, a pipe) is not.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let target = followed(path);
    if target.exists() && !target.is_file() {
        return Err(std::io::Error::other("it exists and is no regular file"));
    }
    let path = target.as_path();
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&beside)))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Not every system can open a directory; the file itself is safe by then.
    if let Ok(directory) = File::open(directory) {
        let _ = directory.sync_all();
    }
    Ok(())
}
