//! Histories with moves in them: every earlier moment can be drawn, by PyTorch's page and by ours.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use linn::ids::StreamId;
use linn::memory::{Action, Breakdown, Category, HistoryOptions, Snapshot};
use serde_json::Value;

use crate::memory_snapshot::story::Story;
use crate::memory_snapshot::{lifetimes_add_up, list, number, text, walk_back};

/// A training run whose memory is compacted now and then, and the breakdown after so many events.
fn story(options: HistoryOptions, events: usize) -> (Snapshot, BTreeMap<usize, Breakdown>) {
    let seen: Rc<RefCell<BTreeMap<usize, Breakdown>>> = Rc::default();
    let (record, mut calls) = (seen.clone(), 0u64);
    let story = Story::new(options, move |device| {
        calls += 1;
        if calls.is_multiple_of(23) {
            device.compact(StreamId(calls as u32 % 2), 4 << 20);
        }
        let snapshot = device.pool_mut().snapshot();
        record.borrow_mut().insert(snapshot.trace.len(), snapshot.breakdown);
    });
    let snapshot = story.run(events);
    let seen = seen.borrow().clone();
    (snapshot, seen)
}

fn moves(snapshot: &Snapshot) -> usize {
    snapshot.trace.iter().filter(|event| event.action == Action::Move).count()
}

#[test]
fn lifetimes_add_up_at_every_moment_with_moves() {
    let (snapshot, seen) = story(HistoryOptions::default(), 3000);
    assert!(moves(&snapshot) > 20, "{} moves", moves(&snapshot));
    lifetimes_add_up(&snapshot, &seen);
}

#[test]
fn a_history_with_moves_can_be_walked_backwards() {
    for max_entries in [usize::MAX, 1_500, 300, 10] {
        let (snapshot, _) = story(HistoryOptions { max_entries, ..HistoryOptions::default() }, 3000);
        assert!(max_entries < 300 || moves(&snapshot) > 2, "{} moves", moves(&snapshot));
        walk_back(&serde_json::from_str(&snapshot.to_json()).expect("JSON"));
    }
}

/// To PyTorch's page a block counts as what it was used for last: so do all the places that it lay at.
#[test]
fn a_category_holds_for_every_place_of_a_block() {
    let mut device = linn::memory::sim::SimDevice::new(1 << 40, linn::memory::Config::default());
    device.pool_mut().record_history(Some(HistoryOptions::default()));
    let tag = |label| linn::memory::Tag::here(Category::Temporary, label);
    // Segments of 2 MiB with a block of 1 MiB each that lives; the last one moves.
    let mut held: Vec<_> = (0..4).map(|_| device.alloc(StreamId(0), 1 << 20, tag("made")).expect("fits")).collect();
    device.free(held.remove(2));
    device.free(held.remove(0));
    assert_eq!(device.compact(StreamId(0), u64::MAX).moves, 1);
    held.iter_mut().for_each(|lease| device.refresh(lease));
    for lease in &held {
        device.pool_mut().set_category(lease.block, Category::Parameter);
    }
    let snapshot = device.pool_mut().snapshot();
    let json: Value = serde_json::from_str(&snapshot.to_json()).expect("JSON");
    let trace = list(&json, "device_traces")[0].as_array().expect("a list");
    let allocs: Vec<_> = trace.iter().filter(|entry| text(entry, "action") == "alloc").collect();
    let category = |address: u64| {
        let at: Vec<&str> = allocs.iter().filter(|e| number(e, "addr") == address).map(|e| text(e, "category")).collect();
        at.last().copied().unwrap_or_else(|| panic!("nothing was at {address}"))
    };
    let moved = snapshot.trace.iter().find(|event| event.action == Action::Move).expect("a move");
    assert_eq!((category(moved.from), category(moved.address)), ("parameter", "parameter"));
    walk_back(&json);
}
