//! When a result is right.

use std::collections::BTreeSet;

use super::manifest::{Data, Host};

/// |a - b| <= abs + rel |b|.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub abs: f32,
    pub rel: f32,
}

/// What every operator has to meet.
pub const STRICT: Tolerance = Tolerance { abs: 1e-5, rel: 1e-4 };

/// Whether a zero of the other sign will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    Alike,
    Signed,
}

/// What differs, if anything: NaN equals NaN, infinities equal those of their sign, whole numbers and truth values are exact.
pub fn difference(got: &Host, want: &Host, tolerance: Tolerance, zeros: Zeros) -> Option<String> {
    if got.shape != want.shape {
        return Some(format!("shape {:?} instead of {:?}", got.shape, want.shape));
    }
    let first = match (&got.data, &want.data) {
        (Data::F32(got), Data::F32(want)) => first(got, want, |got, want| close(*got, *want, tolerance, zeros)),
        (Data::I32(got), Data::I32(want)) => first(got, want, |got, want| got == want),
        (Data::Bool(got), Data::Bool(want)) => first(got, want, |got, want| got == want),
        (got, want) => Some(format!("{} instead of {}", got.name(), want.name())),
    };
    first.map(|first| format!("{first} (shape {:?})", want.shape))
}

/// Why positions along `dim` of `input` are none that PyTorch leaves open: they name, once each and in the same order, elements that
/// are equal to those that `want` names.
pub fn untied(input: &Host, dim: usize, got: &Host, want: &Host) -> Option<String> {
    let (Data::I32(got), Data::I32(positions)) = (&got.data, &want.data) else { return Some("no positions".to_string()) };
    let inner: usize = want.shape.iter().skip(dim + 1).product();
    let (len, count) = (input.shape.get(dim).copied().unwrap_or(1), want.shape.get(dim).copied().unwrap_or(1));
    let element = |at: usize, position: i32| {
        let line = at / inner / count * len;
        usize::try_from(position).ok().filter(|position| *position < len).map(|position| (line + position) * inner + at % inner)
    };
    let same = |a: usize, b: usize| match &input.data {
        Data::F32(data) => data[a] == data[b] || data[a].is_nan() && data[b].is_nan(),
        Data::I32(data) => data[a] == data[b],
        Data::Bool(data) => data[a] == data[b],
        _ => false,
    };
    let mut named = BTreeSet::new();
    let wrong = |at: &usize| {
        let (Some(a), Some(b)) = (element(*at, got[*at]), element(*at, positions[*at])) else { return true };
        !same(a, b) || !named.insert(a)
    };
    let first = (0..positions.len()).find(wrong)?;
    Some(format!("position {} at {first}, where an equal element would do (PyTorch's is {})", got[first], positions[first]))
}

#[test]
fn only_equal_elements_may_change_places() {
    let host = |shape: &[usize], data: Data| Host { shape: shape.to_vec(), data };
    let input = host(&[2, 3], Data::F32(vec![1.0, 1.0, 0.0, f32::NAN, 2.0, f32::NAN]));
    let positions = |data: [i32; 4]| host(&[2, 2], Data::I32(data.to_vec()));
    let want = positions([0, 1, 0, 2]);
    assert_eq!(untied(&input, 1, &positions([1, 0, 2, 0]), &want), None);
    for wrong in [[0, 0, 0, 2], [0, 2, 0, 2], [0, 1, 0, 1], [0, 3, 0, 2], [0, -1, 0, 2]] {
        assert!(untied(&input, 1, &positions(wrong), &want).is_some(), "{wrong:?}");
    }
}

impl Host {
    /// What is wanted of a driver that may take arguments for zeros: element `flushed[at]` where `got` is not what is wanted at `at`
    /// but what is wanted there.
    pub fn or_flushed(&self, got: &Host, flushed: &[usize], tolerance: Tolerance, zeros: Zeros) -> Host {
        let data = match (&got.data, &self.data) {
            (Data::F32(got), Data::F32(want)) if got.len() == want.len() => {
                Data::F32(chosen(got, want, flushed, |got, want| close(*got, *want, tolerance, zeros)))
            }
            (Data::Bool(got), Data::Bool(want)) if got.len() == want.len() => {
                Data::Bool(chosen(got, want, flushed, |got, want| got == want))
            }
            _ => return self.clone(),
        };
        Host { shape: self.shape.clone(), data }
    }
}

fn chosen<T: Copy>(got: &[T], want: &[T], flushed: &[usize], same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let other = |at: usize| flushed.get(at).map_or(want[at], |at| want[*at]);
    (0..want.len())
        .map(|at| if !same(&got[at], &want[at]) && same(&got[at], &other(at)) { other(at) } else { want[at] })
        .collect()
}

fn first<T: std::fmt::Debug>(got: &[T], want: &[T], same: impl Fn(&T, &T) -> bool) -> Option<String> {
    if got.len() != want.len() {
        return Some(format!("{} elements instead of {}", got.len(), want.len()));
    }
    let wrong: Vec<usize> = (0..got.len()).filter(|at| !same(&got[*at], &want[*at])).collect();
    let at = *wrong.first()?;
    Some(format!("{} of {} differ, the first at {at}: {:?} instead of {:?}", wrong.len(), got.len(), got[at], want[at]))
}

/// NaN is NaN, infinities are those of their sign, and other numbers are at most `error` apart.
pub fn close_within(got: f32, want: f32, error: f32) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= error
}

fn close(got: f32, want: f32, tolerance: Tolerance, zeros: Zeros) -> bool {
    if want.is_nan() || want.is_infinite() {
        return got == want || (got.is_nan() && want.is_nan());
    }
    if zeros == Zeros::Signed && got == 0.0 && want == 0.0 {
        return got.is_sign_negative() == want.is_sign_negative();
    }
    (got - want).abs() <= tolerance.abs + tolerance.rel * want.abs()
}

#[test]
fn golden_ops_compare_can_fail() {
    let ok = |got, want| close(got, want, STRICT, Zeros::Signed);
    assert!(ok(f32::NAN, f32::NAN) && ok(f32::INFINITY, f32::INFINITY) && ok(1.00005, 1.0) && ok(0.0, 0.0));
    assert!(!ok(f32::NAN, 1.0) && !ok(1.0, f32::NAN) && !ok(f32::INFINITY, f32::NEG_INFINITY) && !ok(3e38, f32::INFINITY));
    assert!(!ok(1.001, 1.0) && !ok(-0.0, 0.0) && close(-0.0, 0.0, STRICT, Zeros::Alike));
    let host = |shape: &[usize], data| Host { shape: shape.to_vec(), data };
    let differs = |got, want| difference(&got, &want, STRICT, Zeros::Alike).is_some();
    assert!(differs(host(&[2], Data::I32(vec![1, 2])), host(&[2], Data::I32(vec![1, 3]))));
    assert!(differs(host(&[2], Data::I32(vec![1, 2])), host(&[2], Data::F32(vec![1.0, 2.0]))));
    assert!(differs(host(&[2], Data::I32(vec![1, 2])), host(&[2, 1], Data::I32(vec![1, 2]))));
}
