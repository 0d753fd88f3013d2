//! Streams that use memory in ways the timeline does not see (`record_stream`).

use linn::ids::{BlockId, Fence, FenceSet, StreamId};
use linn::timeline::{Access, Flush, Timeline};

const BLOCK: BlockId = BlockId(3);

#[test]
fn what_a_recorded_stream_has_enqueued_by_the_end_counts_as_a_use() {
    let mut timeline = Timeline::new();
    let (main, side, other) = (StreamId::DEFAULT, timeline.new_stream(), timeline.new_stream());
    timeline.begin_block(BLOCK, FenceSet::new());
    timeline.enqueue(main, [(BLOCK, Access::Write)]);
    timeline.record_stream(BLOCK, side);
    timeline.record_stream(BLOCK, side);
    assert!(timeline.foreign_uses(BLOCK).is_empty(), "nothing is enqueued there yet");
    // Enqueued after it was recorded: still before the end.
    for _ in 0..5 {
        timeline.enqueue(side, []);
    }
    assert_eq!(timeline.last_uses(BLOCK).of(side), Some(Fence { stream: side, number: 5 }));
    timeline.enqueue(side, []);
    let uses = timeline.end_block(BLOCK);
    assert_eq!(
        (uses.len(), uses.of(main).map(|fence| fence.number), uses.of(side).map(|fence| fence.number)),
        (2, Some(1), Some(6))
    );
    // Whoever has the memory next comes after it; what the stream enqueues from now on does not matter.
    timeline.enqueue(side, []);
    timeline.begin_block(BLOCK, uses);
    timeline.enqueue(other, [(BLOCK, Access::Write)]);
    let batch = timeline.plan(&Flush::To([timeline.last(other)].into_iter().collect()), |_, _| true);
    let count = |stream| batch.runs.iter().filter(|(run, _)| *run == stream).map(|(_, len)| len).sum::<usize>();
    assert_eq!((count(main), count(side), count(other)), (1, 6, 1));
    // The record ended with the block.
    assert!(timeline.foreign_uses(BLOCK).is_empty());
    assert_eq!(timeline.end_block(BLOCK).of(side), None);
}
