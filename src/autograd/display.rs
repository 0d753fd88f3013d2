//! `{}` and `{:?}` of tensors: the elements as PyTorch prints them, and what autograd knows.

use std::fmt;

use super::graph::interior_of;
use crate::tensor::{Tensor, display};

/// As PyTorch prints a tensor of its default device: `tensor([1., 2.], grad_fn=<ReluBackward0>)`. Blocks until what is shown has been
/// computed. `{:.2}` shows two digits, `{:#}` all elements.
///
/// ```
/// # let device = linn::Device::open()?;
/// let x = linn::Tensor::new(&device, [[1.0f32, -2.5], [0.0, 1e4]])?;
/// assert_eq!(x.to_string(), "tensor([[ 1.0000e+00, -2.5000e+00],\n        [ 0.0000e+00,  1.0000e+04]])");
/// assert_eq!(format!("{:.1}", x.relu()?.narrow(1, 0, 1)?), "tensor([[1.],\n        [0.]])");
/// # Ok::<(), linn::Error>(())
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display::write(f, self, history(self).as_slice())
    }
}

/// As `{}`, and the device and the stream whose work it belongs to. Blocks as well.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device();
        let mut more = vec![format!("device='{}'", device.name()), format!("stream={}", device.current_stream().id())];
        more.extend(history(self));
        display::write(f, self, &more)
    }
}

/// What made the tensor, or that it collects gradients.
fn history(tensor: &Tensor) -> Option<String> {
    if !tensor.requires_grad() {
        return None;
    }
    let Some(slot) = interior_of(tensor) else { return Some("requires_grad=True".to_owned()) };
    let Ok(history) = slot.history("Display") else { return Some("grad_fn=<Invalid>".to_owned()) };
    let capital = |word: &str| word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)).collect::<String>();
    Some(format!("grad_fn=<{}Backward0>", history.node.op.split('_').map(capital).collect::<String>()))
}
