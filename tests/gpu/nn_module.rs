//! Modules: names of parameters and buffers, modes, state dicts, freezing, and errors that name the layer.

use std::collections::BTreeMap;

use linn::nn::state::{Strict, load, save};
use linn::nn::{Bias, Layer, LayerNorm, Linear, Module, Parts, Sequential, lambda};
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions};
use linn::{DeviceOptions, Result, Tensor, nn};

use crate::device::{device, open};

/// A counter, two layers of a list, and a layer that is used twice.
struct Model {
    blocks: Vec<Linear>,
    head: Linear,
    calls: Tensor,
    layer: Layer,
}

impl Model {
    fn new() -> Model {
        let device = device();
        let block = || Linear::new(&device, 3, 3, Bias::With).unwrap();
        let head = Linear::new(&device, 3, 2, Bias::Without).unwrap();
        Model { blocks: vec![block(), block()], head, calls: Tensor::zeros(&device, &[]).unwrap(), layer: Layer::default() }
    }
}

impl Module for Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.layer.is_training() {
            self.calls.add_scalar_(1.0)?;
        }
        let x = self.blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x))?;
        self.head.forward(&x)
    }

    fn parts(&self) -> Parts<'_> {
        let parts = Parts::of(&self.layer).buffer("calls", &self.calls);
        parts.list("h", &self.blocks).child("head", &self.head).child("tied", &self.head)
    }
}

fn names(tensors: &[(String, Tensor)]) -> Vec<&str> {
    tensors.iter().map(|(name, _)| name.as_str()).collect()
}

fn values(module: &dyn Module) -> Vec<Vec<f32>> {
    module.state_dict().iter().map(|(_, tensor)| tensor.to_vec().unwrap()).collect()
}

#[test]
fn parts_have_names_and_a_shared_parameter_is_one() {
    let model = Model::new();
    assert_eq!(names(&model.named_parameters()), ["h.0.weight", "h.0.bias", "h.1.weight", "h.1.bias", "head.weight"]);
    assert_eq!(names(&model.named_buffers()), ["calls"]);
    let whole = ["calls", "h.0.weight", "h.0.bias", "h.1.weight", "h.1.bias", "head.weight", "tied.weight"];
    assert_eq!(names(&model.state_dict()), whole);
    assert!(model.state_dict().iter().all(|(_, tensor)| !tensor.requires_grad()));
    assert!(model.parameters().iter().all(Tensor::requires_grad));
}

#[test]
fn modes_reach_every_layer() {
    let model = Sequential::new().add(nn::Dropout::new(1.0).unwrap()).add(Sequential::new().add(Model::new()));
    let x = Tensor::ones(&device(), &[1, 3]).unwrap();
    let count = || model.named_buffers()[0].1.item::<f32>().unwrap();
    let dropped = model.forward(&x).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(count(), 1.0);
    model.eval();
    assert_ne!(model.forward(&x).unwrap().to_vec::<f32>().unwrap(), dropped);
    assert_eq!(count(), 1.0);
    model.train();
    assert_eq!(model.forward(&x).unwrap().to_vec::<f32>().unwrap(), dropped);
    assert_eq!(count(), 2.0);
}

#[test]
fn a_state_dict_goes_through_a_file_into_another_model() {
    let (model, other) = (Model::new(), Model::new());
    model.forward(&Tensor::ones(&device(), &[1, 3]).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(&path, &model.state_dict(), &BTreeMap::new()).unwrap();
    let loaded = load(&device(), &path).unwrap();
    assert_eq!(other.load_state_dict(&loaded.tensors, Strict::Yes).unwrap(), Default::default());
    assert_eq!(values(&other), values(&model));
    assert_eq!(other.calls.item::<f32>().unwrap(), 1.0, "buffers too");
    assert!(other.parameters().iter().all(Tensor::requires_grad));
    // Other types are converted.
    let halves = loaded.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.to_dtype(linn::DType::F16).unwrap())).collect();
    other.load_state_dict(&halves, Strict::Yes).unwrap();
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3;
    assert!(values(&other).iter().flatten().zip(values(&model).iter().flatten()).all(near));
}

