//! Schedulers against PyTorch's rates: two groups, 60 steps each (`tests/support/golden/schedulers.json`, which `schedulers.py` there wrote).

use linn::optim::{
    Anneal, Better, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, ExponentialLr, LambdaLr, LinearLr, MultiStepLr,
    OneCycleLr, Optimizer, ParamGroup, PlateauOptions, PolynomialLr, ReduceLrOnPlateau, Schedule, Scheduler, SequentialLr, Sgd,
    SgdOptions, StepLr, Threshold,
};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../support/golden/schedulers.json")).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn optimizer() -> Sgd {
    let groups = [0.1, 0.03].map(|lr| ParamGroup::new(Vec::new(), lr, 0.0));
    Sgd::new(groups.into(), SgdOptions::default())
}

fn rates(optimizer: &Sgd) -> Vec<f64> {
    optimizer.groups().iter().map(|group| group.lr).collect()
}

#[track_caller]
fn assert_rates(case: &str, step: usize, got: &[f64], want: &Value) {
    for (got, want) in got.iter().zip(numbers(want)) {
        // 1e-15: where PyTorch's product does not quite come to 0.
        assert!((got - want).abs() <= 1e-12 * want + 1e-15, "{case}, step {step}: {got} instead of {want}");
    }
}

#[test]
fn rates_are_pytorchs() {
    let golden = golden();
    let one = |schedule: Box<dyn Schedule>| vec![schedule];
    let cycle = |max_lr: f64| OneCycleLr::new(max_lr, 61);
    let three = |max_lr: f64| OneCycleLr {
        pct_start: 0.4,
        anneal: Anneal::Linear,
        div_factor: 10.0,
        final_div_factor: 100.0,
        three_phase: true,
        ..cycle(max_lr)
    };
    let warm = LinearLr { start_factor: 0.1, end_factor: 1.0, total_iters: 8 };
    let sequence =
        SequentialLr::new(warm).then(8, CosineAnnealingLr { t_max: 30, eta_min: 1e-3 }).then(38, ExponentialLr { gamma: 0.9 });
    let lambda = LambdaLr(|step: u64| f64::min(1.0, (step + 1) as f64 / 10.0) / (1.0 + step as f64 / 10.0).sqrt());
    let cases: Vec<(&str, Vec<Box<dyn Schedule>>)> = vec![
        ("StepLR", one(Box::new(StepLr { step_size: 7, gamma: 0.5 }))),
        ("MultiStepLR", one(Box::new(MultiStepLr { milestones: vec![20, 5, 20, 41], gamma: 0.3 }))),
        ("ConstantLR", one(Box::new(ConstantLr { factor: 0.25, total_iters: 9 }))),
        ("LinearLR", one(Box::<LinearLr>::default())),
        ("LinearLR_down", one(Box::new(LinearLr { start_factor: 1.0, end_factor: 0.1, total_iters: 40 }))),
        ("ExponentialLR", one(Box::new(ExponentialLr { gamma: 0.93 }))),
        ("PolynomialLR", one(Box::new(PolynomialLr { total_iters: 45, power: 2.0 }))),
        ("CosineAnnealingLR", one(Box::new(CosineAnnealingLr { t_max: 20, eta_min: 1e-3 }))),
        ("CosineAnnealingWarmRestarts", one(Box::new(CosineAnnealingWarmRestarts { t_0: 7, t_mult: 2, eta_min: 1e-4 }))),
        ("LambdaLR", one(Box::new(lambda))),
        ("OneCycleLR", vec![Box::new(cycle(0.2)), Box::new(cycle(0.05))]),
        ("OneCycleLR_linear_three", vec![Box::new(three(0.2)), Box::new(three(0.05))]),
        ("SequentialLR", one(Box::new(sequence))),
    ];
    let mut compared = 0;
    for (case, schedules) in cases {
        let mut optimizer = optimizer();
        let mut scheduler = Scheduler::with(&mut optimizer, schedules);
        for (step, want) in golden["cases"][case]["lrs"].as_array().unwrap().iter().enumerate() {
            assert_rates(case, step, &rates(&optimizer), want);
            assert_eq!((scheduler.last_lr(), scheduler.last_epoch()), (rates(&optimizer).as_slice(), step as u64));
            // Half way another one goes on from the state of this one.
            if step == 30 {
                let state = scheduler.state().into_iter().map(|(name, text)| (format!("scheduler.{name}"), text)).collect();
                optimizer.set_lr(1.0);
                scheduler.step(&mut self::optimizer());
                scheduler.load_state(&mut optimizer, &state, "scheduler.").unwrap();
                assert_rates(case, step, &rates(&optimizer), want);
            }
            scheduler.step(&mut optimizer);
            compared += 1;
        }
    }
    assert_eq!(compared, 13 * 60);
}

#[test]
fn plateaus_are_pytorchs() {
    let golden = golden();
    let reduce = PlateauOptions { factor: 0.5, patience: 3, cooldown: 2, ..Default::default() };
    let largest = PlateauOptions {
        mode: Better::Max,
        factor: 0.3,
        patience: 2,
        threshold: Threshold::Absolute(0.05),
        min_lr: vec![1e-3, 2e-3],
        eps: 1e-6,
        ..Default::default()
    };
    for (case, options) in [("ReduceLROnPlateau", reduce), ("ReduceLROnPlateau_max_abs", largest)] {
        let (mut optimizer, case_of) = (optimizer(), &golden["cases"][case]);
        let mut scheduler = ReduceLrOnPlateau::new(options.clone());
        let metrics = numbers(&case_of["metrics"]);
        assert_eq!(metrics.len(), 60);
        for (step, (want, metric)) in case_of["lrs"].as_array().unwrap().iter().zip(metrics).enumerate() {
            assert_rates(case, step, &rates(&optimizer), want);
            if step % 13 == 0 {
                let state = scheduler.state();
                scheduler = ReduceLrOnPlateau::new(options.clone());
                scheduler.load_state(&mut optimizer, &state, "").unwrap();
            }
            scheduler.step(&mut optimizer, metric);
        }
        assert_ne!(rates(&optimizer), [0.1, 0.03], "{case} never changed anything");
    }
    let mut scheduler = ReduceLrOnPlateau::new(PlateauOptions { patience: 0, ..Default::default() });
    let mut optimizer = optimizer();
    scheduler.step(&mut optimizer, 1.0);
    scheduler.step(&mut optimizer, f64::NAN);
    assert_eq!((scheduler.best(), scheduler.last_lr()), (1.0, rates(&optimizer).as_slice()));
    assert!((rates(&optimizer)[0] - 0.01).abs() < 1e-15, "NaN is no better");
}

#[test]
fn a_scheduler_refuses_the_state_of_another() {
    let mut optimizer = optimizer();
    let mut scheduler = Scheduler::new(&mut optimizer, StepLr { step_size: 1, gamma: 0.5 });
    scheduler.step(&mut optimizer);
    let mut state = scheduler.state();
    state.insert("base_lrs".into(), "0.1".into());
    let text = scheduler.load_state(&mut optimizer, &state, "").unwrap_err().to_string();
    let help = "help: load the state of a scheduler of the same kind, for an optimizer with as many groups";
    assert_eq!(text, format!("the scheduler's state base_lrs is missing or does not fit\n{help}"));
    let text = ReduceLrOnPlateau::new(Default::default()).load_state(&mut optimizer, &state, "").unwrap_err().to_string();
    assert!(text.starts_with("the scheduler's state _last_lr is missing"), "{text}");
    assert_eq!((rates(&optimizer), scheduler.last_epoch()), (vec![0.05, 0.015], 1));
}
