//! safetensors: arrays by name in one file, all of linn's types.

use ::safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{Array, Arrays, Stored, array as of_elements, damaged};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The arrays of a whole file. Metadata is passed over.
///
/// ```
/// use linn::files::{Array, safetensors};
///
/// let arrays = [("w".to_string(), Array::new(&[2], &[0.5f32, -1.0])?)].into();
/// assert_eq!(safetensors::parse(&safetensors::write(&arrays)?)?, arrays);
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] for what is no such file, is damaged, or has elements that linn has no type for.
pub fn parse(bytes: &[u8]) -> Result<Arrays> {
    let file = SafeTensors::deserialize(bytes).map_err(|why| damaged("safetensors", why))?;
    file.iter().map(|(name, view)| Ok((name.to_owned(), of_view(name, &view)?))).collect()
}

/// The file of these arrays. Equal arrays make equal files.
pub fn write(arrays: &Arrays) -> Result<Vec<u8>> {
    let cannot = |why: ::safetensors::SafeTensorError| {
        Error::file(format!("cannot write the arrays as safetensors: {why}"), "report this as a bug of linn")
    };
    let bytes: Vec<_> = arrays.values().map(Array::to_le_bytes).collect();
    let mut views = Vec::new();
    for ((name, array), bytes) in arrays.iter().zip(&bytes) {
        let view = TensorView::new(dtype(array.dtype()), array.shape().to_vec(), bytes).map_err(cannot)?;
        views.push((name, view));
    }
    ::safetensors::serialize(views, None).map_err(cannot)
}

/// The type of a file's tensor.
pub(crate) fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::Bool => Dtype::BOOL,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
    }
}

/// The array of one tensor of a file.
pub(crate) fn of_view(name: &str, view: &TensorView<'_>) -> Result<Array> {
    let stored = match view.dtype() {
        Dtype::BOOL => Stored::Bool,
        Dtype::I8 => Stored::I8,
        Dtype::U8 => Stored::U8,
        Dtype::I16 => Stored::I16,
        Dtype::U16 => Stored::U16,
        Dtype::I32 => Stored::I32,
        Dtype::U32 => Stored::U32,
        Dtype::I64 => Stored::I64,
        Dtype::U64 => Stored::U64,
        Dtype::F16 => Stored::F16,
        Dtype::BF16 => Stored::BF16,
        Dtype::F32 => Stored::F32,
        Dtype::F64 => Stored::F64,
        other => {
            return Err(Error::file(
                format!("tensor {name} has element type {other:?}"),
                "convert the file to floats of 16 to 64 bits, integers of up to 64 bits, or bool",
            ));
        }
    };
    of_elements(stored, view.shape().to_vec(), view.data())
        .map_err(|why| Error::file(format!("tensor {name}: {why}"), "whole numbers on the device are i32; store smaller values"))
}
