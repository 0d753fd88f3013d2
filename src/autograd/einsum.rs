//! Sums of products by Einstein's notation.

use crate::error::{Error, Result};
use crate::ops::reduce::KeepDim;
use crate::tensor::Tensor;

const OP: &str = "einsum";

/// A dimension by its letter, or one of those that `...` stands for, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// An operand whose dimensions are named, each once.
struct Named {
    x: Tensor,
    labels: Vec<Label>,
}

/// Sums of products over the letters that the result lacks: `einsum("bij,bjk->bik", &[&a, &b])` is a product of batches of matrices.
/// `...` stands for any dimensions, which broadcast; without `->` the result has the letters that stand once, in alphabetical order. A
/// letter that stands twice in one operand takes its diagonal. Operands are multiplied from left to right.
#[track_caller]
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (text.as_str(), None),
    };
    let inputs: Vec<&str> = inputs.split(',').collect();
    if inputs.len() != operands.len() {
        return Err(refuse(equation, operands, "name the dimensions of each operand, separated by commas"));
    }
    let mut written = Vec::new();
    for (input, x) in inputs.iter().zip(operands) {
        written.push(labels(input, Some(x.rank())).ok_or_else(|| refuse(equation, operands, "name each dimension by a letter"))?);
    }
    // How long each is: all that share a letter have the same length, or 1.
    let mut lens: Vec<(Label, usize)> = Vec::new();
    for (labels, x) in written.iter().zip(operands) {
        for (label, len) in labels.iter().zip(x.shape()) {
            match lens.iter_mut().find(|(known, _)| known == label) {
                None => lens.push((*label, *len)),
                Some((_, known)) if *known == 1 => *known = *len,
                Some((_, known)) if *len == 1 || known == len => {}
                Some(_) => return Err(refuse(equation, operands, "make the lengths equal that share a letter")),
            }
        }
    }
    lens.sort_unstable_by_key(|(label, _)| match label {
        Label::Ellipsis(from_last) => (0, usize::MAX - from_last),
        Label::Letter(letter) => (1, *letter as usize),
    });
    let all: Vec<Label> = written.iter().flatten().copied().collect();
    let dots = lens.iter().filter(|(label, _)| matches!(label, Label::Ellipsis(_))).count();
    let output = match output {
        Some(text) => labels(text, None).map(|found| {
            let spread = |label: Label| match label {
                Label::Ellipsis(_) => (0..dots).rev().map(Label::Ellipsis).collect(),
                letter => vec![letter],
            };
            found.into_iter().flat_map(spread).collect::<Vec<_>>()
        }),
        None => Some(
            lens.iter()
                .map(|(label, _)| *label)
                .filter(|label| matches!(label, Label::Ellipsis(_)) || all.iter().filter(|other| *other == label).count() == 1)
                .collect(),
        ),
    };
    let known = |output: &Vec<Label>| (0..output.len()).all(|i| all.contains(&output[i]) && !output[..i].contains(&output[i]));
    let output =
        output.filter(known).ok_or_else(|| refuse(equation, operands, "give the result letters of the operands, each once"))?;

    let len = |label: &Label| lens.iter().find(|(known, _)| known == label).map_or(1, |(_, len)| *len);
    let mut named = Vec::new();
    for (labels, x) in written.into_iter().zip(operands) {
        named.push(diagonals(Named { x: (*x).clone(), labels })?);
    }
    let mut rest = named.into_iter();
    let Some(mut product) = rest.next() else {
        return Err(refuse(equation, operands, "pass at least one operand"));
    };
    let mut rest: std::collections::VecDeque<Named> = rest.collect();
    while let Some(next) = rest.pop_front() {
        let kept = |label: &Label| output.contains(label) || rest.iter().any(|other| other.labels.contains(label));
        product = pair(product, next, &kept, &len)?;
    }
    let product = summed(product, |label| output.contains(label))?;
    let order: Vec<isize> =
        output.iter().filter_map(|label| product.labels.iter().position(|own| own == label)).map(|at| at as isize).collect();
    product.x.permute(&order)?.expand(&output.iter().map(|label| len(label) as isize).collect::<Vec<_>>())?.contiguous()
}

