//! Uploads batches ahead of the step that uses them.

use super::sampler::Sampler;
use crate::device::Device;
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::Tensor;

/// Where batches are uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// On a second stream, while the step before runs. The order edge to the step that reads them is added by itself.
    OwnStream,
    /// On the stream that is current.
    CurrentStream,
}

/// One batch on the device.
#[derive(Clone)]
pub struct Batch {
    /// Ids `[B, T]` (i32).
    pub inputs: Tensor,
    /// The ids that follow each, `[B, T]` (i32).
    pub targets: Tensor,
}

/// Batches of a [`Sampler`] on a device, the next one uploaded ahead.
///
/// Batches take turns in a few tensors that live as long as the loader: memory that two streams pass to and fro would
/// otherwise come from the pool in an order that depends on how far the device has come.
pub struct Loader {
    sampler: Sampler,
    device: Device,
    stream: Option<Stream>,
    ahead: Option<(u64, Batch)>,
    slots: Vec<Batch>,
    next: usize,
}

/// Batches alive at a time: the step that runs, the one uploaded ahead, and one that the host may still hold.
const SLOTS: usize = 3;

impl Loader {
    /// A loader for `device`.
    pub fn new(device: &Device, sampler: Sampler, upload: Upload) -> Result<Loader> {
        let stream = match upload {
            Upload::OwnStream => Some(device.new_stream()),
            Upload::CurrentStream => None,
        };
        Ok(Loader { sampler, device: device.clone(), stream, ahead: None, slots: Vec::new(), next: 0 })
    }

    /// The batch of `step`: the one uploaded ahead, or one uploaded now.
    pub fn batch(&mut self, step: u64) -> Result<Batch> {
        match self.ahead.take() {
            Some((ahead, batch)) if ahead == step => Ok(batch),
            _ => self.upload(step),
        }
    }

    /// Enqueues the upload of the batch of `step`, for the next call of [`Loader::batch`].
    pub fn prefetch(&mut self, step: u64) -> Result<()> {
        self.ahead = Some((step, self.upload(step)?));
        Ok(())
    }

    fn upload(&mut self, step: u64) -> Result<Batch> {
        let _stream = self.stream.as_ref().map(Stream::enter);
        let host = self.sampler.batch(step);
        let shape = self.sampler.shape();
        if self.slots.len() < SLOTS {
            self.slots.push(Batch {
                inputs: Tensor::from_slice(&self.device, &shape, &host.inputs)?,
                targets: Tensor::from_slice(&self.device, &shape, &host.targets)?,
            });
        } else {
            let slot = &self.slots[self.next];
            slot.inputs.copy_from_slice_(&host.inputs)?;
            slot.targets.copy_from_slice_(&host.targets)?;
        }
        let batch = self.slots[self.next].clone();
        self.next = (self.next + 1) % SLOTS;
        Ok(batch)
    }
}
