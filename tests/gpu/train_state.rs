//! Optimizer state, clipping and checkpoints on the device.

use std::collections::BTreeMap;

use linn::Tensor;
use linn::autograd::no_grad;
use linn::nn::state::{load, load_parameters, save};
use linn::nn::{Bias, Dropout, Gpt, GptConfig, Linear, Module};
use linn::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions, clip_grad_norm_, clip_scale, grad_norm};

use crate::device::device;

fn param(values: &[f32]) -> Tensor {
    Tensor::from_slice(&device(), &[values.len()], values).unwrap().requires_grad_(true).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec::<f32>().unwrap()
}

fn set_grad(param: &Tensor, values: &[f32]) {
    param.set_grad(Some(Tensor::from_slice(&device(), &[values.len()], values).unwrap())).unwrap();
}

fn adam(params: &[(&str, &Tensor)]) -> Adam {
    let named = params.iter().map(|(name, param)| (name.to_string(), (*param).clone())).collect();
    Adam::adamw(vec![ParamGroup::new(named, 0.1, 0.0)], AdamOptions::default())
}

#[test]
fn parameters_count_their_own_steps() {
    // b rests for two steps in the middle: it must then be where a run of its own with the same gradients would be.
    let (a, b, alone) = (param(&[1.0]), param(&[1.0]), param(&[1.0]));
    let (mut both, mut single) = (adam(&[("a", &a), ("b", &b)]), adam(&[("alone", &alone)]));
    for step in 0..6 {
        set_grad(&a, &[0.3]);
        b.zero_grad();
        if ![2, 3].contains(&step) {
            let grad = [0.1 + step as f32];
            set_grad(&b, &grad);
            set_grad(&alone, &grad);
            single.step().unwrap();
        }
        both.step().unwrap();
    }
    assert_eq!(values(&b), values(&alone));
    let counts: BTreeMap<String, Tensor> = both.state().into_iter().collect();
    assert_eq!((values(&counts["step.a"]), values(&counts["step.b"])), (vec![6.0], vec![4.0]));
}

#[test]
fn settings_that_pytorch_refuses_change_nothing() {
    let p = param(&[1.0]);
    set_grad(&p, &[0.5]);
    let group = |lr, decay| vec![ParamGroup::new(vec![("p".into(), p.clone())], lr, decay)];
    let adam = |lr, decay, betas, eps| Adam::new(group(lr, decay), AdamOptions { betas, eps, amsgrad: false });
    let sgd = |lr, options| Sgd::new(group(lr, 0.0), options);
    let mut wrong: Vec<(&str, Box<dyn Optimizer>)> = vec![
        ("adam_: lr is -1", Box::new(adam(-1.0, 0.0, (0.9, 0.99), 1e-8))),
        ("adam_: lr is NaN", Box::new(adam(f64::NAN, 0.0, (0.9, 0.99), 1e-8))),
        ("adam_: weight_decay is -0.1", Box::new(adam(0.1, -0.1, (0.9, 0.99), 1e-8))),
        ("adam_: beta1 is 1", Box::new(adam(0.1, 0.0, (1.0, 0.99), 1e-8))),
        ("adam_: beta2 is -0.5", Box::new(adam(0.1, 0.0, (0.9, -0.5), 1e-8))),
        ("adam_: eps is inf", Box::new(adam(0.1, 0.0, (0.9, 0.99), f64::INFINITY))),
        ("sgd_: lr is -1", Box::new(sgd(-1.0, SgdOptions::default()))),
        ("sgd_: momentum is -2", Box::new(sgd(0.1, SgdOptions { momentum: -2.0, ..Default::default() }))),
        ("sgd_: nesterov with", Box::new(sgd(0.1, SgdOptions { nesterov: true, ..Default::default() }))),
        ("sgd_: nesterov with", Box::new(sgd(0.1, SgdOptions { nesterov: true, momentum: 0.9, dampening: 0.5 }))),
    ];
    for (fact, optimizer) in &mut wrong {
        let text = optimizer.step().unwrap_err().to_string();
        assert!(text.starts_with(*fact) && text.contains("\nhelp: pass "), "{text}");
        assert!(optimizer.state().is_empty(), "{fact}");
    }
    assert_eq!(values(&p), [1.0]);
}

