//! Opening a device: the adapter below, the queue here.

use crate::device::{Device, DeviceOptions};
use crate::error::{Error, Result};
use crate::stream::queue;

impl Device {
    /// Opens the best adapter (discrete, integrated, virtual, software), or the one that `LINN_BACKEND` and `LINN_ADAPTER` name.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] lists what was found and says what to do.
    pub fn open() -> Result<Device> {
        Device::open_with(DeviceOptions::default())
    }

    /// Opens a device with options.
    pub fn open_with(options: DeviceOptions) -> Result<Device> {
        if cfg!(target_arch = "wasm32") {
            return Err(Error::argument("open", "a browser's thread cannot block", "await Device::open_async"));
        }
        pollster::block_on(Device::open_async(options))
    }

    /// Opens a device without blocking: the way to do it in browsers.
    pub async fn open_async(options: DeviceOptions) -> Result<Device> {
        let shared = Device::open_parts(options).await?;
        let closer = queue::start(&shared).map_err(|fact| Error::DeviceLost { fact })?;
        Ok(Device::from_parts(shared, closer))
    }

    /// A device without a driver: streams, memory and staging work, kernels do nothing. For tests.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn noop(options: DeviceOptions) -> Result<Device> {
        let shared = Device::noop_parts(options)?;
        let closer = queue::start(&shared).map_err(|fact| Error::DeviceLost { fact })?;
        Ok(Device::from_parts(shared, closer))
    }
}
