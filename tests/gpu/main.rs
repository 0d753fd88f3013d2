//! Needs an adapter, software included. Fails with help where there is none; never passes by skipping.

#[path = "../support/close.rs"]
mod close;
#[path = "../support/device.rs"]
mod device;
#[path = "../support/reference.rs"]
mod reference;
#[path = "../support/stop.rs"]
mod stop;
#[path = "../support/refusals.rs"]
mod sweep;
#[path = "../support/timing.rs"]
mod timing;

mod clipping;
mod compact;
mod compact_busy;
mod copies;
mod data_loader;
mod driver_memory;
mod dtypes;
mod events;
mod examples;
mod exit;
mod field_reports;
mod field_streams;
mod golden_ops;
mod golden_training;
mod grad_graph;
mod grad_memory;
mod grad_rules;
mod grad_saved;
mod indexing;
mod interop;
mod long_work;
mod lost;
mod memory_history;
mod mixed_precision;
mod nn_errors;
mod nn_init;
mod nn_layers;
mod nn_module;
mod ops_elementwise;
mod ops_index;
mod ops_large;
mod ops_longest;
mod ops_matmul;
mod ops_pictures;
mod ops_reduce;
mod ops_scan;
mod ops_scatter;
mod ops_softmax;
mod ops_sort;
mod optimizers;
mod out_of_memory;
mod own_kernels;
mod pinned;
mod random;
mod random_gradients;
mod random_programs;
mod replay;
mod safe_use;
mod schedulers;
mod several_devices;
mod sizes;
mod streams;
mod tensor_api;
mod train_faults;
mod train_gpt;
mod train_knobs;
mod train_program;
mod train_state;
mod waits;
