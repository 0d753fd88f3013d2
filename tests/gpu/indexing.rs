//! `index` and `index_put` against a reference that walks coordinates, with random lists of indices; and by gradients.

use linn::autograd::{GradcheckOptions, Index, Put, gradcheck};
use linn::{DType, DeviceOptions, Error, Tensor};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::close::numbers;
use crate::device::{device, open};

/// An index of the reference: as [`Index`], with the numbers of an index tensor on the host.
#[derive(Clone, Debug)]
enum At {
    One(isize),
    Some(Option<isize>, Option<isize>, usize),
    New,
    Rest,
    /// Of a shape that broadcasts to `[2, 3]`.
    Ids(Vec<usize>, Vec<i32>),
    /// Over one dimension.
    Mask(Vec<bool>),
}

impl At {
    fn to_index(&self) -> Index {
        match self {
            At::One(index) => Index::from(*index),
            At::Some(start, end, step) => Index::Slice { start: *start, end: *end, step: *step },
            At::New => Index::NewAxis,
            At::Rest => Index::Ellipsis,
            At::Ids(shape, ids) => Index::from(Tensor::from_slice(&device(), shape, ids).unwrap()),
            At::Mask(mask) => {
                let bytes: Vec<u8> = mask.iter().map(|set| u8::from(*set)).collect();
                let mask = Tensor::from_slice(&device(), &[mask.len()], &bytes.iter().map(|b| i32::from(*b)).collect::<Vec<_>>());
                Index::from(mask.unwrap().to_dtype(DType::Bool).unwrap())
            }
        }
    }
}

/// What an axis of the result walks over.
enum Axis {
    Slice {
        dim: usize,
        positions: Vec<usize>,
    },
    New,
    /// The index tensors together.
    Block,
}

/// The shape of `x[list]`, and the position of each of its elements among those of x.
fn reference(shape: &[usize], list: &[At]) -> (Vec<usize>, Vec<usize>) {
    let taken = list.iter().filter(|at| !matches!(at, At::New | At::Rest)).count();
    let mut list = list.to_vec();
    if !list.iter().any(|at| matches!(at, At::Rest)) {
        list.push(At::Rest);
    }
    let mut fixed = vec![0usize; shape.len()];
    let mut axes: Vec<Axis> = Vec::new();
    let mut blocks: Vec<usize> = Vec::new();
    let mut ids: Vec<(usize, Vec<usize>, Vec<i32>)> = Vec::new();
    let mut dim = 0;
    for at in list {
        match at {
            At::One(index) => {
                fixed[dim] = if index < 0 { shape[dim] as isize + index } else { index } as usize;
                dim += 1;
            }
            At::Some(start, end, step) => {
                let len = shape[dim] as isize;
                let inside = |bound: isize| if bound < 0 { (bound + len).max(0) } else { bound.min(len) };
                let (start, end) = (inside(start.unwrap_or(0)), inside(end.unwrap_or(len)));
                let positions = (start..end).step_by(step).map(|i| i as usize).collect();
                axes.push(Axis::Slice { dim, positions });
                dim += 1;
            }
            At::New => axes.push(Axis::New),
            At::Rest => {
                for _ in taken..shape.len() {
                    axes.push(Axis::Slice { dim, positions: (0..shape[dim]).collect() });
                    dim += 1;
                }
            }
            At::Ids(of, data) => {
                // An index without dimensions is as an integer.
                if !of.is_empty() {
                    blocks.push(axes.len());
                }
                ids.push((dim, of, data));
                dim += 1;
            }
            At::Mask(mask) => {
                let set: Vec<i32> = (0..mask.len()).filter(|i| mask[*i]).map(|i| i as i32).collect();
                blocks.push(axes.len());
                ids.push((dim, vec![set.len()], set));
                dim += 1;
            }
        }
    }
    let mut block = Vec::new();
    for (_, of, _) in &ids {
        block = linn::layout::broadcast_shapes("reference", &block, of).unwrap().to_vec();
    }
    if !ids.is_empty() {
        let first = blocks.first().copied().unwrap_or(0);
        let together = blocks.iter().all(|at| *at == first);
        axes.insert(if together { first } else { 0 }, Axis::Block);
    }
    let lens: Vec<Vec<usize>> = axes
        .iter()
        .map(|axis| match axis {
            Axis::Slice { positions, .. } => vec![positions.len()],
            Axis::New => vec![1],
            Axis::Block => block.clone(),
        })
        .collect();
    let out = lens.concat();
    let mut positions = Vec::new();
    for flat in 0..out.iter().product::<usize>() {
        let (mut left, mut coordinates) = (flat, vec![0; out.len()]);
        for i in (0..out.len()).rev() {
            coordinates[i] = left % out[i];
            left /= out[i];
        }
        let mut at = fixed.clone();
        let mut next = 0;
        for (axis, lens) in axes.iter().zip(&lens) {
            let here = &coordinates[next..next + lens.len()];
            next += lens.len();
            match axis {
                Axis::New => {}
                Axis::Slice { dim, positions } => at[*dim] = positions[here[0]],
                Axis::Block => {
                    for (dim, of, data) in &ids {
                        let tail = &here[here.len() - of.len()..];
                        let entry = of.iter().zip(tail).fold(0, |sum, (len, i)| sum * len + if *len == 1 { 0 } else { *i });
                        let id = data[entry];
                        at[*dim] = if id < 0 { shape[*dim] as i32 + id } else { id } as usize;
                    }
                }
            }
        }
        positions.push(at.iter().zip(shape).fold(0, |sum, (i, len)| sum * len + i));
    }
    (out, positions)
}

