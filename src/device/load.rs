//! How much of a submission a command takes: what the submit policy counts.

/// A pipeline of the kernel floor's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PipelineId(pub(crate) u32);

/// The load of one command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// The kernel, and how much work of it, in the kernel floor's units.
    pub(crate) kernel: Option<(PipelineId, u64)>,
    /// Bytes copied.
    pub(crate) bytes: u64,
    /// Times that the device is to say.
    pub(crate) times: usize,
}
