//! `&a + &b`, `&a * 2.0`, `2.0 * &a`, `-&a`: each gives a [`Result`], as the methods do.
//!
//! There is no `+=`: Rust's assign operators return nothing, so an error could only panic. [`Tensor::add_`], [`Tensor::mul_`],
//! [`Tensor::add_scalar_`] and [`Tensor::mul_scalar_`] are the in-place forms.

use std::ops::{Add, Div, Mul, Neg, Sub};

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

/// Operators with a scalar on either side: `tensor op scalar` and `scalar op tensor`.
macro_rules! scalar_operators {
    ($($trait:ident $method:ident: |$x:ident, $s:ident| $right:expr, $left:expr;)*) => { $(
        impl $trait<f64> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $s: f64) -> Result<Tensor> {
                let $x = self;
                $right
            }
        }
        impl $trait<f64> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $s: f64) -> Result<Tensor> {
                let $x = &self;
                $right
            }
        }
        impl $trait<&Tensor> for f64 {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $x: &Tensor) -> Result<Tensor> {
                let $s = self;
                $left
            }
        }
        impl $trait<Tensor> for f64 {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, $x: Tensor) -> Result<Tensor> {
                let ($s, $x) = (self, &$x);
                $left
            }
        }
    )* };
}

scalar_operators! {
    Add add: |x, s| x.add_scalar(s), x.add_scalar(s);
    Sub sub: |x, s| x.add_scalar(-s), x.neg()?.add_scalar(s);
    Mul mul: |x, s| x.mul_scalar(s), x.mul_scalar(s);
    Div div: |x, s| x.mul_scalar(1.0 / s), x.reciprocal()?.mul_scalar(s);
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
