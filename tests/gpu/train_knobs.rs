//! The example trainer's memory knobs: products in halves, checkpoints, host memory, accumulation, dropout, and all at once.

use std::path::Path;

use crate::train_gpt::example::Summary;
use crate::train_gpt::example::run::run;
use crate::train_gpt::{args, bits};

fn train(folder: &Path, more: &str) -> Summary {
    run(args(folder, more)).unwrap_or_else(|why| panic!("{why:#}"))
}

/// Losses, and what came of them.
fn all(summary: &Summary) -> (Vec<u32>, Option<u32>, String) {
    (bits(&summary.losses), summary.val_loss.map(f32::to_bits), summary.sample.clone())
}

#[test]
fn train_with_less_memory_is_the_same_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    for dropout in ["", " --dropout 0.2"] {
        let plain = train(folder.path(), &format!("--steps 8 --accumulate 2{dropout}"));
        for knobs in ["--checkpointing", "--offload", "--checkpointing --offload"] {
            let less = train(folder.path(), &format!("--steps 8 --accum 2{dropout} {knobs}"));
            assert_eq!(all(&less), all(&plain), "{knobs}{dropout}");
        }
    }
}

#[test]
fn train_in_halves_learns_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let plain = train(folder.path(), "--steps 40");
    for dtype in ["bf16", "f16"] {
        let halves = train(folder.path(), &format!("--steps 40 --dtype {dtype}"));
        assert_ne!(bits(&halves.losses), bits(&plain.losses), "{dtype} rounds");
        let (Some(got), Some(want)) = (halves.losses.last(), plain.losses.last()) else { panic!("40 losses") };
        assert!((got / want - 1.0).abs() <= 0.02, "{dtype}: a loss of {got} instead of {want}");
    }
}

#[test]
fn train_with_dropout_repeats_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let knobs = "--dropout 0.2 --dtype f16 --checkpointing --offload --accumulate 2";
    let whole = train(folder.path(), &format!("--steps 10 {knobs} --save whole.safetensors"));
    assert_eq!(all(&train(folder.path(), &format!("--steps 10 {knobs}"))), all(&whole), "the same seed");
    assert_ne!(bits(&train(folder.path(), &format!("--steps 10 {knobs} --seed 3")).losses), bits(&whole.losses));
    assert_ne!(bits(&train(folder.path(), &format!("--steps 10 {knobs} --dropout 0")).losses), bits(&whole.losses));

    let first = train(folder.path(), &format!("--steps 10 {knobs} --stop-after 4 --save half.safetensors"));
    let rest = train(folder.path(), "--resume half.safetensors --checkpointing --offload --save ended.safetensors");
    assert_eq!([bits(&first.losses), bits(&rest.losses)].concat(), bits(&whole.losses), "random numbers and the scale go on");
    let [a, b] = ["whole", "ended"].map(|name| std::fs::read(folder.path().join(format!("{name}.safetensors"))).unwrap());
    assert!(a == b, "and end in the same file");
}
