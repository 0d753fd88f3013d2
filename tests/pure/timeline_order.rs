//! Order edges by hand: which there are, and what a flush takes along.

use linn::ids::{BlockId, Fence, FenceSet, StreamId};
use linn::timeline::{Access, Flush, Timeline};

#[test]
fn a_flush_leaves_unrelated_work_alone() {
    let mut timeline = Timeline::new();
    let (main, idle) = (StreamId(0), timeline.new_stream());
    let (a, b) = (BlockId(0), BlockId(1));
    timeline.begin_block(a, FenceSet::new());
    timeline.begin_block(b, FenceSet::new());
    timeline.enqueue(main, [(b, Access::Write)]);
    for _ in 0..100 {
        timeline.enqueue(main, [(a, Access::Write)]);
    }
    timeline.enqueue(idle, [(b, Access::Read)]);
    let target: FenceSet = [Fence { stream: idle, number: 1 }].into_iter().collect();
    let batch = timeline.plan(&Flush::To(target), |_, _| true);
    assert_eq!((batch.runs, batch.len), (vec![(main, 1), (idle, 1)], 2));
    assert_eq!(timeline.stats().order_edges, 1);
}

#[test]
fn edges_are_named_once_and_never_within_a_stream() {
    let mut timeline = Timeline::new();
    let (main, side) = (StreamId(0), timeline.new_stream());
    let blocks: Vec<BlockId> = (0..3).map(BlockId).collect();
    blocks.iter().for_each(|block| timeline.begin_block(*block, FenceSet::new()));
    for block in &blocks {
        timeline.enqueue(main, [(*block, Access::Write)]);
        timeline.enqueue(main, [(*block, Access::Read), (blocks[0], Access::Write)]);
    }
    assert_eq!(timeline.stats().order_edges, 0);
    // Three blocks, one other stream: one edge, to the latest of the three.
    timeline.enqueue(side, blocks.iter().map(|block| (*block, Access::Read)));
    assert_eq!(timeline.stats().order_edges, 1);
    timeline.enqueue(side, [(blocks[1], Access::Write)]);
    assert_eq!(timeline.stats().order_edges, 1, "known already");
    timeline.enqueue(main, [(blocks[2], Access::Read)]);
    assert_eq!(timeline.stats().order_edges, 1, "readers do not order each other");
    timeline.enqueue(main, [(blocks[2], Access::Write)]);
    assert_eq!(timeline.stats().order_edges, 2, "the reader on the other stream");
    let batch = timeline.plan(&Flush::Everything, |_, _| true);
    timeline.handle_submitted(&batch);
    timeline.enqueue(side, [(blocks[2], Access::Write)]);
    assert_eq!(timeline.stats().order_edges, 2, "what is submitted needs no edge");
}

#[test]
fn what_depends_on_a_held_command_stays_and_the_rest_goes() {
    let mut timeline = Timeline::new();
    let main = StreamId(0);
    let [held, reader, third, free] = [(); 4].map(|()| timeline.new_stream());
    let [a, b, c] = [0, 1, 2].map(BlockId);
    [a, b, c].iter().for_each(|block| timeline.begin_block(*block, FenceSet::new()));
    timeline.enqueue(held, [(c, Access::Write)]);
    timeline.enqueue(held, []);
    let first = timeline.hold(held);
    timeline.enqueue(held, [(a, Access::Write)]);
    timeline.enqueue(held, []);
    let second = timeline.hold(held);
    timeline.enqueue(reader, []);
    timeline.enqueue(reader, [(a, Access::Read), (b, Access::Write)]);
    timeline.enqueue(third, [(b, Access::Read)]);
    timeline.enqueue(free, [(c, Access::Read)]);
    timeline.enqueue(main, []);
    timeline.validate().unwrap();
    let plan = |timeline: &mut Timeline, target: &Flush| {
        let batch = timeline.plan(target, |_, _| true);
        timeline.validate().unwrap();
        let ready = timeline.ready();
        if batch.len > 0 {
            timeline.handle_submitted(&batch);
        }
        (batch.runs, ready)
    };
    let target: FenceSet = [Fence { stream: third, number: 1 }].into_iter().collect();
    // Of the way to the third stream's command, only what stands before the held one may go: nothing of its own does.
    assert!(timeline.advances(&target));
    assert_eq!(plan(&mut timeline, &Flush::To(target.clone())), (vec![(held, 1), (reader, 1)], 4));
    assert!(!timeline.advances(&target));
    assert_eq!(plan(&mut timeline, &Flush::To(target.clone())), (vec![], 2));
    assert_eq!(plan(&mut timeline, &Flush::Everything), (vec![(free, 1), (main, 1)], 2));
    assert_eq!((timeline.backlog(), timeline.ready()), (5, 0));
    // The one that is opened first is not the one in front.
    timeline.open(second);
    assert_eq!(timeline.ready(), 0);
    timeline.open(first);
    assert!(timeline.advances(&target));
    assert_eq!(plan(&mut timeline, &Flush::To(target)), (vec![(held, 2), (reader, 1), (third, 1)], 5));
    assert_eq!(plan(&mut timeline, &Flush::Everything), (vec![(held, 1)], 1));
    assert_eq!(timeline.backlog(), 0);
}
