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
    /// First in its submission: a shader has to be compiled before it, which is not what others wait for.
    pub(crate) compiles: bool,
    /// In a submission of its own: what the driver refuses of it costs nobody else's work.
    pub(crate) alone: bool,
}
