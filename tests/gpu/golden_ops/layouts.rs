//! Where the elements of an input lie in memory: one values, several layouts. What lies between them is a canary.

use linn::{Device, Result, Tensor};

use super::manifest::{Data, Host};

/// How an input lies in its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Contiguous,
    /// The dimensions in reverse order, each with an unused entry before and behind: strides fall from left to right, with an
    /// offset.
    Transposed,
    /// Every other element from the second on.
    Gaps,
    /// An unused entry before and behind in every dimension.
    Margins,
    /// Dimensions whose entries are all the same, as one entry with stride 0.
    Expanded,
    /// Expanded to the shape of the result, for operators that broadcast; `run.rs` does this one, for the gradient's sake.
    Broadcast,
}

/// Those that any input may have, but the contiguous one.
pub const OTHERS: [Layout; 4] = [Layout::Transposed, Layout::Gaps, Layout::Margins, Layout::Expanded];

/// A tensor and the whole storage that it looks into.
pub struct Placed {
    pub view: Tensor,
    pub base: Tensor,
}

impl Layout {
    /// The whole storage of a tensor of these elements; `None` where this layout would be the contiguous one.
    pub fn stored(self, host: &Host) -> Option<Host> {
        let shape = &host.shape;
        let grown = || shape.iter().map(|len| len + 2).collect::<Vec<_>>();
        match self {
            Layout::Contiguous | Layout::Broadcast => Some(host.clone()),
            Layout::Transposed if shape.len() < 2 => None,
            Layout::Transposed => {
                let storage: Vec<usize> = grown().into_iter().rev().collect();
                Some(spread(host, storage, |index| index.iter().rev().map(|i| i + 1).collect()))
            }
            Layout::Gaps if shape.len() >= linn::layout::MAX_RANK => None,
            Layout::Gaps => {
                let storage = [shape.as_slice(), &[2]].concat();
                Some(spread(host, storage, |index| [index, &[1]].concat()))
            }
            Layout::Margins if shape.is_empty() => None,
            Layout::Margins => Some(spread(host, grown(), |index| index.iter().map(|i| i + 1).collect())),
            Layout::Expanded => {
                let storage: Vec<usize> = (0..shape.len()).map(|dim| if repeats(host, dim) { 1 } else { shape[dim] }).collect();
                let kept: Vec<usize> = indices(&storage).iter().map(|index| flat(index, shape)).collect();
                (storage != *shape).then(|| Host { data: host.data.picked(&kept), shape: storage })
            }
        }
    }

    /// The tensor in this layout, on the device.
    pub fn place(self, device: &Device, host: &Host) -> Result<Option<Placed>> {
        let Some(stored) = self.stored(host) else { return Ok(None) };
        let base = upload(device, &stored)?;
        let inner = |mut x: Tensor| {
            for dim in 0..x.rank() as isize {
                x = x.narrow(dim, 1, (x.size(dim)?).saturating_sub(2))?;
            }
            Ok::<_, linn::Error>(x)
        };
        let view = match self {
            Layout::Contiguous | Layout::Broadcast => base.clone(),
            Layout::Transposed => inner(base.clone())?.T()?,
            Layout::Gaps => base.select(-1, 1)?,
            Layout::Margins => inner(base.clone())?,
            Layout::Expanded => base.expand(&host.shape.iter().map(|len| *len as isize).collect::<Vec<_>>())?,
        };
        Ok(Some(Placed { view, base }))
    }
}

/// A contiguous tensor of these elements.
pub fn upload(device: &Device, host: &Host) -> Result<Tensor> {
    match &host.data {
        Data::F32(data) => Tensor::from_slice(device, &host.shape, data),
        Data::I32(data) => Tensor::from_slice(device, &host.shape, data),
        Data::Bool(data) => Tensor::from_slice(device, &host.shape, data),
        Data::F16(data) => Tensor::from_slice(device, &host.shape, data),
        Data::Other(name) => Err(linn::Error::argument("upload", format!("elements of type {name}"), "linn has no such type")),
    }
}

/// The elements at `at(index)` of a storage of shape `storage`, canaries elsewhere.
fn spread(host: &Host, storage: Vec<usize>, at: impl Fn(&[usize]) -> Vec<usize>) -> Host {
    let to: Vec<usize> = indices(&host.shape).iter().map(|index| flat(&at(index), &storage)).collect();
    let len: usize = storage.iter().product();
    fn put<T: Copy>(len: usize, to: &[usize], data: &[T], canary: T) -> Vec<T> {
        let mut all = vec![canary; len];
        to.iter().zip(data).for_each(|(to, item)| all[*to] = *item);
        all
    }
    let data = match &host.data {
        Data::F32(data) => Data::F32(put(len, &to, data, f32::NAN)),
        Data::I32(data) => Data::I32(put(len, &to, data, 1 << 30)),
        Data::Bool(data) => Data::Bool(put(len, &to, data, 1)),
        Data::F16(data) => Data::F16(put(len, &to, data, half::f16::NAN)),
        Data::Other(name) => Data::Other(name.clone()),
    };
    Host { shape: storage, data }
}

/// All entries of dimension `dim` are the same, bit by bit, and there are several.
fn repeats(host: &Host, dim: usize) -> bool {
    let first = |index: &[usize]| {
        let mut first = index.to_vec();
        first[dim] = 0;
        flat(&first, &host.shape)
    };
    let same = |index: &Vec<usize>| {
        let (at, first) = (flat(index, &host.shape), first(index));
        match &host.data {
            Data::F32(data) => data[at].to_bits() == data[first].to_bits(),
            Data::I32(data) => data[at] == data[first],
            Data::Bool(data) => data[at] == data[first],
            Data::F16(data) => data[at].to_bits() == data[first].to_bits(),
            Data::Other(_) => false,
        }
    };
    host.shape[dim] > 1 && indices(&host.shape).iter().all(same)
}

/// Every index of `shape` in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let len: usize = shape.iter().product();
    let index = |mut flat: usize| {
        let mut index = vec![0; shape.len()];
        for (at, len) in index.iter_mut().zip(shape).rev() {
            (*at, flat) = (flat % len, flat / len);
        }
        index
    };
    (0..len).map(index).collect()
}

fn flat(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (i, len)| flat * len + i)
}
