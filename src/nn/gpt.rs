//! A GPT with nanoGPT's layout and parameter names.
//!
//! Shape letters: B batch, T positions, C width (`n_embd`), H heads, D = C / H, V vocabulary.
//! ids `[B,T]` -> embedding + position `[B,T,C]` -> blocks -> layer norm -> logits `[B,T,V]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::dropout::Dropout;
use super::linear::{Bias, Linear};
use super::module::{Module, Parts};
use super::{Embedding, LayerNorm, loss};
use crate::autograd::{AttentionOptions, checkpoint};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Sizes of a [`Gpt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GptConfig {
    /// Blocks.
    pub n_layer: usize,
    /// Attention heads; must divide `n_embd`.
    pub n_head: usize,
    /// Width C.
    pub n_embd: usize,
    /// The most positions T (context).
    pub block_size: usize,
    /// V.
    pub vocab_size: usize,
    /// Biases in linear layers and layer norms.
    pub bias: bool,
    /// `lm_head.weight` is `transformer.wte.weight`, stored once.
    pub tied: bool,
}

/// The model. Its result for ids `[B,T]` (i32) are logits `[B,T,V]`.
pub struct Gpt {
    config: GptConfig,
    wte: Embedding,
    wpe: Embedding,
    drop: Dropout,
    blocks: Vec<Arc<Block>>,
    checkpoints: AtomicBool,
    ln_f: LayerNorm,
    /// `None` where it is tied to `wte`.
    lm_head: Option<Linear>,
}

struct Block {
    ln_1: LayerNorm,
    c_attn: Linear,
    attn_proj: Linear,
    ln_2: LayerNorm,
    c_fc: Linear,
    mlp_proj: Linear,
    n_head: usize,
    drop: Dropout,
}

impl Gpt {
    /// GPT-2's initial values from the device's generator: normal with standard deviation 0.02, for weights that end a
    /// residual branch (`c_proj`) 0.02 / sqrt(2 n_layer); biases 0.
    pub fn new(device: &Device, config: GptConfig) -> Result<Gpt> {
        Gpt::with_dropout(device, config, 0.0)
    }

    /// [`Gpt::new`] with dropout of probability `p` in training: of the embeddings, of attention's probabilities, and of what is added
    /// to the residual stream.
    ///
    /// # Errors
    /// [`Error::Argument`] where `p` is not from 0 to 1.
    pub fn with_dropout(device: &Device, config: GptConfig, p: f64) -> Result<Gpt> {
        config.check()?;
        let bias = Bias::from(config.bias);
        let blocks = (0..config.n_layer).map(|_| Block::new(device, &config, p).map(Arc::new)).collect::<Result<_>>()?;
        let lm_head = match config.tied {
            true => None,
            false => Some(Linear::normal(device, config.n_embd, config.vocab_size, Bias::Without, STD)?),
        };
        Ok(Gpt {
            config,
            wte: Embedding::new(device, config.vocab_size, config.n_embd, STD)?,
            wpe: Embedding::new(device, config.block_size, config.n_embd, STD)?,
            drop: Dropout::new(p)?,
            blocks,
            checkpoints: AtomicBool::new(false),
            ln_f: LayerNorm::new(device, config.n_embd, bias)?,
            lm_head,
        })
    }

    /// The sizes it was made with.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Whether each block is a [`checkpoint`] from now on: of its activations only its input is kept, and the backward pass computes the
    /// others again. The numbers are the same to the bit.
    pub fn set_checkpointing(&self, on: bool) {
        self.checkpoints.store(on, Ordering::Relaxed);
    }

    /// Mean cross entropy of the logits for `ids` `[B,T]` against `targets` `[B,T]`, 0-d.
    #[track_caller]
    pub fn loss(&self, ids: &Tensor, targets: &Tensor) -> Result<Tensor> {
        loss::cross_entropy(&self.forward(ids)?, targets)
    }

    /// Logits `[B,V]` for what follows `ids` `[B,T]`; cheaper than `forward` where only these are wanted.
    #[track_caller]
    pub fn next_logits(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.features(ids)?;
        let last = x.size(1)?.saturating_sub(1);
        self.head(&x.select(1, last as isize)?)
    }

    /// `[B,T]` -> `[B,T,C]`, after the last layer norm.
    fn features(&self, ids: &Tensor) -> Result<Tensor> {
        let [_, positions] = *ids.shape() else {
            return Err(Error::shape("Gpt", format!("ids of shape {:?}", ids.shape()), "pass ids [B, T]"));
        };
        if positions > self.config.block_size {
            return Err(Error::shape(
                "Gpt",
                format!("{positions} positions, the model has {}", self.config.block_size),
                "pass the last block_size ids only",
            ));
        }
        let mut x = self.drop.forward(&self.wte.forward(ids)?.add(&self.wpe.weight.narrow(0, 0, positions)?)?)?;
        for block in &self.blocks {
            x = match self.checkpoints.load(Ordering::Relaxed) {
                false => block.forward(&x)?,
                true => {
                    let block = block.clone();
                    checkpoint(move |x| block.forward(&x[0]), &[&x])?
                }
            };
        }
        self.ln_f.forward(&x)
    }

    fn head(&self, x: &Tensor) -> Result<Tensor> {
        match &self.lm_head {
            Some(lm_head) => lm_head.forward(x),
            None => x.linear(&self.wte.weight, None),
        }
    }
}

impl Module for Gpt {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.head(&self.features(ids)?)
    }

    fn parts(&self) -> Parts<'_> {
        let parts = Parts::new().child("transformer.wte", &self.wte).child("transformer.wpe", &self.wpe);
        let parts = parts.child("transformer.drop", &self.drop);
        let parts = parts.list("transformer.h", self.blocks.iter().map(|block| &**block)).child("transformer.ln_f", &self.ln_f);
        match &self.lm_head {
            Some(lm_head) => parts.child("lm_head", lm_head),
            None => parts,
        }
    }
}

impl Block {
    fn new(device: &Device, config: &GptConfig, p: f64) -> Result<Block> {
        let (width, bias) = (config.n_embd, Bias::from(config.bias));
        let proj_std = STD / ((2 * config.n_layer) as f64).sqrt();
        Ok(Block {
            ln_1: LayerNorm::new(device, width, bias)?,
            c_attn: Linear::normal(device, width, 3 * width, bias, STD)?,
            attn_proj: Linear::normal(device, width, width, bias, proj_std)?,
            ln_2: LayerNorm::new(device, width, bias)?,
            c_fc: Linear::normal(device, width, 4 * width, bias, STD)?,
            mlp_proj: Linear::normal(device, 4 * width, width, bias, proj_std)?,
            n_head: config.n_head,
            drop: Dropout::new(p)?,
        })
    }

    /// Causal attention, `[B,T,C]` -> `[B,T,C]`.
    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let width = x.size(-1)?;
        let heads = |part: &Tensor| -> Result<Tensor> {
            let [b, t, _] = *part.shape() else { return Ok(part.clone()) };
            let (b, t, h) = (b as isize, t as isize, self.n_head as isize);
            part.reshape(&[b, t, h, (width / self.n_head) as isize])?.transpose(1, 2)
        };
        let parts = self.c_attn.forward(x)?.split(width, -1)?;
        let [q, k, v] = parts.as_slice() else {
            return Err(Error::shape("Gpt", "c_attn did not give q, k and v", "report this as a bug of linn"));
        };
        let options = AttentionOptions { is_causal: true, dropout_p: self.drop.rate(), ..AttentionOptions::default() };
        let y = heads(q)?.scaled_dot_product_attention_with(&heads(k)?, &heads(v)?, options)?;
        let shape: Vec<isize> = x.shape().iter().map(|len| *len as isize).collect();
        self.attn_proj.forward(&y.transpose(1, 2)?.reshape(&shape)?)
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.add(&self.drop.forward(&self.attention(&self.ln_1.forward(x)?)?)?)?;
        let hidden = self.c_fc.forward(&self.ln_2.forward(&x)?)?.gelu()?;
        x.add(&self.drop.forward(&self.mlp_proj.forward(&hidden)?)?)
    }

    fn parts(&self) -> Parts<'_> {
        let attention = Parts::new().child("ln_1", &self.ln_1).child("attn.c_attn", &self.c_attn);
        let mlp = attention.child("attn.c_proj", &self.attn_proj).child("ln_2", &self.ln_2).child("mlp.c_fc", &self.c_fc);
        mlp.child("mlp.c_proj", &self.mlp_proj).child("drop", &self.drop)
    }
}

impl GptConfig {
    fn check(&self) -> Result<()> {
        let sizes = [self.n_head, self.n_embd, self.block_size, self.vocab_size];
        let in_range = sizes.iter().all(|size| (1..=MOST).contains(size)) && self.n_layer <= MOST;
        if in_range && self.n_embd.is_multiple_of(self.n_head) {
            return Ok(());
        }
        Err(Error::argument(
            "Gpt::new",
            format!("{self:?}"),
            format!("sizes must be at least 1 and at most {MOST}, and n_head must divide n_embd"),
        ))
    }
}

/// The largest size: products of two and a small factor still fit, and no adapter holds such a model.
const MOST: usize = 1 << 28;

/// Standard deviation of initial weights (GPT-2).
const STD: f64 = 0.02;