#[test]
fn a_state_dict_that_does_not_fit_changes_nothing() {
    let model = Model::new();
    let before = values(&model);
    let device = device();
    let zeros = |shape: &[usize]| Tensor::zeros(&device, shape).unwrap();
    let mut state: BTreeMap<String, Tensor> =
        model.state_dict().into_iter().map(|(name, tensor)| (name, zeros(tensor.shape()))).collect();
    let right = state.clone();
    state.remove("h.0.bias");
    state.insert("h.2.weight".into(), zeros(&[1]));
    state.insert("head.weight".into(), zeros(&[2, 4]));
    let error = model.load_state_dict(&state, Strict::Yes).unwrap_err().to_string();
    let facts = "missing h.0.bias; unexpected h.2.weight; head.weight has shape [2, 4], the model wants [2, 3]";
    let help = "build the model with the sizes and settings that the checkpoint was trained with";
    assert_eq!(error, format!("checkpoint does not fit the model: {facts}\nhelp: {help}"));
    let error = model.load_state_dict(&state, Strict::No).unwrap_err().to_string();
    assert!(error.starts_with("checkpoint does not fit the model: head.weight has shape [2, 4]"), "{error}");
    assert_eq!(values(&model), before);
    state.insert("head.weight".into(), right["head.weight"].clone());
    let keys = model.load_state_dict(&state, Strict::No).unwrap();
    assert_eq!((keys.missing, keys.unexpected), (vec!["h.0.bias".to_string()], vec!["h.2.weight".to_string()]));
    let after = values(&model);
    assert_eq!(after[2], before[2]);
    assert!(after[1].iter().chain(&after[5]).all(|value| *value == 0.0));
}

#[test]
fn a_frozen_module_learns_nothing_and_takes_no_gradient_memory() {
    let device = open(DeviceOptions::default());
    let layer = || Linear::new(&device, 64, 64, Bias::With).unwrap();
    let (frozen, head) = (layer(), layer());
    let x = Tensor::ones(&device, &[2, 64]).unwrap();
    let both = || -> Vec<(String, Tensor)> {
        let named = |name: &str, layer: &Linear| -> Vec<(String, Tensor)> {
            layer.named_parameters().into_iter().map(|(part, tensor)| (format!("{name}.{part}"), tensor)).collect()
        };
        [named("frozen", &frozen), named("head", &head)].concat()
    };
    let mut adam = Adam::adamw(vec![ParamGroup::new(both(), 0.1, 0.1)], AdamOptions::default());
    let step = |adam: &mut Adam| {
        head.forward(&frozen.forward(&x).unwrap()).unwrap().square().unwrap().mean_all().unwrap().backward().unwrap();
        adam.step().unwrap();
    };
    step(&mut adam);
    assert!(frozen.weight.grad().is_some());
    frozen.requires_grad_(false).unwrap();
    assert!(frozen.weight.grad().is_none() && head.weight.grad().is_some());
    adam.zero_grad();
    let gradients = || device.memory_breakdown().of(linn::memory::Category::Gradient);
    let (before, head_before) = (values(&frozen), values(&head));
    assert_eq!(gradients(), 0);
    assert!(!frozen.forward(&x).unwrap().requires_grad(), "nothing is recorded for it");
    step(&mut adam);
    assert_eq!(gradients(), 4 * (64 * 64 + 64));
    assert_eq!(values(&frozen), before);
    assert_ne!(values(&head), head_before);
    // The optimizer that had it all along steps it again.
    frozen.requires_grad_(true).unwrap();
    step(&mut adam);
    assert_ne!(values(&frozen), before);
}

/// The gradient of a layer's input needs its weight only.
#[test]
fn a_frozen_linear_layer_does_not_keep_its_input() {
    let device = open(DeviceOptions::default());
    let layer = Linear::new(&device, 256, 8, Bias::With).unwrap();
    let x = Tensor::ones(&device, &[1024, 256]).unwrap().requires_grad_(true).unwrap();
    let kept = || {
        let input = x.mul_scalar(2.0).unwrap();
        let y = layer.forward(&input).unwrap();
        drop(input);
        let bytes = device.memory_allocated();
        y.sum_all().unwrap().backward().unwrap();
        assert_eq!(x.grad().unwrap().shape(), x.shape());
        let got = x.grad().unwrap().sum_all().unwrap().item::<f32>().unwrap();
        let want = 2.0 * 1024.0 * layer.weight.sum_all().unwrap().item::<f32>().unwrap();
        assert!((got - want).abs() < 0.1 + 1e-4 * want.abs(), "{got} {want}");
        x.zero_grad();
        layer.zero_grad();
        bytes
    };
    let learning = kept();
    layer.requires_grad_(false).unwrap();
    assert_eq!(learning - kept(), 4 * 1024 * 256);
}

