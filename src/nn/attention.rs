//! Attention with several heads. Letters: B batch, T and S positions, E width, H heads.

use super::init;
use super::layer::Layer;
use super::linear::{Bias, Linear};
use super::module::{Module, Parts};
use crate::autograd::AttentionOptions;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// PyTorch's `MultiheadAttention` with `batch_first`: softmax(q k^T / sqrt(E / H) + mask) v for each head, of projections of its
/// inputs, then a linear layer.
///
/// Parameters `in_proj_weight` `[3E, E]`, `in_proj_bias` `[3E]`, `out_proj.weight` `[E, E]` and `out_proj.bias` `[E]`. Its `forward` is
/// self-attention without a mask.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::AttentionOptions;
/// use linn::nn::{Bias, MultiheadAttention};
/// let attention = MultiheadAttention::new(&device, 8, 2, 0.0, Bias::With)?;
/// let (x, memory) = (Tensor::zeros(&device, &[1, 3, 8])?, Tensor::zeros(&device, &[1, 5, 8])?);
/// let causal = AttentionOptions { is_causal: true, ..Default::default() };
/// assert_eq!(attention.attend(&x, &x, &x, causal)?.shape(), [1, 3, 8]);
/// assert_eq!(attention.attend(&x, &memory, &memory, Default::default())?.shape(), [1, 3, 8]);
/// # Ok::<(), linn::Error>(())
/// ```
pub struct MultiheadAttention {
    /// `[3E, E]`: of queries, keys and values.
    pub in_proj_weight: Tensor,
    /// `[3E]`.
    pub in_proj_bias: Option<Tensor>,
    /// `[E]` -> `[E]`.
    pub out_proj: Linear,
    heads: usize,
    dropout: f64,
    layer: Layer,
}

impl MultiheadAttention {
    /// With PyTorch's initial values: Xavier's for the projections of the inputs, biases 0. A share `dropout` of the probabilities
    /// becomes 0 in training.
    ///
    /// # Errors
    /// Where `heads` does not divide `width`, or `dropout` is not from 0 to 1.
    pub fn new(device: &Device, width: usize, heads: usize, dropout: f64, bias: Bias) -> Result<MultiheadAttention> {
        const OP: &str = "MultiheadAttention::new";
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(Error::argument(
                OP,
                format!("{heads} heads for a width of {width}"),
                "pass a number of heads that divides it",
            ));
        }
        crate::ops::random::probability(OP, dropout)?;
        let in_proj_weight = init::zeros(device, &[3 * width, width])?;
        init::xavier_uniform_(&in_proj_weight, 1.0)?;
        let in_proj_bias = match bias {
            Bias::With => Some(init::zeros(device, &[3 * width])?),
            Bias::Without => None,
        };
        let out_proj = Linear::new(device, width, width, bias)?;
        out_proj.bias.iter().try_for_each(init::zeros_)?;
        Ok(MultiheadAttention { in_proj_weight, in_proj_bias, out_proj, heads, dropout, layer: Layer::default() })
    }

    /// query `[B, T, E]`, key and value `[B, S, E]` -> `[B, T, E]`. A mask is one of [`AttentionOptions`]: true where a query may see
    /// a key (PyTorch's module means the opposite by true), or what is added to the scores; it broadcasts to `[B, H, T, S]`.
    #[track_caller]
    pub fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let dropout_p = if self.layer.is_training() { self.dropout } else { 0.0 };
        let mixed = self.layer.run(|| {
            let width = self.in_proj_weight.size(1)?;
            let same = query.shares_storage(key)
                && key.shares_storage(value)
                && query.layout() == key.layout()
                && key.layout() == value.layout();
            let parts = match same {
                // One product instead of three.
                true => query.linear(&self.in_proj_weight, self.in_proj_bias.as_ref())?.split(width, -1)?,
                false => {
                    let weights = self.in_proj_weight.split(width, 0)?;
                    let biases = self.in_proj_bias.as_ref().map(|bias| bias.split(width, 0)).transpose()?;
                    let project = |(i, x): (usize, &&Tensor)| x.linear(&weights[i], biases.as_ref().map(|biases| &biases[i]));
                    [query, key, value].iter().enumerate().map(project).collect::<Result<_>>()?
                }
            };
            let heads = |part: &Tensor| part.unflatten(-1, &[self.heads as isize, -1])?.transpose(-3, -2);
            let [q, k, v] = [heads(&parts[0])?, heads(&parts[1])?, heads(&parts[2])?];
            let options = AttentionOptions { dropout_p, ..options };
            q.scaled_dot_product_attention_with(&k, &v, options)?.transpose(-3, -2)?.flatten(-2, -1)
        })?;
        self.out_proj.forward(&mixed)
    }
}

impl Module for MultiheadAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, x, x, AttentionOptions::default())
    }

    fn parts(&self) -> Parts<'_> {
        let own = Parts::of(&self.layer).parameter("in_proj_weight", &self.in_proj_weight);
        own.parameter("in_proj_bias", &self.in_proj_bias).child("out_proj", &self.out_proj)
    }
}