#[test]
fn a_loaded_optimizer_goes_on_with_the_same_bits() {
    let (a, b) = (param(&[1.0, -2.0]), param(&[1.0, -2.0]));
    let (mut first, mut second) = (adam(&[("p", &a)]), adam(&[("p", &b)]));
    for step in 0..3 {
        set_grad(&a, &[0.1 * step as f32, 0.7]);
        first.step().unwrap();
    }
    no_grad(|| b.copy_(&a)).unwrap();
    let state = first.state().into_iter().map(|(name, tensor)| (format!("optimizer.{name}"), tensor)).collect();
    second.load_state(&state, "optimizer.").unwrap();
    for _ in 0..3 {
        for (param, optimizer) in [(&a, &mut first), (&b, &mut second)] {
            set_grad(param, &[-0.4, 0.2]);
            optimizer.step().unwrap();
        }
    }
    assert_eq!(values(&a), values(&b));
    let partial: BTreeMap<String, Tensor> = first.state().into_iter().filter(|(name, _)| name.starts_with("step")).collect();
    assert!(second.load_state(&partial, "").unwrap_err().to_string().contains("exp_avg.p is missing"));
}

#[test]
fn clipping_scales_all_gradients_together() {
    let (a, b) = (param(&[0.0, 0.0]), param(&[0.0]));
    set_grad(&a, &[3.0, 0.0]);
    set_grad(&b, &[4.0]);
    let params = [a.clone(), b.clone(), param(&[1.0])];
    let norm = grad_norm(&params).unwrap();
    assert_eq!(norm.item::<f32>().unwrap(), 5.0);
    assert!((clip_scale(&norm, 1.0).unwrap().item::<f32>().unwrap() - 0.2).abs() < 1e-6);
    assert_eq!(clip_scale(&norm, 10.0).unwrap().item::<f32>().unwrap(), 1.0);
    assert_eq!(clip_grad_norm_(&params, 1.0).unwrap().item::<f32>().unwrap(), 5.0);
    let clipped = values(&a.grad().unwrap());
    assert!((clipped[0] - 0.6).abs() < 1e-6 && clipped[1] == 0.0);
    assert!(grad_norm(&[param(&[1.0])]).is_err());
}

#[test]
fn a_checkpoint_comes_back_bit_for_bit() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let config = GptConfig { n_layer: 1, n_head: 2, n_embd: 8, block_size: 6, vocab_size: 5, bias: true, tied: true };
    let (model, other) = (Gpt::new(&device, config).unwrap(), Gpt::new(&device, config).unwrap());
    let metadata = BTreeMap::from([("step".to_string(), "12".to_string()), ("text".to_string(), "ä\n\"".to_string())]);
    save(&path, &model.named_parameters(), &metadata).unwrap();
    let loaded = load(&device, &path).unwrap();
    assert_eq!(loaded.metadata, metadata);
    // In an order of its own, so that equal contents are equal bytes; an empty file has metadata too.
    let written = std::fs::read(&path).unwrap();
    let again = folder.path().join("again.safetensors");
    for _ in 0..8 {
        save(&again, &model.named_parameters(), &metadata).unwrap();
        assert!(std::fs::read(&again).unwrap() == written);
    }
    save(&again, &[], &metadata).unwrap();
    assert_eq!(load(&device, &again).unwrap().metadata, metadata);
    std::fs::remove_file(&again).unwrap();
    load_parameters(&other.named_parameters(), &loaded.tensors, "").unwrap();
    for ((name, a), (_, b)) in model.named_parameters().iter().zip(other.named_parameters()) {
        assert_eq!(values(a), values(&b), "{name}");
    }
    // Written over itself, and nothing else is left in the folder.
    save(&path, &other.named_parameters(), &metadata).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    let wrong = Gpt::new(&device, GptConfig { n_embd: 4, ..config }).unwrap();
    assert!(load_parameters(&wrong.named_parameters(), &loaded.tensors, "").unwrap_err().to_string().contains("has shape"));
    let untied = Gpt::new(&device, GptConfig { tied: false, ..config }).unwrap();
    let error = load_parameters(&untied.named_parameters(), &loaded.tensors, "").unwrap_err().to_string();
    assert!(error.contains("missing lm_head.weight"), "{error}");
    let unbiased = Gpt::new(&device, GptConfig { bias: false, ..config }).unwrap();
    let error = load_parameters(&unbiased.named_parameters(), &loaded.tensors, "").unwrap_err().to_string();
    assert!(error.contains("unexpected transformer.h.0.attn.c_attn.bias"), "{error}");
    assert!(save(&folder.path().join("missing/model"), &[], &metadata).unwrap_err().to_string().contains("cannot write"));
}

