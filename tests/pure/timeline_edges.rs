//! Why a command waits: the kinds of order edges against a model that keeps everything that ever happened, and their two forms.

use std::panic::Location;

use linn::ids::{BlockId, Fence, FenceSet, Horizons, StreamId};
use linn::timeline::{Access, AccessList, CommandName, Edge, EdgeKind, Flush, OrderEdges, Timeline};
use proptest::prelude::*;

const STREAMS: u32 = 4;
const SLOTS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// The slot's block is given back and another one is put on its memory.
    Replace {
        slot: usize,
    },
    Command {
        stream: u32,
        uses: Vec<(usize, bool)>,
        reuses: Option<u32>,
    },
    Wait {
        stream: u32,
        other: u32,
    },
    Submit {
        stream: u32,
        back: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let stream = || 0..STREAMS;
    prop_oneof![
        2 => (0..SLOTS).prop_map(|slot| Step::Replace { slot }),
        10 => (stream(), prop::collection::vec((0..SLOTS, any::<bool>()), 0..4), prop::option::weighted(0.1, stream()))
            .prop_map(|(stream, uses, reuses)| Step::Command { stream, uses, reuses }),
        2 => (stream(), stream()).prop_map(|(stream, other)| Step::Wait { stream, other }),
        1 => (stream(), 0..5u64).prop_map(|(stream, back)| Step::Submit { stream, back }),
    ]
}

/// One use of a slot's memory, by the block that was the `block`th on it.
#[derive(Clone, Copy)]
struct Use {
    by: Fence,
    block: usize,
    access: Access,
}

#[derive(Default)]
struct Model {
    /// By slot: every use there ever was.
    uses: Vec<Vec<Use>>,
    /// By slot: which block it carries.
    block: Vec<usize>,
    /// By stream: what its next command was told to come after, oldest first.
    waits: Vec<Vec<Fence>>,
    /// By stream and other stream: up to where it is known to come after it.
    known: Vec<Vec<u64>>,
}

impl Model {
    fn new() -> Model {
        let streams = STREAMS as usize;
        Model {
            uses: vec![Vec::new(); SLOTS],
            block: vec![0; SLOTS],
            waits: vec![Vec::new(); streams],
            known: vec![vec![0; streams]; streams],
        }
    }

    /// Everything that a use of the slot has to come after, and why: read off the list of all uses.
    fn needs(&self, slot: usize, access: Access) -> Vec<(Fence, EdgeKind)> {
        let (uses, block) = (&self.uses[slot], self.block[slot]);
        let last_write = uses.iter().rposition(|before| before.access == Access::Write);
        let own_write = last_write.filter(|at| uses[*at].block == block);
        if access == Access::Read {
            // Memory that this block's owner has not written holds nothing that could be waited for.
            return own_write.map(|at| (uses[at].by, EdgeKind::ReadAfterWrite)).into_iter().collect();
        }
        let write = own_write.map(|at| (uses[at].by, EdgeKind::WriteAfterWrite)).into_iter();
        let since = &uses[last_write.unwrap_or(0)..];
        let former = since.iter().filter(|before| before.block != block).map(|before| (before.by, EdgeKind::MemoryReuse));
        let reads = since.iter().filter(|before| before.block == block && before.access == Access::Read);
        write.chain(former).chain(reads.map(|before| (before.by, EdgeKind::WriteAfterRead))).collect()
    }

    /// The edges of a command: for each other stream the latest that it has to come after, unless that is certain already.
    fn edges(&mut self, timeline: &Timeline, command: Fence, needs: &[(Fence, EdgeKind)]) -> Vec<Edge> {
        let mut edges = Vec::new();
        for other in (0..STREAMS).map(StreamId).filter(|other| *other != command.stream) {
            let of = needs.iter().filter(|(fence, _)| fence.stream == other);
            let Some(latest) = of.clone().map(|(fence, _)| fence.number).max() else { continue };
            let known = &mut self.known[command.stream.0 as usize][other.0 as usize];
            if latest > timeline.submitted(other) && latest > *known {
                *known = latest;
                let (before, kind) = of.clone().find(|(fence, _)| fence.number == latest).copied().unwrap();
                edges.push(Edge { command, before, kind });
            }
        }
        edges
    }
}

