//! Mistakes that users make in training, and what they are told: the layer and the cure.

use linn::autograd::{BackwardOptions, ClassOptions, Retain};
use linn::nn::{self, Bias, DetectNan, Embedding, LayerNorm, Linear, Module, Parts, Sequential};
use linn::optim::{Adafactor, AdafactorOptions, Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions, StaleGradients};
use linn::{Device, DeviceOptions, Result, Tensor};

use crate::device::{device, open};

/// A block of GPT-2's names whose second layer does not fit the first.
struct Block {
    c_fc: Linear,
    c_proj: Linear,
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.c_proj.forward(&self.c_fc.forward(x)?.gelu()?)
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new().child("mlp.c_fc", &self.c_fc).child("mlp.c_proj", &self.c_proj)
    }
}

struct Model {
    h: Vec<Block>,
}

impl Model {
    fn new(device: &Device, wrong: usize) -> Model {
        let layer = |inputs, outputs| Linear::new(device, inputs, outputs, Bias::Without).unwrap();
        let h = (0..5).map(|i| Block { c_fc: layer(4, 16), c_proj: layer(if i == wrong { 12 } else { 16 }, 4) }).collect();
        let model = Model { h };
        model.train();
        model
    }
}

impl Module for Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.h.iter().try_fold(x.clone(), |x, block| x.add(&block.forward(&x)?))
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new().list("h", &self.h)
    }
}

#[test]
fn a_shape_that_does_not_fit_names_the_layer_both_shapes_and_the_cure() {
    let device = device();
    let text = Model::new(&device, 3).forward(&Tensor::ones(&device, &[2, 4]).unwrap()).unwrap_err().to_string();
    let fact = "linear: in layer h.3.mlp.c_proj: x [2, 16], weight [4, 12], bias None";
    assert_eq!(text, format!("{fact}\nhelp: pass x [.., K], weight [N, K] and bias [N]"));
}

#[test]
fn layers_of_every_kind_name_themselves() {
    let device = device();
    let d = &device;
    let no = linn::autograd::ConvOptions::default;
    let conv = nn::Conv2d::new(d, 3, 4, [3, 3], Bias::With, no()).unwrap();
    let transposed = nn::ConvTranspose2d::new(d, 3, 4, [3, 3], Bias::With, Default::default()).unwrap();
    let layers: Vec<(Box<dyn Module>, &[usize])> = vec![
        (Box::new(Linear::new(d, 3, 4, Bias::With).unwrap()), &[2, 5]),
        (Box::new(LayerNorm::new(d, 3, Bias::With).unwrap()), &[2, 5]),
        (Box::new(nn::RmsNorm::new(d, &[3], None).unwrap()), &[2, 5]),
        (Box::new(nn::GroupNorm::new(d, 3, 6).unwrap()), &[2, 5]),
        (Box::new(nn::BatchNorm1d::new(d, 3, Default::default()).unwrap()), &[2, 5]),
        (Box::new(conv), &[1, 2, 8, 8]),
        (Box::new(transposed), &[1, 2, 8, 8]),
        (Box::new(nn::MaxPool2d::new([9, 9], Default::default())), &[1, 2, 8, 8]),
        (Box::new(nn::AdaptiveAvgPool2d::new([Some(1); 2])), &[8]),
        (Box::new(nn::MultiheadAttention::new(d, 4, 2, 0.0, Bias::With).unwrap()), &[1, 2, 5]),
        (Box::new(nn::Prelu::new(d, 3, 0.25).unwrap()), &[2, 5]),
    ];
    for (at, (layer, shape)) in layers.into_iter().enumerate() {
        let model = Sequential::new().add(Sequential::new().add(layer));
        model.train();
        let text = model.forward(&Tensor::ones(d, shape).unwrap()).unwrap_err().to_string();
        assert!(text.contains(": in layer 0.0: ") && text.contains("\nhelp: "), "layer {at}: {text}");
    }
}

#[test]
fn a_target_out_of_range_names_the_loss() {
    let device = open(DeviceOptions::default());
    let logits = Tensor::zeros(&device, &[2, 3, 5]).unwrap().requires_grad_(true).unwrap();
    let targets = Tensor::new(&device, [[0i32, 1, 2], [3, 5, 4]]).unwrap();
    let loss = nn::loss::cross_entropy(&logits, &targets).unwrap();
    loss.backward().unwrap();
    let text = loss.item::<f32>().unwrap_err().to_string();
    let help = "help: targets must be from 0 to 4; check the labels, or make the last layer as wide as there are classes; ";
    assert!(
        text.starts_with(&format!("device: cross_entropy: target 5 at position 4 is out of range for 5 classes\n{help}")),
        "{text}"
    );
    let rows = logits.reshape(&[6, 5]).unwrap();
    let with = |options| nn::scope("head.loss", || rows.cross_entropy_with(&targets.reshape(&[6])?, options)).unwrap();
    with(ClassOptions { label_smoothing: 0.1, ..Default::default() });
    let text = device.synchronize().unwrap_err().to_string();
    assert!(
        text.starts_with("device: cross_entropy: in layer head.loss: target 5 at position 4 is out of range for 5"),
        "{text}"
    );
    // A class that is left out is none.
    with(ClassOptions { ignore_index: Some(5), ..Default::default() });
    device.synchronize().unwrap();
}