/// The labels of one operand of `rank` dimensions (of the result: `None`, one for `...`).
fn labels(text: &str, rank: Option<usize>) -> Option<Vec<Label>> {
    let letters =
        |text: &str| text.chars().map(|c| c.is_ascii_alphabetic().then_some(Label::Letter(c))).collect::<Option<Vec<_>>>();
    let Some((front, back)) = text.split_once("...") else {
        return letters(text).filter(|found| rank.is_none_or(|rank| rank == found.len()));
    };
    let (front, back) = (letters(front)?, letters(back)?);
    let dots = match rank {
        Some(rank) => rank.checked_sub(front.len() + back.len())?,
        None => 1,
    };
    Some(front.into_iter().chain((0..dots).rev().map(Label::Ellipsis)).chain(back).collect())
}

/// Without letters that stand twice.
#[track_caller]
fn diagonals(mut named: Named) -> Result<Named> {
    let twice = |labels: &[Label]| {
        (1..labels.len()).find_map(|j| labels[..j].iter().position(|label| *label == labels[j]).map(|i| (i, j)))
    };
    while let Some((i, j)) = twice(&named.labels) {
        let len = named.x.shape()[i].max(named.x.shape()[j]) as isize;
        let mut wide: Vec<isize> = named.x.shape().iter().map(|len| *len as isize).collect();
        (wide[i], wide[j]) = (len, len);
        named.x = named.x.expand(&wide)?.diagonal(0, i as isize, j as isize)?;
        let label = named.labels.remove(j);
        named.labels.remove(i);
        named.labels.push(label);
    }
    Ok(named)
}

/// Summed over labels that are not kept.
#[track_caller]
fn summed(named: Named, kept: impl Fn(&Label) -> bool) -> Result<Named> {
    let gone: Vec<isize> = (0..named.labels.len()).filter(|at| !kept(&named.labels[*at])).map(|at| at as isize).collect();
    if gone.is_empty() {
        return Ok(named);
    }
    let labels = named.labels.iter().copied().filter(|label| kept(label)).collect();
    Ok(Named { x: named.x.sum(&gone, KeepDim::Drop)?, labels })
}

/// The product of two, summed over what is not kept, as products of a batch of matrices.
#[track_caller]
fn pair(a: Named, b: Named, kept: &dyn Fn(&Label) -> bool, len: &dyn Fn(&Label) -> usize) -> Result<Named> {
    // A sum over what the other one lacks comes first; so does one over a length that only the other one has.
    let a = summed(a, |label| kept(label) || b.labels.contains(label))?;
    let b = summed(b, |label| kept(label) || a.labels.contains(label))?;
    let both = a.labels.iter().copied().filter(|label| b.labels.contains(label));
    let (batch, inner): (Vec<Label>, Vec<Label>) = both.partition(kept);
    let rows: Vec<Label> = a.labels.iter().copied().filter(|label| !b.labels.contains(label)).collect();
    let columns: Vec<Label> = b.labels.iter().copied().filter(|label| !a.labels.contains(label)).collect();
    let count = |labels: &[Label]| labels.iter().map(len).product::<usize>() as isize;
    let matrix = |named: &Named, parts: [&[Label]; 3]| {
        let order = parts.concat();
        let places: Vec<isize> =
            order.iter().filter_map(|label| named.labels.iter().position(|own| own == label)).map(|at| at as isize).collect();
        let wide: Vec<isize> = order.iter().map(|label| len(label) as isize).collect();
        named.x.permute(&places)?.expand(&wide)?.reshape(&parts.map(count))
    };
    let product =
        matrix(&a, [&batch, &rows, &inner])?.matmul(&matrix(&b, [&batch, &inner, &columns])?).map_err(|error| error.of(OP))?;
    let labels = [&batch[..], &rows, &columns].concat();
    let shape: Vec<isize> = labels.iter().map(|label| len(label) as isize).collect();
    Ok(Named { x: product.reshape(&shape)?, labels })
}

fn refuse(equation: &str, operands: &[&Tensor], help: &str) -> Error {
    let shapes: Vec<&[usize]> = operands.iter().map(|x| x.shape()).collect();
    Error::argument(OP, format!("{equation:?} for shapes {shapes:?}"), help)
}
