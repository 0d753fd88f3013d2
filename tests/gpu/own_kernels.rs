//! A program's own kernels on a device: values, views, order, memory, and gradients of their own.

use linn::autograd::{Context, Function, GradcheckOptions, checkpoint, grad, gradcheck, no_grad};
use linn::kernel::{KernelArg, KernelSource};
use linn::{DType, Device, DeviceOptions, Result, Tensor, WgslKernel};

use crate::device::{device, open, products};

/// y = x n + i, and the length that the shader sees.
const LINE: &str = "
struct Params { n: f32, len: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> lens: array<u32>;
@group(1) @binding(0) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * groups.x * 64u;
    if i == 0u { lens[0] = arrayLength(&x); lens[1] = arrayLength(&y); }
    if i < p.len { y[i] = x[i] * p.n + f32(i); }
}
";

fn line(device: &Device) -> WgslKernel {
    let args = &[KernelArg::input("x", DType::F32), KernelArg::output("y", DType::F32), KernelArg::output("lens", DType::U32)];
    let params = &[("n", DType::F32), ("len", DType::U32)];
    WgslKernel::new(device, KernelSource { name: "line", wgsl: LINE, args, params, ..KernelSource::default() }).unwrap()
}

fn numbers(device: &Device, shape: &[usize]) -> (Tensor, Vec<f32>) {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
    (Tensor::from_slice(device, shape, &values).unwrap(), values)
}

#[test]
fn every_element_is_computed_whatever_the_length() {
    let device = device();
    let line = line(&device);
    for len in [1, 2, 3, 63, 64, 65, 1000, 65_537, 300_001] {
        let (x, values) = numbers(&device, &[len]);
        // Two dimensions, as a kernel does for more than 65,535 workgroups.
        let rows = len.div_ceil(64).div_ceil(100);
        let outs = line.call(&[&x], &[&[len], &[2]], &[0.5.into(), len.into()], [100, rows as u32, 1]).unwrap();
        let want: Vec<f32> = values.iter().enumerate().map(|(i, v)| v * 0.5 + i as f32).collect();
        assert_eq!(outs[0].to_vec::<f32>().unwrap(), want, "{len}");
        assert_eq!(outs[1].to_vec::<u32>().unwrap(), [len as u32; 2], "the shader sees the tensor's length");
    }
}

#[test]
fn views_are_windows_or_copies() {
    let device = device();
    let line = line(&device);
    let (base, _) = numbers(&device, &[20, 30]);
    let views = [
        base.t().unwrap(),
        base.narrow(0, 1, 3).unwrap(),
        base.narrow(1, 3, 7).unwrap(),
        base.slice(0, 0..20, 3).unwrap(),
        base.narrow(0, 0, 1).unwrap().expand(&[5, 30]).unwrap(),
        // From byte 1,920 and from byte 1,024 on: not a multiple of 256, and one.
        base.narrow(0, 16, 4).unwrap(),
        base.reshape(&[600]).unwrap().narrow(0, 256, 300).unwrap(),
        base.reshape(&[600]).unwrap().narrow(0, 599, 1).unwrap(),
    ];
    for view in views {
        let values = view.to_vec::<f32>().unwrap();
        let len = values.len();
        let outs = line.call(&[&view], &[&[len], &[2]], &[2.0.into(), len.into()], line.grid([len, 1, 1]).unwrap()).unwrap();
        let want: Vec<f32> = values.iter().enumerate().map(|(i, v)| v * 2.0 + i as f32).collect();
        assert_eq!(outs[0].to_vec::<f32>().unwrap(), want, "{:?}", view.layout());
        assert_eq!(outs[1].to_vec::<u32>().unwrap(), [len as u32; 2]);
    }
    // A window is written, and nothing beside it.
    let out = Tensor::full(&device, &[512], -1.0).unwrap();
    let lens = Tensor::empty(&device, &[2], DType::U32).unwrap();
    line.launch(&[&base, &out.narrow(0, 128, 100).unwrap(), &lens], &[0.0.into(), 600.into()], [10, 1, 1]).unwrap();
    let want: Vec<f32> = (0..512).map(|i| if (128..227).contains(&i) { i as f32 - 128.0 } else { -1.0 }).collect();
    let got = out.to_vec::<f32>().unwrap();
    // (Elements 100 to 599 of a tensor of 100 go nowhere, or to some element of it: mostly the last.)
    assert_eq!((&got[..227], &got[228..]), (&want[..227], &want[228..]));
    assert_eq!(lens.to_vec::<u32>().unwrap(), [600, 100]);
}

