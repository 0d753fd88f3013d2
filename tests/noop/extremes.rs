//! Numbers from the ends of their types, and tensors of 0 dimensions and without elements, as arguments of every operation that takes
//! positions, amounts or dimensions: an answer or an error, never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use linn::autograd::{ConvOptions, ConvTransposeOptions, PadMode, Padding, PoolOptions, Replacement};
use linn::ops::reduce::KeepDim;
use linn::{DType, Device, DeviceOptions, Result, Tensor};

const NUMBERS: [isize; 9] = [0, 1, -1, 2, 5, isize::MIN, isize::MIN + 1, isize::MAX, isize::MAX - 1];
const COUNTS: [usize; 6] = [0, 1, 3, usize::MAX, usize::MAX / 2, isize::MAX as usize];

/// An operation with two numbers.
type Op = (&'static str, fn(&Tensor, isize, isize) -> Result<()>);

fn done<T>(result: Result<T>) -> Result<()> {
    result.map(drop)
}

const OPS: &[Op] = &[
    ("narrow", |x, a, b| done(x.narrow(a, b, 1))),
    ("select", |x, a, b| done(x.select(a, b))),
    ("slice", |x, a, b| done(x.slice(0, a..b, 1))),
    ("slice from", |x, a, b| done(x.slice(b, a.., 2))),
    ("tensor_split_at", |x, a, b| done(x.tensor_split_at(&[a, b], 0))),
    ("unbind", |x, a, _| done(x.unbind(a))),
    ("diagonal", |x, a, b| done(x.diagonal(a, b, 1))),
    ("transpose", |x, a, b| done(x.transpose(a, b))),
    ("movedim", |x, a, b| done(x.movedim(&[a], &[b]))),
    ("flatten", |x, a, b| done(x.flatten(a, b))),
    ("unflatten", |x, a, b| done(x.unflatten(0, &[a, b]))),
    ("reshape", |x, a, b| done(x.reshape(&[a, b]))),
    ("expand", |x, a, b| done(x.expand(&[a, b, 1]))),
    ("squeeze", |x, a, _| done(x.squeeze(a))),
    ("unsqueeze", |x, a, _| done(x.unsqueeze(a))),
    ("flip", |x, a, b| done(x.flip(&[a, b]))),
    ("roll", |x, a, b| done(x.roll(&[a], &[b]))),
    ("roll all", |x, a, _| done(x.roll(&[a], &[]))),
    ("rot90", |x, a, b| done(x.rot90(a, &[0, b]))),
    ("tril", |x, a, _| done(x.tril(a))),
    ("triu", |x, a, _| done(x.triu(a))),
    ("diag", |x, a, _| done(x.diag(a))),
    ("diag_embed", |x, a, b| done(x.diag_embed(a, b, 0))),
    ("pad", |x, a, b| done(x.pad_signed(&[a, b], PadMode::Constant(1.0)))),
    ("pad reflect", |x, a, b| done(x.pad_signed(&[a, b], PadMode::Reflect))),
    ("pad circular", |x, a, b| done(x.pad_signed(&[a, b], PadMode::Circular))),
    ("cross", |x, a, _| done(x.cross(x, a))),
    ("glu", |x, a, _| done(x.glu(a))),
    ("eye", |x, a, b| done(Tensor::eye(x.device(), a.min(9), b.min(9)))),
    ("sum", |x, a, b| done(x.sum(&[a, b], KeepDim::Drop))),
    ("amax", |x, a, _| done(x.amax(&[a], KeepDim::Drop))),
    ("softmax", |x, a, _| done(x.softmax(a))),
    ("cumsum", |x, a, _| done(x.cumsum(a))),
    ("cummax", |x, a, _| done(x.cummax(a))),
    ("diff", |x, a, b| done(x.diff(a.min(40), b, None, None))),
    ("median", |x, a, _| done(x.median(a, KeepDim::Drop))),
    ("random_", |x, a, b| x.random_(a as i64, b as i64)),
    ("uniform_", |x, a, b| x.uniform_(a as f64, b as f64)),
    ("add_scalar", |x, a, _| done(x.add_scalar(a as i64))),
    ("conv2d", |x, a, b| {
        let options = ConvOptions { stride: &[a], dilation: &[b], padding: Padding::Zeros(&[1]), groups: 1 };
        done(x.conv2d(x, None, options))
    }),
    ("conv2d padding", |x, a, b| {
        let options = ConvOptions { padding: Padding::Zeros(&[a, b]), ..ConvOptions::default() };
        done(x.conv2d(x, None, options))
    }),
    ("conv_transpose2d", |x, a, b| {
        let options = ConvTransposeOptions { padding: &[a], output_padding: &[b], ..ConvTransposeOptions::default() };
        done(x.conv_transpose2d(x, None, options))
    }),
    ("avg_pool2d", |x, a, b| done(x.avg_pool2d(&[a, b], PoolOptions::default()))),
    ("max_pool2d", |x, a, b| {
        done(x.max_pool2d(&[1], PoolOptions { stride: &[a], dilation: &[b], ceil_mode: true, ..PoolOptions::default() }))
    }),
    ("max_pool1d", |x, a, b| done(x.max_pool1d(&[2], PoolOptions { padding: &[a], stride: &[b], ..PoolOptions::default() }))),
];

/// An operation with a count.
type Counted = (&'static str, fn(&Tensor, usize) -> Result<()>);

const COUNTED: &[Counted] = &[
    ("narrow", |x, n| done(x.narrow(0, 0, n))),
    ("split", |x, n| done(x.split(n, 0))),
    ("chunk", |x, n| done(x.chunk(n, 0))),
    ("tensor_split", |x, n| done(x.tensor_split(n, 0))),
    ("split_with_sizes", |x, n| done(x.split_with_sizes(&[n, n, 1], 0))),
    ("unfold", |x, n| done(x.unfold(0, n, 1))),
    ("unfold step", |x, n| done(x.unfold(0, 1, n))),
    ("repeat", |x, n| done(x.repeat(&[n, n, 1, 1, 1]))),
    ("tile", |x, n| done(x.tile(&[n]))),
    ("repeat_interleave", |x, n| done(x.repeat_interleave(n, 0))),
    ("pixel_shuffle", |x, n| done(x.pixel_shuffle(n))),
    ("pixel_unshuffle", |x, n| done(x.pixel_unshuffle(n))),
    ("sum_to_size", |x, n| done(x.sum_to_size(&[n]))),
    ("multinomial", |x, n| done(x.multinomial(n, Replacement::With))),
    ("multinomial without", |x, n| done(x.multinomial(n, Replacement::Without))),
    ("randperm", |x, n| done(Tensor::randperm(x.device(), n))),
    ("group_norm", |x, n| done(x.group_norm(n, None, None, 1e-5))),
    ("rms_norm", |x, n| done(x.rms_norm(&[n], None, None))),
];

#[test]
fn no_number_makes_an_operation_panic() {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(64 << 20);
    let device = Device::noop(options).unwrap();
    let shapes: [&[usize]; 7] = [&[], &[0], &[3], &[3, 4], &[0, 4], &[1, 3, 4, 4], &[2, 1, 0, 3]];
    let mut panics = Vec::new();
    let mut answers = 0;
    for shape in shapes {
        let x = Tensor::empty(&device, shape, DType::F32).unwrap();
        let mut check = |what: String, call: &dyn Fn() -> Result<()>| match catch_unwind(AssertUnwindSafe(call)) {
            Err(_) => panics.push(format!("{what} of shape {shape:?}")),
            Ok(Err(error)) => assert!(error.to_string().contains("help:"), "{what}: {error}"),
            Ok(Ok(())) => answers += 1,
        };
        for (name, op) in OPS {
            for a in NUMBERS {
                for b in NUMBERS {
                    check(format!("{name} with {a} and {b}"), &|| op(&x, a, b));
                }
            }
        }
        for (name, op) in COUNTED {
            for n in COUNTS {
                check(format!("{name} with {n}"), &|| op(&x, n));
            }
        }
    }
    assert!(answers > 2000, "only {answers} calls had an answer");
    assert!(panics.is_empty(), "{} panics:\n{}", panics.len(), panics.join("\n"));
}
