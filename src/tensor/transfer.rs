//! Reading tensors back: the calls that wait for the device.
