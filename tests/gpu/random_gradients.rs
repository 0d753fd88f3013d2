//! Gradients of random programs of views, joins, sums and one product, against differences.
//!
//! Such a program is a polynomial of degree 2 in each of its inputs, so (f(x + 1) - f(x - 1)) / 2 is its derivative, and with
//! small whole numbers both are exact on every driver. `LINN_LONG=1` runs ten times as many programs.

use linn::autograd::{cat, no_grad, stack};
use linn::layout::MAX_RANK;
use linn::ops::reduce::KeepDim;
use linn::{Device, Result, Tensor};

use crate::device::device;
use crate::random_programs::Dice;

/// The numbers of `shape`, between -2 and 2.
fn constant(device: &Device, dice: &mut Dice, shape: &[usize]) -> Result<Tensor> {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| dice.below(5) as f32 - 2.0).collect();
    Tensor::from_slice(device, shape, &values)
}

/// A step that is linear in x.
fn linear(dice: &mut Dice, x: &Tensor) -> Result<Tensor> {
    let rank = x.rank();
    if rank == 0 {
        return x.unsqueeze(0)?.expand(&[3]);
    }
    let dim = dice.below(rank);
    let (at, len) = (dim as isize, x.shape()[dim]);
    let small = x.len() < 24 && rank < MAX_RANK;
    match dice.below(15) {
        0 => x.transpose(at, dice.below(rank) as isize),
        1 => x.permute(&(0..rank).map(|i| ((i + dim) % rank) as isize).collect::<Vec<_>>()),
        2 => {
            let start = dice.below(len);
            x.narrow(at, start as isize, 1 + dice.below(len - start))
        }
        3 => x.select(at, dice.below(len) as isize),
        4 if small => x.unsqueeze(at)?.expand(&[&vec![-1; dim], &[2][..], &vec![-1; rank - dim]].concat()),
        5 => x.reshape(&[-1, if x.len().is_multiple_of(2) { 2 } else { 1 }]),
        6 => x.sum(&[at], if dice.below(2) == 0 { KeepDim::Keep } else { KeepDim::Drop }),
        7 if small => cat(&[x, &x.narrow(at, 0, 1 + dice.below(len))?], at),
        8 if small => stack(&[x, &x.neg()?], at),
        9 => {
            let parts = x.split(1 + dice.below(len), at)?;
            parts[dice.below(parts.len())].add(&parts[0].narrow(at, 0, 1)?)
        }
        10 => {
            let mut shape = x.shape().to_vec();
            shape[dim] = 1 + dice.below(4);
            let ids: Vec<i32> = (0..shape.iter().product()).map(|_| dice.below(len) as i32).collect();
            x.gather(at, &Tensor::from_slice(x.device(), &shape, &ids)?)
        }
        11 if rank == 2 => {
            let ids: Vec<i32> = (0..3).map(|_| dice.below(x.shape()[0]) as i32).collect();
            x.embedding(&Tensor::from_slice(x.device(), &[3], &ids)?)
        }
        12 => {
            let held = constant(x.device(), dice, x.shape())?;
            x.where_(&held.gt(&held.mul_scalar(0.0)?)?, &(x * -2.0)?)
        }
        13 => {
            // In place on a result, whose history goes on.
            let y = x.mul_scalar(2.0)?;
            y.add_(&x.sum(&[at], KeepDim::Keep)?, -1.0)?;
            y.mul_(&constant(x.device(), dice, x.shape())?)?;
            Ok(y)
        }
        _ => x.sub(&constant(x.device(), dice, x.shape())?),
    }
}

/// The program `seed` of `x`: two chains of linear steps, their product, a weighted sum.
fn program(seed: u64, x: &Tensor) -> Result<Tensor> {
    let (dice, device) = (&mut Dice::new(seed), x.device().clone());
    let mut chains = [x.clone(), x.clone()];
    for chain in &mut chains {
        for _ in 0..1 + dice.below(5) {
            *chain = linear(dice, chain)?;
        }
    }
    let [a, b] = chains;
    let product = match (a.rank(), b.rank(), dice.below(3)) {
        // One of them flat and cut to what fits the other.
        (2.., 1.., 0) => {
            let (k, b) = (a.shape()[a.rank() - 1], b.reshape(&[-1])?);
            let b = b.unsqueeze(0)?.expand(&[k as isize, -1])?;
            a.matmul(&b)?
        }
        (1.., _, 1) => {
            let weight = constant(&device, dice, &[3, a.shape()[a.rank() - 1]])?;
            a.linear(&weight, None)?.mul(&b.sum_all()?)?
        }
        _ => a.mul(&b.reshape(&[-1])?.narrow(0, 0, 1)?)?.add(&b.sum_all()?)?,
    };
    let weights = constant(&device, dice, product.shape())?;
    product.mul(&weights)?.sum_all()
}

#[test]
fn gradients_of_random_programs_are_differences() {
    let programs = if std::env::var_os("LINN_LONG").is_some() { 300 } else { 30 };
    let device = device();
    let mut not_zero = 0;
    for seed in 0..programs {
        let dice = &mut Dice::new(seed + 1_000_000);
        let shape: Vec<usize> = (0..1 + dice.below(3)).map(|_| 1 + dice.below(3)).collect();
        let values = constant(&device, dice, &shape).unwrap().to_vec::<f32>().unwrap();
        let at = |values: &[f32]| Tensor::from_slice(&device, &shape, values).unwrap();
        let x = at(&values).requires_grad_(true).unwrap();
        program(seed, &x).unwrap().backward().unwrap();
        let got = x.grad().map_or_else(|| vec![0.0; values.len()], |grad| grad.to_vec::<f32>().unwrap());
        let moved = |i: usize, by: f32| {
            let mut values = values.clone();
            values[i] += by;
            no_grad(|| program(seed, &at(&values)).unwrap().item_async::<f32>().unwrap())
        };
        let reads: Vec<_> = (0..values.len()).map(|i| [moved(i, 1.0), moved(i, -1.0)]).collect();
        let value = |read: linn::tensor::TensorRead<f32>| read.wait().unwrap()[0];
        let want: Vec<f32> = reads.into_iter().map(|[more, less]| (value(more) - value(less)) / 2.0).collect();
        assert_eq!(got, want, "program {seed} of shape {shape:?}");
        not_zero += usize::from(want.iter().any(|slope| *slope != 0.0));
    }
    assert!(not_zero > programs as usize / 2, "{not_zero} programs depend on their input");
}
