//! Order edges by name: which command waits for which, and why. As text, and as a graph.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write as _};
use std::panic::Location;

use crate::ids::Fence;

/// Why a command comes after one of another stream. Of several reasons for the same two commands the first in the order of the
/// command's waits, of what its memory was, and of its operands counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EdgeKind {
    /// It reads what the other wrote.
    ReadAfterWrite,
    /// It overwrites what the other reads.
    WriteAfterRead,
    /// It overwrites what the other wrote.
    WriteAfterWrite,
    /// Its memory was another tensor's, which the other command uses.
    MemoryReuse,
    /// Its stream was told to wait: `wait_event`, `wait_stream`.
    Wait,
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EdgeKind::ReadAfterWrite => "read after write",
            EdgeKind::WriteAfterRead => "write after read",
            EdgeKind::WriteAfterWrite => "write after write",
            EdgeKind::MemoryReuse => "memory reuse",
            EdgeKind::Wait => "explicit wait",
        })
    }
}

/// "This command comes after that one."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The later one.
    pub command: Fence,
    /// What goes before it, on another stream.
    pub before: Fence,
    /// Why.
    pub kind: EdgeKind,
}

/// A command as people know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandName {
    /// The operation.
    pub label: &'static str,
    /// Its stream and number.
    pub fence: Fence,
    /// The line of the program that called it.
    pub location: &'static Location<'static>,
}

impl CommandName {
    /// The command `fence`, which `location` asked for.
    pub fn new(label: &'static str, fence: Fence, location: &'static Location<'static>) -> CommandName {
        CommandName { label, fence, location }
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandName { label, fence, location } = self;
        write!(f, "{label} #{} of stream {} ({}:{})", fence.number, fence.stream.0, location.file(), location.line())
    }
}

/// An order edge by name. Prints as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderEdge {
    /// The later command.
    pub command: CommandName,
    /// What goes before it, on another stream.
    pub before: CommandName,
    /// Why.
    pub kind: EdgeKind,
}

impl fmt::Display for OrderEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {}: {}", self.command, self.before, self.kind)
    }
}

/// The latest order edges, oldest first. Prints as text, a line for each; [`OrderEdges::to_dot`] makes a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderEdges {
    most: usize,
    edges: VecDeque<OrderEdge>,
    forgotten: u64,
}

impl OrderEdges {
    /// An empty list that keeps the latest `most`.
    pub fn new(most: usize) -> OrderEdges {
        OrderEdges { most, ..OrderEdges::default() }
    }

    /// Adds an edge; the oldest goes where there are too many.
    pub fn push(&mut self, command: CommandName, before: CommandName, kind: EdgeKind) {
        self.edges.push_back(OrderEdge { command, before, kind });
        if self.edges.len() > self.most {
            self.edges.pop_front();
            self.forgotten += 1;
        }
    }

    /// The edges, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &OrderEdge> + ExactSizeIterator {
        self.edges.iter()
    }

    /// Number of edges kept.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// True when no edge is kept.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Edges that went because there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The edges in Graphviz's language (`dot -Tsvg`): a box around each stream, an arrow from what goes first to what waits for
    /// it. Only commands with an edge are drawn; dotted lines join those of one stream.
    pub fn to_dot(&self) -> String {
        let mut streams: BTreeMap<_, BTreeMap<u64, &CommandName>> = BTreeMap::new();
        for command in self.edges.iter().flat_map(|edge| [&edge.before, &edge.command]) {
            streams.entry(command.fence.stream).or_default().insert(command.fence.number, command);
        }
        let mut out = String::from("digraph order {\n  rankdir=LR;\n  node [shape=box];\n");
        // (Writing to a string does not fail.)
        for (stream, commands) in &streams {
            let _ = writeln!(out, "  subgraph cluster_{} {{\n    label=\"stream {}\";", stream.0, stream.0);
            for command in commands.values() {
                let (file, line) = (quoted(command.location.file()), command.location.line());
                let (label, number) = (quoted(command.label), command.fence.number);
                let _ = writeln!(out, "    {} [label=\"{label} #{number}\\n{file}:{line}\"];", node(command.fence));
            }
            let names: Vec<String> = commands.values().map(|command| node(command.fence)).collect();
            if names.len() > 1 {
                let _ = writeln!(out, "    {} [style=dotted, arrowhead=none];", names.join(" -> "));
            }
            out.push_str("  }\n");
        }
        let arrows: BTreeSet<_> = self.edges.iter().map(|edge| (edge.before.fence, edge.command.fence, edge.kind)).collect();
        for (before, command, kind) in arrows {
            let _ = writeln!(out, "  {} -> {} [label=\"{kind}\"];", node(before), node(command));
        }
        out.push_str("}\n");
        out
    }
}

impl fmt::Display for OrderEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} order edges, {} older ones forgotten", self.edges.len(), self.forgotten)?;
        self.edges.iter().try_for_each(|edge| write!(f, "\n{edge}"))
    }
}

fn node(fence: Fence) -> String {
    format!("s{}_{}", fence.stream.0, fence.number)
}

/// For a string of Graphviz's language.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
