//! Layers against PyTorch's: results, gradients and running statistics from the same state dict
//! (`tests/support/golden/layers.safetensors`, written by `layers.py` there).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use linn::autograd::{AttentionOptions, ConvOptions, ConvTransposeOptions, Padding, PoolOptions, no_grad};
use linn::nn::state::{Strict, load};
use linn::nn::*;
use linn::ops::unary::Approximate;
use linn::{DType, Tensor};

use crate::close::{assert_close, wide};
use crate::device::device;

struct Golden(BTreeMap<String, Tensor>);

impl Golden {
    fn read() -> Golden {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden/layers.safetensors");
        Golden(load(&device(), &path).unwrap().tensors)
    }

    fn get(&self, case: &str, name: &str) -> Tensor {
        self.0.get(&format!("{case}/{name}")).unwrap_or_else(|| panic!("{case}/{name}")).clone()
    }

    /// What stands under a case and a folder, by its name there.
    fn under(&self, case: &str, folder: &str) -> BTreeMap<String, Tensor> {
        let prefix = format!("{case}/{folder}/");
        let named = |(name, tensor): (&String, &Tensor)| Some((name.strip_prefix(&prefix)?.to_string(), tensor.clone()));
        self.0.iter().filter_map(named).collect()
    }

    #[track_caller]
    fn compare(&self, case: &str, name: &str, got: &Tensor) {
        let want = self.get(case, name);
        assert_eq!(got.shape(), want.shape(), "{case}/{name}");
        let read = |x: &Tensor| x.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
        assert_close(&format!("{case}/{name}"), &read(got), &wide(&read(&want)), 2e-5, 2e-5);
    }

    /// Loads the case's state dict, which has to be the module's.
    fn start(&self, case: &str, module: &dyn Module) {
        module.load_state_dict(&self.under(case, "state"), Strict::Yes).unwrap_or_else(|why| panic!("{case}: {why}"));
    }

    /// Gradients of sum(y w) by the parameters and by named inputs.
    fn gradients(&self, case: &str, module: &dyn Module, inputs: &[(&str, &Tensor)], y: &Tensor) {
        module.zero_grad();
        y.mul(&self.get(case, "w")).unwrap().sum_all().unwrap().backward().unwrap();
        for (name, x) in inputs.iter().filter(|(_, x)| x.requires_grad()) {
            self.compare(case, &format!("d{name}"), &x.grad().unwrap());
        }
        let wanted: BTreeSet<String> = self.under(case, "grad").into_keys().collect();
        let mut found = BTreeSet::new();
        for (name, parameter) in module.named_parameters() {
            self.compare(
                case,
                &format!("grad/{name}"),
                &parameter.grad().unwrap_or_else(|| panic!("{case}: no gradient of {name}")),
            );
            found.insert(name);
        }
        assert_eq!(found, wanted, "{case}");
    }

    fn run(&self, case: &str, module: &dyn Module) {
        self.start(case, module);
        let x = leaf(self.get(case, "x"));
        let y = module.forward(&x).unwrap_or_else(|why| panic!("{case}: {why}"));
        self.compare(case, "y", &y);
        self.gradients(case, module, &[("x", &x)], &y);
    }

    fn running(&self, case: &str, module: &dyn Module) {
        self.start(case, module);
        let mut last = None;
        for i in 0..3 {
            let x = leaf(self.get(case, &format!("x.{i}")));
            let y = module.forward(&x).unwrap();
            self.compare(case, &format!("y.{i}"), &y);
            last = Some((x, y));
        }
        let (x, y) = last.unwrap();
        self.gradients(case, module, &[("x", &x)], &y);
        for (name, tensor) in module.state_dict() {
            self.compare(case, &format!("after/{name}"), &tensor);
        }
        module.eval();
        self.compare(case, "eval", &no_grad(|| module.forward(&self.get(case, "x.0"))).unwrap());
        for (name, tensor) in module.state_dict() {
            self.compare(case, &format!("after/{name}"), &tensor); // evaluation learns nothing
        }
    }

