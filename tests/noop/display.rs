//! Tensors as text against what PyTorch printed (tests/support/golden/display.py), and what autograd, devices and errors add.

use half::{bf16, f16};
use linn::{Device, DeviceOptions, Tensor};

fn device() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

/// The tensor of a line of the golden file.
fn tensor(device: &Device, case: &serde_json::Value) -> Tensor {
    let shape: Vec<usize> = case["shape"].as_array().unwrap().iter().map(|len| len.as_u64().unwrap() as usize).collect();
    let bits: Option<Vec<u32>> =
        case["bits"].as_array().map(|all| all.iter().map(|bits| bits.as_u64().unwrap() as u32).collect());
    let made: Vec<f64> = match &bits {
        Some(_) => Vec::new(),
        None => {
            let [mul, modulus, sub, by] = ["mul", "mod", "sub", "by"].map(|key| case[key].as_f64().unwrap());
            (0..shape.iter().product::<usize>()).map(|i| ((i as f64 * mul) % modulus - sub) / by).collect()
        }
    };
    macro_rules! of {
        ($host:ty, $from_bits:expr, $from_value:expr) => {{
            let data: Vec<$host> = match &bits {
                Some(bits) => bits.iter().copied().map($from_bits).collect(),
                None => made.iter().copied().map($from_value).collect(),
            };
            Tensor::from_slice(device, &shape, &data).unwrap()
        }};
    }
    match case["dtype"].as_str().unwrap() {
        "f32" => of!(f32, f32::from_bits, |v| v as f32),
        "f16" => of!(f16, |bits: u32| f16::from_bits(bits as u16), f16::from_f64),
        "bf16" => of!(bf16, |bits: u32| bf16::from_bits(bits as u16), bf16::from_f64),
        "i32" => of!(i32, |bits: u32| bits as i32, |v| v as i32),
        "u32" => of!(u32, |bits: u32| bits, |v| v as u32),
        "bool" => of!(u8, |bits: u32| bits as u8, |v: f64| u8::from(v as i64 != 0)),
        other => panic!("{other}"),
    }
}

#[test]
fn tensors_print_as_in_pytorch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/golden/display/tensors.jsonl");
    let device = device();
    let (mut count, mut wrong) = (0, Vec::new());
    for (number, line) in std::fs::read_to_string(path).unwrap().lines().enumerate() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let x = tensor(&device, &case);
        for (form, want) in case["text"].as_object().unwrap() {
            let got = match form.as_str() {
                "2" => format!("{x:.2}"),
                "full" => format!("{x:#}"),
                _ => x.to_string(),
            };
            count += 1;
            if got != want.as_str().unwrap() {
                wrong.push(format!("line {}, {form:?}:\n{got}\n{}", number + 1, want.as_str().unwrap()));
            }
        }
    }
    assert!(count > 600, "only {count} texts");
    assert!(wrong.is_empty(), "{} of {count} differ, for instance\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n\n"));
}

#[test]
fn views_gradients_devices_and_streams_are_printed() {
    let device = device();
    let matrix = Tensor::new(&device, [[1i32, -20], [3, 4]]).unwrap();
    assert_eq!(matrix.t().unwrap().to_string(), "tensor([[  1,   3],\n        [-20,   4]], dtype=torch.int32)");
    let w = Tensor::new(&device, [1.5f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    assert_eq!(w.to_string(), "tensor([1.5000, 2.0000], requires_grad=True)");
    let y = w.sum_all().unwrap();
    assert!(y.to_string().ends_with(", grad_fn=<SumBackward0>)"), "{y}");
    assert!(w.mul(&w).unwrap().to_string().ends_with(", grad_fn=<MulBackward0>)"));
    assert_eq!(w.detach().to_string(), "tensor([1.5000, 2.0000])");
    let debug = format!("{:?}", w.detach());
    assert_eq!(debug, format!("tensor([1.5000, 2.0000], device='{}', stream=0)", device.name()));
    let side = device.new_stream();
    let debug = side.scope(|| format!("{w:?}"));
    assert!(debug.contains(&format!("stream={}, requires_grad=True)", side.id())), "{debug}");
}

#[test]
fn only_what_is_shown_of_a_large_tensor_is_read() {
    let device = device();
    let x = Tensor::from_slice(&device, &[1000, 5000], &vec![2.0f32; 5_000_000]).unwrap();
    let before = device.stats().queue.host_syncs;
    let text = x.to_string();
    assert_eq!(text.matches("2., 2., 2.,  ..., 2., 2., 2.").count(), 6, "{text}");
    assert!(device.stats().queue.host_syncs - before <= 4);
    let staging = device.stats().staging_download_bytes;
    assert!(staging < 16 << 20, "{staging} bytes to read 36 elements of 20 MB");
}

#[test]
fn a_tensor_that_cannot_be_read_says_why() {
    let device = device();
    let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32; 4]).unwrap();
    let long = Tensor::from_slice(&device, &[2000], &[1.0f32; 2000]).unwrap();
    device.mark_lost("pulled out");
    for text in [x.to_string(), format!("{x:?}"), long.to_string()] {
        assert!(text.starts_with("tensor(<not readable: device lost") && text.contains("size=(2"), "{text}");
    }
}
