//! Indexing that reads like PyTorch's: `x.index((0, .., 1..3))` is `x[0, :, 1:3]`.
//!
//! Integers, ranges, [`Index::NewAxis`] and [`Index::Ellipsis`] give a view. Index tensors and masks give a copy of the chosen
//! elements; with several of them, entry i of each makes one place.

use super::graph::{Backward, Grads};
use super::indices::{Index, Indices};
use super::parts::{from_python, position};
use super::rearrange::from_front;
use super::record::record;
use super::rules;
use super::scatter::{Put, same_dtype};
use super::views::signed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{Layout, broadcast_shapes};
use crate::ops;
use crate::ops::scatter::last_positions;
use crate::tensor::Tensor;

impl Tensor {
    /// What `indices` choose, as PyTorch's `x[indices]`: integers, ranges, [`Index`]es, i32 tensors and bool masks, in a tuple. Without
    /// tensors it is a view.
    ///
    /// Index tensors broadcast to each other, and their common shape stands where they stood, or first where other dimensions lie
    /// between them; one without dimensions is as an integer. One out of range is reported by the next call that waits for the device;
    /// a mask waits for the count of its true elements.
    ///
    /// ```
    /// # use linn::autograd::Index;
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::new(&device, [[1, 2, 3], [4, 5, 6]])?;
    /// assert_eq!(x.index((1, ..))?.to_vec::<i32>()?, [4, 5, 6]);
    /// assert_eq!(x.index((.., Index::slice(.., 2)))?.to_vec::<i32>()?, [1, 3, 4, 6]);
    /// assert_eq!(x.index(&x.gt_scalar(4)?)?.to_vec::<i32>()?, [5, 6]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index(&self, indices: impl Indices) -> Result<Tensor> {
        const OP: &str = "index";
        let plan = Plan::of(OP, self, indices.list())?;
        let view = plan.view(OP, self)?;
        let Some(places) = Places::of(OP, &view, &plan.tensors)? else { return Ok(view) };
        let chosen = places.front(&view)?.reshape(&places.matrix())?.embedding(&places.flat).map_err(|error| error.of(OP))?;
        places.restore(&chosen.reshape(&places.wide()).map_err(|error| error.of(OP))?)
    }

    /// This tensor with `values` at the places that `indices` choose ([`Tensor::index`]), or added to what is there. `values` broadcasts
    /// to the shape of what is chosen. Of several values for one place the last wins.
    ///
    /// ```
    /// # use linn::autograd::Put;
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::new(&device, [[1, 2, 3], [4, 5, 6]])?;
    /// let seven = linn::Tensor::new(&device, 7)?;
    /// assert_eq!(x.index_put((.., 1..), &seven, Put::Replace)?.to_vec::<i32>()?, [1, 7, 7, 4, 7, 7]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_put(&self, indices: impl Indices, values: &Tensor, put: Put) -> Result<Tensor> {
        const OP: &str = "index_put";
        self.with_places(OP, &Plan::of(OP, self, indices.list())?, values, put)
    }

    /// [`Tensor::index_put`] in place, through views too: PyTorch's `x[indices] = values`. Without index tensors only what is chosen
    /// is written.
    ///
    /// ```
    /// # use linn::autograd::Put;
    /// # let device = linn::Device::open()?;
    /// let x = linn::Tensor::new(&device, [1, 2, 3, 4])?;
    /// x.index_put_(1..=2, &linn::Tensor::new(&device, [8, 9])?, Put::Replace)?;
    /// assert_eq!(x.to_vec::<i32>()?, [1, 8, 9, 4]);
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn index_put_(&self, indices: impl Indices, values: &Tensor, put: Put) -> Result<()> {
        const OP: &str = "index_put_";
        let plan = Plan::of(OP, self, indices.list())?;
        if !plan.tensors.is_empty() || put == Put::Add {
            return self.become_(OP, |x| x.with_places(OP, &plan, values, put));
        }
        same_dtype(OP, self, values)?;
        let place = self.with_layout(plan.steps.layout(OP, &self.layout)?);
        ops::elementwise::refuse_expanded(OP, &place)?;
        let rule = plan.rule(OP, values.shape());
        self.change(OP, &[values], &[], || ops::copy::copy_(&place, values).map_err(|error| error.of(OP)), rule)
    }

    #[track_caller]
    fn with_places(&self, op: &'static str, plan: &Plan, values: &Tensor, put: Put) -> Result<Tensor> {
        same_dtype(op, self, values)?;
        let view = plan.view(op, self)?;
        let spread = |shape: &[usize]| values.expand(&signed(shape)).map_err(|error| error.of(op));
        let part = match (Places::of(op, &view, &plan.tensors)?, put) {
            // (The result shares no memory with the values.)
            (None, Put::Replace) if plan.steps.0.is_empty() => return spread(view.shape())?.positive(),
            (None, Put::Replace) => spread(view.shape())?,
            (None, Put::Add) => view.add(&spread(view.shape())?)?,
            (Some(places), _) => {
                let values = places
                    .front_of_chosen(&spread(&places.shape())?)?
                    .reshape(&[places.flat.len() as isize, places.width() as isize])?;
                let front = places.front(&view)?;
                let own = front.reshape(&places.matrix())?;
                let rows = match put {
                    Put::Replace => own.rows_replaced(op, &places.flat, &values)?,
                    Put::Add => own.rows_added(op, &places.flat, &values)?,
                };
                places.back(&rows.reshape(&signed(front.shape()))?)?
            }
        };
        if plan.steps.0.is_empty() {
            return part.contiguous();
        }
        let out = ops::copy::copy(self)?;
        ops::copy::copy_(&out.with_layout(plan.steps.layout(op, &out.layout)?), &part)?;
        record(op, &[self, &part], &[], out, plan.rule(op, part.shape()))
    }
}

