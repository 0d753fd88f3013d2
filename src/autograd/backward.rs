//! The walk back: nodes from the last made to the first, gradients summed on the way.
//!
//! Numbers of nodes grow as they are made, so a node taken as the largest of those reached has received everything that its
//! results contribute: every user of a result has a larger number. No recursion, so the depth of a graph does not matter.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::autocast::autocast_guard;
use super::graph::{Edge, Leaf, Node, RegisteredHook, edge_of, lock};
use super::mode::no_grad_guard;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::ops::{binary, copy};
use crate::stream::Origin;
use crate::tensor::Tensor;

/// What happens to saved tensors once they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retain {
    /// Freed as soon as used; a second backward pass is an error.
    #[default]
    Nothing,
    /// The graph stays whole, for another backward pass.
    Graph,
}

/// Options of [`Tensor::backward_with`].
#[derive(Clone, Default)]
pub struct BackwardOptions {
    /// The gradient of the tensor itself, of its shape; 1 where it is `None`, which only a scalar allows.
    pub gradient: Option<Tensor>,
    /// Whether the graph is kept.
    pub retain: Retain,
}

impl Tensor {
    /// Adds the gradient of this scalar to [`Tensor::grad`] of every leaf it was computed from, and frees the graph.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
    /// x.square()?.sum_all()?.backward()?;
    /// assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![2.0, 4.0]));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        self.backward_with(BackwardOptions::default())
    }

    /// [`Tensor::backward`] with a gradient to start from, or keeping the graph.
    ///
    /// ```
    /// # use linn::{Device, Tensor};
    /// # let device = Device::open()?;
    /// use linn::autograd::BackwardOptions;
    /// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
    /// let gradient = Some(Tensor::new(&device, [1.0f32, 10.0])?);
    /// x.square()?.backward_with(BackwardOptions { gradient, ..Default::default() })?;
    /// assert_eq!(x.grad().map(|grad| grad.to_vec::<f32>()).transpose()?, Some(vec![2.0, 40.0]));
    /// # Ok::<(), linn::Error>(())
    /// ```
    #[track_caller]
    pub fn backward_with(&self, options: BackwardOptions) -> Result<()> {
        let (_no_grad, _types, _origin) = (no_grad_guard(), autocast_guard(DType::F32)?, Origin::enter());
        let root = (root_edge("backward", self)?, root_gradient("backward", self, options.gradient)?);
        Walk::new(options.retain, Vec::new()).run(vec![root]).map(drop)
    }
}

/// The gradients of the sum of `outputs` (scalars) by `inputs`, in their order; nothing is added to any leaf, and what the
/// outputs saved is freed. An input that no output depends on is an error.
///
/// ```
/// # use linn::{Device, Tensor};
/// # let device = Device::open()?;
/// use linn::autograd::grad;
/// let x = Tensor::new(&device, [1.0f32, 2.0])?.requires_grad_(true)?;
/// let y = x.square()?.sum_all()?;
/// assert_eq!(grad(&[&y], &[&x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), linn::Error>(())
/// ```
#[track_caller]
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let (_no_grad, _types, _origin) = (no_grad_guard(), autocast_guard(DType::F32)?, Origin::enter());
    let roots = outputs
        .iter()
        .map(|output| Ok((root_edge("grad", output)?, root_gradient("grad", output, None)?)))
        .collect::<Result<Vec<_>>>()?;
    let wanted = inputs.iter().map(|input| root_edge("grad", input)).collect::<Result<Vec<_>>>()?;
    let found = Walk::new(Retain::Nothing, wanted).run(roots)?;
    let or_unused = |(i, grad): (usize, Option<Tensor>)| {
        grad.ok_or_else(|| {
            Error::autograd(
                format!("grad: no output depends on input {i} (shape {:?})", inputs[i].shape()),
                "leave the input out, or use it in the forward pass",
            )
        })
    };
    found.into_iter().enumerate().map(or_unused).collect()
}

fn root_edge(op: &'static str, tensor: &Tensor) -> Result<Edge> {
    edge_of(op, tensor)?.ok_or_else(|| {
        Error::autograd(
            format!("{op} on a tensor of shape {:?} that wants no gradient", tensor.shape()),
            "call requires_grad_(true) on a tensor it is computed from, outside no_grad",
        )
    })
}

