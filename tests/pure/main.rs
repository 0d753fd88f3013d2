//! Tests of the floors without a GPU: `cargo test --no-default-features`.

mod memory_choice;
mod memory_ladder;
mod memory_model;
mod memory_oom;
mod memory_stats;
mod memory_vectors;
