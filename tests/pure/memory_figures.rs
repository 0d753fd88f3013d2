//! What policy linn reserves on recorded programs, beside PyTorch's default.

use linn::memory::{Config, Policy};
use linn::profile::replay::{Figures, Options, replay};

use crate::traces;

fn figures(trace: &traces::Trace, policy: Policy, max_segment: u64, late: u64) -> Figures {
    replay(&trace.workload, &Options { config: Config { policy, max_segment, ..Config::default() }, late })
}

/// One setting for all: 6% above the bound in the geometric mean, nowhere above PyTorch, no more purchases in all.
#[test]
fn recorded_programs_reserve_less_than_in_pytorch() {
    let traces = traces::recorded();
    for max_segment in [64 << 30, (2 << 30) - 1, 256 << 20] {
        let (mut log, mut bought, mut bought_by_pytorch) = (0.0, 0, 0);
        for trace in &traces {
            let name = &trace.workload.name;
            let linn = figures(trace, Policy::Linn, max_segment, 0);
            let pytorch = figures(trace, Policy::Pytorch, max_segment, 0);
            assert_eq!(linn.failed, linn.beyond_segment, "{name}");
            // With small segments the largest requests fail and others become the peak.
            assert!(linn.failed > 0 || linn.peak_reserved <= pytorch.peak_reserved, "{name}: {linn:?} {pytorch:?}");
            log += (linn.peak_reserved as f64 / linn.peak_live as f64).ln();
            bought += linn.driver_calls;
            bought_by_pytorch += pytorch.driver_calls;
        }
        let mean = (log / traces.len().max(1) as f64).exp();
        assert!(mean <= 1.06, "{mean} with segments of up to {max_segment}");
        assert!(bought <= bought_by_pytorch, "{bought} {bought_by_pytorch}");
    }
}

/// Work that completes late keeps idle segments from being given back. It costs, but never more than PyTorch reserves by
/// much: 2% on one workload, less than it in the mean.
#[test]
fn late_completion_costs_less_than_pytorch() {
    let traces = traces::recorded();
    let (mut linn_log, mut pytorch_log) = (0.0, 0.0);
    for trace in &traces {
        let linn = figures(trace, Policy::Linn, 64 << 30, 200);
        let pytorch = figures(trace, Policy::Pytorch, 64 << 30, 200);
        let ratio = linn.peak_reserved as f64 / pytorch.peak_reserved as f64;
        assert!(ratio <= 1.02, "{}: {ratio}", trace.workload.name);
        linn_log += (linn.peak_reserved as f64).ln();
        pytorch_log += (pytorch.peak_reserved as f64).ln();
    }
    assert!(linn_log <= pytorch_log);
}
