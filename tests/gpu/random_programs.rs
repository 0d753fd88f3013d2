//! Random programs: views of views, operations, changes in place, on streams taken at random, against lists of positions.
//!
//! All numbers are small and whole, so results are exact on every driver. `LINN_LONG=1` runs twenty times as many programs.

use std::cell::RefCell;
use std::rc::Rc;

use linn::autograd::{cat, no_grad};
use linn::layout::MAX_RANK;
use linn::ops::reduce::KeepDim;
use linn::{DType, Device, DeviceOptions, Scalar, Stream, Tensor};

use crate::device::open;

/// What a tensor is to hold: where its elements lie in a storage that views share, in row-major order.
#[derive(Clone)]
struct Model {
    storage: Rc<RefCell<Vec<f64>>>,
    at: Vec<usize>,
    shape: Vec<usize>,
}

impl Model {
    fn new(shape: &[usize], values: Vec<f64>) -> Model {
        assert_eq!(values.len(), shape.iter().product::<usize>());
        Model { at: (0..values.len()).collect(), shape: shape.to_vec(), storage: Rc::new(RefCell::new(values)) }
    }

    fn values(&self) -> Vec<f64> {
        let storage = self.storage.borrow();
        self.at.iter().map(|at| storage[*at]).collect()
    }

    /// A view of `shape`: the element at an index is the one that `from` leads to.
    fn view(&self, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Model {
        let at = indices(shape).map(|index| self.at[flat(&self.shape, &from(&index))]).collect();
        Model { storage: self.storage.clone(), at, shape: shape.to_vec() }
    }

    fn expanded(&self, shape: &[usize]) -> Model {
        let added = shape.len() - self.shape.len();
        let from =
            |index: &[usize]| index[added..].iter().zip(&self.shape).map(|(i, len)| if *len == 1 { 0 } else { *i }).collect();
        self.view(shape, from)
    }

    /// One value for each element, from those of both, broadcast.
    fn zip(&self, other: &Model, f: impl Fn(f64, f64) -> f64) -> Option<Model> {
        let shape = common(&self.shape, &other.shape)?;
        let (a, b) = (self.expanded(&shape).values(), other.expanded(&shape).values());
        Some(Model::new(&shape, a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect()))
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Model {
        Model::new(&self.shape, self.values().into_iter().map(f).collect())
    }

    /// Writes through the view.
    fn set(&self, values: &[f64]) {
        let mut storage = self.storage.borrow_mut();
        self.at.iter().zip(values).for_each(|(at, value)| storage[*at] = *value);
    }

    /// `fold` over the dimensions in `over`, which stay with length 1.
    fn fold(&self, over: &[bool], fold: impl Fn(f64, f64) -> f64) -> Option<Model> {
        let shape: Vec<usize> = self.shape.iter().zip(over).map(|(len, over)| if *over { 1 } else { *len }).collect();
        let mut out: Vec<Option<f64>> = vec![None; shape.iter().product()];
        for (index, value) in indices(&self.shape).zip(self.values()) {
            let to: Vec<usize> = index.iter().zip(over).map(|(i, over)| if *over { 0 } else { *i }).collect();
            let to = &mut out[flat(&shape, &to)];
            *to = Some(to.map_or(value, |before| fold(before, value)));
        }
        Some(Model::new(&shape, out.into_iter().collect::<Option<Vec<f64>>>()?))
    }
}

/// All indices into `shape` in row-major order.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |mut n: usize| {
        let mut index = vec![0; shape.len()];
        for (i, len) in index.iter_mut().zip(&shape).rev() {
            *i = n % len;
            n /= len;
        }
        index
    })
}

fn flat(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |at, (len, i)| at * len + i)
}