/// Every flip of one bit in a file is an error, or changes nothing that is read.
#[test]
fn a_damaged_checkpoint_is_not_loaded() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensors = [("a.weight", param(&[1.0, -2.5, 3e-8])), ("b.bias", param(&[0.0]))];
    let tensors = tensors.map(|(name, tensor)| (name.to_string(), tensor));
    let metadata = BTreeMap::from([("step".to_string(), "12".to_string()), ("lr".to_string(), "0.001".to_string())]);
    save(&path, &tensors, &metadata).unwrap();
    let whole = std::fs::read(&path).unwrap();
    type Contents = (BTreeMap<String, String>, Vec<(String, Vec<usize>, Vec<u8>)>);
    let contents = |path: &std::path::Path| -> linn::Result<Contents> {
        let loaded = load(&device, path)?;
        let tensor = |(name, tensor): (&String, &Tensor)| (name.clone(), tensor.shape().to_vec(), bytes(tensor));
        Ok((loaded.metadata.clone(), loaded.tensors.iter().map(tensor).collect()))
    };
    let right = contents(&path).unwrap();
    assert_eq!(right.0, metadata, "the checksum is not among what was saved");
    let damaged = folder.path().join("damaged.safetensors");
    let mut noticed = 0;
    for at in 0..whole.len() {
        for bit in [1u8, 4, 32, 128] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            std::fs::write(&damaged, &bytes).unwrap();
            match contents(&damaged) {
                // A name of the checksum that is damaged itself is one more line of text.
                Ok((mut lines, tensors)) => {
                    lines.retain(|name, _| metadata.contains_key(name));
                    assert_eq!((lines, tensors), right, "byte {at}, bit {bit}");
                }
                Err(error) => {
                    noticed += 1;
                    let text = error.to_string();
                    assert!(text.contains("damaged") || text.contains("element type"), "byte {at}, bit {bit}: {text}");
                }
            }
        }
    }
    assert!(noticed > whole.len() * 3, "{noticed} of {}", whole.len() * 4);
    let mut relabelled = whole.clone();
    let at = whole.windows(3).position(|word| word == b"F32").unwrap();
    relabelled[at..at + 3].copy_from_slice(b"I32");
    std::fs::write(&damaged, relabelled).unwrap();
    assert!(load(&device, &damaged).err().unwrap().to_string().contains("its checksum is"));
}

/// The elements, whatever their type.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    match tensor.dtype() {
        linn::DType::F32 => bytemuck::cast_slice(&tensor.to_vec::<f32>().unwrap()).to_vec(),
        linn::DType::I32 => bytemuck::cast_slice(&tensor.to_vec::<i32>().unwrap()).to_vec(),
        _ => bytemuck::cast_slice(&tensor.to_vec::<u32>().unwrap()).to_vec(),
    }
}