/// out = a reversed + b.
const REVERSE: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = arrayLength(&out);
    if id.x < n { out[id.x] = a[n - 1u - id.x] + b[id.x]; }
}";

fn reverse(device: &Device) -> WgslKernel {
    let args = &[KernelArg::input("a", DType::F32), KernelArg::input("b", DType::F32), KernelArg::output("out", DType::F32)];
    WgslKernel::new(device, KernelSource { name: "reverse", wgsl: REVERSE, args, ..KernelSource::default() }).unwrap()
}

#[test]
fn inputs_that_overlap_the_output_are_those_from_before() {
    let device = device();
    let kernel = reverse(&device);
    let n = 20_000;
    let grid = kernel.grid([n, 1, 1]).unwrap();
    let (x, values) = numbers(&device, &[n]);
    let mirrored = |a: &[f32], b: &[f32]| -> Vec<f32> { a.iter().rev().zip(b).map(|(a, b)| a + b).collect() };
    // One tensor three times.
    kernel.launch(&[&x, &x, &x], &[], grid).unwrap();
    let once = mirrored(&values, &values);
    assert_eq!(x.to_vec::<f32>().unwrap(), once);
    // One input twice, and parts of one tensor.
    let y = kernel.call(&[&x, &x], &[&[n]], &[], grid).unwrap().remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), mirrored(&once, &once));
    let [a, b, out] = [0, 6_400, 12_800].map(|start| x.narrow(0, start, 6_400).unwrap());
    kernel.launch(&[&a, &b, &out], &[], kernel.grid([6_400, 1, 1]).unwrap()).unwrap();
    let mut want = once.clone();
    want[12_800..19_200].copy_from_slice(&mirrored(&once[..6_400], &once[6_400..12_800]));
    assert_eq!(x.to_vec::<f32>().unwrap(), want);
    // Overlapping by a part.
    let shifted = x.narrow(0, 64, 6_400).unwrap();
    kernel.launch(&[&shifted, &shifted, &a], &[], kernel.grid([6_400, 1, 1]).unwrap()).unwrap();
    let before = want[64..6_464].to_vec();
    want[..6_400].copy_from_slice(&mirrored(&before, &before));
    assert_eq!(x.to_vec::<f32>().unwrap(), want);
}

#[test]
fn atomics_and_workgroup_memory() {
    let device = device();
    let wgsl = "
        var<workgroup> counts: array<atomic<u32>, 8>;
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> histogram: array<atomic<u32>>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            // (Workgroup memory is 0 at first.)
            if id.x < arrayLength(&x) { atomicAdd(&counts[x[id.x] & 7u], 1u); }
            workgroupBarrier();
            if lane < 8u { atomicAdd(&histogram[lane], atomicLoad(&counts[lane])); }
        }";
    let args = &[KernelArg::input("x", DType::U32), KernelArg::in_out("histogram", DType::U32)];
    let kernel = WgslKernel::new(&device, KernelSource { name: "histogram", wgsl, args, ..KernelSource::default() }).unwrap();
    let values: Vec<u32> = (0..10_000).map(|i: u32| i.wrapping_mul(2_654_435_761) >> 7).collect();
    let x = Tensor::from_slice(&device, &[10_000], &values).unwrap();
    let histogram = Tensor::from_slice(&device, &[8], &[0u32; 8]).unwrap();
    for _ in 0..3 {
        kernel.launch(&[&x, &histogram], &[], kernel.grid([10_000, 1, 1]).unwrap()).unwrap();
    }
    let mut want = [0u32; 8];
    values.iter().for_each(|value| want[(value & 7) as usize] += 3);
    assert_eq!(histogram.to_vec::<u32>().unwrap(), want);
}