/// What was recorded before a parameter was frozen brings it nothing.
#[test]
fn freezing_between_forward_and_backward_counts() {
    let device = device();
    let w = Tensor::new(&device, [2.0f32]).unwrap().requires_grad_(true).unwrap();
    let loss = w.square().unwrap().sum_all().unwrap();
    w.set_requires_grad(false).unwrap();
    loss.backward().unwrap();
    assert!(w.grad().is_none());
    let clone = w.clone();
    clone.set_requires_grad(true).unwrap();
    w.square().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(clone.grad().unwrap().to_vec::<f32>().unwrap(), [4.0]);
    // A frozen leaf can be changed in place while recording, one that learns cannot.
    assert!(w.add_scalar_(1.0).is_err());
    w.set_requires_grad(false).unwrap();
    w.add_scalar_(1.0).unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [3.0]);
    let text = w.square().unwrap().set_requires_grad(true).unwrap_err().to_string();
    assert!(text.starts_with("autograd: set_requires_grad(true) on a tensor that is no leaf (shape [1])\nhelp: "), "{text}");
}

#[test]
fn zero_grad_gives_the_memory_back() {
    let model = Model::new();
    let mut sgd = Sgd::new(vec![ParamGroup::new(model.named_parameters(), 0.1, 0.0)], SgdOptions::default());
    model.forward(&Tensor::ones(&device(), &[1, 3]).unwrap()).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(model.parameters().iter().all(|parameter| parameter.grad().is_some()));
    sgd.step().unwrap();
    model.zero_grad();
    assert!(model.parameters().iter().all(|parameter| parameter.grad().is_none()));
}

#[test]
fn errors_name_the_layer_by_its_place_in_the_model() {
    let model =
        Sequential::new().add(Model::new()).add(lambda(|x| x.relu())).add(Linear::new(&device(), 5, 1, Bias::With).unwrap());
    let x = Tensor::ones(&device(), &[4, 3]).unwrap();
    // Nobody has asked for the parts yet.
    let text = model.forward(&x).unwrap_err().to_string();
    assert!(text.starts_with("linear: x [4, 2], weight [1, 5]"), "{text}");
    model.named_parameters();
    let text = model.forward(&x).unwrap_err().to_string();
    let help = "help: pass x [.., K], weight [N, K] and bias [N]";
    assert_eq!(text, format!("linear: in layer 2: x [4, 2], weight [1, 5], bias Some([1])\n{help}"));
    let text = model.forward(&Tensor::ones(&device(), &[4, 7]).unwrap()).unwrap_err().to_string();
    assert_eq!(text, format!("linear: in layer 0.h.0: x [4, 7], weight [3, 3], bias Some([3])\n{help}"));
    let whole = Tensor::ones(&device(), &[4, 3]).unwrap().to_dtype(linn::DType::I32).unwrap();
    let text = model.forward(&whole).unwrap_err().to_string();
    assert!(text.contains("in layer 0.h.0: takes ") && text.contains("\nhelp: convert the tensor with to_dtype"), "{text}");
    let norm = LayerNorm::new(&device(), 3, Bias::With).unwrap();
    let text = nn::scope("outer", || nn::scope("ln", || norm.forward(&Tensor::ones(&device(), &[4, 2]).unwrap()))).unwrap_err();
    assert!(text.to_string().starts_with("layer_norm: in layer outer.ln: "), "{text}");
}

/// A part that is asked for its own parameters keeps its place in the model.
#[test]
fn names_are_those_of_the_largest_model_that_was_asked() {
    let inner = Model::new();
    inner.named_parameters();
    let outer = Sequential::new().add(inner);
    let wrong = Tensor::ones(&device(), &[1, 7]).unwrap();
    let text = |module: &dyn Module| module.forward(&wrong).unwrap_err().to_string();
    assert!(text(&outer).starts_with("linear: in layer h.0: "), "{}", text(&outer));
    outer.train();
    assert!(text(&outer).starts_with("linear: in layer 0.h.0: "), "{}", text(&outer));
}

#[test]
fn what_the_device_finds_names_the_layer_too() {
    let device = open(DeviceOptions::default());
    let model = Sequential::new().add(nn::Embedding::new(&device, 5, 2, 1.0).unwrap());
    model.named_parameters();
    let ids = Tensor::new(&device, [0i32, 9]).unwrap();
    model.forward(&ids).unwrap();
    let text = device.synchronize().unwrap_err().to_string();
    let fact = "device: embedding: in layer 0: index 9 at position 1 is out of range for 5 entries";
    assert!(text.starts_with(&format!("{fact}\nhelp: indices must be from 0 to 4; ")), "{text}");
    let logits = Tensor::zeros(&device, &[2, 5]).unwrap();
    nn::scope("loss", || nn::loss::cross_entropy(&logits, &ids)).unwrap();
    let text = device.synchronize().unwrap_err().to_string();
    assert!(
        text.starts_with("device: cross_entropy: in layer loss: target 9 at position 1 is out of range for 5 classes"),
        "{text}"
    );
    assert!(text.contains("\nhelp: targets must be from 0 to 4; check the labels"), "{text}");
}