/// A step from a layout to that of a view.
#[derive(Clone, Copy)]
enum Step {
    Select { dim: usize, index: usize },
    Slice { dim: usize, start: usize, len: usize, step: usize },
    NewAxis { dim: usize },
}

/// Steps one after the other.
#[derive(Clone, Default)]
struct Steps(Vec<Step>);

impl Steps {
    fn layout(&self, op: &'static str, of: &Layout) -> Result<Layout> {
        self.0.iter().try_fold(*of, |layout, step| step.of(op, &layout))
    }
}

/// What a list of indices comes to: steps to a view, and the index tensors of some of its dimensions, in order.
struct Plan {
    steps: Steps,
    tensors: Vec<(usize, Tensor)>,
}

impl Plan {
    #[track_caller]
    fn of(op: &'static str, x: &Tensor, list: Vec<Index>) -> Result<Plan> {
        let takes = |index: &Index| match index {
            Index::Select(_) | Index::Slice { .. } => 1,
            Index::NewAxis | Index::Ellipsis => 0,
            Index::Tensor(mask) if mask.dtype() == DType::Bool => mask.rank(),
            Index::Tensor(_) => 1,
        };
        let taken: usize = list.iter().map(takes).sum();
        let fact = |what: String| {
            Error::shape(
                op,
                format!("{what} for a tensor of shape {:?}", x.shape()),
                "write one index for each dimension at most",
            )
        };
        let rest = x.rank().checked_sub(taken).ok_or_else(|| fact(format!("indices of {taken} dimensions")))?;
        if list.iter().filter(|index| matches!(index, Index::Ellipsis)).count() > 1 {
            return Err(fact("more than one Ellipsis".into()));
        }
        let mut plan = Plan { steps: Steps::default(), tensors: Vec::new() };
        let (mut layout, mut dim) = (x.layout, 0);
        for index in list {
            let step = match index {
                Index::Ellipsis => {
                    dim += rest;
                    continue;
                }
                Index::Tensor(mask) if mask.dtype() == DType::Bool && mask.rank() == 0 => {
                    // True or false for all there is: a mask of a new dimension of length 1.
                    let step = Step::NewAxis { dim };
                    layout = step.of(op, &layout)?;
                    plan.steps.0.push(step);
                    dim += plan.add(op, &layout, dim, mask.unsqueeze(0)?)?;
                    continue;
                }
                Index::Tensor(index) => {
                    dim += plan.add(op, &layout, dim, index)?;
                    continue;
                }
                Index::NewAxis => Step::NewAxis { dim },
                Index::Select(index) => {
                    let len = layout.shape()[dim];
                    let index = position(index, len).ok_or_else(|| {
                        let fact = format!(
                            "an index is out of range for a dimension of {len} entries, in a tensor of shape {:?}",
                            x.shape()
                        );
                        Error::shape(op, fact, format!("use one from -{len} to {}", len as i128 - 1))
                    })?;
                    Step::Select { dim, index }
                }
                Index::Slice { step: 0, .. } => return Err(fact("a slice with step 0".into())),
                Index::Slice { start, end, step } => {
                    let len = layout.shape()[dim];
                    let [start, end] = [start.unwrap_or(0), end.unwrap_or(isize::MAX)].map(|bound| from_python(bound, len));
                    let kept = end.saturating_sub(start);
                    if kept == len && step == 1 {
                        dim += 1;
                        continue;
                    }
                    Step::Slice { dim, start, len: kept, step }
                }
            };
            layout = step.of(op, &layout)?;
            dim += usize::from(!matches!(step, Step::Select { .. }));
            plan.steps.0.push(step);
        }
        Ok(plan)
    }

