//! What `check_range` finds on the device, in words.

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
}

impl Subject {
    const ALL: [Subject; 4] = [Subject::Probability, Subject::Deviation, Subject::Weight, Subject::LargestWeight];

    fn name(self) -> &'static str {
        match self {
            Subject::Probability => "probabilities of bernoulli",
            Subject::Deviation => "deviations of normal",
            Subject::Weight => "weights of multinomial",
            Subject::LargestWeight => "largest weights of multinomial",
        }
    }

    /// The number that the status words name it by.
    pub(crate) fn label(self) -> u32 {
        labels::number_of(self.name(), None)
    }

    /// The subject with this number.
    pub(crate) fn of_label(label: u32) -> Option<Subject> {
        let (name, _) = labels::name(label)?;
        Subject::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// Least and greatest value that the elements may have.
    pub fn range(self) -> [f32; 2] {
        match self {
            Subject::Probability => [0.0, 1.0],
            Subject::Deviation => [0.0, f32::INFINITY],
            Subject::Weight => [0.0, f32::MAX],
            // The least number whose digits no driver drops.
            Subject::LargestWeight => [f32::MIN_POSITIVE, f32::INFINITY],
        }
    }

    /// The error of the element at `position`.
    pub fn error(self, position: u32, value: f32) -> Error {
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
        };
        Error::Device { fact, help: help.into() }
    }
}
