//! One rule per operation: the gradients of its operands from the gradient of its result. File names mirror `ops/`.
//!
//! `g` is the gradient of the result `y`, `dx` the gradient of the operand `x`; the formula stands above the code.

pub(super) mod attention;
pub(super) mod binary;
pub(super) mod copy;
pub(super) mod index;
pub(super) mod loss;
pub(super) mod matmul;
pub(super) mod norm;
pub(super) mod reduce;
pub(super) mod scan;
pub(super) mod scatter;
pub(super) mod unary;
