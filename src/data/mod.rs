//! Data: items prepared ahead by worker threads; texts as tokens, batches as a pure function of (seed, step); upload on a
//! stream of its own.

mod data_loader;
mod host;
mod loader;
mod sampler;
mod text;

pub use data_loader::{DataLoader, DataLoaderOptions, DataLoaderStats};
pub use host::HostTensor;
pub use loader::{Batch, Loader, Upload};
pub use sampler::{HostBatch, Sampler, random_below, random_unit};
pub use text::{Text, Vocabulary};