/// A shape and a list of indices that fits it.
fn cases() -> impl Strategy<Value = (Vec<usize>, Vec<At>)> {
    let shape = prop::collection::vec(1usize..5, 1..5);
    let choices = prop::collection::vec((0u32..9, any::<u32>(), any::<u32>(), any::<u32>()), 0..7);
    (shape, choices, any::<bool>()).prop_map(|(shape, choices, ellipsis)| {
        let (mut list, mut dim, mut masked, mut rest) = (Vec::new(), 0, false, !ellipsis);
        let mut new = 0;
        for (kind, a, b, c) in choices {
            if kind == 0 && new < 2 {
                new += 1;
                list.push(At::New);
                continue;
            }
            if kind == 1 && !rest {
                rest = true;
                list.push(At::Rest);
                continue;
            }
            let Some(len) = shape.get(dim).map(|len| *len as u32) else { continue };
            // After an ellipsis a dimension from the back is meant, whose length is another: only what fits every length.
            let len = if rest && ellipsis { shape[dim..].iter().copied().min().unwrap_or(1) as u32 } else { len };
            let index = |n: u32| (n % (2 * len)) as isize - len as isize;
            let bound = |n: u32| (!n.is_multiple_of(3)).then(|| (n / 3 % 13) as isize - 6);
            let exact = !(rest && ellipsis);
            list.push(match kind {
                2 | 3 => At::One(index(a)),
                4 | 5 => {
                    let shapes: [&[usize]; 5] = [&[2, 3], &[1, 3], &[3], &[2, 1], &[]];
                    let shapes = if masked { &shapes[4..] } else { &shapes[..] };
                    let of = shapes[b as usize % shapes.len()].to_vec();
                    let count = of.iter().product::<usize>() as u32;
                    let ids = (0..count).map(|i| index(a.rotate_left(3 * i) ^ (c >> i)) as i32).collect();
                    At::Ids(of, ids)
                }
                6 if exact && !masked && !list.iter().any(|at| matches!(at, At::Ids(of, _) if !of.is_empty())) => {
                    masked = true;
                    At::Mask((0..len).map(|i| a >> i & 1 == 1).collect())
                }
                _ => At::Some(bound(a), bound(b), c as usize % 3 + 1),
            });
            dim += 1;
        }
        (shape, list)
    })
}