fn root_gradient(op: &'static str, tensor: &Tensor, given: Option<Tensor>) -> Result<Tensor> {
    match given {
        Some(gradient) if gradient.shape() == tensor.shape() => Ok(gradient.without_grad_slot()),
        Some(gradient) => Err(Error::shape(
            op,
            format!("gradient of shape {:?} for a tensor of shape {:?}", gradient.shape(), tensor.shape()),
            "pass a gradient of the tensor's own shape",
        )),
        None if tensor.len() == 1 => copy::full(tensor.device(), tensor.shape(), 1.0, tensor.dtype()),
        None => Err(Error::autograd(
            format!("{op} on a tensor of shape {:?}, which is not a scalar", tensor.shape()),
            "reduce it first (sum_all, mean_all), or pass a gradient to backward_with",
        )),
    }
}

/// The sum of what has arrived so far.
struct Sum {
    total: Tensor,
    /// Nobody else sees the memory, so the next one is added in place.
    own: bool,
}

impl Sum {
    fn add(slot: &mut Option<Sum>, grad: Tensor) -> Result<()> {
        match slot {
            None => *slot = Some(Sum { total: grad, own: false }),
            Some(Sum { total, own: true }) => binary::add_(total, &grad, 1.0)?,
            Some(sum) => {
                *sum = Sum { total: binary::add(&sum.total, &grad)?, own: true };
                sum.total.set_category(Category::Gradient);
            }
        }
        Ok(())
    }
}

/// A node that has received a gradient, ordered by its number.
struct Reached(Arc<Node>);