#[test]
fn an_id_out_of_range_names_its_table() {
    let device = open(DeviceOptions::default());
    struct Tables {
        wte: Embedding,
    }
    impl Module for Tables {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.wte.forward(x)
        }
        fn parts(&self) -> Parts<'_> {
            Parts::new().child("transformer.wte", &self.wte)
        }
    }
    let model = Tables { wte: Embedding::new(&device, 7, 2, 1.0).unwrap() };
    model.named_parameters();
    model.forward(&Tensor::new(&device, [[1i32, -1]]).unwrap()).unwrap();
    let text = device.synchronize().unwrap_err().to_string();
    assert!(
        text.starts_with("device: embedding: in layer transformer.wte: index -1 at position 1 is out of range for 7 entries"),
        "{text}"
    );
    assert!(text.contains("help: indices must be from 0 to 6; check the ids"), "{text}");
}

#[test]
fn a_missing_zero_grad_is_found_where_that_is_wanted() {
    let device = device();
    type Make = fn(Vec<ParamGroup>) -> Box<dyn Optimizer>;
    let makes: [Make; 3] = [
        |groups| Box::new(Sgd::new(groups, SgdOptions::default())),
        |groups| Box::new(Adam::adamw(groups, AdamOptions::default())),
        |groups| Box::new(Adafactor::new(groups, AdafactorOptions::default())),
    ];
    for make in makes {
        let layer = Linear::new(&device, 3, 2, Bias::With).unwrap();
        let x = Tensor::ones(&device, &[4, 3]).unwrap();
        let backward = || layer.forward(&x).unwrap().square().unwrap().mean_all().unwrap().backward().unwrap();
        let mut optimizer = make(vec![ParamGroup::new(layer.named_parameters(), 0.01, 0.0)]);
        backward();
        optimizer.step().unwrap();
        backward();
        optimizer.step().unwrap(); // PyTorch says nothing either
        {
            let _refused = StaleGradients::refuse();
            backward();
            let before = layer.weight.to_vec::<f32>().unwrap();
            let text = optimizer.step().unwrap_err().to_string();
            let fact = "an earlier step has used the gradient of weight, and backward has added to it since (2 so)";
            assert!(
                text.starts_with("autograd: ") && text.contains(&format!(": {fact}\nhelp: call zero_grad after each step")),
                "{text}"
            );
            assert_eq!(layer.weight.to_vec::<f32>().unwrap(), before);
            // Accumulation is none, nor a step that is done twice, nor a gradient of one's own.
            optimizer.zero_grad();
            (0..3).for_each(|_| backward());
            optimizer.step().unwrap();
            optimizer.step().unwrap();
            layer.parameters().iter().for_each(|param| param.set_grad(Some(param.detach())).unwrap());
            backward();
            optimizer.step().unwrap();
        }
        backward();
        optimizer.step().unwrap();
    }
}

#[test]
fn the_first_layer_with_nan_is_named() {
    let device = open(DeviceOptions::default());
    let model = Model::new(&device, usize::MAX);
    let x = Tensor::ones(&device, &[2, 4]).unwrap();
    let weight = |name: &str| model.named_parameters().into_iter().find(|(known, _)| known == name).unwrap().1.detach();
    weight("h.2.mlp.c_fc.weight").fill_(f64::INFINITY).unwrap();
    let before = device.stats().queue.host_syncs;
    {
        let _detected = DetectNan::start();
        model.forward(&x).unwrap();
        assert_eq!(device.stats().queue.host_syncs, before, "nothing waits for it");
        let text = device.synchronize().unwrap_err().to_string();
        assert!(
            text.starts_with("device: layer h.2.mlp.c_fc: result ") && text.contains("\nhelp: it is the first layer"),
            "{text}"
        );
        weight("h.2.mlp.c_fc.weight").fill_(0.0).unwrap();
        model.forward(&x).unwrap();
        device.synchronize().unwrap();
        // A loss whose layers are fine.
        let huge = Tensor::ones(&device, &[2]).unwrap().mul_scalar(3e38).unwrap();
        nn::scope("loss", || nn::loss::mse_loss(&huge, &huge.neg()?)).unwrap();
        let text = device.synchronize().unwrap_err().to_string();
        assert!(text.starts_with("device: layer loss: result 0 is inf\n"), "{text}");
    }
    weight("h.2.mlp.c_fc.weight").fill_(f64::NAN).unwrap();
    model.forward(&x).unwrap();
    device.synchronize().unwrap();
}

#[test]
fn a_second_backward_names_the_layer() {
    let device = device();
    let model = Model::new(&device, usize::MAX);
    let loss = model.forward(&Tensor::ones(&device, &[2, 4]).unwrap()).unwrap();
    let loss = nn::scope("loss", || loss.square()?.mean_all()).unwrap();
    loss.backward_with(BackwardOptions { retain: Retain::Graph, ..Default::default() }).unwrap();
    loss.backward().unwrap();
    let text = loss.backward().unwrap_err().to_string();
    let fact = "autograd: backward runs a second time through `mean` in layer loss, and what it saved is freed";
    assert_eq!(text, format!("{fact}\nhelp: pass Retain::Graph to backward_with the first time, or run the forward pass again"));
    let inner = model.h[0].forward(&Tensor::ones(&device, &[2, 4]).unwrap()).unwrap().sum_all().unwrap();
    inner.backward().unwrap();
    let text = inner.backward().unwrap_err().to_string();
    assert!(text.contains("a second time through `sum`, and"), "outside of layers there is no name: {text}");
}
