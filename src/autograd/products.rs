//! Products of vectors, matrices and batches of them under PyTorch's names, put together from [`Tensor::matmul`].

use super::autocast::in_autocast;
use super::halves::rounded_once;
use super::views::signed;
use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::layout::MAX_RANK;
use crate::tensor::Tensor;

/// Products whose operands have fixed numbers of dimensions.
macro_rules! products {
    ($($(#[$doc:meta])* $name:ident: $rank:literal by $other_rank:literal;)*) => { impl Tensor { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
            const OP: &str = stringify!($name);
            in_autocast!(OP, (a = self, b = other), a.$name(&b));
            expect_ranks(OP, self, $rank, other, $other_rank)?;
            expect_product(OP, self, other)?;
            self.matmul(other).map_err(|error| error.of(OP))
        }
    )* } };
}

products! {
    /// Product of two vectors `[K]` of one length -> 0-d.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.dot(&y)?.item::<f32>()?, 11.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    dot: 1 by 1;
    /// [`Tensor::dot`]; they differ for complex numbers only, which linn does not have.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.vdot(&y)?.item::<f32>()?, 11.0);
    /// # Ok::<(), linn::Error>(())
    /// ```
    vdot: 1 by 1;
    /// Product of a matrix `[M, K]` and a vector `[K]` -> `[M]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let v = Tensor::new(&device, [1.0f32, 10.0])?;
    /// assert_eq!(x.mv(&v)?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    mv: 2 by 1;
    /// Product of two matrices, `[M, K]` and `[K, N]` -> `[M, N]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [[1.0f32], [10.0]])?;
    /// assert_eq!(x.mm(&y)?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    mm: 2 by 2;
    /// Products of as many matrices as there are in both, `[B, M, K]` and `[B, K, N]` -> `[B, M, N]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[[1.0f32, 2.0]], [[3.0, 4.0]]])?;
    /// let y = Tensor::new(&device, [[[1.0f32], [10.0]], [[1.0], [100.0]]])?;
    /// assert_eq!(x.bmm(&y)?.to_vec::<f32>()?, [21.0, 403.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    bmm: 3 by 3;
}

