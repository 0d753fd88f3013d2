//! What a program's memory did, for people: replays of recorded and synthetic workloads.
//!
//! Works on the data that lower floors hand out. Builds without the `gpu` feature.

pub mod replay;
pub mod synthetic;