/// Two halves in a word, four bools; odd lengths, odd places, and neighbours that stay as they are.
#[test]
fn packed_types_are_words() {
    let device = device();
    let negate = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&y) { y[id.x] = x[id.x] ^ SIGNS; }
        }";
    let ones = |len: usize| -> Vec<half::f16> { (0..len).map(|i| half::f16::from_f32(i as f32)).collect() };
    let wgsl = negate.replace("SIGNS", "0x80008000u");
    let args = &[KernelArg::input("x", DType::F16), KernelArg::output("y", DType::F16)];
    let kernel = WgslKernel::new(&device, KernelSource { name: "negate", wgsl: &wgsl, args, ..KernelSource::default() }).unwrap();
    for (len, start) in [(1, 0), (7, 0), (7, 1), (8, 3), (129, 128), (1001, 7)] {
        let all = Tensor::from_slice(&device, &[len + start], &ones(len + start)).unwrap();
        let y = kernel.call(&[&all.narrow(0, start as isize, len).unwrap()], &[&[len]], &[], [16, 1, 1]).unwrap().remove(0);
        let want: Vec<half::f16> = ones(len + start)[start..].iter().map(|value| -*value).collect();
        assert_eq!(y.to_vec::<half::f16>().unwrap(), want, "{len} from {start}");
    }
    // A result that ends in the middle of a word of others is refused; one that ends with its tensor is not.
    let all = Tensor::from_slice(&device, &[301], &ones(301)).unwrap();
    let (x, short, last) = (all.narrow(0, 0, 45).unwrap(), all.narrow(0, 128, 45).unwrap(), all.narrow(0, 256, 45).unwrap());
    let error = kernel.launch(&[&x, &short], &[], [1; 3]).unwrap_err().to_string();
    assert!(
        error.contains("`y` is written, and ends in a word that holds elements of others too (45 elements of f16)"),
        "{error}"
    );
    kernel.launch(&[&x, &last], &[], [1; 3]).unwrap();
    let mut want = ones(301);
    (0..45).for_each(|i| want[256 + i] = -want[i]);
    assert_eq!(all.to_vec::<half::f16>().unwrap(), want);

    let wgsl = negate.replace("SIGNS", "0x01010101u");
    let args = &[KernelArg::input("x", DType::Bool), KernelArg::output("y", DType::Bool)];
    let kernel = WgslKernel::new(&device, KernelSource { name: "not", wgsl: &wgsl, args, ..KernelSource::default() }).unwrap();
    let flags = numbers(&device, &[13]).0.gt(&Tensor::zeros(&device, &[13]).unwrap()).unwrap();
    let y = kernel.call(&[&flags], &[&[13]], &[], [1; 3]).unwrap().remove(0);
    let want: Vec<u8> = flags.to_vec::<u8>().unwrap().iter().map(|flag| 1 - flag).collect();
    assert_eq!(y.to_vec::<u8>().unwrap(), want);
}

/// The kernel comes after what it reads on another stream, and before who reads or overwrites its tensors there.
#[test]
fn streams_order_it_like_any_operation() {
    let device = open(DeviceOptions::default());
    let kernel = reverse(&device);
    let [one, two, three] = [0; 3].map(|_| device.new_stream());
    let n = 256 * 256;
    let grid = kernel.grid([n, 1, 1]).unwrap();
    device.record_order_edges(Some(1000));
    for round in 0..5 {
        let (x, values) = numbers(&device, &[256, 256]);
        // Slow work first, on one stream ...
        let slow = one.scope(|| products(&device, 256, 10).mul_scalar(0.0)?.add(&x)).unwrap();
        // ... then the kernel on another, what uses its result on a third, and its input is overwritten on the first.
        let y = two.scope(|| kernel.call(&[&slow, &slow], &[&[n]], &[], grid).unwrap().remove(0));
        one.scope(|| slow.zero_()).unwrap();
        let z = three.scope(|| &y + 1.0).unwrap();
        drop((y, slow));
        let want: Vec<f32> = values.iter().rev().zip(&values).map(|(a, b)| a + b + 1.0).collect();
        assert_eq!(z.to_vec::<f32>().unwrap(), want, "round {round}");
    }
    let edges = device.order_edges().to_string();
    assert!(edges.contains("reverse") && edges.contains("own_kernels.rs"), "{edges}");
}

