//! Views: other layouts of the same storage. They record no gradients; `autograd::methods` does.
