//! Scaled dot-product attention with everything that PyTorch's function takes. Letters: T and S positions, D and E widths.

use super::autocast::in_autocast;
use super::halves::rounded_once;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::broadcast_shapes;
use crate::ops::attention::Mask;
use crate::ops::reduce::{KeepDim, expect_float};
use crate::tensor::Tensor;

/// What [`Tensor::scaled_dot_product_attention_with`] can be told besides its operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// Which keys a query may see (bool), or what is added to its scores (float); broadcasts to `[.., T, S]`.
    pub attn_mask: Option<&'a Tensor>,
    /// Whether query t sees keys 0..=t only; not with a mask.
    pub is_causal: bool,
    /// Factor of the scores; 1 / sqrt(D) where there is none.
    pub scale: Option<f64>,
    /// The share of the probabilities that becomes 0, at random; the others grow by 1 / (1 - p).
    pub dropout_p: f64,
    /// Whether k and v may have fewer heads (dimension -3), each for as many heads of q.
    pub enable_gqa: bool,
}

const OP: &str = "scaled_dot_product_attention";

impl Tensor {
    /// softmax(q k^T scale + mask) v with this tensor as q `[.., T, D]`, k `[.., S, D]` and v `[.., S, E]` -> `[.., T, E]`; dimensions
    /// before the last two broadcast. A query that sees no key gives 0.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::AttentionOptions;
    /// let (q, v) = (Tensor::new(&device, [[0.0f32], [0.0]])?, Tensor::new(&device, [[1.0f32], [3.0]])?);
    /// let options = AttentionOptions { is_causal: true, ..Default::default() };
    /// assert_eq!(q.scaled_dot_product_attention_with(&q, &v, options)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn scaled_dot_product_attention_with(&self, k: &Tensor, v: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        in_autocast!(OP, (q = self, k, v), q.scaled_dot_product_attention_with(&k, &v, options));
        expect_float(OP, self)?;
        let ([.., _, d], [.., s, key_width], [.., values, _]) = (self.shape(), k.shape(), v.shape()) else {
            return Err(unfit(self, k, v));
        };
        if d != key_width || s != values {
            return Err(unfit(self, k, v));
        }
        if options.is_causal && options.attn_mask.is_some() {
            let fact = format!("is_causal and attn_mask for q of shape {:?}", self.shape());
            return Err(Error::argument(OP, fact, "pass one of them; a mask can be made causal with tril"));
        }
        // The fused kernels take this form.
        let alike = k.shape() == v.shape() && self.rank() == 4 && k.rank() == 4 && self.shape()[..2] == k.shape()[..2];
        let plain = options.attn_mask.is_none() && options.scale.is_none() && options.dropout_p == 0.0;
        if alike && plain {
            let mask = if options.is_causal { Mask::Causal } else { Mask::None };
            return self.scaled_dot_product_attention(k, v, mask);
        }
        rounded_once(OP, [self, k, v], |[q, k, v]| q.attend(k, v, options))
    }

    /// [`Tensor::scaled_dot_product_attention_with`] from other operations.
    #[track_caller]
    fn attend(&self, k: &Tensor, v: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let (t, s, d) = (self.shape()[self.rank() - 2], k.shape()[k.rank() - 2], self.shape()[self.rank() - 1]);
        let (k, v) = match options.enable_gqa {
            true => (self.for_heads(k)?.ok_or_else(|| unfit(self, k, v))?, self.for_heads(v)?.ok_or_else(|| unfit(self, k, v))?),
            false => (k.clone(), v.clone()),
        };
        let scale = options.scale.unwrap_or(1.0 / (d as f64).sqrt());
        let scores = self.mul_scalar(scale)?.matmul(&k.transpose(-2, -1)?).map_err(|error| error.of(OP))?;
        let scores = match options.attn_mask {
            Some(mask) => {
                let fits = *broadcast_shapes(OP, scores.shape(), mask.shape())? == *scores.shape();
                if !fits {
                    let fact = format!("a mask of shape {:?} for scores of shape {:?}", mask.shape(), scores.shape());
                    return Err(Error::shape(OP, fact, "pass a mask that broadcasts to the scores [.., T, S]"));
                }
                match mask.dtype() {
                    DType::Bool => scores.masked_fill(&mask.logical_not()?, f64::NEG_INFINITY)?,
                    _ => scores.add(mask).map_err(|error| error.of(OP))?,
                }
            }
            None if options.is_causal => {
                let place = |len: usize, shape: [isize; 2]| Tensor::arange(self.device(), len, DType::I32)?.reshape(&shape);
                let hidden = place(s, [1, -1])?.gt(&place(t, [-1, 1])?)?;
                scores.masked_fill(&hidden, f64::NEG_INFINITY)?
            }
            None => scores,
        };
        let probabilities = match options.attn_mask {
            // A query that sees nothing would be NaN, and so would the gradients.
            Some(_) if s > 0 => {
                let highest = scores.detach().amax(&[-1], KeepDim::Keep)?;
                let blind = highest.eq(&highest.full_like(f64::NEG_INFINITY)?)?;
                scores.masked_fill(&blind, 0)?.softmax(-1)?.masked_fill(&blind, 0)?
            }
            _ => scores.softmax(-1)?,
        };
        let probabilities = match options.dropout_p {
            0.0 => probabilities,
            p => probabilities.dropout(p).map_err(|error| error.of(OP))?,
        };
        probabilities.matmul(&v).map_err(|error| error.of(OP))
    }

    /// Keys or values with each head repeated to this tensor's number; `None` where that does not go.
    #[track_caller]
    fn for_heads(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let ([.., heads, _, _], [.., own, _, _]) = (self.shape(), x.shape()) else { return Ok(None) };
        match own {
            0 => Ok(None),
            own if heads.is_multiple_of(*own) => x.repeat_interleave(heads / own, -3).map(Some),
            _ => Ok(None),
        }
    }
}

fn unfit(q: &Tensor, k: &Tensor, v: &Tensor) -> Error {
    let fact = format!("q {:?}, k {:?}, v {:?}", q.shape(), k.shape(), v.shape());
    Error::shape(OP, fact, "pass q [.., T, D], k [.., S, D] and v [.., S, E]")
}
