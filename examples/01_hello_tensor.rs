//! Making tensors, computing with them, reading them back.

use linn::ops::reduce::KeepDim;
use linn::{Device, Tensor};

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(_quick: bool) -> anyhow::Result<()> {
    // The best adapter; LINN_BACKEND and LINN_ADAPTER choose another.
    let device = Device::open()?;
    println!("running on {}", device.info());

    // From nested arrays and slices; f32, i32 and u32.
    let a = Tensor::new(&device, [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    let b = Tensor::from_slice(&device, &[3], &[10.0f32, 20.0, 30.0])?;

    // Every operation is enqueued and returns at once. Shapes broadcast as in PyTorch; scalars go on both sides.
    let c = (&a + &b)?;
    let d = (2.0 * &c)?;

    // Views share memory: a transposed view costs nothing.
    let t = d.transpose(0, 1)?;
    assert_eq!(t.shape(), &[3, 2]);

    // Reading waits for the device, and printing reads.
    println!("2 (a + b) =\n{d}");
    assert_eq!(t.to_vec::<f32>()?, [22.0, 28.0, 44.0, 50.0, 66.0, 72.0]);

    let rows = d.sum(&[1], KeepDim::Drop)?;
    assert_eq!(rows.to_vec::<f32>()?, [132.0, 150.0]);
    println!("row sums {rows}, total {}", d.sum_all()?.item::<f32>()?);

    // What does not fit is an error with a line of help, never a panic.
    let error = (&a + &Tensor::new(&device, [1.0f32, 2.0])?).err().map(|error| error.to_string()).unwrap_or_default();
    println!("adding [2, 3] and [2] says:\n{error}");
    assert!(error.contains("help:"));
    Ok(())
}