    fn attention(&self, case: &str, module: &MultiheadAttention) {
        self.start(case, module);
        let [q, k, v] = ["q", "k", "v"].map(|name| leaf(self.get(case, name)));
        let mask = self.0.get(&format!("{case}/mask"));
        let y = module.attend(&q, &k, &v, AttentionOptions { attn_mask: mask, ..Default::default() }).unwrap();
        self.compare(case, "y", &y);
        self.gradients(case, module, &[("q", &q), ("k", &k), ("v", &v)], &y);
        if case == "attention_causal" {
            let causal = module.attend(&q, &k, &v, AttentionOptions { is_causal: true, ..Default::default() }).unwrap();
            self.compare(case, "y", &causal);
        }
        if case == "attention" {
            // The same tensor three times goes another way.
            self.compare(case, "y", &module.forward(&q).unwrap());
        }
    }
}

fn leaf(x: Tensor) -> Tensor {
    if x.dtype() == DType::F32 { x.requires_grad_(true).unwrap() } else { x }
}

#[test]
fn layers_compute_what_pytorchs_do() {
    let (golden, device) = (Golden::read(), device());
    let d = &device;
    golden.run("linear", &Linear::new(d, 5, 3, Bias::With).unwrap());
    golden.run("linear_without_bias", &Linear::new(d, 5, 3, Bias::Without).unwrap());
    golden.run("embedding", &Embedding::new(d, 7, 4, 1.0).unwrap().padding_idx(2).unwrap());
    golden.run("layer_norm", &LayerNorm::new(d, 6, Bias::With).unwrap());
    golden.run("layer_norm_without_bias", &LayerNorm::new(d, 6, Bias::Without).unwrap());
    golden.run("layer_norm_2d", &LayerNorm::over(d, &[2, 6], Bias::With).unwrap());
    golden.run("rms_norm", &RmsNorm::new(d, &[6], None).unwrap());
    golden.run("group_norm", &GroupNorm::new(d, 2, 6).unwrap());
    let padded = ConvOptions { padding: Padding::Zeros(&[1]), ..Default::default() };
    golden.run("conv1d", &Conv1d::new(d, 3, 4, [3], Bias::With, padded).unwrap());
    let options = ConvOptions { stride: &[2, 1], padding: Padding::Zeros(&[1, 0]), dilation: &[1, 2], groups: 2 };
    golden.run("conv2d", &Conv2d::new(d, 4, 6, [3, 2], Bias::With, options).unwrap());
    let same = ConvOptions { padding: Padding::Same, ..Default::default() };
    golden.run("conv2d_same", &Conv2d::new(d, 2, 3, [3, 3], Bias::Without, same).unwrap());
    let options = ConvTransposeOptions { stride: &[2], ..Default::default() };
    golden.run("conv_transpose1d", &ConvTranspose1d::new(d, 4, 2, [3], Bias::With, options).unwrap());
    let options = ConvTransposeOptions { stride: &[2], padding: &[1], output_padding: &[1], groups: 2, ..Default::default() };
    golden.run("conv_transpose2d", &ConvTranspose2d::new(d, 4, 6, [3, 3], Bias::With, options).unwrap());
    golden.run("max_pool1d", &MaxPool1d::new([3], PoolOptions { stride: &[2], ..Default::default() }));
    golden.run("max_pool2d", &MaxPool2d::new([3, 3], PoolOptions { stride: &[2], padding: &[1], ..Default::default() }));
    golden.run("avg_pool1d", &AvgPool1d::new([2], PoolOptions::default()));
    let options = PoolOptions { padding: &[1, 1], count_include_pad: false, ..Default::default() };
    golden.run("avg_pool2d", &AvgPool2d::new([2, 3], options));
    golden.run("adaptive_avg_pool1d", &AdaptiveAvgPool1d::new([Some(3)]));
    golden.run("adaptive_avg_pool2d", &AdaptiveAvgPool2d::new([Some(2), None]));
    golden.run("flatten", &Flatten::default());
    golden.run("prelu", &Prelu::new(d, 3, 0.25).unwrap());
}

