//! What a random program does to a pool, one step at a time.

use proptest::prelude::*;

use super::STREAMS;

#[derive(Clone, Debug)]
pub enum Op {
    Alloc { stream: u32, octave: u32, share: f64, category: usize, pool: usize },
    Free { which: usize },
    Use { which: usize, stream: u32 },
    Submit { stream: Option<u32> },
    Complete,
    Synchronize,
    EmptyCache,
    Refuse { count: u32 },
    Limit { share: f64 },
    SetCategory { which: usize, category: usize },
    ResetPeaks,
    ResetSums,
    Compact { stream: u32, share: f64 },
    Pin { which: usize },
    Unpin { which: usize },
    NewPool { no_split: bool, use_on_oom: bool },
    DropPool { which: usize },
}

/// Any of them; sizes up to 2^(`largest_octave` + 1).
pub fn ops(largest_octave: u32) -> impl Strategy<Value = Op> {
    let stream = 0..STREAMS;
    prop_oneof![
        40 => (stream.clone(), 0..=largest_octave, 0.0..1.0, 0usize..6, prop_oneof![3 => Just(0usize), 1 => any::<usize>()])
            .prop_map(|(stream, octave, share, category, pool)| Op::Alloc { stream, octave, share, category, pool }),
        34 => any::<usize>().prop_map(|which| Op::Free { which }),
        25 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Op::Use { which, stream }),
        6 => proptest::option::of(stream).prop_map(|stream| Op::Submit { stream }),
        6 => Just(Op::Complete),
        1 => Just(Op::Synchronize),
        1 => Just(Op::EmptyCache),
        1 => (1u32..8).prop_map(|count| Op::Refuse { count }),
        1 => (0.1..2.0).prop_map(|share| Op::Limit { share }),
        2 => (any::<usize>(), 0usize..6).prop_map(|(which, category)| Op::SetCategory { which, category }),
        1 => Just(Op::ResetPeaks),
        1 => Just(Op::ResetSums),
        2 => (0..STREAMS, 0.0..1.0).prop_map(|(stream, share)| Op::Compact { stream, share }),
        2 => any::<usize>().prop_map(|which| Op::Pin { which }),
        2 => any::<usize>().prop_map(|which| Op::Unpin { which }),
        1 => any::<(bool, bool)>().prop_map(|(no_split, use_on_oom)| Op::NewPool { no_split, use_on_oom }),
        1 => any::<usize>().prop_map(|which| Op::DropPool { which }),
    ]
}
