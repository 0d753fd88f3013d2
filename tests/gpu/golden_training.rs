//! Training runs and optimizer steps as PyTorch computed them (tests/support/golden; `LINN_GOLDEN_TRAINING=DIR` for others).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use linn::autograd::{SaveOnCpu, autocast, cat, checkpoint};
use linn::nn::state::{Checkpoint, load, load_parameters};
use linn::nn::{Gpt, GptConfig, Module};
use linn::optim::{
    Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, Decay, GradScaler, GradScalerOptions, NAdam,
    NAdamOptions, Optimizer, ParamGroup, RmsProp, RmsPropOptions, Sgd, SgdOptions, WarmupCosine, clip_grad_norm_,
};
use linn::{DType, Tensor};
use serde_json::Value;

use crate::device::device;

/// Optimizers that our own golden values have to compare.
const COMPARED: [&str; 10] =
    ["AMSGrad", "Adafactor", "Adagrad", "Adam", "AdamW", "NAdam", "Nesterov", "RMSprop", "SGD", "momentum"];

/// The optimizer by the name in [`COMPARED`].
fn variant(settings: &Value) -> &'static str {
    let on = |key: &str| settings[key].as_bool().unwrap_or(false) || settings[key].as_f64().is_some_and(|value| value != 0.0);
    match settings["optimizer"].as_str().unwrap() {
        "SGD" if on("nesterov") => "Nesterov",
        "SGD" if on("momentum") => "momentum",
        "SGD" => "SGD",
        _ if on("amsgrad") => "AMSGrad",
        kind => COMPARED.into_iter().find(|known| *known == kind).unwrap_or_else(|| panic!("{kind} is not compared")),
    }
}

fn folder() -> PathBuf {
    match std::env::var_os("LINN_GOLDEN_TRAINING") {
        Some(folder) => folder.into(),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/golden/training"),
    }
}

/// The runs of `training.json` whose name starts with `prefix`, with their settings.
fn runs(prefix: &str) -> Vec<(String, Value)> {
    let path = folder().join("training.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let all: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let runs: Vec<_> = all.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    assert!(!runs.is_empty(), "{} names no {prefix} run", path.display());
    runs
}

fn file(name: &str) -> Checkpoint {
    load(&device(), &folder().join(format!("{name}.safetensors"))).unwrap_or_else(|why| panic!("{why}"))
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec::<f32>().unwrap()
}

/// The largest |got - want|; NaN counts as infinite.
fn largest_gap(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let gap = |(a, b): (&f32, &f32)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() };
    got.iter().zip(want).map(gap).fold(0.0, f32::max)
}

fn number(settings: &Value, key: &str) -> f64 {
    settings[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {settings}"))
}

/// A setting that the runs at hand leave at its default.
fn or(settings: &Value, key: &str, default: f64) -> f64 {
    if settings.get(key).is_some() { number(settings, key) } else { default }
}

fn count(settings: &Value, key: &str) -> usize {
    settings[key].as_u64().unwrap_or_else(|| panic!("no count {key} in {settings}")) as usize
}

#[test]
fn golden_training_gpt() {
    for (name, settings) in runs("gpt_") {
        gpt(&name, &settings);
    }
}

/// With bf16 in its products a run ends with the same loss as in f32, to 2 %.
#[test]
fn golden_training_gpt_in_bf16() {
    for (name, settings) in runs("gpt_") {
        let losses = train(&name, &settings, Way { dtype: DType::BF16, ..Way::default() }).0;
        let want = values(&file(&name).tensors["losses"]);
        let (Some(got), Some(want)) = (losses.last(), want.last()) else { panic!("{name} has no losses") };
        println!("{name}: ends with a loss of {got} in bf16, {want} in f32, after {} steps", losses.len());
        assert!((got / want - 1.0).abs() <= 0.02, "{name}: {got} instead of {want}");
    }
}

/// Less memory, the same numbers: to the bit where activations are computed again or kept in host memory, to 1e-5 where the
/// batches that a step accumulates are given at once.
#[test]
fn golden_training_gpt_with_less_memory() {
    for (name, settings) in runs("gpt_") {
        let all = |(losses, norms, model): (Vec<f32>, Vec<f32>, Arc<Gpt>)| {
            let parameters = model.named_parameters().iter().flat_map(|(_, parameter)| values(parameter)).collect();
            [losses, norms, parameters]
        };
        let want = all(train(&name, &settings, Way::default()));
        for keeps in [Keeps::Inputs, Keeps::OnHost] {
            assert!(all(train(&name, &settings, Way { keeps, ..Way::default() })) == want, "{name}: {keeps:?} gives other bits");
        }
        if count(&settings, "accum") > 1 {
            let got = all(train(&name, &settings, Way { at_once: true, ..Way::default() }));
            let gaps = [0, 1, 2].map(|i| largest_gap(&got[i], &want[i]));
            println!("{name}: accumulated and at once, losses, norms and parameters differ by {gaps:?}");
            assert!(gaps[0] <= 1e-5, "{name}: {gaps:?}");
        }
    }
}

/// What a model keeps for the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Keeps {
    #[default]
    All,
    Inputs,
    OnHost,
}

