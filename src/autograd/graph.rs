//! The nouns of the graph: nodes, edges, saved tensors, leaves, and what a tensor's slot holds.
//!
//! Nodes point to the nodes that made their operands, never the other way, so a graph lives exactly as long as its results.
//! Lock order: a slot's lock, then a node's, then the device's core; user code (hooks) runs under none of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::saved::Saved;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::labels::InLayer;
use crate::stream::Stream;
use crate::tensor::Tensor;

/// A gradient per operand; `None` where the operand wants none.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 3]>;

/// Called with the gradient of a tensor; may answer with another one.
pub(crate) type Hook = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;

/// One recorded operation.
pub(crate) struct Node {
    pub(crate) op: &'static str,
    /// Nodes are numbered as they are made, so an operand's node always has the smaller number.
    pub(crate) sequence: u64,
    /// The layer of a model that it was recorded in.
    layer: Option<Arc<str>>,
    /// The stream of the forward pass, where the rule runs too.
    pub(crate) stream: Stream,
    /// Where the gradient of each operand goes.
    pub(crate) edges: SmallVec<[Option<Edge>; 3]>,
    /// `None` once a backward pass has used and freed it.
    work: Mutex<Option<Arc<Work>>>,
    /// Hooks on results, each with the number of its result.
    pub(crate) hooks: Mutex<Vec<(usize, RegisteredHook)>>,
}

/// What a node needs for its backward step. One allocation: the rule lies behind the saved tensors.
pub(crate) struct Work<R: ?Sized = dyn Fn(&Backward<'_>) -> Result<Grads> + Send + Sync> {
    saved: SmallVec<[Saved; 3]>,
    rule: R,
}

/// Where a gradient goes.
#[derive(Clone)]
pub(crate) enum Edge {
    /// Result number `output` of a recorded operation.
    Node { node: Arc<Node>, output: usize },
    /// A tensor that collects its gradient.
    Leaf(Arc<Leaf>),
}

/// The slot of a tensor that wants gradients and was made by no recorded operation.
#[derive(Default)]
pub(crate) struct Leaf {
    pub(crate) grad: Mutex<Option<Tensor>>,
    pub(crate) hooks: Mutex<Vec<RegisteredHook>>,
    /// It collects no gradients for now.
    pub(crate) frozen: AtomicBool,
    /// What an optimizer has done with the gradient that is there.
    pub(crate) used: Mutex<Used>,
}

/// What an optimizer has done with a gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Used {
    #[default]
    Not,
    /// A step used it.
    Once,
    /// And a backward pass has added to it since.
    AddedTo,
}

/// The slot of a result of a recorded operation. An in-place operation gives it a new history, seen by all clones.
pub(crate) struct Interior {
    history: Mutex<History>,
    /// Of a view: the slot of the tensor it looks into, and how often that had changed in place by then.
    base: Option<(Arc<Interior>, u64)>,
    is_view: bool,
}

#[derive(Clone)]
pub(crate) struct History {
    pub(crate) node: Arc<Node>,
    pub(crate) output: usize,
    /// Counts recorded in-place operations.
    generation: u64,
}

/// A hook and the number it is removed by.
#[derive(Clone)]
pub(crate) struct RegisteredHook {
    pub(crate) id: u64,
    pub(crate) call: Arc<Hook>,
}

/// What a rule sees.
pub(crate) struct Backward<'a> {
    grads: &'a [Option<Tensor>],
    first: &'a Tensor,
    saved: SmallVec<[Tensor; 3]>,
    edges: &'a [Option<Edge>],
    take: &'a dyn Fn(&Edge) -> Option<Tensor>,
}

/// The next number of a node or a hook.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Locks; a panic of another thread under the lock leaves valid state behind, so it is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(crate) fn new(
        op: &'static str,
        device: &Device,
        edges: SmallVec<[Option<Edge>; 3]>,
        saved: SmallVec<[Saved; 3]>,
        rule: impl Fn(&Backward<'_>) -> Result<Grads> + Send + Sync + 'static,
    ) -> Arc<Node> {
        let work: Arc<Work> = Arc::new(Work { saved, rule });
        Arc::new(Node {
            op,
            sequence: next_number(),
            layer: InLayer::name(),
            stream: device.current_stream(),
            edges,
            work: Mutex::new(Some(work)),
            hooks: Mutex::new(Vec::new()),
        })
    }

    /// The operation and its layer, for messages.
    pub(crate) fn name(&self) -> String {
        let layer = self.layer.as_ref().map_or(String::new(), |layer| format!(" in layer {layer}"));
        format!("`{}`{layer}", self.op)
    }

    /// An error where an earlier backward pass has freed what this node saved.
    pub(crate) fn check_not_freed(&self) -> Result<()> {
        if lock(&self.work).is_some() {
            return Ok(());
        }
        Err(Error::autograd(
            format!("backward runs a second time through {}, and what it saved is freed", self.name()),
            "pass Retain::Graph to backward_with the first time, or run the forward pass again",
        ))
    }

    /// Runs the rule on the gradients of the results; frees what was saved unless `keep`. `take` is for [`Backward::take_sum`].
    pub(crate) fn run(&self, grads: &[Option<Tensor>], keep: bool, take: &dyn Fn(&Edge) -> Option<Tensor>) -> Result<Grads> {
        self.check_not_freed()?;
        let work = if keep { lock(&self.work).clone() } else { lock(&self.work).take() };
        let (Some(work), Some(first)) = (work, grads.iter().flatten().next()) else { return Ok(Grads::new()) };
        let device = self.stream.device();
        let saved = work.saved.iter().map(|saved| saved.unpack(self.op, device)).collect::<Result<_>>()?;
        let _layer = InLayer::enter(self.layer.clone());
        let answer =
            (work.rule)(&Backward { grads, first, saved, edges: &self.edges, take }).map_err(|error| match &self.layer {
                Some(layer) => error.in_layer(layer),
                None => error,
            })?;
        debug_assert_eq!(answer.len(), self.edges.len(), "the rule of `{}` answers once per operand", self.op);
        Ok(answer)
    }
}