impl Tensor {
    /// Products of all elements of two vectors: `[M]` and `[N]` -> `[M, N]`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?;
    /// let y = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.outer(&y)?.to_vec::<f32>()?, [3.0, 4.0, 6.0, 8.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        const OP: &str = "outer";
        expect_ranks(OP, self, 1, other, 1)?;
        self.unsqueeze(1)?.mul(other).map_err(|error| error.of(OP))
    }

    /// Sums of products over the last dimension of both, whose lengths are equal: `[.., K]` and `[::, K]` -> `[.., ::]`. With a
    /// 0-d operand the product of both.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [1.0f32, 10.0])?;
    /// assert_eq!(x.inner(&y)?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        const OP: &str = "inner";
        in_autocast!(OP, (a = self, b = other), a.inner(&b));
        let ([first @ .., k], [second @ .., l]) = (self.shape(), other.shape()) else {
            return self.mul(other).map_err(|error| error.of(OP));
        };
        if k != l {
            return Err(unfit(OP, self, other, "make the last dimensions equal"));
        }
        let shape = signed(first.iter().chain(second));
        let flat = |x: &Tensor, rows: &[usize]| x.reshape(&signed(&[rows.iter().product::<usize>(), *k]));
        flat(self, first)?.matmul(&flat(other, second)?.transpose(0, 1)?).map_err(|error| error.of(OP))?.reshape(&shape)
    }

    /// beta self + alpha (a b): a `[M, K]`, b `[K, N]`, self broadcasts to `[M, N]`. With beta 0 what self holds, NaN too, does not
    /// count.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[100.0f32]])?;
    /// let a = Tensor::new(&device, [[1.0f32, 2.0]])?;
    /// let b = Tensor::new(&device, [[3.0f32], [4.0]])?;
    /// assert_eq!(x.addmm(&a, &b, 0.5, 2.0)?.to_vec::<f32>()?, [72.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn addmm(&self, a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Tensor> {
        in_autocast!("addmm", (c = self, a, b), c.addmm(&a, &b, beta, alpha));
        self.plus("addmm", beta.into(), alpha.into(), [a, b], Tensor::mm)
    }

    /// beta self + alpha (a v): a `[M, K]`, v `[K]`, self broadcasts to `[M]`; beta as in [`Tensor::addmm`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [100.0f32])?;
    /// let a = Tensor::new(&device, [[1.0f32, 2.0]])?;
    /// let v = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.addmv(&a, &v, 1.0, 1.0)?.to_vec::<f32>()?, [111.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn addmv(&self, a: &Tensor, v: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Tensor> {
        in_autocast!("addmv", (c = self, a, v), c.addmv(&a, &v, beta, alpha));
        self.plus("addmv", beta.into(), alpha.into(), [a, v], Tensor::mv)
    }

    /// beta self + alpha (u v^T): u `[M]`, v `[N]`, self broadcasts to `[M, N]`; beta as in [`Tensor::addmm`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[100.0f32, 0.0]])?;
    /// let u = Tensor::new(&device, [2.0f32])?;
    /// let v = Tensor::new(&device, [3.0f32, 4.0])?;
    /// assert_eq!(x.addr(&u, &v, 1.0, 1.0)?.to_vec::<f32>()?, [106.0, 8.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn addr(&self, u: &Tensor, v: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Tensor> {
        in_autocast!("addr", (c = self, u, v), c.addr(&u, &v, beta, alpha));
        self.plus("addr", beta.into(), alpha.into(), [u, v], Tensor::outer)
    }

    /// beta self + alpha (a b): a `[B, M, K]`, b `[B, K, N]`, self broadcasts to `[B, M, N]`; beta as in [`Tensor::addmm`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[[100.0f32]]])?;
    /// let a = Tensor::new(&device, [[[1.0f32, 2.0]]])?;
    /// let b = Tensor::new(&device, [[[3.0f32], [4.0]]])?;
    /// assert_eq!(x.baddbmm(&a, &b, 1.0, 1.0)?.to_vec::<f32>()?, [111.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn baddbmm(&self, a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Tensor> {
        in_autocast!("baddbmm", (c = self, a, b), c.baddbmm(&a, &b, beta, alpha));
        self.plus("baddbmm", beta.into(), alpha.into(), [a, b], Tensor::bmm)
    }

    /// beta self + alpha times the sum of the products of a batch: a `[B, M, K]`, b `[B, K, N]`, self broadcasts to `[M, N]`; beta
    /// as in [`Tensor::addmm`].
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[100.0f32]])?;
    /// let a = Tensor::new(&device, [[[1.0f32]], [[2.0]]])?;
    /// let b = Tensor::new(&device, [[[3.0f32]], [[4.0]]])?;
    /// assert_eq!(x.addbmm(&a, &b, 1.0, 1.0)?.to_vec::<f32>()?, [111.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn addbmm(&self, a: &Tensor, b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Tensor> {
        const OP: &str = "addbmm";
        in_autocast!("addbmm", (c = self, a, b), c.addbmm(&a, &b, beta, alpha));
        expect_ranks(OP, a, 3, b, 3)?;
        expect_product(OP, a, b)?;
        // One product over the batch and K.
        let ([batch, m, k], n) = ([a.shape()[0], a.shape()[1], a.shape()[2]], b.shape()[2]);
        let rows = a.permute(&[1, 0, 2])?.reshape(&signed(&[m, batch * k]))?;
        self.plus(OP, beta.into(), alpha.into(), [&rows, &b.reshape(&signed(&[batch * k, n]))?], Tensor::matmul)
    }

    /// beta self + alpha product, in the shape of the product.
    #[track_caller]
    fn plus(
        &self,
        op: &'static str,
        beta: Scalar,
        alpha: Scalar,
        [a, b]: [&Tensor; 2],
        product: fn(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        rounded_once(op, [self, a, b], |[x, a, b]| {
            let product = product(a, b).and_then(|product| product.mul_scalar(alpha)).map_err(|error| error.of(op))?;
            x.layout.broadcast_to(op, product.shape())?;
            let own = match beta.value() {
                1.0 => x.clone(),
                0.0 => x.masked_fill(&x.eq(x)?.logical_or(&x.ne(x)?)?, 0)?,
                _ => x.mul_scalar(beta)?,
            };
            own.add(&product).map_err(|error| error.of(op))
        })
    }

    /// Kronecker product: every element of self times all of `other`. Shapes are aligned at the back, their lengths multiply.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 10.0])?;
    /// let y = Tensor::new(&device, [1.0f32, 2.0])?;
    /// assert_eq!(x.kron(&y)?.to_vec::<f32>()?, [1.0, 2.0, 10.0, 20.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let rank = self.rank().max(other.rank());
        let len = |x: &Tensor, dim: usize| (dim + x.rank()).checked_sub(rank).map_or(1, |dim| x.shape()[dim]);
        if 2 * rank > MAX_RANK {
            // Two dimensions for each would be more than a tensor has.
            let lens: Vec<usize> = (0..rank).map(|dim| len(self, dim)).collect();
            let mut own = self.reshape(&signed(&lens))?;
            for dim in 0..rank {
                own = own.repeat_interleave(len(other, dim), dim as isize)?;
            }
            return own.mul(&other.repeat(&lens)?).map_err(|error| error.of("kron"));
        }
        let own: Vec<usize> = (0..rank).flat_map(|dim| [len(self, dim), 1]).collect();
        let others: Vec<usize> = (0..rank).flat_map(|dim| [1, len(other, dim)]).collect();
        let shape: Vec<usize> = (0..rank).map(|dim| len(self, dim) * len(other, dim)).collect();
        let product = self.reshape(&signed(&own)).and_then(|own| own.mul(&other.reshape(&signed(&others))?));
        product.map_err(|error| error.of("kron"))?.reshape(&signed(&shape))
    }

    /// Sums of products over the dimensions `dims` of self and `other_dims` of `other`, in pairs of equal lengths (of which one
    /// may be 1); the dimensions that are left follow each other. PyTorch's `dims=n` is the last n of self and the first n of `other`.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let y = Tensor::new(&device, [[1.0f32], [10.0]])?;
    /// assert_eq!(x.tensordot(&y, &[1], &[0])?.to_vec::<f32>()?, [21.0, 43.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn tensordot(&self, other: &Tensor, dims: &[isize], other_dims: &[isize]) -> Result<Tensor> {
        const OP: &str = "tensordot";
        rounded_once(OP, [self, other], |[a, b]| a.contracted(OP, b, dims, other_dims))
    }

    #[track_caller]
    fn contracted(&self, op: &'static str, other: &Tensor, dims: &[isize], other_dims: &[isize]) -> Result<Tensor> {
        let resolve = |x: &Tensor, dims: &[isize]| -> Result<Vec<usize>> {
            dims.iter().map(|dim| crate::layout::resolve_dim(op, *dim, x.rank())).collect()
        };
        let (mine, theirs) = (resolve(self, dims)?, resolve(other, other_dims)?);
        let twice = |dims: &[usize]| (1..dims.len()).any(|i| dims[..i].contains(&dims[i]));
        let (mut a, mut b) = (self.clone(), other.clone());
        if mine.len() != theirs.len() || twice(&mine) || twice(&theirs) {
            return Err(unfit(op, self, other, "name as many dimensions of both, each once"));
        }
        for (i, j) in mine.iter().zip(&theirs) {
            match (self.shape()[*i], other.shape()[*j]) {
                (m, n) if m == n => {}
                // What has length 1 is the same for all entries of the other one.
                (1, _) => b = b.sum(&[*j as isize], crate::ops::reduce::KeepDim::Keep)?,
                (_, 1) => a = a.sum(&[*i as isize], crate::ops::reduce::KeepDim::Keep)?,
                _ => return Err(unfit(op, self, other, "pair dimensions of equal lengths")),
            }
        }
        let left = |x: &Tensor, dims: &[usize]| (0..x.rank()).filter(|dim| !dims.contains(dim)).collect::<Vec<_>>();
        let (rows, columns) = (left(self, &mine), left(other, &theirs));
        let ordered = |x: &Tensor, order: Vec<usize>, first: usize| {
            let x = x.permute(&signed(&order))?;
            let (front, back) = x.shape().split_at(first);
            x.reshape(&signed(&[front.iter().product::<usize>(), back.iter().product()]))
        };
        let a = ordered(&a, [&rows[..], &mine].concat(), rows.len())?;
        let b = ordered(&b, [&theirs[..], &columns].concat(), theirs.len())?;
        let lens = rows.iter().map(|dim| &self.shape()[*dim]).chain(columns.iter().map(|dim| &other.shape()[*dim]));
        a.matmul(&b).map_err(|error| error.of(op))?.reshape(&signed(lens))
    }
}

