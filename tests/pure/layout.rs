//! Layouts against a model that names the position of every element.

use linn::Error;
use linn::layout::{Dims, Layout, MAX_RANK, broadcast_shapes, collapse, resolve_dim};
use proptest::prelude::*;

/// A view as a table: its shape and the storage position of every element, in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Table {
    shape: Vec<usize>,
    at: Vec<usize>,
}

/// Every index of `shape` in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let Some((first, rest)) = shape.split_first() else { return vec![Vec::new()] };
    let inner = indices(rest);
    (0..*first).flat_map(|i| inner.iter().map(move |tail| [&[i], tail.as_slice()].concat())).collect()
}

impl Table {
    fn contiguous(shape: &[usize]) -> Table {
        Table { shape: shape.to_vec(), at: (0..shape.iter().product()).collect() }
    }

    /// Shape and strides written out.
    fn of(layout: &Layout) -> Table {
        positions(layout.shape(), layout.strides(), layout.offset())
    }

    fn get(&self, index: &[usize]) -> usize {
        let flat = index.iter().zip(&self.shape).fold(0, |flat, (i, len)| flat * len + i);
        self.at[flat]
    }

    /// A view whose element at `index` is this one's at `from(index)`.
    fn view(&self, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Table {
        Table { shape: shape.to_vec(), at: indices(shape).iter().map(|index| self.get(&from(index))).collect() }
    }

    /// The strides that express these positions in `shape`, where there are any (a dimension of length 1 gets 0).
    fn strides_for(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let all = Table { shape: shape.to_vec(), at: self.at.clone() };
        if all.at.is_empty() {
            return Some(vec![0; shape.len()]);
        }
        let zero = vec![0; shape.len()];
        let mut strides = zero.clone();
        for dim in 0..shape.len() {
            if shape[dim] > 1 {
                let mut one = zero.clone();
                one[dim] = 1;
                strides[dim] = all.get(&one).checked_sub(all.get(&zero))?;
            }
        }
        (positions(shape, &strides, all.get(&zero)) == all).then_some(strides)
    }
}

fn positions(shape: &[usize], strides: &[usize], offset: usize) -> Table {
    let place = |index: &Vec<usize>| offset + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
    Table { shape: shape.to_vec(), at: indices(shape).iter().map(place).collect() }
}

fn dims(items: &[usize]) -> Dims {
    Dims::from_slice(items).unwrap()
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1 => Just(0usize), 4 => Just(1), 10 => 2..5usize], 0..5)
}

/// Any strides, also ones that no chain of views can make.
fn layouts() -> impl Strategy<Value = Layout> {
    let dim = (prop_oneof![1 => Just(0usize), 3 => Just(1), 8 => 2..5usize], 0..13usize);
    (proptest::collection::vec(dim, 0..5), 0..9usize).prop_map(|(pairs, offset)| {
        let (shape, strides): (Vec<usize>, Vec<usize>) = pairs.into_iter().unzip();
        Layout::strided(dims(&shape), dims(&strides), offset)
    })
}

/// A shape with `len` elements, made of the divisors that `choices` picks and some ones.
fn factors(mut len: usize, choices: &[usize]) -> Vec<usize> {
    let mut shape = Vec::new();
    for choice in choices {
        let divisors: Vec<usize> = (1..=len.max(1)).filter(|n| len.is_multiple_of(*n)).collect();
        let divisor = divisors[choice % divisors.len()];
        shape.push(divisor);
        len /= divisor;
    }
    shape.push(len);
    shape
}

