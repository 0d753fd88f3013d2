//! How much of a submission a command takes: what the submit policy counts.

/// A pipeline of the kernel floor's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PipelineId(pub(crate) u32);

/// The load of one command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// The kernel, and how many workgroups of it.
    pub(crate) kernel: Option<(PipelineId, u64)>,
    /// Bytes copied.
    pub(crate) bytes: u64,
}

/// Workgroups of a dispatch.
pub(crate) fn groups(grid: [u32; 3]) -> u64 {
    grid.iter().map(|n| u64::from(*n)).product()
}
