//! Sums of products in Einstein's notation, by batched matrix products of two operands after the other.

use super::autocast::in_autocast;
use super::views::signed;
use crate::error::{Error, Result};
use crate::layout::MAX_RANK;
use crate::ops::reduce::KeepDim;
use crate::tensor::Tensor;

const OP: &str = "einsum";

/// A tensor whose dimensions have names: letters, and digits for those that `...` stands for.
struct Named {
    names: Vec<char>,
    tensor: Tensor,
}

/// The sum of the products of all elements whose indices agree, as `equation` names them: `ij,jk->ik` is the product of two
/// matrices. A letter that is twice in an operand means its diagonal, `...` the dimensions that have no letter, which broadcast;
/// lengths of 1 do so too. Without `->` the result has the letters that occur once, in alphabetical order.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::einsum;
/// let x = Tensor::new(&device, [[1.0f32, 2.0], [3.0, 4.0]])?;
/// let y = Tensor::new(&device, [1.0f32, 10.0])?;
/// assert_eq!(einsum("ij,j->i", &[&x, &y])?.to_vec::<f32>()?, [21.0, 43.0]);
/// assert_eq!(einsum("ii", &[&x])?.item::<f32>()?, 5.0);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    in_autocast!("einsum", (list = operands), einsum(equation, &list.iter().collect::<Vec<_>>()));
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((inputs, output)) => (inputs.to_string(), Some(output.to_string())),
        None => (text, None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != operands.len() || operands.is_empty() {
        return Err(refused(equation, operands, "name the dimensions of every operand, with a comma between operands"));
    }
    let fault = |help| refused(equation, operands, help);
    let mut named = terms.iter().zip(operands).map(|(term, x)| named(term, x, &fault)).collect::<Result<Vec<_>>>()?;
    let widest = named.iter().flat_map(|term| &term.names).filter(|name| name.is_ascii_digit()).max().copied();
    let dots: Vec<char> = widest.map_or(Vec::new(), |widest| ('0'..=widest).rev().collect());
    let output: Vec<char> = match output {
        Some(output) => {
            let (before, after) = output.split_once("...").unwrap_or((&output, ""));
            let dots = if output.contains("...") { &dots[..] } else { &[] };
            before.chars().chain(dots.iter().copied()).chain(after.chars()).collect()
        }
        None => {
            let once = |name: &char| name.is_alphabetic() && inputs.matches(*name).count() == 1;
            let mut letters: Vec<char> = inputs.chars().filter(once).collect();
            letters.sort_unstable();
            dots.iter().copied().chain(letters).collect()
        }
    };
    let known = |name: &char| named.iter().any(|term| term.names.contains(name));
    if !output.iter().all(known) || (1..output.len()).any(|i| output[..i].contains(&output[i])) || output.len() > MAX_RANK {
        return Err(fault("name each dimension of the result once, and only such as an operand has"));
    }
    let mut rest = named.drain(..);
    let Some(mut result) = rest.next() else { return Err(fault("pass at least one operand")) };
    let rest: Vec<Named> = rest.collect();
    for (i, other) in rest.iter().enumerate() {
        let later = |name: &char| output.contains(name) || rest[i + 1..].iter().any(|term| term.names.contains(name));
        result = contracted(result, other, later, &fault)?;
    }
    let result = summed(&result, |name| output.contains(name))?;
    let place = |name: &char| result.names.iter().position(|known| known == name).unwrap_or(0) as isize;
    result.tensor.permute(&output.iter().map(place).collect::<Vec<_>>())
}

fn refused(equation: &str, operands: &[&Tensor], help: &'static str) -> Error {
    let shapes: Vec<&[usize]> = operands.iter().map(|x| x.shape()).collect();
    Error::argument(OP, format!("{equation} for operands of shapes {shapes:?}"), help)
}