#[test]
fn files_of_other_programs_have_no_checksum_and_are_read() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let write = |dtype: &str| {
        let header = format!(r#"{{"p":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,8]}}}}"#);
        let data = bytemuck::cast_slice(&[1.5f32, -2.0]).to_vec();
        let path = folder.path().join("other.safetensors");
        std::fs::write(&path, [(header.len() as u64).to_le_bytes().to_vec(), header.into_bytes(), data].concat()).unwrap();
        load(&device, &path).unwrap()
    };
    let p = param(&[0.0, 0.0]);
    let loaded = write("F32");
    assert!(loaded.metadata.is_empty());
    load_parameters(&[("p".to_string(), p.clone())], &loaded.tensors, "").unwrap();
    assert_eq!(values(&p), [1.5, -2.0]);
    // The same bytes called something else are no parameter and no optimizer state.
    let other = write("I32");
    let error = load_parameters(&[("p".to_string(), p.clone())], &other.tensors, "").unwrap_err().to_string();
    assert!(error.contains("tensor p has element type i32, the model wants f32\nhelp: "), "{error}");
    assert_eq!(values(&p), [1.5, -2.0]);
    let mut state = BTreeMap::from([("step.p".to_string(), param(&[3.0]))]);
    state.extend(["exp_avg.p", "exp_avg_sq.p"].map(|name| (name.to_string(), other.tensors["p"].clone())));
    let error = adam(&[("p", &p)]).load_state(&state, "").unwrap_err().to_string();
    assert!(error.contains("optimizer state exp_avg.p has element type i32"), "{error}");
}

#[test]
fn the_model_has_nanogpts_names_and_shapes() {
    let config = GptConfig { n_layer: 1, n_head: 2, n_embd: 8, block_size: 6, vocab_size: 5, bias: false, tied: true };
    let model = Gpt::new(&device(), config).unwrap();
    let got: Vec<(String, Vec<usize>)> =
        model.named_parameters().iter().map(|(name, param)| (name.clone(), param.shape().to_vec())).collect();
    let want: [(&str, &[usize]); 9] = [
        ("transformer.wte.weight", &[5, 8]),
        ("transformer.wpe.weight", &[6, 8]),
        ("transformer.h.0.ln_1.weight", &[8]),
        ("transformer.h.0.attn.c_attn.weight", &[24, 8]),
        ("transformer.h.0.attn.c_proj.weight", &[8, 8]),
        ("transformer.h.0.ln_2.weight", &[8]),
        ("transformer.h.0.mlp.c_fc.weight", &[32, 8]),
        ("transformer.h.0.mlp.c_proj.weight", &[8, 32]),
        ("transformer.ln_f.weight", &[8]),
    ];
    assert_eq!(got, want.map(|(name, shape)| (name.to_string(), shape.to_vec())));
    let ids = Tensor::new(&device(), [[1i32, 2, 3]]).unwrap();
    let logits = model.forward(&ids).unwrap();
    assert_eq!(logits.shape(), [1, 3, 5]);
    let next = model.next_logits(&ids).unwrap();
    let last = logits.select(1, 2).unwrap();
    let gap = values(&next).iter().zip(values(&last)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(gap < 1e-6, "{gap}");
    assert!(Gpt::new(&device(), GptConfig { n_head: 3, ..config }).is_err());
    let huge = GptConfig { n_head: 1, n_embd: usize::MAX, ..config };
    assert!(Gpt::new(&device(), huge).err().unwrap().to_string().contains("at most"));
    assert!(model.forward(&Tensor::new(&device(), [[0i32; 7]]).unwrap()).unwrap_err().to_string().contains("7 positions"));
}

#[test]
fn dropout_drops_while_training_only() {
    let x = Tensor::from_slice(&device(), &[10_000], &vec![1.0f32; 10_000]).unwrap();
    let dropout = Dropout::new(0.25).unwrap();
    let kept = values(&dropout.forward(&x).unwrap());
    let zeros = kept.iter().filter(|value| **value == 0.0).count();
    assert!((2200..2800).contains(&zeros), "{zeros}");
    assert!(kept.iter().all(|value| *value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-6));
    dropout.eval();
    assert_eq!(values(&dropout.forward(&x).unwrap()), values(&x));
    assert_eq!(values(&Dropout::new(1.0).unwrap().forward(&x).unwrap()), vec![0.0; 10_000]);
    assert!(Dropout::new(1.1).is_err() && Dropout::new(f64::NAN).is_err());
    let layer = Linear::new(&device(), 100, 3, Bias::With).unwrap();
    assert!(values(&layer.weight).iter().all(|weight| weight.abs() <= 0.1));
}
