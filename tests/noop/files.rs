//! Arrays and tensors in files: what NumPy wrote (tests/support/golden/files.py), round trips, and files that are damaged or forged.

use std::path::Path;

use half::{bf16, f16};
use linn::files::{Array, Arrays, npy, npz, safetensors};
use linn::tensor::files::{load_npz, load_safetensors, save_npz, save_safetensors};
use linn::{DType, Device, DeviceOptions, Element, Error, Result, Tensor};

fn device() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

fn golden() -> impl Iterator<Item = (String, Vec<u8>, serde_json::Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden/files");
    let facts = std::fs::read_to_string(folder.join("files.json")).unwrap();
    let facts: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&facts).unwrap();
    assert!(facts.len() > 50);
    facts.into_iter().map(move |(name, facts)| {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        (name, bytes, facts)
    })
}

/// The elements as f64.
fn wide(array: &Array) -> Vec<f64> {
    fn of<T: Element + Into<f64>>(array: &Array) -> Vec<f64> {
        array.to_vec::<T>().unwrap().into_iter().map(Into::into).collect()
    }
    match array.dtype() {
        DType::F32 => of::<f32>(array),
        DType::F16 => of::<f16>(array),
        DType::BF16 => of::<bf16>(array),
        DType::I32 => of::<i32>(array),
        DType::U32 => of::<u32>(array),
        _ => of::<u8>(array),
    }
}

fn is_as_said(name: &str, array: &Array, facts: &serde_json::Value) {
    let shape: Vec<u64> = array.shape().iter().map(|len| *len as u64).collect();
    assert_eq!(
        (serde_json::json!(shape), array.dtype().name()),
        (facts["shape"].clone(), facts["dtype"].as_str().unwrap()),
        "{name}"
    );
    let value = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    let want: Vec<f64> = facts["values"].as_array().unwrap().iter().map(value).collect();
    // Bits, so that NaN equals NaN and -0 does not equal 0.
    let bits =
        |values: &[f64]| values.iter().map(|v| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() }).collect::<Vec<u64>>();
    assert_eq!(bits(&wide(array)), bits(&want), "{name}");
}

#[test]
fn numpys_files_are_read_and_written_alike() {
    for (name, bytes, facts) in golden() {
        if name.ends_with(".npz") {
            let arrays = npz::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(arrays.keys().collect::<Vec<_>>(), ["flag", "ids", "long", "w"]);
            arrays.iter().for_each(|(key, array)| is_as_said(&format!("{key} of {name}"), array, &facts[key]));
            continue;
        }
        match (npy::parse(&bytes), facts["error"].as_str()) {
            (Ok(array), None) => {
                is_as_said(&name, &array, &facts);
                assert!(facts["same"] != true || npy::write(&array) == bytes, "{name} is written otherwise");
            }
            (Err(error @ Error::File { .. }), Some(words)) => assert!(error.to_string().contains(words), "{name}: {error}"),
            (result, _) => panic!("{name}: {result:?}"),
        }
    }
}

/// Tensors of all types, some of them views.
fn tensors(device: &Device) -> Vec<(String, Tensor)> {
    let floats: Vec<f32> =
        (0..24).map(|i| i as f32 * 0.37 - 4.0).chain([f32::NAN, f32::INFINITY, -0.0, 1e-45, 3e38, 1.0]).collect();
    let whole: Vec<i32> = (0..30).map(|i: i32| (i - 15).wrapping_mul(150_000_000)).collect();
    let x = Tensor::from_slice(device, &[5, 6], &floats).unwrap();
    let halves: Vec<f16> = floats.iter().map(|x| f16::from_f32(*x)).collect();
    let brains: Vec<bf16> = floats.iter().map(|x| bf16::from_f32(*x)).collect();
    let bools: Vec<u8> = (0..30).map(|i| u8::from(i % 3 == 0)).collect();
    let words: Vec<u32> = whole.iter().map(|x| *x as u32).collect();
    [
        ("f32", x.clone()),
        ("f32 view", x.transpose(0, 1).unwrap().narrow(0, 1, 3).unwrap()),
        ("f16", Tensor::from_slice(device, &[5, 3, 2], &halves).unwrap()),
        ("f16 view", Tensor::from_slice(device, &[30], &halves).unwrap().narrow(0, 3, 7).unwrap()),
        ("bf16", Tensor::from_slice(device, &[30, 1], &brains).unwrap()),
        ("i32", Tensor::from_slice(device, &[30], &whole).unwrap()),
        ("u32", Tensor::from_slice(device, &[2, 15], &words).unwrap()),
        ("bool", Tensor::from_slice(device, &[30], &bools).unwrap()),
        ("bool view", Tensor::from_slice(device, &[5, 6], &bools).unwrap().t().unwrap()),
        ("one", Tensor::new(device, 7i32).unwrap()),
        ("none", Tensor::from_slice::<f32>(device, &[3, 0], &[]).unwrap()),
    ]
    .map(|(name, tensor)| (name.to_string(), tensor))
    .into()
}