/// The operand with its names, each once: of a repeated one the diagonal.
#[track_caller]
fn named(term: &str, x: &Tensor, fault: &impl Fn(&'static str) -> Error) -> Result<Named> {
    let (before, after) = term.split_once("...").unwrap_or((term, ""));
    let letters = before.chars().count() + after.chars().count();
    let dots = x.rank().checked_sub(letters).filter(|dots| *dots == 0 || term.contains("..."));
    let (Some(dots), true) = (dots, before.chars().chain(after.chars()).all(char::is_alphabetic)) else {
        return Err(fault("name each dimension by a letter, or those that have none by `...`"));
    };
    // Counted from the back, where shapes are aligned.
    let digits = (0..dots).rev().map(|i| char::from(b'0' + i as u8));
    let mut names: Vec<char> = before.chars().chain(digits).chain(after.chars()).collect();
    let mut tensor = x.clone();
    while let Some(second) = (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
        let first = names.iter().position(|name| *name == names[second]).unwrap_or(0);
        if tensor.shape()[first] != tensor.shape()[second] {
            return Err(fault("give dimensions of one letter one length"));
        }
        tensor = tensor.diagonal(0, first as isize, second as isize)?;
        let name = names.remove(second);
        names.remove(first);
        names.push(name);
    }
    Ok(Named { names, tensor })
}

/// Without the dimensions that nobody needs any more.
#[track_caller]
fn summed(x: &Named, needed: impl Fn(&char) -> bool) -> Result<Named> {
    let gone: Vec<isize> = (0..x.names.len()).filter(|i| !needed(&x.names[*i])).map(|i| i as isize).collect();
    if gone.is_empty() {
        return Ok(Named { names: x.names.clone(), tensor: x.tensor.clone() });
    }
    let names = x.names.iter().copied().filter(needed).collect();
    Ok(Named { names, tensor: x.tensor.sum(&gone, KeepDim::Drop).map_err(|error| error.of(OP))? })
}

/// The product of both, summed over the names that are in both and that nobody needs later.
#[track_caller]
fn contracted(a: Named, b: &Named, later: impl Fn(&char) -> bool, fault: &impl Fn(&'static str) -> Error) -> Result<Named> {
    let a = summed(&a, |name| later(name) || b.names.contains(name))?;
    let b = summed(b, |name| later(name) || a.names.contains(name))?;
    let both: Vec<char> = a.names.iter().copied().filter(|name| b.names.contains(name)).collect();
    let (batch, inner): (Vec<char>, Vec<char>) = both.iter().copied().partition(&later);
    let only = |x: &Named| x.names.iter().copied().filter(|name| !both.contains(name)).collect::<Vec<_>>();
    let (rows, columns) = (only(&a), only(&b));
    let len = |x: &Named, name: &char| x.names.iter().position(|known| known == name).map_or(1, |dim| x.tensor.shape()[dim]);
    let mut common = Vec::with_capacity(both.len());
    for name in &both {
        let (m, n) = (len(&a, name), len(&b, name));
        if m != n && m != 1 && n != 1 {
            return Err(fault("give dimensions of one letter one length"));
        }
        common.push((*name, if m == 1 { n } else { m }));
    }
    let of =
        |x: &Named, name: &char| common.iter().find(|(known, _)| known == name).map_or_else(|| len(x, name), |(_, len)| *len);
    // The three groups of dimensions in this order, each as one.
    let ordered = |x: &Named, groups: [&[char]; 3]| {
        let names = groups.concat();
        let place = |name: &char| x.names.iter().position(|known| known == name).unwrap_or(0) as isize;
        let lens: Vec<usize> = names.iter().map(|name| of(x, name)).collect();
        let x_ordered = x.tensor.permute(&names.iter().map(place).collect::<Vec<_>>())?.expand(&signed(&lens))?;
        let merged = groups.map(|group| group.iter().map(|name| of(x, name)).product::<usize>());
        x_ordered.reshape(&signed(&merged))
    };
    let (left, right) = (ordered(&a, [&batch, &rows, &inner])?, ordered(&b, [&batch, &inner, &columns])?);
    let product = left.matmul(&right).map_err(|error| error.of(OP))?;
    let names = [&batch[..], &rows, &columns].concat();
    let lens: Vec<usize> = names.iter().map(|name| of(if rows.contains(name) { &a } else { &b }, name)).collect();
    Ok(Named { names, tensor: product.reshape(&signed(&lens))? })
}
