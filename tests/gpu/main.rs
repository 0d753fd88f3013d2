//! Needs an adapter, software included. Fails with help where there is none; never passes by skipping.

#[path = "../support/device.rs"]
mod device;
mod examples;
mod exit;
mod golden_training;
mod grad_graph;
mod grad_rules;
mod streams;
mod train_gpt;
mod train_state;
