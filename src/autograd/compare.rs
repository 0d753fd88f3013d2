//! Comparisons with numbers.

use crate::dtype::{Operand, Scalar, result_type};
use crate::error::Result;
use crate::ops;
use crate::tensor::Tensor;

/// `name(scalar)` for `of(tensor)`.
macro_rules! with_scalars {
    ($($name:ident = $of:ident, $sign:literal is $example:literal;)*) => { impl Tensor { $(
        #[doc = concat!("Whether self ", $sign, " `scalar`, element by element, as bool. A fraction compared with integers is not rounded.")]
        ///
        /// ```
        /// # let device = linn::Device::open()?;
        /// let x = linn::Tensor::new(&device, [1, 2, 3])?;
        #[doc = concat!("assert_eq!(x.", stringify!($name), "(2)?.to_vec::<u8>()?, ", $example, ");")]
        /// # Ok::<(), linn::Error>(())
        /// ```
        #[track_caller]
        pub fn $name(&self, scalar: impl Into<Scalar>) -> Result<Tensor> {
            let scalar = scalar.into();
            let dtype = result_type(stringify!($of), [ops::elementwise::operand(self), Operand::Scalar(scalar)])?;
            self.to_dtype(dtype)?.$of(&ops::copy::full(self.device(), &[], scalar, dtype)?)
        }
    )* } };
}

with_scalars! {
    eq_scalar = eq, "=" is "[0, 1, 0]";
    ne_scalar = ne, "differs from" is "[1, 0, 1]";
    lt_scalar = lt, "<" is "[1, 0, 0]";
    le_scalar = le, "<=" is "[1, 1, 0]";
    gt_scalar = gt, ">" is "[0, 0, 1]";
    ge_scalar = ge, ">=" is "[0, 1, 1]";
}