/// How a run goes.
struct Way {
    dtype: DType,
    keeps: Keeps,
    /// The batches of a step are one.
    at_once: bool,
}

impl Default for Way {
    fn default() -> Way {
        Way { dtype: DType::F32, keeps: Keeps::All, at_once: false }
    }
}

/// Trains as the run `name` did: losses, gradient norms, and the model.
fn train(name: &str, c: &Value, way: Way) -> (Vec<f32>, Vec<f32>, Arc<Gpt>) {
    let device = device();
    let golden = file(name);
    let config = GptConfig {
        n_layer: count(c, "n_layer"),
        n_head: count(c, "n_head"),
        n_embd: count(c, "n_embd"),
        block_size: count(c, "block"),
        vocab_size: count(c, "vocab"),
        bias: c["bias"].as_bool().unwrap(),
        tied: c["tied"].as_bool().unwrap(),
    };
    let model = Arc::new(Gpt::new(&device, config).unwrap());
    let host = SaveOnCpu::new(&device).unwrap();
    let init: BTreeMap<String, Tensor> =
        golden.tensors.iter().filter(|(key, _)| key.starts_with("init.")).map(|(k, v)| (k.clone(), v.clone())).collect();
    load_parameters(&model.named_parameters(), &init, "init.").unwrap();

    let (steps, accum, clip) = (count(c, "steps"), count(c, "accum"), number(c, "clip"));
    let schedule =
        WarmupCosine { lr: number(c, "lr"), min_lr: number(c, "min_lr"), warmup: count(c, "warmup") as u64, steps: steps as u64 };
    let groups = ParamGroup::by_rank(model.named_parameters(), schedule.lr, number(c, "weight_decay"));
    let options = AdamOptions { betas: (or(c, "beta1", 0.9), number(c, "beta2")), eps: or(c, "eps", 1e-8), ..Default::default() };
    let mut optimizer = Adam::adamw(groups, options);
    let parameters = model.parameters();
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 0..steps {
        optimizer.set_lr(schedule.at(step as u64));
        optimizer.zero_grad();
        let mut total = Vec::new();
        let batches: Vec<Tensor> = (0..accum).map(|micro| golden.tensors[&format!("tokens.{step}.{micro}")].clone()).collect();
        let batches = if way.at_once { vec![cat(&batches.iter().collect::<Vec<_>>(), 0).unwrap()] } else { batches };
        for tokens in &batches {
            let positions = tokens.size(1).unwrap() - 1;
            let inputs = tokens.narrow(1, 0, positions).unwrap();
            let targets = tokens.narrow(1, 1, positions).unwrap();
            let part = 1.0 / batches.len() as f64;
            let forward = || match way.keeps {
                Keeps::All => model.loss(&inputs, &targets)? * part,
                Keeps::OnHost => host.scope(|| model.loss(&inputs, &targets)? * part),
                Keeps::Inputs => {
                    let model = model.clone();
                    checkpoint(move |x| model.loss(&x[0], &x[1])? * part, &[&inputs, &targets])
                }
            };
            let loss = autocast(way.dtype, forward).unwrap();
            loss.backward().unwrap();
            total.push(loss.detach());
        }
        norms.push(clip_grad_norm_(&parameters, clip).unwrap());
        optimizer.step().unwrap();
        losses.push(total);
    }
    let losses: Vec<f32> = losses.iter().map(|micro| micro.iter().map(|loss| loss.item::<f32>().unwrap()).sum()).collect();
    let norms: Vec<f32> = norms.iter().map(|norm| norm.item::<f32>().unwrap()).collect();
    (losses, norms, model)
}