#[test]
fn memory_is_kept_until_it_has_run_and_used_again() {
    let device = open(DeviceOptions::default());
    let kernel = reverse(&device);
    let n = 50_000;
    let grid = kernel.grid([n, 1, 1]).unwrap();
    let (x, values) = numbers(&device, &[n]);
    let mut y = x.clone();
    let mut want = values.clone();
    for _ in 0..200 {
        // The handle of the kernel, its input and its output all go before it has run.
        let again = reverse(&device);
        y = again.call(&[&y, &x], &[&[n]], &[], grid).unwrap().remove(0);
        drop(Tensor::full(&device, &[n], -1.0).unwrap());
        want = want.iter().rev().zip(&values).map(|(a, b)| a + b).collect();
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    // A few tensors and what is on its way, not 400.
    assert!(device.memory_reserved() < 40 * n as u64 * 4, "{} bytes", device.memory_reserved());
    drop((x, y));
    device.synchronize().unwrap();
    assert_eq!(device.memory_allocated(), 0);
    // Between a launch and its encoding memory may move.
    let keep: Vec<Tensor> = (0..40).map(|_| Tensor::zeros(&device, &[n]).unwrap()).collect();
    let (x, values) = numbers(&device, &[n]);
    let y = kernel.call(&[&x, &x], &[&[n]], &[], grid).unwrap().remove(0);
    drop(keep);
    device.compact(u64::MAX).unwrap();
    let z = kernel.call(&[&y, &x], &[&[n]], &[], grid).unwrap().remove(0);
    device.compact(u64::MAX).unwrap();
    let first: Vec<f32> = values.iter().rev().zip(&values).map(|(a, b)| a + b).collect();
    let want: Vec<f32> = first.iter().rev().zip(&values).map(|(a, b)| a + b).collect();
    assert_eq!(z.to_vec::<f32>().unwrap(), want);
}

/// Stores and loads outside of a tensor do not reach its neighbours in the same buffer.
#[test]
fn a_wrong_index_stays_inside_its_tensor() {
    let device = device();
    let wgsl = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x * 3u] = x[id.x * 5u];
            y[0xffffffffu - id.x] = x[0u - id.x - 1u];
        }";
    let args = &[KernelArg::input("x", DType::F32), KernelArg::output("y", DType::F32)];
    let kernel = WgslKernel::new(&device, KernelSource { name: "wild", wgsl, args, ..KernelSource::default() }).unwrap();
    let around = Tensor::full(&device, &[3 * 64], 7.0).unwrap();
    let x = Tensor::full(&device, &[64], 1.0).unwrap();
    kernel.launch(&[&x, &around.narrow(0, 64, 64).unwrap()], &[], [16, 1, 1]).unwrap();
    let values = around.to_vec::<f32>().unwrap();
    assert!(values[..64].iter().chain(&values[128..]).all(|value| *value == 7.0), "{values:?}");
    assert!(values[64..128].iter().all(|value| [0.0, 1.0, 7.0].contains(value)), "{values:?}");
    assert!(x.to_vec::<f32>().unwrap().iter().all(|value| *value == 1.0));
}

