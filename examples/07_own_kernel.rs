//! A kernel of your own: WGSL that computes y = silu(a) b in one pass (the gate of a SwiGLU layer), and its gradients in another.
//!
//! linn checks the text against what is declared, orders it among its own operations, and takes it for a step of the backward
//! pass. The result is compared with the same formula put together from linn's operations, its gradients with these and with
//! finite differences; then both are timed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use linn::autograd::{Context, Function, GradcheckOptions, gradcheck};
use linn::kernel::{KernelArg, KernelSource};
use linn::{DType, Device, Result, Tensor, WgslKernel};

/// Two kernels in one text: each uses the variables that its entry point names.
const WGSL: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// The grid has two dimensions, because one has 65,535 workgroups at most.
fn index(id: vec3<u32>, groups: vec3<u32>) -> u32 { return id.y * groups.x * 64u + id.x; }
fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(-x)); }

@compute @workgroup_size(64)
fn forward(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = index(id, groups);
    if i < arrayLength(&y) { y[i] = a[i] * sigmoid(a[i]) * b[i]; }
}

@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> da: array<f32>;
@group(0) @binding(4) var<storage, read_write> db: array<f32>;

// d silu(a) / da = s + a s (1 - s) with s = sigmoid(a)
@compute @workgroup_size(64)
fn backward(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = index(id, groups);
    if i >= arrayLength(&da) { return; }
    let s = sigmoid(a[i]);
    da[i] = dy[i] * b[i] * (s + a[i] * s * (1.0 - s));
    db[i] = dy[i] * a[i] * s;
}
";

/// Both kernels; a clone is two handles.
#[derive(Clone)]
struct Gate {
    forward: WgslKernel,
    backward: WgslKernel,
}

impl Gate {
    fn new(device: &Device) -> Result<Gate> {
        let input = |name| KernelArg::input(name, DType::F32);
        let output = |name| KernelArg::output(name, DType::F32);
        let kernel = |name, entry_point, args: &[KernelArg<'_>]| {
            WgslKernel::new(device, KernelSource { name, wgsl: WGSL, entry_point, args, ..KernelSource::default() })
        };
        Ok(Gate {
            forward: kernel("gate", "forward", &[input("a"), input("b"), output("y")])?,
            backward: kernel("gate_backward", "backward", &[input("a"), input("b"), input("dy"), output("da"), output("db")])?,
        })
    }

    /// Rows of 1,024 workgroups.
    fn grid(len: usize) -> [u32; 3] {
        let groups = len.div_ceil(64);
        [groups.min(1024) as u32, groups.div_ceil(1024) as u32, 1]
    }
}

impl Function for Gate {
    fn forward(&mut self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(inputs);
        let shape = inputs[0].shape();
        self.forward.call(inputs, &[shape], &[], Gate::grid(inputs[0].len()))
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let [a, b] = ctx.saved_tensors() else { return Ok(vec![]) };
        let grads = self.backward.call(&[a, b, &grads[0]], &[a.shape(), b.shape()], &[], Gate::grid(a.len()))?;
        Ok(grads.into_iter().map(Some).collect())
    }
}

/// The same of linn's operations.
fn composed(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.silu()?.mul(b)
}

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(quick: bool) -> anyhow::Result<()> {
    let device = Device::open()?;
    println!("on {}", device.info());
    let gate = Gate::new(&device)?;
    let shape = if quick { [33, 65] } else { [2048, 1024] };
    let a = Tensor::randn(&device, &shape)?.requires_grad_(true)?;
    let b = Tensor::randn(&device, &shape)?.requires_grad_(true)?;

    println!("\n1. Values and gradients of {shape:?}, against linn's own operations:");
    let [y] = gate.clone().apply(&[&a, &b])?;
    println!("   y      differs by {:.1e} at most", difference(&y, &composed(&a, &b)?)?);
    y.square()?.sum_all()?.backward()?;
    let own = [a.grad(), b.grad()];
    [&a, &b].iter().for_each(|leaf| leaf.zero_grad());
    composed(&a, &b)?.square()?.sum_all()?.backward()?;
    for (name, leaf, own) in [("dL/da", &a, &own[0]), ("dL/db", &b, &own[1])] {
        let (Some(own), Some(want)) = (own, leaf.grad()) else { anyhow::bail!("{name} is missing") };
        println!("   {name}  differs by {:.1e} at most", difference(own, &want)?);
    }

    println!("\n2. Gradients against finite differences, also of a transposed view:");
    let small = [Tensor::randn(&device, &[3, 4])?, Tensor::randn(&device, &[4, 3])?];
    let function = gate.clone();
    gradcheck(move |x| function.clone().apply(&[&x[0], &x[1].t()?]).map(|[y]| y), &small, GradcheckOptions::default())?;
    println!("   all 24 agree");

    println!("\n3. What a mistake reads like:");
    let wrong = WGSL.replace("sigmoid(a[i]) * b[i]", "sigmoid(a[i]) * c[i]");
    let args = &[KernelArg::input("a", DType::F32), KernelArg::input("b", DType::F32), KernelArg::output("y", DType::F32)];
    let source = KernelSource { name: "gate", wgsl: &wrong, entry_point: "forward", args, ..KernelSource::default() };
    let Err(error) = WgslKernel::new(&device, source) else { anyhow::bail!("c is nothing") };
    println!("   {}", error.to_string().replace('\n', "\n   "));

    println!("\n4. Time of a forward and a backward pass (best of some, each with a synchronise):");
    let rounds = if quick { 2 } else { 10 };
    let fused = time(&device, rounds, || gate.clone().apply(&[&a, &b]).map(|[y]| y), &a, &b)?;
    let parts = time(&device, rounds, || composed(&a, &b), &a, &b)?;
    // Forward: a, b in, y out. Backward: a, b, dy in, da, db out.
    let bytes = (8 * a.len() * 4) as f64;
    let line = |name: &str, time: Duration| {
        let seconds = time.as_secs_f64();
        println!(
            "   {name} {:9.3} ms ({:.2} GB/s, counting what has to be read and written)",
            seconds * 1e3,
            bytes / seconds / 1e9
        );
    };
    line("own kernels       ", fused);
    line("linn's operations ", parts);
    println!("   ratio {:.2}", parts.as_secs_f64() / fused.as_secs_f64());
    Ok(())
}

/// The largest difference; an error where it is more than rounding.
fn difference(a: &Tensor, b: &Tensor) -> anyhow::Result<f32> {
    let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
    let mut most = 0f32;
    for (a, b) in a.iter().zip(&b) {
        let off = (a - b).abs();
        ensure!(off <= 1e-5 + 1e-4 * b.abs(), "{a} where {b} is right");
        most = most.max(off);
    }
    Ok(most)
}

/// The shortest time of a forward and a backward pass, after one that is not counted (it compiles).
fn time(device: &Device, rounds: usize, f: impl Fn() -> Result<Tensor>, a: &Tensor, b: &Tensor) -> anyhow::Result<Duration> {
    let mut best = Duration::MAX;
    for round in 0..=rounds {
        [a, b].iter().for_each(|leaf| leaf.zero_grad());
        device.synchronize()?;
        let start = Instant::now();
        let y = f()?;
        let gradient = y.detach();
        y.backward_with(linn::autograd::BackwardOptions { gradient: Some(gradient), ..Default::default() })?;
        device.synchronize()?;
        if round > 0 {
            best = best.min(start.elapsed());
        }
    }
    Ok(best)
}
