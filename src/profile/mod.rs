//! What a program's memory did, for people: summaries, snapshots as JSON and as a page, replays.
//!
//! Works on the data that lower floors hand out. Builds without the `gpu` feature.
//!
//! - [`summary`]: the table that PyTorch users know, and the categories.
//! - [`Snapshot::to_json`](crate::memory::Snapshot::to_json): for PyTorch's memory_viz page.
//! - [`Snapshot::to_html`](crate::memory::Snapshot::to_html): a page of our own, in one file, from [`lifetimes`].
//! - [`replay`]: recorded programs (workloads, histories), run over the pool again; [`synthetic`]: programs made up from a seed.

#[cfg(feature = "gpu")]
mod device;
pub mod lifetimes;
mod page;
pub mod replay;
mod replay_history;
mod snapshot_json;
pub mod summary;
pub mod synthetic;