    /// An index tensor for dimension `dim`, or a mask from there on; returns the dimensions that it stands for.
    #[track_caller]
    fn add(&mut self, op: &'static str, layout: &Layout, dim: usize, index: Tensor) -> Result<usize> {
        if index.dtype() != DType::Bool {
            ops::expect_dtype(op, &index, DType::I32)?;
            self.tensors.push((dim, index));
            return Ok(1);
        }
        let rank = index.rank();
        if layout.shape().get(dim..dim + rank) != Some(index.shape()) {
            let fact = format!("a mask of shape {:?} for a tensor of shape {:?}", index.shape(), layout.shape());
            return Err(Error::shape(op, fact, "use a mask of the shape of the dimensions that it stands for"));
        }
        self.tensors.extend(index.nonzero()?.unbind(1)?.into_iter().enumerate().map(|(i, index)| (dim + i, index)));
        Ok(rank)
    }

    #[track_caller]
    fn view(&self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        if self.steps.0.is_empty() {
            return Ok(x.clone());
        }
        let steps = self.steps.clone();
        x.partial(op, move |layout| steps.layout(op, layout))
    }

    /// (x, v) -> x with v, broadcast from `shape`, at the places of the view: dx = g but 0 there, dv = g there, summed where v was
    /// broadcast.
    fn rule(&self, op: &'static str, shape: &[usize]) -> impl Fn(&Backward<'_>) -> Result<Grads> + Send + Sync + 'static {
        let (steps, shape) = (self.steps.clone(), shape.to_vec());
        move |ctx| {
            let g = ctx.grad();
            let dx = ctx.want(0, || {
                let dx = ops::copy::copy(g)?;
                ops::copy::fill_(&dx.with_layout(steps.layout(op, &dx.layout)?), 0.0)?;
                Ok(dx)
            })?;
            let dv = ctx.want(1, || rules::binary::to_shape(&g.with_layout(steps.layout(op, &g.layout)?), &shape))?;
            Ok(Grads::from_iter([dx, dv]))
        }
    }
}

impl Step {
    fn of(self, op: &'static str, layout: &Layout) -> Result<Layout> {
        match self {
            Step::Select { dim, index } => layout.select(dim, index),
            Step::Slice { dim, start, len, step } => layout.slice(dim, start, len, step),
            Step::NewAxis { dim } => layout.unsqueeze(dim).ok_or_else(|| {
                let fact = format!("a new dimension for shape {:?}", layout.shape());
                Error::shape(op, fact, format!("use at most {} dimensions", crate::layout::MAX_RANK))
            }),
        }
    }
}