fn same(name: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.to_array().unwrap(), want.to_array().unwrap(), "{name}");
}

#[test]
fn tensors_come_back_from_files() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let (all, path) = (tensors(&device), |name: &str| folder.path().join(name));
    let named: Vec<(String, &Tensor)> = all.iter().map(|(name, tensor)| (name.clone(), tensor)).collect();
    save_safetensors(path("all.safetensors"), &named).unwrap();
    save_npz(path("all.npz"), &named).unwrap();
    let (from_safetensors, from_npz) =
        (load_safetensors(&device, path("all.safetensors")).unwrap(), load_npz(&device, path("all.npz")).unwrap());
    assert_eq!((from_safetensors.len(), from_npz.len()), (all.len(), all.len()));
    for (name, tensor) in &all {
        same(name, &from_safetensors[name], tensor);
        tensor.save_npy(path("x.npy")).unwrap();
        let back = Tensor::load_npy(&device, path("x.npy")).unwrap();
        let back = [&back, &from_npz[name]];
        match tensor.dtype() {
            // NumPy has no bf16.
            DType::BF16 => {
                let wide: Vec<f32> = tensor.to_vec::<bf16>().unwrap().iter().map(|x| x.to_f32()).collect();
                let want = Tensor::from_slice(&device, tensor.shape(), &wide).unwrap();
                back.iter().for_each(|back| same(name, back, &want));
            }
            _ => back.iter().for_each(|back| same(name, back, tensor)),
        }
    }
    // Equal contents, equal files; a checkpoint is such a file too.
    save_npz(path("again.npz"), &named).unwrap();
    assert_eq!(std::fs::read(path("again.npz")).unwrap(), std::fs::read(path("all.npz")).unwrap());
    linn::nn::state::save(&path("checkpoint"), &all, &[("step".to_string(), "3".to_string())].into()).unwrap();
    let checkpoint = load_safetensors(&device, path("checkpoint")).unwrap();
    all.iter().for_each(|(name, tensor)| same(name, &checkpoint[name], tensor));
    // Errors name the file.
    for error in [
        Tensor::load_npy(&device, path("nothing.npy")).err(),
        Tensor::load_npy(&device, path("all.npz")).err(),
        load_npz(&device, path("x.npy")).err(),
        load_safetensors(&device, path("x.npy")).err(),
        save_npz(folder.path(), &named).err(),
        save_npz(path("twice.npz"), &[named[0].clone(), named[0].clone()]).err(),
    ] {
        let text = error.unwrap().to_string();
        assert!(
            text.contains("\nhelp: ") && (text.contains(folder.path().to_str().unwrap()) || text.contains("two tensors")),
            "{text}"
        );
    }
}

