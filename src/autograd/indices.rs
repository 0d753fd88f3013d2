//! What stands between the brackets of `x[..]`, written in Rust: `(0, .., 1..3)`.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::tensor::Tensor;

/// What one entry between the brackets of `x[..]` says about the next dimension.
#[derive(Clone, Debug)]
pub enum Index {
    /// One entry (negative: from the back); the dimension is gone. An integer.
    Select(isize),
    /// Entries from `start` up to `end`, every `step`-th one, by Python's rules: negative bounds count from the back, what lies
    /// outside is cut off. A range, `..` being `:`, or [`Index::slice`].
    Slice {
        /// The first one, 0 where it is not said.
        start: Option<isize>,
        /// The first one that is left out, the length where it is not said.
        end: Option<isize>,
        /// At least 1.
        step: usize,
    },
    /// A new dimension of length 1. PyTorch's `None`.
    NewAxis,
    /// As many `..` as there are dimensions left. PyTorch's `...`.
    Ellipsis,
    /// The entries that an i32 tensor names (negative: from the back), or those where a bool tensor is true, which stands for as
    /// many dimensions as it has. A `&Tensor`.
    Tensor(Tensor),
}

impl Index {
    /// Every `step`-th entry of a range: `Index::slice(1.., 2)` is `1::2`.
    pub fn slice(range: impl RangeBounds<isize>, step: usize) -> Index {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            // After the last one comes nothing.
            Bound::Excluded(-1) => Some(isize::MAX),
            Bound::Excluded(before) => Some(before.saturating_add(1)),
            Bound::Unbounded => None,
        };
        let end = match range.end_bound() {
            // The last entry is in: nothing is cut off.
            Bound::Included(-1) | Bound::Unbounded => None,
            Bound::Included(last) => Some(last.saturating_add(1)),
            Bound::Excluded(end) => Some(*end),
        };
        Index::Slice { start, end, step }
    }
}

impl From<&Tensor> for Index {
    fn from(index: &Tensor) -> Index {
        Index::Tensor(index.clone())
    }
}

impl From<Tensor> for Index {
    fn from(index: Tensor) -> Index {
        Index::Tensor(index)
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::slice(.., 1)
    }
}

/// Numbers of every type that a literal may be taken for.
macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl From<$number> for Index {
            fn from(index: $number) -> Index {
                Index::Select(wide(index))
            }
        }

        numbers! { $number: Range(range => wide(range.start)..wide(range.end)) }
        numbers! { $number: RangeInclusive(range => wide(*range.start())..=wide(*range.end())) }
        numbers! { $number: RangeFrom(range => wide(range.start)..) }
        numbers! { $number: RangeTo(range => ..wide(range.end)) }
        numbers! { $number: RangeToInclusive(range => ..=wide(range.end)) }
    )* };
    ($number:ty: $range:ident($name:ident => $wide:expr)) => {
        impl From<$range<$number>> for Index {
            fn from($name: $range<$number>) -> Index {
                Index::slice($wide, 1)
            }
        }
    };
}
numbers! { i32 i64 isize usize }

/// No tensor is as long as the numbers that do not fit.
fn wide<N: TryInto<isize>>(number: N) -> isize {
    number.try_into().unwrap_or(isize::MAX)
}

/// What stands between the brackets: one [`Index`] or what becomes one, a tuple of up to eight, or a list of them.
pub trait Indices {
    /// One after the other.
    fn list(self) -> Vec<Index>;
}

impl<I: Into<Index>> Indices for I {
    fn list(self) -> Vec<Index> {
        vec![self.into()]
    }
}

impl Indices for () {
    fn list(self) -> Vec<Index> {
        Vec::new()
    }
}

impl<I: Into<Index>> Indices for Vec<I> {
    fn list(self) -> Vec<Index> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<I: Into<Index> + Clone> Indices for &[I] {
    fn list(self) -> Vec<Index> {
        self.iter().cloned().map(Into::into).collect()
    }
}

impl<I: Into<Index> + Clone, const N: usize> Indices for &[I; N] {
    fn list(self) -> Vec<Index> {
        self.as_slice().list()
    }
}

impl<I: Into<Index>, const N: usize> Indices for [I; N] {
    fn list(self) -> Vec<Index> {
        self.into_iter().map(Into::into).collect()
    }
}

/// Tuples.
macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        impl<$first: Into<Index>, $($rest: Into<Index>),*> Indices for ($first, $($rest,)*) {
            fn list(self) -> Vec<Index> {
                #[allow(non_snake_case)]
                let ($first, $($rest,)*) = self;
                vec![$first.into(), $($rest.into()),*]
            }
        }
        tuples! { $($rest)* }
    };
    () => {};
}
tuples! { A B C D E F G H }
