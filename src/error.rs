//! What can go wrong, in two lines: one of fact, one `help:` that says what to do.

use std::fmt;

use crate::dtype::DType;
pub use crate::memory::OomReport;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. `Display` prints one line of fact and one line that starts with `help:`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No adapter fits the request; lists what was found.
    NoAdapter {
        /// What was asked for and what is there.
        fact: String,
        /// What to do about it.
        help: String,
    },
    /// The device could not be opened, or was lost.
    DeviceLost {
        /// What the driver said.
        fact: String,
    },
    /// No memory could be had for a tensor. The library stays usable.
    OutOfMemory(Box<OomReport>),
    /// Operands of an operation do not fit together.
    Shape {
        /// The operation, by its public name.
        op: &'static str,
        /// The operands and what is wrong with them.
        fact: String,
        /// What would fit.
        help: String,
    },
    /// An operation does not take this element type.
    DType {
        /// The operation, by its public name.
        op: &'static str,
        /// The type it was given.
        got: DType,
        /// What it takes.
        expected: &'static str,
    },
    /// An argument is outside its range.
    Argument {
        /// The operation, by its public name.
        op: &'static str,
        /// Which argument, its value and the range.
        fact: String,
        /// What to pass instead.
        help: String,
    },
    /// Tensors of two devices met in one operation.
    DeviceMismatch {
        /// The operation, by its public name.
        op: &'static str,
        /// Both devices.
        fact: String,
    },
    /// A limit of the adapter is too small for the request.
    Limit {
        /// The operation, by its public name.
        op: &'static str,
        /// The limit, its value and what was needed.
        fact: String,
        /// What to do about it.
        help: String,
    },
    /// Something about gradients: backward twice, no gradient wanted, a saved tensor was changed in place.
    Autograd {
        /// What happened.
        fact: String,
        /// What to do about it.
        help: String,
    },
    /// The driver reported an error for work that was enqueued earlier.
    Device {
        /// The label of the command, where it is known, and the driver's words.
        fact: String,
        /// What to do about it.
        help: String,
    },
    /// What a data loader was to prepare is not there.
    Data {
        /// Which item, and why.
        fact: String,
        /// What to do about it.
        help: String,
    },
    /// A file could not be read, written or understood.
    File {
        /// The path and what is wrong.
        fact: String,
        /// What to do about it.
        help: String,
    },
}

impl Error {
    /// An [`Error::Shape`]; `help` says what would fit.
    pub fn shape(op: &'static str, fact: impl Into<String>, help: impl Into<String>) -> Error {
        Error::Shape { op, fact: fact.into(), help: help.into() }
    }

    /// An [`Error::Argument`]; `help` says what to pass instead.
    pub fn argument(op: &'static str, fact: impl Into<String>, help: impl Into<String>) -> Error {
        Error::Argument { op, fact: fact.into(), help: help.into() }
    }

    /// What stands before the name of a layer in a fact.
    pub(crate) const IN_LAYER: &str = "in layer ";

    /// The error as one of a layer of a model: its fact names the layer, the innermost where there are several. A
    /// [`Error::DType`], which has no fact, becomes an [`Error::Argument`].
    pub fn in_layer(mut self, layer: &str) -> Error {
        if let Error::DType { op, got, expected } = self {
            let help = "convert the tensor with to_dtype before the call";
            self = Error::argument(op, format!("takes {expected}, was given {got}"), help);
        }
        if let Error::Shape { fact, .. }
        | Error::Argument { fact, .. }
        | Error::DeviceMismatch { fact, .. }
        | Error::Limit { fact, .. }
        | Error::Autograd { fact, .. } = &mut self
            && !fact.starts_with(Error::IN_LAYER)
        {
            *fact = format!("{}{layer}: {fact}", Error::IN_LAYER);
        }
        self
    }

    /// The error as that of `op`, of an operation that is put together from others.
    #[cfg(feature = "gpu")]
    pub(crate) fn of(mut self, op: &'static str) -> Error {
        if let Error::Shape { op: name, .. }
        | Error::DType { op: name, .. }
        | Error::Argument { op: name, .. }
        | Error::DeviceMismatch { op: name, .. }
        | Error::Limit { op: name, .. } = &mut self
        {
            *name = op;
        }
        self
    }

    /// An [`Error::File`].
    pub fn file(fact: impl Into<String>, help: impl Into<String>) -> Error {
        Error::File { fact: fact.into(), help: help.into() }
    }

    /// An [`Error::Autograd`].
    pub fn autograd(fact: impl Into<String>, help: impl Into<String>) -> Error {
        Error::Autograd { fact: fact.into(), help: help.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoAdapter { fact, help } => write!(f, "no adapter: {fact}\nhelp: {help}"),
            Error::DeviceLost { fact } => write!(
                f,
                "device lost: {fact}\nhelp: open a new device and load your last checkpoint; tensors of this device are gone"
            ),
            Error::OutOfMemory(report) => write!(f, "{report}"),
            Error::Shape { op, fact, help } => write!(f, "{op}: {fact}\nhelp: {help}"),
            Error::DType { op, got, expected } => {
                write!(f, "{op}: takes {expected}, was given {got}\nhelp: convert the tensor with to_dtype before the call")
            }
            Error::Argument { op, fact, help } => write!(f, "{op}: {fact}\nhelp: {help}"),
            Error::DeviceMismatch { op, fact } => write!(
                f,
                "{op}: operands live on two devices: {fact}\nhelp: bring one of them to the other's device with to(&device)"
            ),
            Error::Limit { op, fact, help } => write!(f, "{op}: {fact}\nhelp: {help}"),
            Error::Autograd { fact, help } => write!(f, "autograd: {fact}\nhelp: {help}"),
            Error::Device { fact, help } => write!(f, "device: {fact}\nhelp: {help}"),
            Error::Data { fact, help } => write!(f, "data loader: {fact}\nhelp: {help}"),
            Error::File { fact, help } => write!(f, "{fact}\nhelp: {help}"),
        }
    }
}

impl std::error::Error for Error {}