#[test]
fn activations_compute_what_pytorchs_do() {
    let golden = Golden::read();
    let cases: [(&str, &dyn Module); 21] = [
        ("relu", &Relu::default()),
        ("relu6", &Relu6::default()),
        ("sigmoid", &Sigmoid::default()),
        ("tanh", &Tanh::default()),
        ("silu", &Silu::default()),
        ("mish", &Mish::default()),
        ("selu", &Selu::default()),
        ("softsign", &Softsign::default()),
        ("tanhshrink", &Tanhshrink::default()),
        ("hardsigmoid", &Hardsigmoid::default()),
        ("hardswish", &Hardswish::default()),
        ("log_sigmoid", &LogSigmoid::default()),
        ("gelu", &Gelu::default()),
        ("gelu_tanh", &Gelu { approximate: Approximate::Tanh }),
        ("leaky_relu", &LeakyRelu::default()),
        ("elu", &Elu::default()),
        ("celu", &Celu::default()),
        ("hardtanh", &Hardtanh::default()),
        ("softplus", &Softplus::default()),
        ("softmax", &Softmax::default()),
        ("log_softmax", &LogSoftmax::default()),
    ];
    cases.iter().for_each(|(case, module)| golden.run(case, *module));
    let x = golden.get("relu", "x");
    assert_eq!(Identity::default().forward(&x).unwrap().to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
}

#[test]
fn batch_normalisation_learns_pytorchs_statistics() {
    let (golden, device) = (Golden::read(), device());
    let d = &device;
    let options = BatchNormOptions::default();
    golden.running("batch_norm1d", &BatchNorm1d::new(d, 5, options).unwrap());
    let slow = BatchNormOptions { eps: 1e-3, momentum: Some(0.3), ..options };
    golden.running("batch_norm1d_sequences", &BatchNorm1d::new(d, 5, slow).unwrap());
    golden.running("batch_norm1d_average", &BatchNorm1d::new(d, 5, BatchNormOptions { momentum: None, ..options }).unwrap());
    golden.running("batch_norm2d", &BatchNorm2d::new(d, 3, options).unwrap());
    let untracked = BatchNormOptions { track_running_stats: false, ..options };
    golden.running("batch_norm2d_untracked", &BatchNorm2d::new(d, 3, untracked).unwrap());
    let norm = BatchNorm2d::new(d, 3, BatchNormOptions { affine: false, ..options }).unwrap();
    golden.running("batch_norm2d_plain", &norm);
    assert_eq!(norm.named_buffers()[2].1.item::<i32>().unwrap(), 3);
    let text = norm.forward(&Tensor::ones(d, &[2, 3]).unwrap()).unwrap_err().to_string();
    assert_eq!(text, "batch_norm: an input of shape [2, 3]\nhelp: pass an input [N, C, ..] of 4 dimensions");
}

/// Training reads nothing from the device, with running averages too.
#[test]
fn batch_normalisation_waits_for_nothing() {
    let device = crate::device::open(Default::default());
    let norm = BatchNorm1d::new(&device, 4, BatchNormOptions { momentum: None, ..Default::default() }).unwrap();
    let x = Tensor::ones(&device, &[3, 4]).unwrap();
    let before = device.stats().queue.host_syncs;
    for _ in 0..5 {
        norm.forward(&x).unwrap();
    }
    assert_eq!(device.stats().queue.host_syncs, before);
}

#[test]
fn attention_attends_as_pytorchs_does() {
    let (golden, device) = (Golden::read(), device());
    let attention = |heads, bias| MultiheadAttention::new(&device, 8, heads, 0.0, bias).unwrap();
    golden.attention("attention", &attention(2, Bias::With));
    golden.attention("attention_causal", &attention(2, Bias::With));
    golden.attention("attention_masked", &attention(4, Bias::Without));
    golden.attention("attention_added", &attention(2, Bias::With));
    assert!(
        MultiheadAttention::new(&device, 8, 3, 0.0, Bias::With).err().unwrap().to_string().contains("3 heads for a width of 8")
    );
    let dropping = MultiheadAttention::new(&device, 8, 2, 0.5, Bias::With).unwrap();
    let x = golden.get("attention", "q");
    let values = || dropping.forward(&x).unwrap().to_vec::<f32>().unwrap();
    assert_ne!(values(), values());
    dropping.eval();
    assert_eq!(values(), values());
}

#[test]
fn a_model_of_layers_has_pytorchs_state_dict() {
    let (golden, device) = (Golden::read(), device());
    let padded = ConvOptions { padding: Padding::Zeros(&[1]), ..Default::default() };
    let features = Sequential::new()
        .add(Conv2d::new(&device, 1, 4, [3, 3], Bias::Without, padded).unwrap())
        .add(BatchNorm2d::new(&device, 4, Default::default()).unwrap())
        .add(Relu::default())
        .add(MaxPool2d::new([2, 2], PoolOptions::default()));
    let head = Linear::new(&device, 36, 5, Bias::With).unwrap();
    golden.running("model", &Sequential::new().add(features).add(Flatten::default()).add(head));
}