fn common(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let len = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (len(a, i), len(b, i)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}

/// Numbers that are the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `n`, 0 where that is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A tensor and what it is to hold.
type Pair = (Tensor, Model);

struct Program {
    device: Device,
    streams: Vec<Stream>,
    dice: Dice,
    pairs: Vec<Pair>,
    story: Vec<String>,
}

/// Values stay within this, so that sums and products of some are exact.
const MOST: f64 = 9.0;

/// Numbers of at most that size, of the same type.
fn bounded(x: &Tensor) -> Tensor {
    let most = if x.dtype() == DType::F32 { Scalar::Float(MOST) } else { Scalar::Int(MOST as i64) };
    x.clamp(most.minus(), most).unwrap()
}

/// Elements of a tensor; on some drivers kernels over many elements read them in another way.
const LARGEST: usize = 40_000;

impl Program {
    fn new(device: &Device, seed: u64) -> Program {
        let streams = vec![device.default_stream(), device.new_stream(), device.new_stream_with_priority(-1)];
        Program { device: device.clone(), streams, dice: Dice::new(seed), pairs: Vec::new(), story: Vec::new() }
    }

    fn fresh(&mut self, shape: &[usize]) -> Pair {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| self.dice.below(19) as f64 - MOST).collect();
        let floats: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        let tensor = if self.dice.below(3) > 0 {
            Tensor::from_slice(&self.device, shape, &floats)
        } else {
            let whole: Vec<i32> = values.iter().map(|value| *value as i32).collect();
            Tensor::from_slice(&self.device, shape, &whole)
        };
        (tensor.unwrap(), Model::new(shape, values))
    }

    fn any_shape(&mut self) -> Vec<usize> {
        if self.dice.below(8) == 0 {
            return vec![self.dice.below(200), 128];
        }
        let rank = self.dice.below(5);
        (0..rank).map(|_| *self.dice.one(&[0, 1, 1, 2, 3, 4, 5, 7, 8, 12, 33])).collect::<Vec<_>>()
    }

    /// One step; its errors are only those that the model expects too.
    fn step(&mut self) {
        let (stream, pick, what) = (self.dice.below(3), self.dice.below(self.pairs.len()), self.dice.below(20));
        let _guard = self.streams[stream].enter();
        if self.pairs.len() < 3 || what == 0 {
            let shape = self.any_shape();
            let pair = self.fresh(&shape);
            self.story.push(format!("fresh {shape:?} {} on {stream}", pair.0.dtype()));
            return self.pairs.push(pair);
        }
        let pair = self.pairs[pick].clone();
        let other = self.pairs[self.dice.below(self.pairs.len())].clone();
        self.story.push(format!(
            "{what}: {:?} {:?} {}, {:?} on {stream}",
            pair.0.shape(),
            pair.0.layout().strides(),
            pair.0.dtype(),
            other.0.shape()
        ));
        let out = match what {
            1..=8 => self.viewed(&pair),
            9..=12 => self.computed(&pair, &other),
            13 => self.reduced(&pair),
            14 => self.multiplied(&pair),
            15 => self.picked(&pair),
            16 => self.joined(&pair),
            _ => self.changed(&pair, &other),
        };
        self.pairs.extend(out.filter(|(tensor, _)| tensor.len() <= LARGEST));
        if self.pairs.len() > 12 {
            let at = self.dice.below(self.pairs.len());
            self.pairs.swap_remove(at);
        }
        match self.dice.below(60) {
            0 => self.device.empty_cache().unwrap(),
            1 => drop(self.device.compact(1 << 20).unwrap()),
            2 => self.check(pick.min(self.pairs.len() - 1)),
            _ => {}
        }
    }

    fn viewed(&mut self, (x, m): &Pair) -> Option<Pair> {
        let rank = x.rank();
        let dim = self.dice.below(rank);
        Some(match self.dice.below(9) {
            0 if rank > 1 => {
                let to = self.dice.below(rank);
                let mut shape = m.shape.clone();
                shape.swap(dim, to);
                let swapped = m.view(&shape, |index| {
                    let mut index = index.to_vec();
                    index.swap(dim, to);
                    index
                });
                (x.transpose(dim as isize - rank as isize, to as isize).unwrap(), swapped)
            }
            1 if rank > 0 => {
                let mut order: Vec<usize> = (0..rank).collect();
                (0..rank).for_each(|i| order.swap(i, self.dice.below(rank)));
                let shape: Vec<usize> = order.iter().map(|dim| m.shape[*dim]).collect();
                let moved = m.view(&shape, |index| {
                    let mut from = vec![0; index.len()];
                    order.iter().zip(index).for_each(|(dim, i)| from[*dim] = *i);
                    from
                });
                (x.permute(&order.iter().map(|dim| *dim as isize).collect::<Vec<_>>()).unwrap(), moved)
            }
            2 | 3 if rank > 0 => {
                let start = self.dice.below(m.shape[dim] + 1);
                let len = self.dice.below(m.shape[dim] - start + 1);
                let mut shape = m.shape.clone();
                shape[dim] = len;
                let part = m.view(&shape, |index| {
                    let mut index = index.to_vec();
                    index[dim] += start;
                    index
                });
                (x.narrow(dim as isize, start as isize, len).unwrap(), part)
            }
            4 if rank > 0 && m.shape[dim] > 0 => {
                let entry = self.dice.below(m.shape[dim]);
                let mut shape = m.shape.clone();
                shape.remove(dim);
                let entries = m.view(&shape, |index| {
                    let mut index = index.to_vec();
                    index.insert(dim, entry);
                    index
                });
                (x.select(dim as isize, entry as isize).unwrap(), entries)
            }
            5 if rank < MAX_RANK => {
                let at = self.dice.below(rank + 1);
                let mut shape = m.shape.clone();
                shape.insert(at, 1);
                (x.unsqueeze(at as isize).unwrap(), Model { shape, ..m.clone() })
            }
            6 if rank < MAX_RANK => {
                let mut shape: Vec<usize> =
                    m.shape.iter().map(|len| if *len == 1 { 1 + self.dice.below(3) } else { *len }).collect();
                shape.insert(0, 1 + self.dice.below(2));
                (x.expand(&shape.iter().map(|len| *len as isize).collect::<Vec<_>>()).unwrap(), m.expanded(&shape))
            }
            7 => self.reshaped(x, m),
            _ if rank > 0 && m.shape[dim] > 0 => {
                let size = 1 + self.dice.below(m.shape[dim]);
                let parts = x.split(size, dim as isize).unwrap();
                let which = self.dice.below(parts.len());
                let start = which * size;
                let mut shape = m.shape.clone();
                shape[dim] = size.min(m.shape[dim] - start);
                let part = m.view(&shape, |index| {
                    let mut index = index.to_vec();
                    index[dim] += start;
                    index
                });
                (parts[which].clone(), part)
            }
            _ => self.reshaped(x, m),
        })
    }

    /// Another shape of as many elements: a view where the strides allow it, which the tensor knows.
    fn reshaped(&mut self, x: &Tensor, m: &Model) -> Pair {
        let (mut left, mut shape) = (m.at.len(), Vec::new());
        while left > 1 && shape.len() < 5 {
            let divisors: Vec<usize> = (2..=left).filter(|n| left.is_multiple_of(*n)).take(4).collect();
            shape.push(*self.dice.one(&divisors));
            left /= shape[shape.len() - 1];
        }
        shape.push(left);
        let mut wanted: Vec<isize> = shape.iter().map(|len| *len as isize).collect();
        if left > 0 && self.dice.below(2) == 0 {
            let open = self.dice.below(wanted.len());
            wanted[open] = -1;
        }
        let out = x.reshape(&wanted).unwrap();
        let model = if out.shares_storage(x) { Model { shape, ..m.clone() } } else { Model::new(&shape, m.values()) };
        (out, model)
    }

    fn computed(&mut self, (x, m): &Pair, (y, n): &Pair) -> Option<Pair> {
        let limit = |(x, m): Pair| (bounded(&x), m.map(|x| x.clamp(-MOST, MOST)));
        let truth = |value: bool| f64::from(u8::from(value));
        if self.dice.below(3) == 0 {
            let s = self.dice.below(7) as f64 - 3.0;
            return Some(limit(match self.dice.below(6) {
                0 => ((x + s).unwrap(), m.map(|x| x + s)),
                1 => ((s - x).unwrap(), m.map(|x| s - x)),
                2 => ((s * x).unwrap(), m.map(|x| s * x)),
                3 => ((-x).unwrap(), m.map(|x| -x)),
                4 => (x.abs().unwrap(), m.map(f64::abs)),
                _ => {
                    let to = if x.dtype() == DType::F32 { DType::I32 } else { DType::F32 };
                    (x.to_dtype(to).unwrap(), m.map(|x| x))
                }
            }));
        }
        if common(&m.shape, &n.shape).is_none() {
            assert!(x.add(y).is_err());
            return None;
        }
        if common(&m.shape, &n.shape)?.iter().product::<usize>() > LARGEST {
            return None;
        }
        Some(limit(match self.dice.below(6) {
            0 => ((x + y).unwrap(), m.zip(n, |x, y| x + y)?),
            1 => ((x - y).unwrap(), m.zip(n, |x, y| x - y)?),
            2 => ((x * y).unwrap(), m.zip(n, |x, y| x * y)?),
            3 => (x.gt(y).unwrap().to_dtype(x.dtype()).unwrap(), m.zip(n, |x, y| truth(x > y))?),
            4 => (x.where_(&x.le(y).unwrap(), y).unwrap(), m.zip(n, f64::min)?),
            5 if x.dtype() == DType::F32 => (x.maximum(y).unwrap(), m.zip(n, f64::max)?),
            _ => (x.ne(y).unwrap().to_dtype(DType::I32).unwrap(), m.zip(n, |x, y| truth(x != y))?),
        }))
    }

    fn reduced(&mut self, (x, m): &Pair) -> Option<Pair> {
        if x.rank() == 0 || x.is_empty() {
            return None;
        }
        let mut over: Vec<bool> = m.shape.iter().map(|_| self.dice.below(2) == 0).collect();
        over[0] |= !over.contains(&true);
        let dims: Vec<isize> = (0..over.len()).filter(|i| over[*i]).map(|i| i as isize).collect();
        let (out, model) = match self.dice.below(3) {
            1 if x.dtype() == DType::F32 => (x.amax(&dims, KeepDim::Keep).unwrap(), m.fold(&over, f64::max)?),
            2 if x.dtype() == DType::F32 => (x.amin(&dims, KeepDim::Keep).unwrap(), m.fold(&over, f64::min)?),
            _ => (x.sum(&dims, KeepDim::Keep).unwrap(), m.fold(&over, |x, y| x + y)?),
        };
        Some((bounded(&out), model.map(|x| x.clamp(-MOST, MOST))))
    }

    /// x @ y and y @ x for a y that fits, batches included.
    fn multiplied(&mut self, (x, m): &Pair) -> Option<Pair> {
        if x.dtype() != DType::F32 || x.rank() < 2 || m.at.len() > 3000 {
            return None;
        }
        let (rows, inner) = (m.shape[x.rank() - 2], m.shape[x.rank() - 1]);
        let columns = *self.dice.one(&[1, 2, 4, 5, 32]);
        let batch = if self.dice.below(2) == 0 { Vec::new() } else { m.shape[..x.rank() - 2].to_vec() };
        let right: Vec<usize> = batch.iter().copied().chain([inner, columns]).collect();
        let values: Vec<f64> = (0..right.iter().product()).map(|_| self.dice.below(5) as f64 - 2.0).collect();
        let y = Tensor::from_slice(&self.device, &right, &values.iter().map(|v| *v as f32).collect::<Vec<_>>()).unwrap();
        let n = Model::new(&right, values);
        // [.., rows, inner, 1] times [.., 1, inner, columns], summed over inner.
        let mut left = m.clone();
        left.shape.push(1);
        let mut other = n.clone();
        other.shape.insert(right.len() - 2, 1);
        let rank = left.shape.len();
        let product = left.zip(&other, |x, y| x * y)?;
        let over: Vec<bool> = (0..rank).map(|i| i == rank - 2).collect();
        let sums = product.fold(&over, |x, y| x + y);
        let shape: Vec<usize> = m.shape[..x.rank() - 2].iter().copied().chain([rows, columns]).collect();
        let values = sums.map_or_else(|| vec![0.0; shape.iter().product()], |sums| sums.values());
        let (mut out, model) = (x.matmul(&y).unwrap(), Model::new(&shape, values));
        assert_eq!(out.shape(), shape);
        if self.dice.below(2) == 0 {
            // The same through the transposed product.
            out = y.transpose(-1, -2).unwrap().matmul(&x.transpose(-1, -2).unwrap()).unwrap().transpose(-1, -2).unwrap();
            assert_eq!(out.shape(), shape);
        }
        Some((bounded(&out), model.map(|x| x.clamp(-MOST, MOST))))
    }

    /// Rows by index: gather along a dimension, or an embedding of a matrix.
    fn picked(&mut self, (x, m): &Pair) -> Option<Pair> {
        if x.rank() == 0 || x.is_empty() {
            return None;
        }
        let dim = self.dice.below(x.rank());
        let mut shape = m.shape.clone();
        shape[dim] = 1 + self.dice.below(6);
        let matrix = x.rank() == 2 && self.dice.below(2) == 0;
        let index_shape = if matrix { vec![2, 1 + self.dice.below(4)] } else { shape.clone() };
        let rows = if matrix { m.shape[0] } else { m.shape[dim] };
        let ids: Vec<i32> = (0..index_shape.iter().product()).map(|_| self.dice.below(rows) as i32).collect();
        let k = Tensor::from_slice(&self.device, &index_shape, &ids).unwrap();
        if matrix {
            let wide = [index_shape[0], index_shape[1], m.shape[1]];
            let picked = m.view(&wide, |at| vec![ids[at[0] * index_shape[1] + at[1]] as usize, at[2]]);
            return Some((x.embedding(&k).unwrap(), Model::new(&wide, picked.values())));
        }
        let picked = m.view(&shape, |index| {
            let mut from = index.to_vec();
            from[dim] = ids[flat(&shape, index)] as usize;
            from
        });
        Some((x.gather(dim as isize, &k).unwrap(), Model::new(&shape, picked.values())))
    }

    /// A tensor behind a part of itself.
    fn joined(&mut self, (x, m): &Pair) -> Option<Pair> {
        if x.rank() == 0 {
            return None;
        }
        let dim = self.dice.below(x.rank());
        let start = self.dice.below(m.shape[dim] + 1);
        let part = x.narrow(dim as isize, start as isize, m.shape[dim] - start).unwrap();
        let mut shape = m.shape.clone();
        shape[dim] += m.shape[dim] - start;
        let both = m.view(&shape, |index| {
            let mut from = index.to_vec();
            if from[dim] >= m.shape[dim] {
                from[dim] = from[dim] - m.shape[dim] + start;
            }
            from
        });
        Some((cat(&[x, &part], dim as isize).unwrap(), Model::new(&shape, both.values())))
    }

    /// In place, through views that may overlap: as if all operands were read first. A view that names an element twice is refused.
    fn changed(&mut self, (x, m): &Pair, (y, n): &Pair) -> Option<Pair> {
        let refused = x.layout().is_expanded();
        let fits = common(&m.shape, &n.shape).is_some_and(|shape| shape == m.shape);
        let number = |value: f64| if x.dtype() == DType::F32 { Scalar::Float(value) } else { Scalar::Int(value as i64) };
        let s = self.dice.below(7) as f64 - 3.0;
        let (result, after) = match self.dice.below(6) {
            0 => (x.fill_(s), m.map(|_| s)),
            1 => (x.add_scalar_(number(s)), m.map(|x| x + s)),
            2 => (x.mul_scalar_(number(s)), m.map(|x| x * s)),
            3 if fits => (x.copy_(y), m.zip(n, |_, y| y)?),
            4 if fits && x.dtype() == y.dtype() => (x.mul_(y), m.zip(n, |x, y| x * y)?),
            5 if fits && x.dtype() == y.dtype() => {
                let alpha = if x.dtype() == DType::F32 { s } else { 1.0 };
                (x.add_(y, number(alpha)), m.zip(n, |x, y| x + alpha * y)?)
            }
            _ => return None,
        };
        assert_eq!(result.is_err(), refused, "{result:?}");
        if !refused {
            x.copy_(&bounded(x)).unwrap();
            m.set(&after.map(|x| x.clamp(-MOST, MOST)).values());
        }
        None
    }

    fn check(&self, which: usize) {
        let (x, m) = &self.pairs[which];
        assert_eq!(x.shape(), m.shape);
        let got: Vec<f64> = match x.dtype() {
            DType::F32 => x.to_vec::<f32>().unwrap().iter().map(|x| f64::from(*x)).collect(),
            _ => x.to_vec::<i32>().unwrap().iter().map(|x| f64::from(*x)).collect(),
        };
        if let Some(at) = got.iter().zip(m.values()).position(|(got, want)| *got != want) {
            panic!("element {at} of {:?} is {}, not {}; {:#?}", m.shape, got[at], m.values()[at], self.story);
        }
    }
}

#[test]
fn random_programs_compute_what_lists_of_positions_say() {
    let programs = if std::env::var_os("LINN_LONG").is_some() { 1000 } else { 50 };
    let device = open(DeviceOptions::default());
    for seed in 0..programs {
        let mut program = Program::new(&device, seed);
        no_grad(|| (0..60).for_each(|_| program.step()));
        (0..program.pairs.len()).for_each(|which| program.check(which));
    }
    device.synchronize().unwrap();
}