fn sorted(mut edges: Vec<Edge>) -> Vec<Edge> {
    edges.sort_by_key(|edge| (edge.before.stream, edge.before.number));
    edges
}

fn run(steps: &[Step]) -> Vec<EdgeKind> {
    let (mut timeline, mut model, mut kinds) = (Timeline::new(), Model::new(), Vec::new());
    (1..STREAMS).for_each(|stream| assert_eq!(timeline.new_stream(), StreamId(stream)));
    (0..SLOTS).for_each(|slot| timeline.begin_block(BlockId(slot as u32), FenceSet::new()));
    for step in steps {
        match step {
            Step::Replace { slot } => {
                let block = BlockId(*slot as u32);
                let after = timeline.end_block(block);
                timeline.begin_block(block, after);
                model.block[*slot] += 1;
            }
            Step::Wait { stream, other } => {
                let point: FenceSet = [timeline.last(StreamId(*other))].into_iter().collect();
                timeline.wait(StreamId(*stream), &point);
                model.waits[*stream as usize].extend(point.iter().filter(|fence| fence.number > 0));
            }
            Step::Submit { stream, back } => {
                let number = timeline.enqueued(StreamId(*stream)).saturating_sub(*back);
                let to = [Fence { stream: StreamId(*stream), number }].into_iter().collect();
                let batch = timeline.plan(&Flush::To(to), |_, _| true);
                if batch.len > 0 {
                    timeline.handle_submitted(&batch);
                }
            }
            Step::Command { stream, uses, reuses } => {
                let stream = StreamId(*stream);
                let mut accesses = AccessList::default();
                for (slot, write) in uses {
                    accesses.push(BlockId(*slot as u32), if *write { Access::Write } else { Access::Read });
                }
                let mut needs: Vec<_> = model.waits[stream.0 as usize].drain(..).map(|fence| (fence, EdgeKind::Wait)).collect();
                if let Some(other) = reuses {
                    let before = timeline.last(StreamId(*other));
                    timeline.reuse(stream, &[before].into_iter().collect());
                    needs.push((before, EdgeKind::MemoryReuse));
                }
                for (block, access) in accesses.iter() {
                    needs.extend(model.needs(block.0 as usize, access));
                }
                let by = Fence { stream, number: timeline.enqueued(stream) + 1 };
                let edges = model.edges(&timeline, by, &needs);
                let counted = timeline.stats().order_edges;
                timeline.enqueue(stream, accesses.iter());
                let found: Vec<Edge> = timeline.edges_of_last(stream).collect();
                assert_eq!(sorted(found), sorted(edges.clone()));
                assert_eq!(timeline.stats().order_edges - counted, edges.len() as u64, "what is printed is what is counted");
                kinds.extend(edges.iter().map(|edge| edge.kind));
                for (block, access) in accesses.iter() {
                    let slot = block.0 as usize;
                    model.uses[slot].push(Use { by, block: model.block[slot], access });
                }
            }
        }
        timeline.validate().unwrap();
    }
    kinds
}

fn programs(max: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_edge_has_the_reason_that_the_slow_model_finds(steps in programs(60)) {
        run(&steps);
    }
}

#[test]
fn random_programs_have_edges_of_every_kind() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<EdgeKind, u32>::new();
    for _ in 0..300 {
        for kind in run(&programs(60).new_tree(&mut runner).unwrap().current()) {
            *seen.entry(kind).or_default() += 1;
        }
    }
    assert!(seen.len() == 5 && seen.values().all(|count| *count > 50), "{seen:?}");
}