#[test]
fn bools_of_an_array_are_0_or_1() {
    // As in a tensor of the same bytes: whatever is not 0 is true, and a file says so.
    let array = Array::new(&[4], &[0u8, 1, 2, 255]).unwrap();
    assert_eq!(array.bytes(), [0, 1, 1, 1]);
    assert!(npy::write(&array).ends_with(&[0, 1, 1, 1]));
    assert_eq!(Tensor::from_array(&device(), &array).unwrap().to_array().unwrap(), array);
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_the_crate_ndarray_come_back() {
    use ndarray::{Array2, Array3, ArrayD, IxDyn, ShapeBuilder, s};

    let device = device();
    let array = Array3::from_shape_fn((4, 3, 5), |(i, j, k)| (i * 100 + j * 10 + k) as f32);
    let back = |x: &Tensor| x.to_ndarray::<f32>().unwrap();
    assert_eq!(back(&Tensor::from_ndarray(&device, &array).unwrap()), array.clone().into_dyn());
    // In Fortran's order, transposed, cut, reversed.
    let fortran = Array2::from_shape_vec((2, 3).f(), vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let x = Tensor::from_ndarray(&device, &fortran).unwrap();
    assert_eq!((x.shape(), x.to_vec::<f32>().unwrap()), (&[2, 3][..], vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0]));
    assert_eq!(back(&x.t().unwrap()), fortran.t().into_dyn());
    let view = array.slice(s![..;-1, 1.., ..;2]);
    assert_eq!(back(&Tensor::from_ndarray(&device, &view).unwrap()), view.to_owned().into_dyn());
    let halves: ArrayD<f16> = ArrayD::from_elem(IxDyn(&[7]), f16::from_f32(0.5));
    let x = Tensor::from_ndarray(&device, &halves).unwrap();
    assert_eq!((x.dtype(), x.to_ndarray::<f16>().unwrap()), (DType::F16, halves));
    let none: ArrayD<i32> = ArrayD::from_elem(IxDyn(&[2, 0]), 1);
    assert_eq!(Tensor::from_ndarray(&device, &none).unwrap().to_ndarray::<i32>().unwrap(), none);
    let one = ndarray::arr0(3u32);
    assert_eq!(Tensor::from_ndarray(&device, &one).unwrap().to_ndarray::<u32>().unwrap()[[]], 3);
    assert!(x.to_ndarray::<f32>().unwrap_err().to_string().starts_with("to_vec: "));
    let deep: ArrayD<f32> = ArrayD::zeros(IxDyn(&[1; 9]));
    assert!(Tensor::from_ndarray(&device, &deep).is_err(), "linn has 8 dimensions at most");
}

/// Whatever the bytes, an answer or an error of two lines.
fn survives(what: &str, bytes: &[u8]) -> usize {
    let explained = |kind: &str, result: Result<()>| match result {
        Ok(()) => 1,
        Err(error) => {
            let text = error.to_string();
            assert!(matches!(error, Error::File { .. }) && text.contains("\nhelp: "), "{what} as {kind}: {text}");
            0
        }
    };
    explained("npy", npy::parse(bytes).map(drop))
        + explained("npz", npz::parse(bytes).map(drop))
        + explained("safetensors", safetensors::parse(bytes).map(drop))
}

#[test]
fn damaged_files_are_errors() {
    let arrays: Arrays = [
        ("w".to_string(), Array::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()),
        ("ids".to_string(), Array::new(&[3], &[1i32, 2, 3]).unwrap()),
    ]
    .into();
    let mut files = vec![("safetensors".to_string(), safetensors::write(&arrays).unwrap())];
    files.extend(golden().map(|(name, bytes, _)| (name, bytes)).filter(|(name, _)| {
        ["f4.npy", "f2_big_fortran.npy", "b1.npy", "i8.npy", "parts.npy", "stored.npz", "deflated.npz"].contains(&name.as_str())
    }));
    assert_eq!(files.len(), 8);
    for (name, bytes) in files {
        let whole = survives(&name, &bytes);
        for len in (0..bytes.len()).step_by(if bytes.len() > 1000 { 7 } else { 1 }) {
            assert_eq!(
                survives(&format!("{len} bytes of {name}"), &bytes[..len]),
                0,
                "{len} of {} bytes of {name} are a file",
                bytes.len()
            );
        }
        let mut changed = 0;
        for at in 0..bytes.len() {
            for bit in [0, 3, 7] {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                changed += survives(&format!("{name} with bit {bit} of byte {at} changed"), &bytes);
            }
        }
        // .npz has a checksum of every entry: what is read in spite of a flip is in fields that say nothing of the arrays.
        assert!(whole == 0 || name.ends_with(".npz") || changed > 0, "{name}: flips of elements go unnoticed");
        let mut longer = bytes.clone();
        longer.extend_from_slice(&[0; 9]);
        survives(&format!("{name}, longer"), &longer);
    }
}

#[test]
fn forged_lengths_ask_for_no_memory() {
    let npy = |header: &str| [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    let of_shape = |shape: &str| npy(&format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({shape}), }}"));
    for shape in [
        "1099511627776,",
        "4611686018427387904, 4",
        "18446744073709551615, 18446744073709551615, 2",
        "99999999999999999999999,",
        "-1,",
        "1.5,",
        "0x10,",
        ",",
        "1,,1",
        "(1,)",
    ] {
        assert_eq!(survives(shape, &of_shape(shape)), 0, "{shape}");
    }
    // Lengths whose product is 0 are a shape.
    let empty = npy::parse(&of_shape("4611686018427387904, 4611686018427387904, 0")).unwrap();
    assert!(empty.bytes().is_empty());
    assert!(Tensor::from_array(&device(), &empty).is_err() || empty.shape().len() == 3);
    for header in [
        "",
        "{",
        "}",
        "{}",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}",
        "{'descr': <f4, 'fortran_order': False, 'shape': ()}",
        "{'descr': 'é', 'fortran_order': False, 'shape': ()}",
        "{'descr': '', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': () 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ()} {",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
        "{'''",
    ] {
        assert_eq!(survives(header, &npy(header)), 0, "{header}");
    }
    // A header of 4 GB that is not there, and one that is longer than anybody writes.
    assert_eq!(survives("long", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), 0);
    assert_eq!(
        survives("longer", &npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (){}}}", " ".repeat(20_000)))),
        0
    );
    // safetensors: a header of 2^60 bytes, a tensor of 2^62 elements.
    assert_eq!(survives("header", &[&(1u64 << 60).to_le_bytes()[..], b"{}"].concat()), 0);
    let json = br#"{"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#;
    assert_eq!(survives("shape", &[&(json.len() as u64).to_le_bytes()[..], json].concat()), 0);
    // An array of 4 MB of zeros is 4 KB in a .npz; what says that it is more is refused before it is inflated.
    let zeros = Array::new(&[1 << 20], &vec![0.0f32; 1 << 20]).unwrap();
    let deflate = |npy: &[u8]| {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        archive.start_file("w.npy", options).unwrap();
        std::io::Write::write_all(&mut archive, npy).unwrap();
        archive.finish().unwrap().into_inner()
    };
    let bytes = deflate(&npy::write(&zeros));
    assert!(bytes.len() < 10_000, "{}", bytes.len());
    assert_eq!(npz::parse(&bytes).unwrap()["w"], zeros);
    let forged = deflate(&of_shape("1099511627776,"));
    assert!(npz::parse(&forged).unwrap_err().to_string().contains("shorter than its header says"));
    let longer = deflate(&[npy::write(&zeros), vec![0; 1 << 20]].concat());
    assert!(npz::parse(&longer).is_err());
    // Many entries of the directory that name the same bytes: 4 GB in a file of 60 KB.
    let find = |magic: &[u8]| bytes.windows(4).rposition(|word| word == magic).unwrap();
    let (start, end) = (find(b"PK\x01\x02"), find(b"PK\x05\x06"));
    let name = start + 46..start + 51;
    assert_eq!(&bytes[name.clone()], b"w.npy");
    let record = |i: u16| {
        let mut record = [&bytes[start..name.start], format!("{i:04}.npy").as_bytes(), &bytes[name.end..end]].concat();
        record[28] = 8;
        record
    };
    let records: Vec<u8> = (0..1000).flat_map(record).collect();
    let mut tail = bytes[end..].to_vec();
    tail[8..12].copy_from_slice(&[1000u16.to_le_bytes(), 1000u16.to_le_bytes()].concat());
    tail[12..16].copy_from_slice(&(records.len() as u32).to_le_bytes());
    let bomb = [&bytes[..start], &records, &tail].concat();
    assert!(npz::parse(&bomb).unwrap_err().to_string().contains("other entries too"));
}
