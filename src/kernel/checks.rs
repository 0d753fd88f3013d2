//! What `check_range` finds on the device, in words.

use std::sync::Arc;

use crate::error::Error;
use crate::kernel::labels;

/// What the elements are that a kernel checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Probabilities of `bernoulli`.
    Probability,
    /// Standard deviations of `normal`.
    Deviation,
    /// Weights of the categories of `multinomial`.
    Weight,
    /// Largest weight of each distribution of `multinomial`.
    LargestWeight,
    /// What layers of a model answer with.
    LayerResult,
}

impl Subject {
    const ALL: [Subject; 5] =
        [Subject::Probability, Subject::Deviation, Subject::Weight, Subject::LargestWeight, Subject::LayerResult];

    fn name(self) -> &'static str {
        match self {
            Subject::Probability => "probabilities of bernoulli",
            Subject::Deviation => "deviations of normal",
            Subject::Weight => "weights of multinomial",
            Subject::LargestWeight => "largest weights of multinomial",
            Subject::LayerResult => "results of layers",
        }
    }

    /// The number that the status words name it by.
    pub(crate) fn label(self) -> u32 {
        match self {
            Subject::LayerResult => labels::number(self.name()),
            _ => labels::number_of(self.name(), None),
        }
    }

    /// The subject with this number, and its layer.
    pub(crate) fn of_label(label: u32) -> Option<(Subject, Option<Arc<str>>)> {
        let (name, layer) = labels::name(label)?;
        Some((Subject::ALL.into_iter().find(|subject| subject.name() == name)?, layer))
    }

    /// Least and greatest value that the elements may have.
    pub fn range(self) -> [f32; 2] {
        match self {
            Subject::Probability => [0.0, 1.0],
            Subject::Deviation => [0.0, f32::INFINITY],
            Subject::Weight => [0.0, f32::MAX],
            // The least number whose digits no driver drops.
            Subject::LargestWeight => [f32::MIN_POSITIVE, f32::INFINITY],
            Subject::LayerResult => [f32::MIN, f32::MAX],
        }
    }

    /// The error of the element at `position`, of a layer where it is a layer's.
    pub fn error(self, layer: Option<&str>, position: u32, value: f32) -> Error {
        let (fact, help) = match self {
            Subject::Probability => {
                (format!("bernoulli: probability {position} is {value:?}"), "probabilities must be from 0 to 1")
            }
            Subject::Deviation => {
                (format!("normal: standard deviation {position} is {value:?}"), "standard deviations must not be negative or NaN")
            }
            Subject::Weight => (
                format!("multinomial: probability {position} is {value:?}"),
                "probabilities must be finite and not negative; they need not sum to 1",
            ),
            Subject::LargestWeight => (
                format!("multinomial: the probabilities of distribution {position} sum to 0"),
                "each distribution needs a category whose probability is positive",
            ),
            Subject::LayerResult => (
                format!("layer {}: result {position} is {value:?}", layer.unwrap_or("without a name")),
                "it is the first layer that has one: look at its input and its parameters; a learning rate that is too high, log or \
                 division by 0, and f16 without a GradScaler are the usual reasons, clip_grad_norm_ the usual cure",
            ),
        };
        Error::Device { fact, help: help.into() }
    }
}