/// One program with an edge of each kind, by hand.
fn one_of_each() -> (Timeline, Vec<Edge>) {
    let mut timeline = Timeline::new();
    let (main, side) = (StreamId::DEFAULT, timeline.new_stream());
    let [a, b] = [BlockId(0), BlockId(1)];
    [a, b].iter().for_each(|block| timeline.begin_block(*block, FenceSet::new()));
    let mut edges = Vec::new();
    let mut command = |timeline: &mut Timeline, stream, block, access| {
        timeline.enqueue(stream, [(block, access)]);
        edges.extend(timeline.edges_of_last(stream));
    };
    command(&mut timeline, main, a, Access::Write); // main 1
    command(&mut timeline, side, a, Access::Read); // side 1, after main 1: read after write
    command(&mut timeline, main, a, Access::Write); // main 2, after side 1: write after read
    command(&mut timeline, side, a, Access::Write); // side 2, after main 2: write after write
    let after = timeline.end_block(a);
    timeline.begin_block(a, after);
    command(&mut timeline, main, a, Access::Write); // main 3, after side 2: memory reuse
    let point = timeline.record(main);
    timeline.wait(side, &point);
    command(&mut timeline, side, b, Access::Write); // side 3, after main 3: explicit wait
    (timeline, edges)
}

#[test]
fn each_kind_by_hand() {
    let (mut timeline, edges) = one_of_each();
    let (main, side) = (StreamId(0), StreamId(1));
    let edge = |stream, number, other, before, kind| Edge {
        command: Fence { stream, number },
        before: Fence { stream: other, number: before },
        kind,
    };
    assert_eq!(
        edges,
        [
            edge(side, 1, main, 1, EdgeKind::ReadAfterWrite),
            edge(main, 2, side, 1, EdgeKind::WriteAfterRead),
            edge(side, 2, main, 2, EdgeKind::WriteAfterWrite),
            edge(main, 3, side, 2, EdgeKind::MemoryReuse),
            edge(side, 3, main, 3, EdgeKind::Wait),
        ]
    );
    assert_eq!(timeline.edges_of_last(side).count(), 1);
    let batch = timeline.plan(&Flush::Everything, |_, _| true);
    timeline.handle_submitted(&batch);
    assert_eq!(timeline.edges_of_last(side).count(), 0, "what is submitted waits no more");
}

fn named(most: usize) -> OrderEdges {
    let here = Location::caller();
    let mut list = OrderEdges::new(most);
    for edge in one_of_each().1 {
        let name = |fence: Fence| CommandName::new(if fence.stream.0 == 0 { "matmul" } else { "a \"b\\\"" }, fence, here);
        list.push(name(edge.command), name(edge.before), edge.kind);
    }
    list
}

#[test]
fn edges_print_as_text() {
    let list = named(3);
    assert_eq!((list.len(), list.forgotten(), list.is_empty()), (3, 2, false));
    let text = list.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[0], "3 order edges, 2 older ones forgotten");
    let place = format!("({}:", file!().replace('\\', "/"));
    assert!(lines[2].replace('\\', "/").contains(&place), "{text}");
    assert!(lines[2].starts_with("matmul #3 of stream 0 (") && lines[2].ends_with("): memory reuse"), "{text}");
    assert!(lines[3].contains(") after matmul #3 of stream 0 ("), "{text}");
    assert_eq!(list.iter().last().map(|edge| edge.kind), Some(EdgeKind::Wait));
    assert_eq!(OrderEdges::new(5).to_string(), "0 order edges, 0 older ones forgotten");
}

#[test]
fn edges_print_as_a_graph() {
    let dot = named(100).to_dot();
    for part in [
        "digraph order {\n",
        "subgraph cluster_0 {\n    label=\"stream 0\";\n    s0_1 [label=\"matmul #1\\n",
        "s0_1 -> s0_2 -> s0_3 [style=dotted, arrowhead=none];",
        "s1_2 [label=\"a \\\"b\\\\\\\" #2\\n",
        "\n  s0_1 -> s1_1 [label=\"read after write\"];\n",
        "\n  s1_1 -> s0_2 [label=\"write after read\"];\n",
        "\n  s0_2 -> s1_2 [label=\"write after write\"];\n",
        "\n  s1_2 -> s0_3 [label=\"memory reuse\"];\n",
        "\n  s0_3 -> s1_3 [label=\"explicit wait\"];\n",
    ] {
        assert!(dot.contains(part), "{part} is missing in\n{dot}");
    }
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    assert_eq!(OrderEdges::new(5).to_dot(), "digraph order {\n  rankdir=LR;\n  node [shape=box];\n}\n");
}