fn gpt(name: &str, c: &Value) {
    let golden = file(name);
    let (losses, norms, model) = train(name, c, Way::default());
    let (want_losses, want_norms) = (values(&golden.tensors["losses"]), values(&golden.tensors["grad_norms"]));
    let loss_gap = largest_gap(&losses, &want_losses);
    let ratios: Vec<f32> = norms.iter().zip(&want_norms).map(|(got, want)| got / want).collect();
    let norm_gap = largest_gap(&ratios, &vec![1.0; ratios.len()]);
    let mut parameter_gap = 0f32;
    for (key, parameter) in model.named_parameters() {
        let gap = largest_gap(&values(&parameter), &values(&golden.tensors[&format!("final.{key}")]));
        assert!(gap <= 1e-3, "{name}: final {key} is off by {gap}");
        parameter_gap = parameter_gap.max(gap);
    }
    println!("{name}: losses within {loss_gap:.1e}, gradient norms {norm_gap:.1e} relative, parameters {parameter_gap:.1e}");
    assert!(loss_gap <= 2e-4, "{name}: losses off by {loss_gap}:\n{losses:?}\n{want_losses:?}");
    assert!(norm_gap <= 1e-3, "{name}: gradient norms off by {norm_gap} relative:\n{norms:?}\n{want_norms:?}");
}

#[test]
fn golden_training_optimizers() {
    let mut compared = BTreeSet::new();
    for (name, settings) in runs("optim_") {
        let golden = file(&name);
        let params: Vec<(String, Tensor)> = (0..)
            .map_while(|i| golden.tensors.get(&format!("param0.{i}")).map(|param| (i.to_string(), param.clone())))
            .map(|(i, param)| (i, param.requires_grad_(true).unwrap()))
            .collect();
        assert!(!params.is_empty(), "{name} has no parameters");
        let mut optimizer = optimizer(&settings, params.clone());
        let mut worst = 0f32;
        let steps = golden.tensors.keys().filter(|key| key.starts_with("grad.") && key.ends_with(".0")).count();
        assert!(steps > 0, "{name} has no steps");
        for step in 0..steps {
            for (i, param) in &params {
                param.set_grad(Some(golden.tensors[&format!("grad.{step}.{i}")].clone())).unwrap();
            }
            optimizer.step().unwrap();
            for (i, param) in &params {
                let gap = largest_gap(&values(param), &values(&golden.tensors[&format!("param.{step}.{i}")]));
                assert!(gap <= 1e-5, "{name}: step {step}, parameter {i} is off by {gap}");
                worst = worst.max(gap);
            }
        }
        println!("{name}: within {worst:.1e}");
        compared.insert(variant(&settings));
    }
    if std::env::var_os("LINN_GOLDEN_TRAINING").is_none() {
        assert_eq!(compared, BTreeSet::from(COMPARED), "optimizers that were compared");
    }
}

/// Behind a gradient scaler, and with iterations in between whose gradients are infinite or NaN: the same bits as without.
#[test]
fn golden_training_optimizers_behind_a_scaler() {
    let device = device();
    for (name, settings) in runs("optim_") {
        let golden = file(&name);
        let grad = |step: usize, i: &str| golden.tensors.get(&format!("grad.{step}.{i}")).cloned();
        let start = || -> Vec<(String, Tensor)> {
            let params = (0..).map_while(|i| golden.tensors.get(&format!("param0.{i}")).map(|param| (i.to_string(), param)));
            let copy = |x: &Tensor| Tensor::from_slice(&device, x.shape(), &values(x)).unwrap().requires_grad_(true).unwrap();
            params.map(|(i, param)| (i, copy(param))).collect()
        };
        let (plain, scaled) = (start(), start());
        let (mut one, mut other) = (optimizer(&settings, plain.clone()), optimizer(&settings, scaled.clone()));
        let options = GradScalerOptions { init_scale: 1024.0, growth_interval: 3, ..GradScalerOptions::default() };
        let mut scaler = GradScaler::new(&device, options).unwrap();
        let (mut scale, mut lasted) = (1024f32, 0f32);
        for step in 0.. {
            let Some(first) = grad(step, "0") else { break };
            for (bad, value) in [(step == 0 || step % 4 == 2, f32::INFINITY), (step % 4 == 3, f32::NAN)] {
                if !bad {
                    continue;
                }
                for (i, param) in &scaled {
                    param.set_grad(Some(grad(step, i).unwrap().mul_scalar(f64::from(scale)).unwrap())).unwrap();
                }
                let last = first.len() as isize - 1;
                let broken = scaled[0].1.grad().unwrap();
                broken.view(&[-1]).unwrap().select(0, last).unwrap().fill_(value).unwrap();
                if step % 4 == 2 {
                    scaler.unscale_(&*other).unwrap();
                }
                scaler.step(&mut *other).unwrap();
                scaler.update().unwrap();
                (scale, lasted) = crate::reference::update_scale(scale, lasted, true, [2.0, 0.5], 3);
                assert_eq!(scaler.get_scale().unwrap(), scale, "{name}, step {step}");
            }
            for ((i, a), (_, b)) in plain.iter().zip(&scaled) {
                let grad = grad(step, i).unwrap();
                b.set_grad(Some(grad.mul_scalar(f64::from(scale)).unwrap())).unwrap();
                a.set_grad(Some(grad)).unwrap();
            }
            one.step().unwrap();
            if step % 2 == 1 {
                scaler.unscale_(&*other).unwrap();
            }
            scaler.step(&mut *other).unwrap();
            scaler.update().unwrap();
            (scale, lasted) = crate::reference::update_scale(scale, lasted, false, [2.0, 0.5], 3);
            assert_eq!(scaler.get_scale().unwrap(), scale, "{name}, step {step}");
            for ((i, a), (_, b)) in plain.iter().zip(&scaled) {
                assert_eq!(values(a), values(b), "{name}: step {step}, parameter {i}");
            }
        }
        for ((key, a), (_, b)) in one.state().iter().zip(&other.state()) {
            assert_eq!(values(a), values(b), "{name}: {key}");
        }
    }
}