/// Long chains are taken apart by a loop: one call per node would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut edges: Vec<Edge> = std::mem::take(&mut self.edges).into_iter().flatten().collect();
        while let Some(edge) = edges.pop() {
            let Edge::Node { node, .. } = edge else { continue };
            if let Some(mut node) = Arc::into_inner(node) {
                edges.extend(std::mem::take(&mut node.edges).into_iter().flatten());
            }
        }
    }
}

impl Backward<'_> {
    /// The gradient of the only result.
    pub(crate) fn grad(&self) -> &Tensor {
        self.first
    }

    /// The gradients of all results; `None` where a result was not used.
    pub(crate) fn grads(&self) -> &[Option<Tensor>] {
        self.grads
    }

    /// Saved tensor number `i`.
    pub(crate) fn saved(&self, i: usize) -> &Tensor {
        &self.saved[i]
    }

    /// True when operand `i` wants a gradient.
    pub(crate) fn needs(&self, i: usize) -> bool {
        self.edges[i].is_some()
    }

    /// Takes what other users of operand `i` have brought to its gradient so far, where it is no leaf. A rule that takes it answers
    /// with the sum of it and its own part, and so saves an addition.
    pub(crate) fn take_sum(&self, i: usize) -> Option<Tensor> {
        self.edges[i].as_ref().and_then(self.take)
    }

    /// `rule`'s answer where operand `i` wants a gradient.
    pub(crate) fn want(&self, i: usize, rule: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        if self.needs(i) { rule().map(Some) } else { Ok(None) }
    }
}

impl Interior {
    pub(crate) fn new(node: Arc<Node>, output: usize) -> Interior {
        Interior { history: Mutex::new(History { node, output, generation: 0 }), base: None, is_view: false }
    }

    /// The slot of a view of `of`.
    pub(crate) fn view(node: Arc<Node>, output: usize, of: &Tensor) -> Interior {
        let base = interior_of(of).map(|slot| match &slot.base {
            Some(base) => base.clone(),
            None => {
                let generation = lock(&slot.history).generation;
                (slot, generation)
            }
        });
        Interior { base, is_view: true, ..Interior::new(node, output) }
    }

    pub(crate) fn is_view(&self) -> bool {
        self.is_view
    }

    /// Who made the tensor now; an error for a view whose base was changed by a recorded in-place operation since.
    pub(crate) fn history(&self, op: &'static str) -> Result<History> {
        if let Some((base, generation)) = &self.base
            && lock(&base.history).generation != *generation
        {
            return Err(Error::autograd(
                format!("an operand of `{op}` is a view of a tensor that was changed in place after the view was taken"),
                "take the view again after the change",
            ));
        }
        Ok(lock(&self.history).clone())
    }

    /// An in-place operation made the tensor anew.
    pub(crate) fn rebase(&self, node: Arc<Node>) {
        let mut history = lock(&self.history);
        let generation = history.generation + 1;
        *history = History { node, output: 0, generation };
    }
}

/// The leaf slot of a tensor, where it has one.
pub(crate) fn leaf_of(tensor: &Tensor) -> Option<Arc<Leaf>> {
    tensor.grad_slot.clone()?.downcast().ok()
}

/// The slot of a tensor that a recorded operation made.
pub(crate) fn interior_of(tensor: &Tensor) -> Option<Arc<Interior>> {
    tensor.grad_slot.clone()?.downcast().ok()
}

/// Where the gradient of `tensor` goes, if it wants one.
pub(crate) fn edge_of(op: &'static str, tensor: &Tensor) -> Result<Option<Edge>> {
    if let Some(leaf) = leaf_of(tensor) {
        return Ok(Some(Edge::Leaf(leaf)).filter(|_| tensor.requires_grad()));
    }
    let Some(slot) = interior_of(tensor) else { return Ok(None) };
    let History { node, output, .. } = slot.history(op)?;
    Ok(Some(Edge::Node { node, output }))
}
