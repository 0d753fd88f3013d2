//! Gradients: leaves, backward, accumulation, `no_grad`, hooks, and one step of descent by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linn::autograd::{grad, no_grad};
use linn::device::Device;
use linn::tensor::Tensor;

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(_quick: bool) -> anyhow::Result<()> {
    let device = Device::open()?;

    // A leaf collects gradients; everything computed from it remembers how.
    let w = Tensor::new(&device, [2.0f32, -1.0])?.requires_grad_(true)?;
    let x = Tensor::new(&device, [3.0f32, 4.0])?;
    let loss = (&(&w * &x)? - 1.0)?.square()?.sum_all()?; // (2*3 - 1)^2 + (-1*4 - 1)^2
    assert_eq!(loss.item::<f32>()?, 50.0);

    // d loss / d w = 2 (w x - 1) x
    loss.backward()?;
    let gradient = w.grad().map(|grad| grad.to_vec::<f32>()).transpose()?;
    assert_eq!(gradient.as_deref(), Some(&[30.0, -40.0][..]));
    println!("gradient {gradient:?}");

    // A second pass adds to the first, as in PyTorch.
    w.sum_all()?.backward()?;
    assert_eq!(w.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![31.0, -39.0]));

    // Hooks see gradients on their way.
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let handle = w.register_hook(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    })?;
    w.zero_grad();
    w.square()?.sum_all()?.backward()?;
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    handle.remove();

    // Under no_grad nothing is remembered, and a leaf may be changed in place.
    no_grad(|| -> linn::Result<()> {
        if let Some(gradient) = w.grad() {
            w.add_(&gradient, -0.1)?; // w -= 0.1 * 2 w
        }
        Ok(())
    })?;
    let stepped = w.to_vec::<f32>()?;
    println!("after one step {stepped:?}");
    assert!((stepped[0] - 1.6).abs() < 1e-6 && (stepped[1] + 0.8).abs() < 1e-6);

    // Gradients without touching any leaf.
    let by_w = grad(&[&w.exp()?.sum_all()?], &[&w])?;
    println!("d sum(exp w) / d w = {:?}", by_w[0].to_vec::<f32>()?);
    Ok(())
}
