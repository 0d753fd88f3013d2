//! Uploads batches ahead of the step that uses them.

use super::host::{HostTensor, Slots};
use super::sampler::Sampler;
use crate::device::Device;
use crate::error::{Error, Result};
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

/// Batches of a [`Sampler`] on a device, by step, the next one uploaded ahead.
///
/// Drawing a batch takes microseconds, so there are no worker threads; [`DataLoader`](super::DataLoader) has them.
pub struct Loader {
    sampler: Sampler,
    device: Device,
    stream: Option<Stream>,
    ahead: Option<(u64, Batch)>,
    slots: Slots,
}

impl Loader {
    /// A loader for `device`.
    pub fn new(device: &Device, sampler: Sampler, upload: Upload) -> Result<Loader> {
        let stream = match upload {
            Upload::OwnStream => Some(device.new_stream()),
            Upload::CurrentStream => None,
        };
        Ok(Loader { sampler, device: device.clone(), stream, ahead: None, slots: Slots::default() })
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
        let arrays = [HostTensor::new(&shape, host.inputs)?, HostTensor::new(&shape, host.targets)?];
        match <[Tensor; 2]>::try_from(self.slots.upload(&self.device, &arrays)?) {
            Ok([inputs, targets]) => Ok(Batch { inputs, targets }),
            Err(_) => Err(Error::shape("batch", "not two tensors", "report this as a fault of linn")),
        }
    }
}
