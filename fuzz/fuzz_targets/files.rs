//! Bytes as a file of arrays: an answer or an error, and what was read comes back from the file that is written of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linn::files::{npy, npz, safetensors};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            if let Ok(array) = npy::parse(bytes) {
                assert_eq!(npy::parse(&npy::write(&array)).expect("it was written by linn"), array);
            }
        }
        1 => {
            if let Ok(arrays) = npz::parse(bytes) {
                // A name may be too long to be written: it was one of another alphabet.
                let Ok(file) = npz::write(&arrays) else { return };
                assert_eq!(npz::parse(&file).expect("it was written by linn"), arrays);
            }
        }
        _ => {
            if let Ok(arrays) = safetensors::parse(bytes) {
                let file = safetensors::write(&arrays).expect("arrays of a file");
                assert_eq!(safetensors::parse(&file).expect("it was written by linn"), arrays);
            }
        }
    }
});
