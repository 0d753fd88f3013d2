//! Needs an adapter, software included. Fails with help where there is none; never passes by skipping.

#[path = "../support/device.rs"]
mod device;
mod streams;