/// Places that index tensors name together: rows of a matrix, when the dimensions that they stand for come first.
struct Places {
    /// The dimensions of the tensor that are indexed.
    dims: Vec<isize>,
    /// The lengths of these, and of the others.
    front: Vec<usize>,
    rest: Vec<usize>,
    /// The shape of the indices together, and where it stands among the others.
    index: Vec<usize>,
    at: usize,
    /// The row of each place, i32.
    flat: Tensor,
}

impl Places {
    /// `None` without index tensors.
    #[track_caller]
    fn of(op: &'static str, x: &Tensor, tensors: &[(usize, Tensor)]) -> Result<Option<Places>> {
        let mut shape = Vec::new();
        for (_, index) in tensors {
            shape = broadcast_shapes(op, &shape, index.shape())?.to_vec();
        }
        let mut flat: Option<Tensor> = None;
        for (dim, index) in tensors {
            let len = x.shape()[*dim];
            let index = from_front(index, len)?;
            // In range one by one: together they could name another row.
            last_positions(op, &index.flatten(0, -1)?, 0, len)?;
            flat = Some(match flat {
                None => index,
                Some(flat) => flat.mul_scalar(len as i64)?.add(&index)?,
            });
        }
        let Some(flat) = flat else { return Ok(None) };
        let flat = flat.expand(&signed(&shape))?.reshape(&[shape.iter().product::<usize>() as isize])?;
        let dims: Vec<usize> = tensors.iter().map(|(dim, _)| *dim).collect();
        // Others before each index; one without dimensions is as an integer, and stands between nothing.
        let before = |dim: usize| (0..dim).filter(|other| !dims.contains(other)).count();
        let mut places = tensors.iter().filter(|(_, index)| index.rank() > 0).map(|(dim, _)| before(*dim));
        let first = places.next().unwrap_or(0);
        let at = if places.all(|place| place == first) { first } else { 0 };
        let (front, rest): (Vec<_>, Vec<_>) = x.shape().iter().copied().enumerate().partition(|(dim, _)| dims.contains(dim));
        let lens = |part: Vec<(usize, usize)>| part.into_iter().map(|(_, len)| len).collect::<Vec<_>>();
        Ok(Some(Places {
            at,
            dims: dims.into_iter().map(|dim| dim as isize).collect(),
            front: lens(front),
            rest: lens(rest),
            index: shape,
            flat,
        }))
    }

    fn width(&self) -> usize {
        self.rest.iter().product()
    }

    /// Rows of all places, and the elements of each.
    fn matrix(&self) -> [isize; 2] {
        [self.front.iter().product::<usize>() as isize, self.width() as isize]
    }

    /// What is chosen: the indices' dimensions, then the others.
    fn wide(&self) -> Vec<isize> {
        signed(self.index.iter().chain(&self.rest))
    }

    /// What is chosen, with the indices' dimensions where they belong.
    fn shape(&self) -> Vec<usize> {
        let (before, after) = self.rest.split_at(self.at);
        [before, &self.index, after].concat()
    }

    /// The tensor with the indexed dimensions first.
    #[track_caller]
    fn front(&self, x: &Tensor) -> Result<Tensor> {
        x.movedim(&self.dims, &(0..self.dims.len() as isize).collect::<Vec<_>>())
    }

    /// From that back.
    #[track_caller]
    fn back(&self, x: &Tensor) -> Result<Tensor> {
        x.movedim(&(0..self.dims.len() as isize).collect::<Vec<_>>(), &self.dims)
    }

    /// What was chosen, with the indices' dimensions first, with these where they belong.
    #[track_caller]
    fn restore(&self, x: &Tensor) -> Result<Tensor> {
        let (first, there) = self.moves();
        x.movedim(&first, &there)
    }

    #[track_caller]
    fn front_of_chosen(&self, x: &Tensor) -> Result<Tensor> {
        let (first, there) = self.moves();
        x.movedim(&there, &first)
    }

    fn moves(&self) -> (Vec<isize>, Vec<isize>) {
        let (count, at) = (self.index.len() as isize, self.at as isize);
        ((0..count).collect(), (at..at + count).collect())
    }
}
