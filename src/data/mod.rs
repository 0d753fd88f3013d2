//! Data: texts as tokens, batches as a pure function of (seed, step), upload on a stream of its own.

mod loader;
mod sampler;
mod text;

pub use loader::{Batch, Loader, Upload};
pub use sampler::{HostBatch, Sampler, random_below, random_unit};
pub use text::{Text, Vocabulary};
