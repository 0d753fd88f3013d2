//! What a program's memory did, for people: replays.
//!
//! Works on the data that lower floors hand out. Builds without the `gpu` feature.

pub mod replay;