/// Parameters of linn's kernels and of a program's share a submission.
#[test]
fn parameters_are_those_of_each_launch() {
    let device = device();
    let line = line(&device);
    let x = Tensor::ones(&device, &[10]).unwrap();
    let outs: Vec<Tensor> = (0..300)
        .map(|n| {
            let y = line.call(&[&x], &[&[10], &[2]], &[n.into(), 10.into()], [1; 3]).unwrap().remove(0);
            (&y + f64::from(n)).unwrap()
        })
        .collect();
    for (n, y) in outs.iter().enumerate() {
        let want: Vec<f32> = (0..10).map(|i| (2 * n + i) as f32).collect();
        assert_eq!(y.to_vec::<f32>().unwrap(), want);
    }
}

/// softplus: y = ln(1 + e^x) and dx = dy / (1 + e^-x), by two entry points of one text.
const SOFTPLUS: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn forward(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&y) { let v = x[id.x]; y[id.x] = max(v, 0.0) + log(1.0 + exp(-abs(v))); }
}
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;
@compute @workgroup_size(64) fn backward(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&dx) { dx[id.x] = dy[id.x] / (1.0 + exp(-x[id.x])); }
}";

#[derive(Clone)]
struct Softplus {
    forward: WgslKernel,
    backward: WgslKernel,
}

impl Softplus {
    fn new(device: &Device) -> Softplus {
        let [x, y] = [KernelArg::input("x", DType::F32), KernelArg::output("y", DType::F32)];
        let [dy, dx] = [KernelArg::input("dy", DType::F32), KernelArg::output("dx", DType::F32)];
        let make = |entry_point, args: &[KernelArg<'_>]| {
            let source = KernelSource { name: "softplus", wgsl: SOFTPLUS, entry_point, args, ..KernelSource::default() };
            WgslKernel::new(device, source).unwrap()
        };
        Softplus { forward: make("forward", &[x, y]), backward: make("backward", &[x, dy, dx]) }
    }
}

impl Function for Softplus {
    fn forward(&mut self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let x = inputs[0];
        if ctx.needs_input_grad(0) {
            ctx.save_for_backward(&[x]);
        }
        self.forward.call(&[x], &[x.shape()], &[], self.forward.grid([x.len(), 1, 1])?)
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let x = &ctx.saved_tensors()[0];
        let grid = self.backward.grid([x.len(), 1, 1])?;
        Ok(self.backward.call(&[x, &grads[0]], &[x.shape()], &[], grid)?.into_iter().map(Some).collect())
    }
}

