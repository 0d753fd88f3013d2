//! Products of matrices and vectors.

use linn::Tensor;

use super::{Row, row};
use crate::golden_ops::call::{Answer, Call, Fault, KEY, done, give};

pub const ROWS: &[Row] = &[
    row("cdist", |c| {
        // How the distance is found does not change it.
        c.text_or(3, "compute_mode", "")?;
        give(c.tensor(0, "x1")?.cdist(&c.tensor(1, "x2")?, c.float_or(2, "p", 2.0)?))
    }),
    row("einsum", |c| {
        let operands = c.tensors(0, "operands")?;
        give(linn::autograd::einsum(c.text_or(1, "equation", "")?, &operands.iter().collect::<Vec<_>>()))
    }),
    row("addbmm", |c| give(added(c, Tensor::addbmm)?)).in_place(|c| done(added(c, Tensor::addbmm_)?)),
    row("addmm", |c| give(added(c, Tensor::addmm)?)).in_place(|c| done(added(c, Tensor::addmm_)?)),
    row("addmm.decomposed", |c| give(added(c, Tensor::addmm)?)).in_place(|c| done(added(c, Tensor::addmm_)?)),
    row("addmv", |c| give(added(c, Tensor::addmv)?)).in_place(|c| done(added(c, Tensor::addmv_)?)),
    row("addr", |c| give(added(c, Tensor::addr)?)).in_place(|c| done(added(c, Tensor::addr_)?)),
    row("baddbmm", |c| give(added(c, Tensor::baddbmm)?)).in_place(|c| done(added(c, Tensor::baddbmm_)?)),
    row("bmm", |c| give(c.input()?.bmm(&c.tensor(1, "mat2")?))),
    row("bmm.triton_optimized", |c| give(c.input()?.bmm(&c.tensor(1, "mat2")?))),
    row("dot", |c| give(c.input()?.dot(&c.tensor(1, "tensor")?))),
    row("inner", |c| give(c.input()?.inner(&c.tensor(1, "other")?))),
    row("kron", |c| give(c.input()?.kron(&c.tensor(1, "other")?))),
    row("matmul", |c| give(c.input()?.matmul(&c.tensor(1, "other")?))),
    row("mm", |c| give(c.input()?.mm(&c.tensor(1, "mat2")?))),
    row("mv", |c| give(c.input()?.mv(&c.tensor(1, "vec")?))),
    row("nn.functional.linear", |c| give(c.input()?.linear(&c.tensor(1, "weight")?, c.tensor_opt(2, "bias")?.as_ref()))),
    row("outer", |c| give(c.input()?.outer(&c.tensor(1, "vec2")?))),
    row("tensordot", tensordot),
    row("vdot", |c| give(c.input()?.vdot(&c.tensor(1, "other")?))),
];

type Added<T> = fn(&Tensor, &Tensor, &Tensor, f64, f64) -> linn::Result<T>;

/// `input, a, b, *, beta=1, alpha=1`.
fn added<T>(c: &Call, of: Added<T>) -> Answer<linn::Result<T>> {
    let (a, b) = (c.tensor(1, "mat1")?, c.tensor(2, "mat2")?);
    Ok(of(&c.input()?, &a, &b, c.float_or(KEY, "beta", 1.0)?, c.float_or(KEY, "alpha", 1.0)?))
}

/// `a, b, dims=2`: a number, or a list of dimensions of each.
fn tensordot(c: &Call) -> Answer {
    let (a, b) = (c.tensor(0, "a")?, c.tensor(1, "b")?);
    if c.is_list(2, "dims") {
        let [mine, theirs] = &c.lists_of_ints(2, "dims")?[..] else {
            return Err(Fault::Row("dims are not two lists".to_string()));
        };
        return give(a.tensordot(&b, mine, theirs));
    }
    let n = c.int_or(2, "dims", 2)?;
    give(a.tensordot(&b, &(-n..0).collect::<Vec<_>>(), &(0..n).collect::<Vec<_>>()))
}