/// One view chosen by numbers, of the layout and of the table.
fn step(layout: &Layout, table: &Table, op: usize, a: usize, b: usize) -> (Layout, Table) {
    let rank = table.shape.len();
    let shape = table.shape.clone();
    let swapped = |x: usize, y: usize| {
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(x, y);
        order
    };
    let permuted = |order: &[usize]| {
        let target: Vec<usize> = order.iter().map(|from| shape[*from]).collect();
        table.view(&target, |index| (0..rank).map(|dim| index[order.iter().position(|from| *from == dim).unwrap()]).collect())
    };
    match op % 10 {
        0 if rank > 0 => (layout.transpose(a % rank, b % rank), permuted(&swapped(a % rank, b % rank))),
        1 => {
            // The a-th permutation in some order: insert each dimension at a place that the number picks.
            let mut order = Vec::new();
            for dim in 0..rank {
                order.insert((a / (dim + 1)) % (dim + 1), dim);
            }
            (layout.permute(&order).unwrap(), permuted(&order))
        }
        2 if rank > 0 => {
            let dim = a % rank;
            let start = b % (shape[dim] + 1);
            let len = (a / 7 + b) % (shape[dim] - start + 1);
            let mut target = shape.clone();
            target[dim] = len;
            let shifted = |index: &[usize]| {
                let mut from = index.to_vec();
                from[dim] += start;
                from
            };
            (layout.narrow(dim, start, len).unwrap(), table.view(&target, shifted))
        }
        3 if rank > 0 && shape[a % rank] > 0 => {
            let dim = a % rank;
            let index = b % shape[dim];
            let mut target = shape.clone();
            target.remove(dim);
            let inserted = |at: &[usize]| [&at[..dim], &[index], &at[dim..]].concat();
            (layout.select(dim, index).unwrap(), table.view(&target, inserted))
        }
        4 if rank < 6 => {
            let dim = a % (rank + 1);
            let mut target = shape.clone();
            target.insert(dim, 1);
            (layout.unsqueeze(dim).unwrap(), table.view(&target, |index| [&index[..dim], &index[dim + 1..]].concat()))
        }
        5 if shape.contains(&1) => {
            let ones: Vec<usize> = (0..rank).filter(|dim| shape[*dim] == 1).collect();
            let dim = ones[a % ones.len()];
            let mut target = shape.clone();
            target.remove(dim);
            (layout.without(dim), table.view(&target, |index| [&index[..dim], &[0], &index[dim..]].concat()))
        }
        6 if rank < 5 => {
            let mut target: Vec<usize> = shape.iter().map(|len| if *len == 1 { b % 4 } else { *len }).collect();
            let added = a % 2;
            (0..added).for_each(|_| target.insert(0, a % 3));
            let kept = |index: &[usize]| {
                let clamp = |(i, len): (&usize, &usize)| if *len == 1 { 0 } else { *i };
                index[added..].iter().zip(&shape).map(clamp).collect::<Vec<usize>>()
            };
            (layout.broadcast_to("expand", &target).unwrap(), table.view(&target, kept))
        }
        7 => {
            let target = factors(table.at.len(), &[a, b]);
            match layout.reshape(&target) {
                Some(reshaped) => (reshaped, Table { shape: target, at: table.at.clone() }),
                None => (*layout, table.clone()),
            }
        }
        8 if rank > 0 => {
            let dim = a % rank;
            let start = b % (shape[dim] + 1);
            let (len, step) = ((a + b) % (shape[dim] - start + 1), 1 + a % 3);
            let mut target = shape.clone();
            target[dim] = len.div_ceil(step);
            let spread = |index: &[usize]| (0..rank).map(|i| if i == dim { start + index[i] * step } else { index[i] }).collect();
            (layout.slice(dim, start, len, step).unwrap(), table.view(&target, spread))
        }
        9 if rank > 1 => {
            let (first, offset) = (a % rank, b as isize % 5 - 2);
            let second = (first + 1 + b % (rank - 1)) % rank;
            let (down, right) = (offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs());
            let len = shape[first].saturating_sub(down).min(shape[second].saturating_sub(right));
            let others: Vec<usize> = (0..rank).filter(|dim| *dim != first && *dim != second).collect();
            let target: Vec<usize> = others.iter().map(|dim| shape[*dim]).chain([len]).collect();
            let along = |index: &[usize]| {
                let mut full = vec![0; rank];
                others.iter().zip(index).for_each(|(dim, i)| full[*dim] = *i);
                (full[first], full[second]) = (index[rank - 2] + down, index[rank - 2] + right);
                full
            };
            (layout.diagonal(offset, first, second), table.view(&target, along))
        }
        _ => (*layout, table.clone()),
    }
}

