//! Sorting and searching against their references: lengths around powers of two, equal elements, NaN.

use linn::Tensor;
use linn::ops::sort::{self, Order, Side};

use crate::close::{numbers, wide};
use crate::device::device;
use crate::reference;

/// Few different values, zeros of both signs, NaN among them.
fn lines(seed: u32, len: usize) -> Vec<f32> {
    let value = |x: &f32| if *x > 1.8 { f32::NAN } else { (x * 4.0).round() / 4.0 };
    numbers(seed, len).iter().map(value).collect()
}

#[test]
fn sorted_positions_of_lines() {
    for (outer, n) in [(3, 1), (2, 2), (5, 3), (1, 64), (4, 65), (2, 1000), (1, 20_011)] {
        let data = lines(n as u32, outer * n);
        let whole: Vec<i32> = data.iter().map(|x| if x.is_nan() { i32::MIN } else { (x * 8.0) as i32 }).collect();
        for (order, descending) in [(Order::Ascending, false), (Order::Descending, true)] {
            let what = format!("{outer} x {n}, {order:?}");
            let got = sort::argsort(&Tensor::from_slice(&device(), &[outer, n], &data).unwrap(), order).unwrap();
            let want: Vec<i32> = data.chunks(n).flat_map(|line| reference::sort_step(&wide(line), descending)).collect();
            assert_eq!(got.to_vec::<i32>().unwrap(), want, "{what}");
            let got = sort::argsort(&Tensor::from_slice(&device(), &[outer, n], &whole).unwrap(), order).unwrap();
            let want: Vec<i32> = whole.chunks(n).flat_map(|line| reference::sort_step_integer(line, descending)).collect();
            assert_eq!(got.to_vec::<i32>().unwrap(), want, "{what}, i32");
        }
    }
}

#[test]
fn places_in_rising_lines() {
    for n in [1, 2, 7, 64, 1001] {
        let mut line = lines(n as u32, n);
        line.sort_by(|a, b| a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)));
        let values = lines(9, 300);
        let (sorted, at) = (Tensor::from_slice(&device(), &[n], &line).unwrap(), Tensor::from_slice(&device(), &[300], &values));
        let at = at.unwrap();
        let whole = |x: &[f32]| x.iter().map(|x| (x * 8.0) as i32).collect::<Vec<i32>>();
        let (mut whole_line, whole_values) = (whole(&line), whole(&values));
        whole_line.sort_unstable();
        let whole_sorted = Tensor::from_slice(&device(), &[n], &whole_line).unwrap();
        let whole_at = Tensor::from_slice(&device(), &[300], &whole_values).unwrap();
        for (side, right) in [(Side::Left, false), (Side::Right, true)] {
            let got = sort::searchsorted("searchsorted", &sorted, &at, side).unwrap().to_vec::<i32>().unwrap();
            let want: Vec<i32> = values.iter().map(|x| reference::searchsorted(&wide(&line), f64::from(*x), right)).collect();
            assert_eq!(got, want, "{n}, {side:?}");
            let got = sort::searchsorted("searchsorted", &whole_sorted, &whole_at, side).unwrap().to_vec::<i32>().unwrap();
            let want: Vec<i32> = whole_values.iter().map(|x| reference::searchsorted_integer(&whole_line, *x, right)).collect();
            assert_eq!(got, want, "{n}, {side:?}, i32");
        }
    }
}