#[test]
fn a_function_of_kernels_has_their_gradient() {
    let device = device();
    let softplus = Softplus::new(&device);
    let (x, values) = numbers(&device, &[7, 9]);
    let x = (&x * 0.1).unwrap();
    let [y] = softplus.clone().apply(&[&x]).unwrap();
    for (got, x) in y.to_vec::<f32>().unwrap().iter().zip(values) {
        let want = (1.0 + (f64::from(x) * 0.1).exp()).ln();
        assert!((f64::from(*got) - want).abs() < 1e-4, "{got}, softplus({x} / 10) is {want}");
    }
    // Finite differences; also of views, and where the gradient that comes is one number for all (sum), and used twice.
    let options = GradcheckOptions::default;
    let apply = |x: &Tensor| softplus.clone().apply::<1>(&[x]).map(|[y]| y);
    gradcheck(|x| apply(&x[0]), std::slice::from_ref(&x), options()).unwrap();
    gradcheck(|x| apply(&x[0].t()?)?.sum_all(), std::slice::from_ref(&x), options()).unwrap();
    gradcheck(|x| apply(&x[0])?.mul(&apply(&x[0].neg()?)?), &[x.narrow(1, 2, 3).unwrap()], options()).unwrap();
    // Through a checkpoint, which runs it twice.
    let again = softplus.clone();
    let leaf = x.detach().requires_grad_(true).unwrap();
    let out = checkpoint(move |x| again.clone().apply::<1>(&[&x[0]]).map(|[y]| y), &[&leaf]).unwrap();
    out.sum_all().unwrap().backward().unwrap();
    let want = grad(&[&apply(&leaf).unwrap().sum_all().unwrap()], &[&leaf]).unwrap().remove(0);
    assert_eq!(leaf.grad().unwrap().to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
    // Nothing is recorded where nobody wants a gradient.
    assert!(!no_grad(|| apply(&leaf)).unwrap().requires_grad() && !y.requires_grad());
}

type Forward = fn(&mut Context, &[&Tensor]) -> Result<Vec<Tensor>>;
type Gradients = fn(&Context, &[Tensor]) -> Result<Vec<Option<Tensor>>>;

/// A function put together on the spot.
#[derive(Clone, Copy)]
struct Odd(Forward, Gradients);

impl Function for Odd {
    fn forward(&mut self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        (self.0)(ctx, inputs)
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        (self.1)(ctx, grads)
    }
}

/// x y, x + y, and where x is larger, with gradients by hand.
const PAIR: Odd = Odd(
    |ctx, inputs| {
        let [x, y] = [inputs[0], inputs[1]];
        ctx.save_for_backward(&[x, y]);
        Ok(vec![x.mul(y)?, x.add(y)?, x.gt(y)?])
    },
    |ctx, grads| {
        let [x, y] = ctx.saved_tensors() else { panic!("two were saved") };
        assert!(!x.requires_grad() && grads.len() == 3);
        let part = |i: usize, other: &Tensor| -> Result<Option<Tensor>> {
            ctx.needs_input_grad(i).then(|| grads[0].mul(other)?.add(&grads[1])).transpose()
        };
        Ok(vec![part(0, y)?, part(1, x)?])
    },
);

fn leaf(device: &Device, values: &[f32]) -> Tensor {
    Tensor::from_slice(device, &[values.len()], values).unwrap().requires_grad_(true).unwrap()
}

#[test]
fn gradients_of_results_that_are_not_used_are_zeros() {
    let device = device();
    let (x, y) = (leaf(&device, &[1.0, 2.0]), leaf(&device, &[3.0, 4.0]));
    let grads = |out: &Tensor, of: &[&Tensor]| -> Vec<Vec<f32>> {
        grad(&[&out.sum_all().unwrap()], of).unwrap().iter().map(|grad| grad.to_vec().unwrap()).collect()
    };
    let [product, sum, larger] = PAIR.apply(&[&x, &y]).unwrap();
    assert!(product.requires_grad() && sum.requires_grad() && !larger.requires_grad());
    assert_eq!(grads(&product, &[&x, &y]), [[3.0, 4.0], [1.0, 2.0]]);
    let [product, sum, _] = PAIR.apply(&[&x, &y]).unwrap();
    assert_eq!(grads(&sum, &[&x, &y]), [[1.0, 1.0], [1.0, 1.0]]);
    drop(product);
    let [product, sum, _] = PAIR.apply(&[&x, &y]).unwrap();
    assert_eq!(grads(&product.add(&sum).unwrap(), &[&x, &y]), [[4.0, 5.0], [2.0, 3.0]]);
    // An input that wants none is told from one that does.
    let [product, _, _] = PAIR.apply(&[&x, &y.detach()]).unwrap();
    assert_eq!(grads(&product, &[&x]), [[3.0, 4.0]]);
    // Gradients that were broadcast are summed, and those of another float converted, as PyTorch does.
    let wide = Odd(|_, x| Ok(vec![x[0].expand(&[3, 2])?.contiguous()?]), |_, grads| Ok(vec![Some(grads[0].clone())]));
    let [out] = wide.apply(&[&x]).unwrap();
    assert_eq!(grads(&out, &[&x]), [[3.0, 3.0]]);
    let halves = Odd(|_, x| Ok(vec![x[0].clone()]), |_, grads| Ok(vec![Some(grads[0].to_dtype(DType::F16)?)]));
    let [out] = halves.apply(&[&x]).unwrap();
    assert_eq!(grads(&out, &[&x]), [[1.0, 1.0]]);
}

#[test]
fn a_result_may_be_a_view_of_an_input() {
    let device = device();
    let x = leaf(&device, &[1.0, 2.0, 3.0]);
    // Gradient reversal: the input itself, and its gradient times -2.
    let reversal = Odd(|_, x| Ok(vec![x[0].clone()]), |_, grads| Ok(vec![Some(grads[0].mul_scalar(-2.0)?)]));
    let [y] = reversal.apply(&[&x]).unwrap();
    assert!(y.shares_storage(&x) && !y.is_leaf());
    y.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [-4.0, -8.0, -12.0]);
    let error = y.add_scalar_(1.0).unwrap_err().to_string();
    assert!(error.contains("add_scalar_ on a view"), "{error}");
    // Marked as without gradient, it has none.
    let constant = Odd(
        |ctx, x| {
            let y = x[0].add_scalar(1.0)?;
            ctx.mark_non_differentiable(&[&y]);
            Ok(vec![y])
        },
        |_, _| panic!("nobody asks"),
    );
    let [y] = constant.apply(&[&x]).unwrap();
    assert!(!y.requires_grad());
}