/// Panics for an optimizer or an option that is not known.
fn optimizer(settings: &Value, params: Vec<(String, Tensor)>) -> Box<dyn Optimizer> {
    let kind = settings["optimizer"].as_str().unwrap();
    let options = settings.as_object().unwrap();
    // Learning rate and weight decay where the settings name none.
    let (known, lr, decay): (&[&str], f64, f64) = match kind {
        "SGD" => (&["momentum", "dampening", "nesterov"], 1e-3, 0.0),
        "Adam" => (&["betas", "eps", "amsgrad"], 1e-3, 0.0),
        "AdamW" => (&["betas", "eps", "amsgrad"], 1e-3, 1e-2),
        "NAdam" => (&["betas", "eps", "momentum_decay", "decoupled_weight_decay"], 2e-3, 0.0),
        "RMSprop" => (&["alpha", "eps", "momentum", "centered"], 1e-2, 0.0),
        "Adagrad" => (&["lr_decay", "initial_accumulator_value", "eps"], 1e-2, 0.0),
        "Adafactor" => (&["beta2_decay", "eps", "d"], 1e-2, 0.0),
        _ => panic!("unknown optimizer {kind}"),
    };
    let common = ["optimizer", "lr", "weight_decay"];
    for option in options.keys() {
        assert!(common.contains(&option.as_str()) || known.contains(&option.as_str()), "{kind} has unknown option {option}");
    }
    let number = |key: &str, default: f64| options.get(key).map_or(default, |value| value.as_f64().unwrap());
    let flag = |key: &str| options.get(key).is_some_and(|value| value.as_bool().unwrap());
    let groups = vec![ParamGroup::new(params, number("lr", lr), number("weight_decay", decay))];
    let betas = options.get("betas").map_or((0.9, 0.999), |betas| (betas[0].as_f64().unwrap(), betas[1].as_f64().unwrap()));
    let adam = AdamOptions { betas, eps: number("eps", 1e-8), amsgrad: flag("amsgrad") };
    let momentum = number("momentum", 0.0);
    match kind {
        "SGD" => {
            let dampening = number("dampening", 0.0);
            Box::new(Sgd::new(groups, SgdOptions { momentum, dampening, nesterov: flag("nesterov") }))
        }
        "Adam" => Box::new(Adam::new(groups, adam)),
        "AdamW" => Box::new(Adam::adamw(groups, adam)),
        "NAdam" => {
            let decay = if flag("decoupled_weight_decay") { Decay::Decoupled } else { Decay::Coupled };
            let (eps, momentum_decay) = (number("eps", 1e-8), number("momentum_decay", 4e-3));
            Box::new(NAdam::new(groups, NAdamOptions { betas, eps, momentum_decay, decay }))
        }
        "RMSprop" => {
            let (alpha, eps) = (number("alpha", 0.99), number("eps", 1e-8));
            Box::new(RmsProp::new(groups, RmsPropOptions { alpha, eps, momentum, centered: flag("centered") }))
        }
        "Adagrad" => {
            let initial_accumulator_value = number("initial_accumulator_value", 0.0);
            let (lr_decay, eps) = (number("lr_decay", 0.0), number("eps", 1e-10));
            Box::new(Adagrad::new(groups, AdagradOptions { lr_decay, initial_accumulator_value, eps }))
        }
        _ => {
            let default = AdafactorOptions::default();
            let eps = options.get("eps").map_or(default.eps, |eps| (eps[0].as_f64(), eps[1].as_f64().unwrap()));
            let (beta2_decay, d) = (number("beta2_decay", default.beta2_decay), number("d", default.d));
            Box::new(Adafactor::new(groups, AdafactorOptions { beta2_decay, eps, d }))
        }
    }
}
