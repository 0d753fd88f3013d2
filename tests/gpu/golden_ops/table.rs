//! The operators that linn has, by PyTorch's names: one row each, in a file per family.
//!
//! A row reads its arguments like a signature and calls linn's public method of that name; it computes nothing itself. An
//! operator that linn lacks has no row, and all its cases fail.

use super::call::{Answer, Call};
use super::compare::{STRICT, Tolerance};
use super::manifest::Case;

mod activations;
mod binary;
mod create;
mod elementwise;
mod index;
mod losses;
mod matmul;
mod nn;
mod pictures;
mod rearrange;
mod reduce;
mod scan;
mod scatter;
mod select;
mod unary;
mod views;

/// The families and their rows.
pub const FAMILIES: [(&str, &[Row]); 16] = [
    ("unary", unary::ROWS),
    ("binary", binary::ROWS),
    ("elementwise", elementwise::ROWS),
    ("activations", activations::ROWS),
    ("losses", losses::ROWS),
    ("reduce", reduce::ROWS),
    ("rearrange", rearrange::ROWS),
    ("scan", scan::ROWS),
    ("scatter", scatter::ROWS),
    ("select", select::ROWS),
    ("views", views::ROWS),
    ("index", index::ROWS),
    ("matmul", matmul::ROWS),
    ("nn", nn::ROWS),
    ("pictures", pictures::ROWS),
    ("create", create::ROWS),
];

/// The row of an operator.
pub fn find(name: &str) -> Option<&'static Row> {
    FAMILIES.iter().flat_map(|(_, rows)| *rows).find(|row| row.name == name)
}

/// The family that has a row for it.
pub fn family(name: &str) -> &'static str {
    let has = |rows: &[Row]| rows.iter().any(|row| row.name == name);
    FAMILIES.iter().find(|(_, rows)| has(rows)).map_or("none", |(family, _)| family)
}

/// How linn does one operator variant.
pub struct Row {
    /// The variant, by the manifest's name.
    pub name: &'static str,
    pub run: fn(&Call) -> Answer,
    /// The in-place form, where linn has it; changes the call's first tensor.
    pub in_place: Option<fn(&Call) -> Answer<()>>,
    /// linn's name of it, where that is not PyTorch's.
    pub called: Option<&'static str>,
    /// Operands repeat to the shape of the result, so they may also be given as expanded views of that shape.
    pub broadcasts: bool,
    /// PyTorch refuses some layouts (`view`): then an error is right too.
    pub may_refuse_layouts: bool,
    /// The cases whose elements are drawn at random: their shapes and types are compared, the rest by tests of their own.
    pub draws: Option<fn(&Case) -> bool>,
    /// The dimension that positions in the results are along, where PyTorch leaves open which of equal elements they name.
    pub ties: Option<fn(&Case) -> Option<i64>>,
    /// Why the host has to wait for the device.
    pub waits: Option<&'static str>,
    pub tolerance: Tolerance,
    /// Why it is not [`STRICT`].
    pub looser: Option<&'static str>,
}

/// A row that computes on the device and meets [`STRICT`].
pub const fn row(name: &'static str, run: fn(&Call) -> Answer) -> Row {
    Row {
        name,
        run,
        in_place: None,
        called: None,
        broadcasts: false,
        may_refuse_layouts: false,
        draws: None,
        ties: None,
        waits: None,
        tolerance: STRICT,
        looser: None,
    }
}

#[allow(dead_code, reason = "some marks wait for the rows that need them")]
impl Row {
    const fn in_place(self, run: fn(&Call) -> Answer<()>) -> Row {
        Row { in_place: Some(run), ..self }
    }

    const fn called(self, name: &'static str) -> Row {
        Row { called: Some(name), ..self }
    }

    const fn broadcasts(self) -> Row {
        Row { broadcasts: true, ..self }
    }

    const fn may_refuse_layouts(self) -> Row {
        Row { may_refuse_layouts: true, ..self }
    }

    const fn draws(self, when: fn(&Case) -> bool) -> Row {
        Row { draws: Some(when), ..self }
    }

    const fn ties(self, dim: fn(&Case) -> Option<i64>) -> Row {
        Row { ties: Some(dim), ..self }
    }

    const fn waits(self, why: &'static str) -> Row {
        Row { waits: Some(why), ..self }
    }

    const fn looser(self, tolerance: Tolerance, why: &'static str) -> Row {
        Row { tolerance, looser: Some(why), ..self }
    }
}
