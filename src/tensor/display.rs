//! Printing tensors. Printing reads the elements, so it waits for the device.