/// What holds for every layout.
fn check(layout: &Layout, table: &Table) {
    assert_eq!(Table::of(layout), *table, "{layout:?}");
    assert_eq!(layout.shape(), table.shape);
    assert_eq!((layout.rank(), layout.len()), (table.shape.len(), table.at.len()));
    assert_eq!(layout.is_empty(), table.at.is_empty());
    assert_eq!(layout.end(), table.at.iter().max().map_or(0, |last| last + 1), "{layout:?}");
    let dense = table.at.iter().enumerate().all(|(i, at)| *at == table.at[0] + i);
    assert_eq!(layout.is_contiguous(), dense, "{layout:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn views_name_the_elements_that_the_model_names(
        shape in shapes(),
        steps in proptest::collection::vec((0..10usize, 0..1000usize, 0..1000usize), 0..8),
    ) {
        let (mut layout, mut table) = (Layout::contiguous("test", &shape).unwrap(), Table::contiguous(&shape));
        check(&layout, &table);
        for (op, a, b) in steps {
            let repeats = layout.is_expanded();
            (layout, table) = step(&layout, &table, op, a, b);
            check(&layout, &table);
            let mut seen = table.at.clone();
            seen.sort_unstable();
            seen.dedup();
            // Only expanding makes two indices name one element; narrowing to length 1 can undo it.
            let doubled = seen.len() < table.at.len();
            prop_assert!(!table.at.is_empty() && layout.is_expanded() == doubled || table.at.is_empty(), "{:?}", layout);
            prop_assert!(!doubled || repeats || op == 6);
        }
    }

    #[test]
    fn windows_name_the_entries_that_follow_each_other(layout in layouts(), dim in 0..5usize, size in 0..4usize, step in 1..4usize) {
        prop_assume!(layout.rank() > 0);
        let dim = dim % layout.rank();
        let table = Table::of(&layout);
        let Some(windows) = layout.unfold(dim, size, step) else {
            prop_assert!(size > layout.shape()[dim] || layout.rank() == MAX_RANK);
            return Ok(());
        };
        let mut target = table.shape.clone();
        target[dim] = (target[dim] - size) / step + 1;
        target.push(size);
        let entry = |index: &[usize]| {
            let (within, outer) = (index[index.len() - 1], &index[..index.len() - 1]);
            outer.iter().enumerate().map(|(i, at)| if i == dim { at * step + within } else { *at }).collect()
        };
        prop_assert_eq!(Table::of(&windows), table.view(&target, entry));
    }

    #[test]
    fn parts_that_follow_each_other_are_joined_and_others_are_not(layout in layouts(), dim in 0..5usize, a in 0..5usize, b in 0..5usize) {
        prop_assume!(layout.rank() > 0);
        let dim = dim % layout.rank();
        let (len, stride) = (layout.shape()[dim], layout.strides()[dim]);
        let (a, b) = (a.min(b).min(len), a.max(b).min(len));
        let parts = [(0, a), (a, b - a), (b, len - b)].map(|(start, len)| layout.narrow(dim, start, len).unwrap());
        prop_assert_eq!(Layout::joined(&parts.each_ref(), dim), Some(layout));
        prop_assert_eq!(Layout::joined(&[&parts[0], &parts[2]], dim).is_some(), (b - a) * stride == 0);
        prop_assert_eq!(Layout::joined(&[&parts[1], &parts[0]], dim).is_some(), b * stride == 0);
        prop_assert_eq!(Layout::joined(&[], dim), None);
    }

    #[test]
    fn reshape_copies_only_where_no_strides_can_do_it(layout in layouts(), a in 0..1000usize, b in 0..1000usize) {
        let table = Table::of(&layout);
        check(&layout, &table);
        for target in [factors(table.at.len(), &[a, b]), factors(table.at.len(), &[b]), table.shape.clone()] {
            let reshaped = layout.reshape(&target);
            prop_assert_eq!(reshaped.is_some(), table.strides_for(&target).is_some(), "{:?} to {:?}", layout, target);
            if let Some(reshaped) = reshaped {
                check(&reshaped, &Table { shape: target, at: table.at.clone() });
            }
        }
        let mut wrong = table.shape.clone();
        wrong.push(table.at.len() + 2);
        prop_assert!(table.at.is_empty() || layout.reshape(&wrong).is_none());
    }

    #[test]
    fn collapsing_keeps_the_order_of_every_operand(
        pairs in proptest::collection::vec((prop_oneof![1 => Just(0usize), 3 => Just(1), 8 => 2..5usize], 0..5usize, 0..5usize), 0..6),
        rows in any::<[bool; 3]>(),
    ) {
        // Strides that often continue each other: a row-major run that starts anew (or stays at 0) where the numbers say so.
        let shape: Vec<usize> = pairs.iter().map(|pair| pair.0).collect();
        let operand = |which: usize| {
            let mut strides = vec![0; shape.len()];
            let mut run = 1;
            for dim in (0..shape.len()).rev() {
                let choice = if which == 0 { pairs[dim].1 } else { pairs[dim].2 + which - 1 };
                strides[dim] = match choice {
                    0 => 0,
                    1 => run * 2,
                    _ => run,
                };
                run = (strides[dim].max(1)) * shape[dim].max(1);
            }
            if rows[which] { Layout::contiguous("test", &shape).unwrap() } else { Layout::strided(dims(&shape), dims(&strides), 0) }
        };
        let operands = [operand(0), operand(1), operand(2)];
        let found = collapse([&operands[0], &operands[1], &operands[2]]);
        prop_assert!((1..=shape.len().max(1)).contains(&found.shape.len()), "{:?}", found);
        for (operand, strides) in operands.iter().zip(&found.strides) {
            prop_assert_eq!(strides.len(), found.shape.len());
            prop_assert_eq!(positions(&found.shape, strides, 0).at, Table::of(operand).at, "{:?} {:?}", operands, found);
        }
        // Nothing is left that could be merged, and no length of 1 beside others.
        for dim in 1..found.shape.len() {
            prop_assert!(found.shape[dim] != 1 && found.shape[dim - 1] != 1, "{:?}", found);
            let mergeable = found.strides.iter().all(|strides| strides[dim - 1] == strides[dim] * found.shape[dim]);
            prop_assert!(!mergeable, "{:?}", found);
        }
    }

    #[test]
    fn broadcasting_finds_the_smallest_common_shape(a in shapes(), b in shapes()) {
        let rank = a.len().max(b.len());
        let padded = |shape: &[usize]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let (x, y) = (padded(&a), padded(&b));
        let fits = x.iter().zip(&y).all(|(x, y)| x == y || *x == 1 || *y == 1);
        let found = broadcast_shapes("add", &a, &b);
        prop_assert_eq!(found.is_ok(), fits);
        if let Ok(shape) = found {
            prop_assert_eq!(&*shape, &*broadcast_shapes("add", &b, &a).unwrap());
            for operand in [&a, &b] {
                prop_assert!(Layout::contiguous("test", operand).unwrap().broadcast_to("add", &shape).is_ok());
            }
            // Smallest: every length is one of the two it came from.
            prop_assert!(shape.iter().enumerate().all(|(dim, len)| *len == x[dim] || *len == y[dim]));
        }
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let layout = Layout::contiguous("test", &[2, 3]).unwrap();
    let is_shape = |result: linn::Result<Layout>| assert!(matches!(result, Err(Error::Shape { .. })), "{result:?}");
    is_shape(layout.permute(&[0]));
    is_shape(layout.permute(&[0, 0]));
    is_shape(layout.permute(&[0, 2]));
    is_shape(layout.permute(&[0, 1, 2]));
    is_shape(layout.narrow(1, 2, 2));
    is_shape(layout.narrow(1, usize::MAX, 2));
    is_shape(layout.select(0, 2));
    is_shape(layout.broadcast_to("expand", &[3]));
    is_shape(layout.broadcast_to("expand", &[4, 3]));
    is_shape(layout.broadcast_to("expand", &[1; MAX_RANK + 1]));
    is_shape(Layout::contiguous("empty", &[1; MAX_RANK + 1]));
    assert!(layout.reshape(&[1; MAX_RANK + 1]).is_none());
    assert!(Layout::contiguous("test", &[1; MAX_RANK]).unwrap().unsqueeze(0).is_none());
    assert!(broadcast_shapes("add", &[1; MAX_RANK + 1], &[1]).is_err());
    // What has no dimensions has none to cut.
    let scalar = Layout::contiguous("test", &[]).unwrap();
    is_shape(scalar.narrow(0, 0, 1));
    is_shape(scalar.select(0, 0));
    is_shape(layout.narrow(2, 0, 1));
    assert_eq!(scalar.transpose(0, 0), scalar);
}

#[test]
fn huge_shapes_are_errors_even_where_they_hold_nothing() {
    const HUGE: usize = 1 << 40;
    for shape in [&[HUGE, HUGE][..], &[0, HUGE, HUGE], &[HUGE, HUGE, 0], &[usize::MAX, 2], &[usize::MAX]] {
        assert!(matches!(Layout::contiguous("empty", shape), Err(Error::Shape { .. })), "{shape:?}");
    }
    let one = Layout::contiguous("test", &[1]).unwrap();
    assert!(matches!(one.broadcast_to("expand", &[HUGE, HUGE]), Err(Error::Shape { .. })));
    assert!(matches!(one.broadcast_to("expand", &[HUGE, HUGE, 0, 1]), Err(Error::Shape { .. })));
    assert!(one.reshape(&[HUGE, HUGE]).is_none());
    // 2^64: wraps to the right length.
    assert!(one.narrow(0, 0, 0).unwrap().reshape(&[1 << 32, 1 << 32]).is_none());
    assert_eq!(Layout::contiguous("test", &[HUGE, 0]).unwrap().len(), 0);
}

#[test]
fn dimensions_count_from_both_ends() {
    for rank in 1..=MAX_RANK {
        for dim in 0..rank {
            assert_eq!(resolve_dim("sum", dim as isize, rank).unwrap(), dim);
            assert_eq!(resolve_dim("sum", dim as isize - rank as isize, rank).unwrap(), dim);
        }
        assert!(resolve_dim("sum", rank as isize, rank).is_err());
        assert!(resolve_dim("sum", -(rank as isize) - 1, rank).is_err());
    }
    // As in PyTorch, a 0-d tensor takes 0 and -1.
    assert_eq!(resolve_dim("sum", 0, 0).unwrap(), 0);
    assert_eq!(resolve_dim("sum", -1, 0).unwrap(), 0);
    assert!(resolve_dim("sum", 1, 0).is_err() && resolve_dim("sum", -2, 0).is_err());
    assert!(resolve_dim("sum", isize::MIN, 3).is_err() && resolve_dim("sum", isize::MAX, 3).is_err());
    let text = resolve_dim("sum", 2, 2).unwrap_err().to_string();
    assert_eq!(text, "sum: dimension 2 does not exist in a tensor of 2 dimensions\nhelp: use a dimension from -2 to 1");
    let text = resolve_dim("sum", 3, 0).unwrap_err().to_string();
    assert_eq!(text, "sum: dimension 3 does not exist in a tensor of 0 dimensions\nhelp: use a dimension from -1 to 0");
}
