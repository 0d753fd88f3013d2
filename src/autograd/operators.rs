//! `&a + &b`, `&a * 2.0`, `2 * &a`, `-&a`: each gives a [`Result`], as the methods do. An i32 tensor plus 2 is i32, plus 2.0 is
//! f32, and `/` always gives floats (PyTorch's rules).
//!
//! There is no `+=`: Rust's assign operators return nothing, so an error could only panic. [`Tensor::add_`], [`Tensor::mul_`],
//! [`Tensor::add_scalar_`] and [`Tensor::mul_scalar_`] are the in-place forms.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::dtype::Scalar;
use crate::error::Result;
use crate::tensor::Tensor;

/// `$trait::$method` for tensors by reference and by value.
macro_rules! tensor_operators {
    ($($trait:ident $method:ident)*) => { $(
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }
        impl $trait<Tensor> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(self, &other)
            }
        }
        impl $trait<&Tensor> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(&self, other)
            }
        }
        impl $trait<Tensor> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, other: Tensor) -> Result<Tensor> {
                Tensor::$method(&self, &other)
            }
        }
    )* };
}

tensor_operators! { Add add Sub sub Mul mul Div div }

/// Operators with a number on either side: `tensor op number` and `number op tensor`.
macro_rules! scalar_operators {
    ($($trait:ident $method:ident: |$x:ident, $s:ident| $right:expr, $left:expr;)*) => { $(
        scalar_operators! { @for f64 $trait $method: |$x, $s| $right, $left }
        scalar_operators! { @for i32 $trait $method: |$x, $s| $right, $left }
    )* };
    (@for $number:ident $trait:ident $method:ident: |$x:ident, $s:ident| $right:expr, $left:expr) => {
        impl $trait<$number> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, number: $number) -> Result<Tensor> {
                let ($x, $s) = (self, Scalar::from(number));
                $right
            }
        }
        impl $trait<$number> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, number: $number) -> Result<Tensor> {
                let ($x, $s) = (&self, Scalar::from(number));
                $right
            }
        }
        impl $trait<&Tensor> for $number {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $x: &Tensor) -> Result<Tensor> {
                let $s = Scalar::from(self);
                $left
            }
        }
        impl $trait<Tensor> for $number {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $x: Tensor) -> Result<Tensor> {
                let ($s, $x) = (Scalar::from(self), &$x);
                $left
            }
        }
    };
}

scalar_operators! {
    Add add: |x, s| x.add_scalar(s), x.add_scalar(s);
    Sub sub: |x, s| x.add_scalar(s.minus()), x.neg()?.add_scalar(s);
    Mul mul: |x, s| x.mul_scalar(s), x.mul_scalar(s);
    Div div: |x, s| x.mul_scalar(1.0 / s.value()), x.reciprocal()?.mul_scalar(s.value());
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