fn unfit(op: &'static str, a: &Tensor, b: &Tensor, help: &'static str) -> Error {
    Error::shape(op, format!("shapes {:?} and {:?} do not fit", a.shape(), b.shape()), help)
}

fn expect_ranks(op: &'static str, a: &Tensor, a_rank: usize, b: &Tensor, b_rank: usize) -> Result<()> {
    if (a.rank(), b.rank()) == (a_rank, b_rank) {
        return Ok(());
    }
    let fact = format!("shapes {:?} and {:?}", a.shape(), b.shape());
    Err(Error::shape(op, fact, format!("pass tensors of {a_rank} and of {b_rank} dimensions, or use matmul")))
}

/// Lengths that have to be equal are, and so are the types.
fn expect_product(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    let inner = if b.rank() == 1 { 0 } else { b.rank() - 2 };
    if a.shape().last() != b.shape().get(inner) || (a.rank() == 3 && a.shape()[0] != b.shape()[0]) {
        return Err(unfit(op, a, b, "make the lengths that meet equal"));
    }
    match a.dtype() == b.dtype() {
        true => Ok(()),
        false => Err(Error::argument(
            op,
            format!("a tensor of {} and one of {}", a.dtype(), b.dtype()),
            "convert one of them with to_dtype before the call",
        )),
    }
}
