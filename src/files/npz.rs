//! NumPy's `.npz`: a zip archive of `.npy` files, each called by its array's name. Stored and deflated entries are read; entries are
//! written stored, as `np.savez` does.

use std::io::{Cursor, Read, Write};

use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use super::npy::{self, Header};
use super::{Array, Arrays, damaged};
use crate::error::Result;

/// Bytes that one byte of a deflated entry can become, at most.
const MOST_INFLATED: u64 = 1032;

/// Bytes of an entry that hold its header, in any case: the longest one that is read, and what stands before it.
const HEADER: u64 = 10_012;

/// The arrays of a whole file.
///
/// ```
/// use linn::files::{Array, npz};
///
/// let arrays = [("w".to_string(), Array::new(&[3], &[1i32, 2, 3])?)].into();
/// assert_eq!(npz::parse(&npz::write(&arrays)?)?, arrays);
/// # Ok::<(), linn::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`](crate::Error::File) for what is no such file, is damaged, or has elements that linn has no type for.
pub fn parse(bytes: &[u8]) -> Result<Arrays> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|why| damaged(".npz", why))?;
    let mut arrays = Arrays::new();
    // Entries that lie in the same bytes could make any amount of memory of a small file.
    let mut left = bytes.len() as u64;
    for i in 0..archive.len() {
        let (name, array) = entry(&mut archive, i, &mut left).map_err(|why| damaged(".npz", why))?;
        if arrays.insert(name.clone(), array).is_some() {
            return Err(damaged(".npz", format!("two arrays are called {name:?}")));
        }
    }
    Ok(arrays)
}

/// Entry `i`, whose bytes are taken from those `left` in the file.
fn entry(archive: &mut ZipArchive<Cursor<&[u8]>>, i: usize, left: &mut u64) -> Result<(String, Array), String> {
    let mut entry = archive.by_index(i).map_err(|why| why.to_string())?;
    let name = entry.name().to_owned();
    let of = |why: String| format!("{name:?}: {why}");
    let short = name.strip_suffix(".npy").ok_or_else(|| of("it is no .npy".into()))?.to_owned();
    *left = left.checked_sub(entry.compressed_size()).ok_or_else(|| of("its bytes are those of other entries too".into()))?;
    // What the archive says of sizes may be a lie, and so may the header: both have to agree with what can be there.
    let most = entry.compressed_size().saturating_mul(MOST_INFLATED);
    let mut bytes = Vec::new();
    entry.by_ref().take(HEADER).read_to_end(&mut bytes).map_err(|why| of(why.to_string()))?;
    let (header, data) = Header::parse(&bytes).map_err(of)?;
    let of_header = bytes.len() - data.len();
    let whole = header.size().and_then(|size| size.checked_add(of_header)).map(|size| size as u64);
    let whole = whole.filter(|whole| *whole <= most).ok_or_else(|| of("it is shorter than its header says".into()))?;
    // The checksum is compared when the end is reached.
    let rest = (whole + 1).saturating_sub(bytes.len() as u64);
    entry.by_ref().take(rest).read_to_end(&mut bytes).map_err(|why| of(why.to_string()))?;
    Ok((short, header.array(&bytes[of_header..]).map_err(of)?))
}

/// The file of these arrays. Equal arrays make equal files.
pub fn write(arrays: &Arrays) -> Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut all = || -> zip::result::ZipResult<()> {
        for (name, array) in arrays {
            let file = npy::write(array);
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .last_modified_time(zip::DateTime::default())
                .large_file(file.len() > u32::MAX as usize);
            archive.start_file(format!("{name}.npy"), options)?;
            archive.write_all(&file)?;
        }
        Ok(())
    };
    let cannot = |why: zip::result::ZipError| {
        crate::Error::file(format!("cannot write the arrays as .npz: {why}"), "use shorter names, and each once")
    };
    all().map_err(cannot)?;
    Ok(archive.finish().map_err(cannot)?.into_inner())
}