#[test]
fn a_function_that_does_wrong_is_an_error_that_names_it() {
    let device = device();
    let x = leaf(&device, &[1.0, 2.0]);
    let says = |error: linn::Error, words: &[&str]| {
        let text = error.to_string();
        assert!(text.lines().count() == 2 && text.contains("\nhelp: "), "{text}");
        words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is not in\n{text}"));
    };
    let backward = |gradients: Gradients| {
        let forward: Forward = |ctx, x| {
            ctx.save_for_backward(&[x[0]]);
            Ok(vec![x[0].square()?])
        };
        let [y] = Odd(forward, gradients).apply(&[&x]).unwrap();
        let error = y.sum_all().unwrap().backward().unwrap_err();
        assert!(x.grad().is_none());
        error
    };
    says(backward(|_, _| Ok(vec![])), &["backward of `Odd` gave 0 gradients for 1 inputs"]);
    says(backward(|_, g| Ok(vec![Some(g[0].clone()), None])), &["gave 2 gradients for 1 inputs"]);
    says(
        backward(|_, g| Ok(vec![Some(g[0].narrow(0, 0, 1)?)])),
        &["backward of `Odd` gave a gradient of shape [1] for input 0 of shape [2]"],
    );
    says(backward(|_, g| Ok(vec![Some(g[0].to_dtype(DType::I32)?)])), &["gave a gradient of i32 for input 0"]);
    says(backward(|_, _| linn::Tensor::empty(&crate::device::device(), &[usize::MAX], DType::F32).map(|_| vec![])), &["help"]);
    // What was saved is changed before it is used.
    let y = x.mul_scalar(1.0).unwrap();
    let [product, ..] = PAIR.apply::<3>(&[&y, &y]).unwrap();
    no_grad(|| y.add_scalar_(1.0)).unwrap();
    says(product.sum_all().unwrap().backward().unwrap_err(), &["a tensor saved for `Odd` (shape [2]) was changed in place"]);
    // Twice, and a gradient of a gradient.
    let [product, ..] = PAIR.apply::<3>(&[&x, &x]).unwrap();
    let sum = product.sum_all().unwrap();
    let first = grad(&[&sum], &[&x]).unwrap().remove(0);
    assert_eq!(first.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    says(sum.backward().unwrap_err(), &["backward runs a second time through `"]);
    says(first.sum_all().unwrap().backward().unwrap_err(), &["wants no gradient"]);
    // Another number of results, and an input that is changed.
    says(PAIR.apply::<2>(&[&x, &x]).map(|_| ()).unwrap_err(), &["`Odd` gave 3 results where 2 are wanted", "let [y, z]"]);
    let changes = Odd(
        |_, x| {
            x[0].detach().add_scalar_(1.0)?;
            Ok(vec![x[0].square()?])
        },
        |_, _| Ok(vec![None]),
    );
    says(changes.apply::<1>(&[&y]).map(|_| ()).unwrap_err(), &["`Odd` changed input 0 in place, which wants gradients"]);
    let [_] = no_grad(|| changes.apply(&[&y])).unwrap();
}