#[test]
fn indexing_is_what_a_walk_over_coordinates_finds() {
    let device = device();
    let kinds = std::cell::Cell::new([0usize; 3]);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 300, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let result = runner.run(&cases(), |(shape, list)| {
        let len: usize = shape.iter().product();
        let elements: Vec<i32> = (0..len as i32).collect();
        let indices = || list.iter().map(At::to_index).collect::<Vec<Index>>();
        let (want_shape, positions) = reference(&shape, &list);
        // From a tensor whose elements do not lie in order.
        let order: Vec<isize> = (0..shape.len() as isize).rev().collect();
        let x = Tensor::from_slice(&device, &shape, &elements).unwrap();
        let scattered = x.permute(&order).unwrap().add_scalar(0).unwrap().permute(&order).unwrap();
        let want: Vec<i32> = positions.iter().map(|position| *position as i32).collect();
        for x in [&x, &scattered] {
            let got = x.index(indices()).unwrap();
            prop_assert_eq!(got.shape(), &want_shape[..]);
            prop_assert_eq!(got.to_vec::<i32>().unwrap(), want.clone());
        }
        // Written to, the last of several values for one place wins; added, all of them count.
        let values: Vec<i32> = (0..want.len() as i32).map(|i| 1000 + i).collect();
        let (mut replaced, mut added) = (elements.clone(), elements.clone());
        for (position, value) in positions.iter().zip(&values) {
            replaced[*position] = *value;
            added[*position] += *value;
        }
        let values = Tensor::from_slice(&device, &want_shape, &values).unwrap();
        let got = x.index_put(indices(), &values, Put::Replace).unwrap();
        prop_assert_eq!(got.to_vec::<i32>().unwrap(), replaced.clone());
        scattered.index_put_(indices(), &values, Put::Replace).unwrap();
        prop_assert_eq!(scattered.to_vec::<i32>().unwrap(), replaced);
        let float = |x: &Tensor| x.to_dtype(DType::F32).unwrap();
        let got = float(&x).index_put(indices(), &float(&values), Put::Add).unwrap().to_vec::<f32>().unwrap();
        prop_assert_eq!(got, added.iter().map(|x| *x as f32).collect::<Vec<_>>());
        prop_assert_eq!(x.to_vec::<i32>().unwrap(), elements);
        let tensors = list.iter().filter(|at| matches!(at, At::Ids(..) | At::Mask(_))).count();
        let mut counts = kinds.get();
        counts[tensors.min(2)] += 1;
        kinds.set(counts);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let kinds = kinds.get();
    assert!(kinds.iter().all(|count| *count > 20), "lists without, with one and with several index tensors: {kinds:?}");
}

#[test]
fn indexing_reads_like_pytorch() {
    let device = device();
    let x = Tensor::from_slice(&device, &[2, 3, 4], &(0..24).collect::<Vec<i32>>()).unwrap();
    let shape = |x: linn::Result<Tensor>| x.unwrap().shape().to_vec();
    assert_eq!(shape(x.index(0)), [3, 4]);
    assert_eq!(shape(x.index((0, -1))), [4]);
    assert_eq!(shape(x.index((.., 1..))), [2, 2, 4]);
    assert_eq!(shape(x.index((Index::Ellipsis, 0))), [2, 3]);
    assert_eq!(shape(x.index((.., Index::NewAxis, ..=1, ..-1))), [2, 1, 2, 3]);
    assert_eq!(shape(x.index(())), [2, 3, 4]);
    assert_eq!(shape(x.index((1usize, 0i64, 1..3usize))), [2]);
    assert_eq!(shape(x.index([0, 1, 2])), Vec::<usize>::new());
    assert!(x.index((.., 1..)).unwrap().shares_storage(&x), "a view");
    let ids = Tensor::new(&device, [0, 1, 1]).unwrap();
    // Bounds that are left out, as ranges of Rust can say them.
    let after = |before: isize| Index::slice((std::ops::Bound::Excluded(before), std::ops::Bound::Unbounded), 1);
    assert_eq!(shape(x.index((.., after(0)))), [2, 2, 4]);
    assert_eq!(shape(x.index((.., after(-2)))), [2, 1, 4]);
    assert_eq!(shape(x.index((.., after(-1)))), [2, 0, 4]);
    // Apart from each other the indices come first; an integer between them is applied before.
    assert_eq!(shape(x.index((&ids, .., &ids))), [3, 3]);
    assert_eq!(shape(x.unsqueeze(0).unwrap().index((.., &ids, 0, &ids))), [1, 3]);
    // An index tensor without dimensions is as an integer; a mask without dimensions is for all there is, in a new dimension.
    let zero = Tensor::new(&device, 0).unwrap();
    assert_eq!(shape(x.index((&zero, .., &ids))), [3, 3]);
    assert_eq!(shape(x.index((1.., &zero, &ids))), [1, 3]);
    assert_eq!(shape(x.unsqueeze(1).unwrap().index((&ids, .., .., &zero))), [3, 1, 3]);
    let [yes, no] = [true, false].map(|all| Tensor::new(&device, u8::from(all)).unwrap());
    assert_eq!(shape(x.index(&yes)), [1, 2, 3, 4]);
    assert_eq!(shape(x.index((.., &no))), [2, 0, 3, 4]);
    assert_eq!(shape(x.index((&ids, &yes, .., &ids))), [3, 3]);
    for (all, want) in [(&no, 0), (&yes, 9)] {
        let y = zero.mul_scalar(1).unwrap();
        y.index_put_(all, &Tensor::new(&device, 9).unwrap(), Put::Replace).unwrap();
        assert_eq!(y.item::<i32>().unwrap(), want);
    }
    // The mask of two dimensions waits for its count.
    let mask = x.index((.., .., 0)).unwrap().gt_scalar(4).unwrap();
    assert_eq!(shape(x.index(&mask)), [4, 4]);
    x.index_put_((.., .., 0), &Tensor::new(&device, -1).unwrap(), Put::Replace).unwrap();
    assert_eq!(x.index((1, 2)).unwrap().to_vec::<i32>().unwrap(), [-1, 21, 22, 23]);
}

#[test]
fn gradients_flow_through_indexing() {
    let device = device();
    let input = |seed, shape: &[usize]| Tensor::from_slice(&device, shape, &numbers(seed, shape.iter().product())).unwrap();
    let ids = Tensor::new(&device, [2, 0, 2]).unwrap();
    let check = |f: &dyn Fn(&[Tensor]) -> linn::Result<Tensor>, inputs: &[Tensor]| {
        gradcheck(f, inputs, GradcheckOptions::default()).unwrap();
    };
    let x = input(1, &[3, 2, 4]);
    check(&|x| x[0].index((1, .., Index::slice(.., 2)))?.square(), std::slice::from_ref(&x));
    check(&|x| x[0].index((&ids, .., 1..3))?.square(), std::slice::from_ref(&x));
    check(&|x| x[0].index((&ids, 0, &ids))?.square(), std::slice::from_ref(&x));
    for put in [Put::Replace, Put::Add] {
        check(&|x| x[0].index_put((1, .., 1..3), &x[1], put)?.square(), &[x.clone(), input(2, &[1, 2])]);
        check(&|x| x[0].index_put((&ids, .., 1..3), &x[1], put)?.square(), &[x.clone(), input(3, &[3, 1, 2])]);
        let in_place = |x: &[Tensor]| {
            let y = x[0].mul_scalar(2)?;
            y.index_put_((.., 1), &x[1], put)?;
            y.square()
        };
        check(&in_place, &[x.clone(), input(4, &[3, 4])]);
    }
}

#[test]
fn indices_that_do_not_fit_are_refused() {
    let device = device();
    let x = Tensor::from_slice(&device, &[2, 3], &[0.0f32; 6]).unwrap();
    let text = |result: linn::Result<Tensor>| result.unwrap_err().to_string();
    let says = |result: linn::Result<Tensor>, words: &str| {
        let text = text(result);
        assert!(text.contains(words) && text.contains("help:") && text.contains("index"), "{text}");
    };
    says(x.index((0, 0, 0)), "indices of 3 dimensions for a tensor of shape [2, 3]");
    says(x.index((.., 3)), "out of range for a dimension of 3 entries");
    says(x.index((-3, ..)), "use one from -2 to 1");
    says(x.index(i32::MIN), "out of range");
    says(x.index((Index::Ellipsis, Index::Ellipsis)), "more than one Ellipsis");
    says(x.index(Index::slice(.., 0)), "step 0");
    let mask = Tensor::from_slice(&device, &[2], &[1i32, 0]).unwrap().to_dtype(DType::Bool).unwrap();
    says(x.index((.., &mask)), "a mask of shape [2]");
    says(x.index(vec![Index::NewAxis; 9]), "a new dimension for shape");
    let (two, three) = (Tensor::new(&device, [0, 1]).unwrap(), Tensor::new(&device, [0, 1, 1]).unwrap());
    says(x.index((&two, &three)), "[2]");
    says(x.index(three.reshape(&[1, 1, 1, 1, 1, 1, 1, 3]).unwrap()), "index: shape [1, 1, 1, 1, 1, 1, 1, 3, 3] has 9 dimensions");
    says(x.index_put(0, &two, Put::Replace), "i32");
    says(x.index_put(0, &two.to_dtype(DType::F32).unwrap(), Put::Replace), "[2]");
    assert!(matches!(x.index(&x), Err(Error::DType { .. })));
    // On the device, each index for itself: 0 * 3 + 4 would be an element. (On a device of its own, whose errors nobody else sees.)
    let device = open(DeviceOptions::default());
    let x = Tensor::from_slice(&device, &[2, 3], &[0.0f32; 6]).unwrap();
    let out = x.index((&Tensor::new(&device, [0]).unwrap(), &Tensor::new(&device, [4]).unwrap())).unwrap();
    let late = out.to_vec::<f32>().unwrap_err().to_string();
    assert!(late.contains("index 4") && late.contains("help:"), "{late}");
    // Nothing is written where the values do not fit.
    let expanded = Tensor::new(&device, [1.0f32]).unwrap().expand(&[4]).unwrap();
    assert!(expanded.index_put_(1.., &Tensor::new(&device, 2.0f32).unwrap(), Put::Replace).is_err());
}