impl Ord for Reached {
    fn cmp(&self, other: &Reached) -> Ordering {
        self.0.sequence.cmp(&other.0.sequence)
    }
}
impl PartialOrd for Reached {
    fn partial_cmp(&self, other: &Reached) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Reached {
    fn eq(&self, other: &Reached) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Reached {}

/// A leaf on the way: how many edges still lead to it, and what has come over them.
struct LeafSum {
    leaf: Arc<Leaf>,
    edges_left: usize,
    sum: Option<Sum>,
}

struct Walk {
    retain: Retain,
    /// Empty: gradients go to the leaves. Else they are found here and leaves stay as they are.
    wanted: Vec<Edge>,
    found: Vec<Option<Tensor>>,
    reached: BinaryHeap<Reached>,
    /// Gradients of the results of reached nodes.
    pending: HashMap<u64, SmallVec<[Option<Sum>; 1]>>,
    leaves: HashMap<*const Leaf, LeafSum>,
    /// Nodes whose rules have to run; `None` means all.
    needed: Option<HashSet<u64>>,
}

impl Walk {
    fn new(retain: Retain, wanted: Vec<Edge>) -> Walk {
        let found = vec![None; wanted.len()];
        let (reached, pending, leaves) = (BinaryHeap::new(), HashMap::new(), HashMap::new());
        Walk { retain, wanted, found, reached, pending, leaves, needed: None }
    }

    fn run(mut self, roots: Vec<(Edge, Tensor)>) -> Result<Vec<Option<Tensor>>> {
        self.look_ahead(&roots)?;
        for (edge, gradient) in roots {
            self.deliver(edge, Some(gradient))?;
        }
        while let Some(Reached(node)) = self.reached.pop() {
            self.visit(&node)?;
        }
        // Leaves some of whose edges brought nothing (a rule answered None).
        let waiting: Vec<_> = self.leaves.drain().map(|(_, leaf)| leaf).collect();
        waiting.into_iter().try_for_each(|leaf| self.finish(leaf))?;
        Ok(self.found)
    }

    /// Counts the edges to every leaf and finds freed nodes before anything has changed.
    fn look_ahead(&mut self, roots: &[(Edge, Tensor)]) -> Result<()> {
        let mut seen: HashMap<u64, Arc<Node>> = HashMap::new();
        let mut stack: Vec<Edge> = roots.iter().map(|(edge, _)| edge.clone()).collect();
        while let Some(edge) = stack.pop() {
            match edge {
                Edge::Leaf(leaf) => {
                    let entry = self.leaves.entry(Arc::as_ptr(&leaf));
                    entry.or_insert_with(|| LeafSum { leaf, edges_left: 0, sum: None }).edges_left += 1;
                }
                Edge::Node { node, .. } if !seen.contains_key(&node.sequence) => {
                    node.check_not_freed()?;
                    stack.extend(node.edges.iter().flatten().cloned());
                    seen.insert(node.sequence, node);
                }
                Edge::Node { .. } => {}
            }
        }
        if self.wanted.is_empty() {
            return Ok(());
        }
        // Operands have smaller numbers: in rising order, every operand is decided before its user.
        let mut nodes: Vec<_> = seen.into_values().collect();
        nodes.sort_unstable_by_key(|node| node.sequence);
        let mut needed = HashSet::new();
        for node in nodes {
            let leads_to_wanted = node.edges.iter().flatten().any(|edge| match edge {
                Edge::Node { node, .. } if needed.contains(&node.sequence) => true,
                edge => self.wanted.iter().any(|wanted| same_place(wanted, edge)),
            });
            if leads_to_wanted {
                needed.insert(node.sequence);
            }
        }
        self.needed = Some(needed);
        Ok(())
    }

    fn deliver(&mut self, edge: Edge, grad: Option<Tensor>) -> Result<()> {
        match (edge, grad) {
            (Edge::Node { node, output }, Some(grad)) => {
                let pending = self.pending.entry(node.sequence).or_default();
                if pending.is_empty() {
                    self.reached.push(Reached(node));
                }
                if pending.len() <= output {
                    pending.resize_with(output + 1, || None);
                }
                Sum::add(&mut pending[output], grad)
            }
            (Edge::Node { .. }, None) => Ok(()),
            (Edge::Leaf(leaf), grad) => {
                let place = Arc::as_ptr(&leaf);
                let Some(entry) = self.leaves.get_mut(&place) else { return Ok(()) };
                if let Some(grad) = grad {
                    Sum::add(&mut entry.sum, grad)?;
                }
                entry.edges_left -= 1;
                match entry.edges_left {
                    0 => self.leaves.remove(&place).map_or(Ok(()), |leaf| self.finish(leaf)),
                    _ => Ok(()),
                }
            }
        }
    }

    fn visit(&mut self, node: &Arc<Node>) -> Result<()> {
        let _stream = node.stream.enter();
        let sums = self.pending.remove(&node.sequence).unwrap_or_default();
        let mut grads: SmallVec<[Option<Tensor>; 1]> = sums.into_iter().map(|sum| sum.map(|sum| sum.total)).collect();
        let hooks = lock(&node.hooks).clone();
        for (output, hook) in hooks {
            if let Some(Some(grad)) = grads.get_mut(output) {
                call(&hook, grad)?;
            }
        }
        for (wanted, found) in self.wanted.iter().zip(&mut self.found) {
            if let Edge::Node { node: target, output } = wanted
                && Arc::ptr_eq(target, node)
            {
                *found = grads.get(*output).cloned().flatten();
            }
        }
        if self.needed.as_ref().is_some_and(|needed| !needed.contains(&node.sequence)) {
            return Ok(());
        }
        let pending = RefCell::new(&mut self.pending);
        let take = |edge: &Edge| match edge {
            Edge::Node { node, output } => {
                let sum = pending.borrow_mut().get_mut(&node.sequence)?.get_mut(*output)?.take();
                sum.map(|sum| sum.total)
            }
            Edge::Leaf(_) => None,
        };
        let answer = node.run(&grads, self.retain == Retain::Graph, &take)?;
        drop(grads);
        for (edge, grad) in node.edges.iter().zip(answer) {
            if let Some(edge) = edge {
                self.deliver(edge.clone(), grad)?;
            }
        }
        Ok(())
    }

    /// All of a leaf's gradient is here: through its hooks, then to the leaf or to who asked.
    fn finish(&mut self, leaf: LeafSum) -> Result<()> {
        let LeafSum { leaf, sum: Some(Sum { total: mut grad, .. }), .. } = leaf else { return Ok(()) };
        let hooks = lock(&leaf.hooks).clone();
        for hook in hooks {
            call(&hook, &mut grad)?;
        }
        if self.wanted.is_empty() {
            return leaf.accumulate(grad);
        }
        for (wanted, found) in self.wanted.iter().zip(&mut self.found) {
            if matches!(wanted, Edge::Leaf(target) if Arc::ptr_eq(target, &leaf)) {
                *found = Some(grad.clone());
            }
        }
        Ok(())
    }
}

fn same_place(a: &Edge, b: &Edge) -> bool {
    match (a, b) {
        (Edge::Node { node: a, output: x }, Edge::Node { node: b, output: y }) => Arc::ptr_eq(a, b) && x == y,
        (Edge::Leaf(a), Edge::Leaf(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn call(hook: &RegisteredHook, grad: &mut Tensor) -> Result<()> {
    let Some(other) = (hook.call)(grad)? else { return Ok(()) };
    if other.shape() != grad.shape() {
        return Err(Error::shape(
            "register_hook",
            format!("a hook answered with shape {:?} for a gradient of shape {:?}", other.shape(), grad.shape()),
            "answer with a gradient of the same shape",
        ));
    }
    *grad = other.without_grad_slot();
    Ok(())
}
