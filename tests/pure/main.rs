//! Tests of the floors without a GPU: `cargo test --no-default-features`.

mod chance;
mod device;
mod docs;
mod dtype;
mod error_text;
mod field_reports;
mod floors;
mod layout;
mod memory_choice;
mod memory_compact;
mod memory_compact_figures;
mod memory_figures;
mod memory_help;
mod memory_import;
mod memory_ladder;
mod memory_model;
mod memory_oom;
mod memory_private;
mod memory_pytorch;
mod memory_settings;
mod memory_snapshot;
mod memory_snapshot_moves;
mod memory_stats;
mod memory_summary;
mod memory_vectors;
mod queue;
mod replay;
mod timeline_edges;
mod timeline_foreign;
mod timeline_order;
mod timeline_sim;
mod traces;

// What the pure files of upper floors name from below; see `device`.
use linn::{ids, memory, timeline};
