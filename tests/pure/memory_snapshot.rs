//! Histories and snapshots: what they hold, and that PyTorch's page and ours can be built on them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use linn::ids::StreamId;
use linn::memory::sim::SimDevice;
use linn::memory::size_class::MAX_SEGMENT;
use linn::memory::{
    Action, BlockState, Breakdown, Category, Config, Event, Frame, HistoryOptions, Recording, Snapshot, StackId, Stacks, Tag,
};
use linn::profile::lifetimes::{FOREVER, Use};
use serde_json::Value;

#[path = "../support/story.rs"]
pub mod story;
use story::Story;

const MIB: u64 = 1 << 20;
const MAIN: StreamId = StreamId(0);

fn tag(category: Category) -> Tag {
    Tag::here(category, "snapshot_test")
}

fn recording() -> SimDevice {
    let mut device = SimDevice::new(1 << 40, Config::default());
    device.pool_mut().record_history(Some(HistoryOptions::default()));
    device
}

fn actions(snapshot: &Snapshot) -> Vec<&'static str> {
    snapshot.trace.iter().map(|event| event.action.name()).collect()
}

#[test]
fn a_history_names_every_event_with_line_time_and_stream() {
    let mut device = recording();
    device.pool_mut().handle_context(1_000, None);
    let line = line!() + 1;
    let mut lease = device.alloc(StreamId(3), 1000, Tag::here(Category::Parameter, "linear")).expect("fits");
    device.pool_mut().handle_context(2_000, Some(StackId(0)));
    device.use_on(StreamId(3), &mut lease);
    device.free(lease);
    device.synchronize();
    device.pool_mut().handle_context(3_000, None);
    device.empty_cache();
    let report = device.alloc(MAIN, 1 << 30, tag(Category::Temporary)).expect_err("larger than a buffer");
    assert_eq!(report.requested, 1 << 30);

    let snapshot = device.pool_mut().snapshot();
    let expected = ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_retiring", "segment_free", "oom"];
    assert_eq!(actions(&snapshot), expected);
    let [bought, alloc, requested, .., gone, oom] = &snapshot.trace[..] else { panic!("seven events") };
    assert_eq!((alloc.size, alloc.block_size, alloc.stream, alloc.time_us), (1000, 1024, StreamId(3), 1_000));
    assert_eq!((alloc.tag.label, alloc.tag.location.line(), alloc.tag.category), ("linear", line, Category::Parameter));
    assert!(alloc.tag.location.file().ends_with("memory_snapshot.rs"));
    assert_eq!((alloc.stack, requested.stack), (None, Some(StackId(0))));
    assert_eq!((requested.address, requested.size, requested.time_us), (alloc.address, 1000, 2_000));
    assert_eq!((bought.address, bought.size, bought.stream), (gone.address, 2 * MIB, StreamId(3)));
    assert_eq!((bought.tag.location.line(), gone.time_us), (line, 3_000));
    assert_eq!((oom.size, oom.free, oom.address), (1 << 30, 0, 0));

    // A snapshot records itself after it has copied the trace.
    assert_eq!(device.pool_mut().snapshot().trace.last().map(|event| event.action), Some(Action::Snapshot));
}

#[test]
fn the_ring_is_bounded_and_off_is_off() {
    let mut device = SimDevice::new(1 << 40, Config::default());
    let pairs = |device: &mut SimDevice, count: usize| {
        for _ in 0..count {
            let lease = device.alloc(MAIN, 1000, tag(Category::Temporary)).expect("fits");
            device.free(lease);
        }
    };
    pairs(&mut device, 3);
    assert!(device.pool_mut().snapshot().trace.is_empty(), "nothing is recorded unless asked for");
    let options = HistoryOptions { max_entries: 10, ..HistoryOptions::default() };
    device.pool_mut().record_history(Some(options));
    pairs(&mut device, 7);
    let snapshot = device.pool_mut().snapshot();
    assert_eq!((snapshot.trace.len(), snapshot.overflowed), (10, 11));
    assert_eq!(snapshot.trace.last().map(|event| event.action), Some(Action::FreeCompleted), "the newest stay");

    device.pool_mut().record_history(Some(HistoryOptions { max_entries: 4, ..options }));
    assert_eq!(device.pool_mut().snapshot().trace.len(), 4, "a smaller ring keeps the newest");
    device.pool_mut().record_history(Some(HistoryOptions { clear_history: true, ..options }));
    assert_eq!(device.pool_mut().snapshot().trace.len(), 0);
    device.pool_mut().record_history(None);
    pairs(&mut device, 3);
    assert_eq!(device.pool().history_options(), None);
    assert!(device.pool_mut().snapshot().trace.is_empty());
}

#[test]
fn state_keeps_the_stacks_of_live_blocks_only() {
    let mut device = SimDevice::new(1 << 40, Config::default());
    let options = HistoryOptions { enabled: Recording::State, stacks: Stacks::Alloc, ..HistoryOptions::default() };
    device.pool_mut().record_history(Some(options));
    device.pool_mut().handle_context(5, Some(StackId(4)));
    let first = device.alloc(MAIN, 1000, tag(Category::Temporary)).expect("fits");
    device.pool_mut().handle_context(5, Some(StackId(7)));
    let second = device.alloc(MAIN, 1000, tag(Category::Temporary)).expect("fits");
    device.free(first);
    let snapshot = device.pool_mut().snapshot();
    assert!(snapshot.trace.is_empty());
    let stacks: Vec<_> = snapshot.segments[0].blocks.iter().map(|block| block.stack).collect();
    assert_eq!(stacks, [None, Some(StackId(7)), None]);
    device.free(second);
}

/// PyTorch's test_memory_snapshot: a block is found by what was asked for, and its frames name this file.
#[test]
fn a_live_block_is_found_in_the_snapshot() {
    let mut device = recording();
    let bytes = 311 * 411 * 4;
    let lease = device.alloc(MAIN, bytes, Tag::here(Category::Activation, "empty")).expect("fits");
    let snapshot = device.pool_mut().snapshot();
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let found: Vec<_> = blocks.filter(|block| block.requested_size == bytes).collect();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].block, found[0].state), (lease.block, BlockState::ActiveAllocated));
    assert_eq!(found[0].address, snapshot.segments[0].address + lease.place.offset);
    let holders = snapshot.holders();
    assert_eq!((holders[0].label, holders[0].count, holders[0].bytes), ("empty", 1, lease.place.size));
    assert!(holders[0].location.file().ends_with("memory_snapshot.rs"));
    assert_eq!(holders, device.pool().largest_holders(10));

    device.free(lease);
    device.empty_cache();
    let snapshot = device.pool_mut().snapshot();
    assert_eq!(snapshot.trace.last().map(|event| event.action.name()), Some("segment_free"));
    assert!(snapshot.segments.is_empty());
}

/// What a page will draw for every state is what the pool said at that moment.
#[test]
fn lifetimes_add_up_to_the_breakdown_of_every_moment() {
    let seen: Rc<RefCell<BTreeMap<usize, Breakdown>>> = Rc::default();
    let record = seen.clone();
    let story = Story::new(HistoryOptions::default(), move |device| {
        let events = device.pool_mut().snapshot().trace.len();
        record.borrow_mut().insert(events, device.pool().breakdown());
    });
    let snapshot = story.run(3000);
    let seen = seen.borrow();
    assert!(seen.len() > 300 && seen.values().any(|breakdown| breakdown.retiring > 0));
    lifetimes_add_up(&snapshot, &seen);
}

/// At every moment seen, after so many events, the lifetimes come to the breakdown of that moment.
pub fn lifetimes_add_up(snapshot: &Snapshot, seen: &BTreeMap<usize, Breakdown>) {
    let lifetimes = snapshot.lifetimes();
    assert_eq!(lifetimes.events, snapshot.trace.len());
    for (state, expected) in seen {
        let holds = |begin: u32, end: u32| begin as usize <= *state && (*state as u64) < u64::from(end);
        let mut sum = Breakdown::default();
        for stay in lifetimes.blocks.iter().filter(|stay| holds(stay.begin, stay.end)) {
            match stay.used {
                Use::Live(category) => {
                    sum.requested[category as usize] += stay.requested;
                    sum.rounding += stay.size - stay.requested;
                }
                Use::Retiring => sum.retiring += stay.size,
            }
        }
        let segments = lifetimes.segments.iter().filter(|segment| holds(segment.begin, segment.end));
        let reserved: u64 = segments.map(|segment| segment.size).sum();
        sum.cached = reserved - sum.allocated() - sum.retiring;
        assert_eq!(sum, *expected, "state {state}");
    }
}

/// Blocks and segments never overlap at any moment, also when the ring has forgotten how they began.
#[test]
fn lifetimes_of_a_cut_history_do_not_overlap() {
    let snapshot = Story::new(HistoryOptions { max_entries: 700, ..HistoryOptions::default() }, |_| ()).run(3000);
    assert!(snapshot.overflowed > 1000);
    let lifetimes = snapshot.lifetimes();
    assert!(lifetimes.blocks.iter().any(|stay| stay.begin == 0 && stay.end == FOREVER), "parameters were there all the time");
    for state in (0..=lifetimes.events as u32).step_by(7) {
        let blocks = lifetimes.blocks.iter().filter(|stay| stay.begin <= state && state < stay.end);
        let mut ranges: Vec<(u64, u64)> = blocks.map(|stay| (stay.address, stay.address + stay.size)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "state {state}");
        let segments: Vec<_> = lifetimes.segments.iter().filter(|s| s.begin <= state && state < s.end).collect();
        for (begin, end) in ranges {
            let inside = segments.iter().any(|segment| segment.address <= begin && end <= segment.address + segment.size);
            assert!(inside, "state {state}: a block outside every segment");
        }
    }
}

// --- PyTorch's page: the rules of its viewer, and the shape of a snapshot that it accepts. ------------------------------

fn story_json(options: HistoryOptions) -> (Snapshot, Value) {
    let snapshot = Story::new(options, |_| ()).run(2000);
    let json = serde_json::from_str(&snapshot.to_json()).expect("it is JSON");
    (snapshot, json)
}

pub fn list<'a>(json: &'a Value, key: &str) -> &'a Vec<Value> {
    json[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

pub fn number(json: &Value, key: &str) -> u64 {
    json[key].as_u64().unwrap_or_else(|| panic!("{key} is a number in {json}"))
}

pub fn text<'a>(json: &'a Value, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_else(|| panic!("{key} is a text in {json}"))
}

/// Keys with the kind of their values: what PyTorch's reader looks at. Written down from a snapshot that it accepts.
fn check_keys(json: &Value, keys: &[(&str, &str)]) {
    for (key, kind) in keys {
        let found = match &json[*key] {
            Value::Null => "missing",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(_) => "list",
            Value::Object(_) => "map",
        };
        assert_eq!(found, *kind, "{key} in {json}");
    }
}

/// All that is in `theirs` is in `ours`, of the same kind. Of a list every element is like their first.
fn has_the_shape_of(ours: &Value, theirs: &Value, at: &str) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, theirs) in theirs {
                let ours = ours.get(key).unwrap_or_else(|| panic!("{at} has no {key}"));
                has_the_shape_of(ours, theirs, &format!("{at}.{key}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            if let Some(first) = theirs.first() {
                ours.iter().for_each(|ours| has_the_shape_of(ours, first, at));
            }
        }
        _ => assert_eq!(std::mem::discriminant(ours), std::mem::discriminant(theirs), "{at}: {ours} and {theirs}"),
    }
}

/// Against a file that torch 2.15's `_memory_viz` takes.
#[test]
fn json_has_the_schema_of_a_snapshot_that_pytorch_accepts() {
    let minimal: Value = serde_json::from_str(include_str!("../support/golden/minimal_snapshot.json")).expect("JSON");
    let (_, json) = story_json(HistoryOptions::default());
    for key in ["segments", "allocator_settings", "external_annotations"] {
        has_the_shape_of(&json[key], &minimal[key], key);
    }
    let entries = |json: &Value| json["device_traces"][0].as_array().expect("a list").clone();
    let theirs = entries(&minimal);
    for ours in entries(&json) {
        let action = text(&ours, "action");
        let like = theirs.iter().find(|entry| text(entry, "action") == action);
        // (A segment goes back as it came.)
        let like = like.or_else(|| theirs.iter().find(|entry| action == "segment_free" && entry["action"] == "segment_alloc"));
        has_the_shape_of(&ours, like.unwrap_or_else(|| panic!("{action} is not in the minimal snapshot")), action);
    }
    walk_back(&minimal);
    // What newer writers add.
    assert_eq!(json["allocator_settings"]["max_split_size"], -1);
    assert_eq!(json["allocator_settings"]["roundup_power2_divisions"].as_object().map(|map| map.len()), Some(16));
    assert!(list(&json, "segments").iter().all(|segment| ["small", "large"].contains(&text(segment, "segment_type"))));
}

#[test]
fn rule_1_addresses_are_below_2_53_and_segments_do_not_overlap() {
    let (_, json) = story_json(HistoryOptions::default());
    let mut ranges: Vec<(u64, u64)> =
        list(&json, "segments").iter().map(|s| (number(s, "address"), number(s, "address") + number(s, "total_size"))).collect();
    assert!(ranges.is_sorted(), "by address");
    // Segments that are gone count as well: no address is ever used twice.
    let trace = list(&json, "device_traces")[0].as_array().expect("a list");
    let bought = trace.iter().filter(|entry| entry["action"] == "segment_alloc");
    ranges = bought.map(|entry| (number(entry, "addr"), number(entry, "addr") + number(entry, "size"))).collect();
    ranges.sort_unstable();
    assert!(ranges.len() > 5);
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    assert!(ranges.iter().all(|(_, end)| *end < 1 << 53));
}

#[test]
fn rule_1_holds_for_the_largest_segments_too() {
    let mut device = SimDevice::new(u64::MAX, Config { max_segment: u64::MAX, ..Config::default() });
    for bytes in [MIB, MAX_SEGMENT, MAX_SEGMENT, 1 << 45] {
        device.alloc(MAIN, bytes, tag(Category::Temporary)).expect("a simulated device sells it");
    }
    let snapshot = device.pool_mut().snapshot();
    assert_eq!(snapshot.segments.len(), 4);
    assert!(snapshot.segments.iter().all(|segment| segment.address + segment.total_size < 1 << 53));
    assert!(device.alloc(MAIN, MAX_SEGMENT + 1, tag(Category::Temporary)).is_err(), "no segment is larger");
}

#[test]
fn rules_2_to_4_lists_frames_sizes_and_addresses_are_there() {
    let (_, json) = story_json(HistoryOptions::default());
    for segment in list(&json, "segments") {
        assert!(segment["device"].as_u64().is_some_and(|device| (device as usize) < list(&json, "device_traces").len()));
        let mut end = number(segment, "address");
        let (mut allocated, mut requested) = (0, 0);
        for block in list(segment, "blocks") {
            check_keys(block, &[("frames", "list"), ("requested_size", "number"), ("state", "text")]);
            assert_eq!(number(block, "address"), end, "blocks tile the segment");
            end += number(block, "size");
            match text(block, "state") {
                "active_allocated" => {
                    allocated += number(block, "size");
                    requested += number(block, "requested_size");
                    assert!(text(&block["frames"][0], "filename").ends_with("story.rs"));
                }
                "inactive" => assert_eq!((number(block, "requested_size"), list(block, "frames").len()), (0, 0)),
                other => panic!("{other}"),
            }
        }
        assert_eq!(end - number(segment, "address"), number(segment, "total_size"));
        assert_eq!((allocated, requested), (number(segment, "allocated_size"), number(segment, "requested_size")));
    }
    for entry in list(&json, "device_traces")[0].as_array().expect("a list") {
        match text(entry, "action") {
            "oom" => assert!(entry.get("addr").is_none() && entry["device_free"].is_u64()),
            "snapshot" => assert_eq!(number(entry, "addr"), 0),
            "alloc" | "free_requested" | "free_completed" | "segment_alloc" | "segment_free" => {
                number(entry, "addr");
            }
            other => panic!("{other} is no action of PyTorch's"),
        }
    }
}

/// The page walks from the end to the start: undo every event on the final segments.
pub fn walk_back(json: &Value) {
    let mut segments: BTreeMap<u64, u64> = BTreeMap::new();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for segment in list(json, "segments") {
        segments.insert(number(segment, "address"), number(segment, "total_size"));
        for block in list(segment, "blocks").iter().filter(|block| block["state"] == "active_allocated") {
            live.insert(number(block, "address"), number(block, "requested_size"));
        }
    }
    let within = |segments: &BTreeMap<u64, u64>, address: u64, size: u64| {
        segments.range(..=address).next_back().is_some_and(|(start, total)| address + size <= start + total)
    };
    for entry in list(json, "device_traces")[0].as_array().expect("a list").iter().rev() {
        let (address, size) = (entry["addr"].as_u64().unwrap_or(0), number(entry, "size"));
        match text(entry, "action") {
            "alloc" => assert_eq!(live.remove(&address), Some(size), "an alloc makes a block that lives: {entry}"),
            "free_completed" => {
                assert!(live.insert(address, size).is_none(), "what is freed lived alone: {entry}");
                assert!(within(&segments, address, size), "in a segment that is there: {entry}");
            }
            "free_requested" => assert_eq!(live.get(&address), Some(&size), "{entry}"),
            "segment_alloc" => assert_eq!(segments.remove(&address), Some(size), "{entry}"),
            "segment_free" => assert!(segments.insert(address, size).is_none(), "{entry}"),
            _ => {}
        }
        if let Some((address, size)) = live.iter().next() {
            assert!(within(&segments, *address, *size), "a live block lies in a segment that is there");
        }
    }
}

#[test]
fn rule_5_the_history_can_be_walked_backwards() {
    for max_entries in [usize::MAX, 1_500, 700, 10, 0] {
        let (_, json) = story_json(HistoryOptions { max_entries, ..HistoryOptions::default() });
        walk_back(&json);
    }
}

#[test]
fn rule_6_requested_and_completed_stand_side_by_side() {
    let (_, json) = story_json(HistoryOptions::default());
    let trace = list(&json, "device_traces")[0].as_array().expect("a list");
    for pair in trace.windows(2).filter(|pair| pair[0]["action"] == "free_requested") {
        assert_eq!((&pair[1]["action"], &pair[1]["addr"]), (&Value::from("free_completed"), &pair[0]["addr"]));
    }
}

#[test]
fn rule_7_unknown_is_among_the_categories() {
    let (_, json) = story_json(HistoryOptions::default());
    let trace = list(&json, "device_traces")[0].as_array().expect("a list");
    let names: std::collections::BTreeSet<&str> = trace.iter().map(|entry| text(entry, "category")).collect();
    for name in ["unknown", "parameter", "activation", "gradient", "optimizer state"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    // A block that was named a parameter after it was made counts as one.
    let randn = trace.iter().filter(|entry| entry["user_metadata"] == "randn" && entry["action"] == "alloc");
    assert!(randn.clone().count() == 8 && randn.into_iter().all(|entry| entry["category"] == "parameter"));

    // Also where the ring holds one allocation and nothing else.
    let mut device = SimDevice::new(1 << 40, Config::default());
    device.pool_mut().record_history(Some(HistoryOptions { max_entries: 1, ..HistoryOptions::default() }));
    let lease = device.alloc(MAIN, 1000, tag(Category::Parameter)).expect("fits");
    let json: Value = serde_json::from_str(&device.pool_mut().snapshot().to_json()).expect("JSON");
    let trace = list(&json, "device_traces")[0].as_array().expect("a list");
    assert_eq!(trace.iter().map(|entry| text(entry, "category")).collect::<Vec<_>>(), ["parameter", "unknown"]);
    device.free(lease);
}

#[test]
fn rules_8_to_10_ghosts_pools_and_streams() {
    // Live before the history began: there, without an entry.
    let mut device = SimDevice::new(1 << 40, Config::default());
    let ghost = device.alloc(StreamId(2), 1000, tag(Category::Parameter)).expect("fits");
    device.pool_mut().record_history(Some(HistoryOptions::default()));
    let json: Value = serde_json::from_str(&device.pool_mut().snapshot().to_json()).expect("JSON");
    assert_eq!(json["device_traces"], serde_json::json!([[]]));
    let segment = &list(&json, "segments")[0];
    assert_eq!((text(&segment["blocks"][0], "state"), number(segment, "stream")), ("active_allocated", 2));
    assert_eq!(segment["segment_pool_id"], serde_json::json!([0, 0]));
    device.free(ghost);
    let json: Value = serde_json::from_str(&device.pool_mut().snapshot().to_json()).expect("JSON");
    walk_back(&json);
    let lifetimes = device.pool_mut().snapshot().lifetimes();
    assert_eq!((lifetimes.blocks[0].begin, lifetimes.blocks[0].requested), (0, 1000));
}

/// A move is a free and an allocation to PyTorch's page, and a change of place to ours.
#[test]
fn moves_are_told() {
    let mut device = recording();
    let lease = device.alloc(MAIN, 1000, tag(Category::Activation)).expect("fits");
    let mut snapshot = device.pool_mut().snapshot();
    let alloc = *snapshot.trace.last().expect("an event");
    let address = alloc.address + (1 << 20);
    snapshot.trace.push(Event { action: Action::Move, address, from: alloc.address, ..alloc });
    let json: Value = serde_json::from_str(&snapshot.to_json()).expect("JSON");
    let trace = list(&json, "device_traces")[0].as_array().expect("a list");
    let told: Vec<(&str, u64)> = trace.iter().map(|entry| (text(entry, "action"), number(entry, "addr"))).collect();
    let before = alloc.address;
    let expected = [("alloc", before), ("free_requested", before), ("free_completed", before), ("alloc", address)];
    assert_eq!(told[1..], expected);
    let places: Vec<_> = snapshot.lifetimes().blocks.iter().map(|stay| (stay.address, stay.begin, stay.end)).collect();
    assert_eq!(places[places.len() - 2..], [(before, 2, 3), (address, 3, FOREVER)]);
    device.free(lease);
}

#[test]
fn stacks_become_frames() {
    let mut device = recording();
    device.pool_mut().handle_context(1, Some(StackId(0)));
    let lease = device.alloc(MAIN, 1000, tag(Category::Parameter)).expect("fits");
    let mut snapshot = device.pool_mut().snapshot();
    let frame = |name: &str, line| Frame { name: name.into(), file: "model.rs".into(), line };
    snapshot.stacks = vec![vec![frame("forward", 7), frame("main", 90)]];
    let json: Value = serde_json::from_str(&snapshot.to_json()).expect("JSON");
    let expected = serde_json::json!([
        { "filename": "model.rs", "line": 7, "name": "forward" },
        { "filename": "model.rs", "line": 90, "name": "main" }
    ]);
    assert_eq!(json["device_traces"][0][1]["frames"], expected);
    assert_eq!(json["segments"][0]["blocks"][0]["frames"], expected);
    device.free(lease);
}

// --- The page. ---------------------------------------------------------------------------------------------------------

#[test]
fn the_page_is_one_file_that_asks_nobody() {
    let snapshot = Story::new(HistoryOptions::default(), |_| ()).run(2000);
    let page = snapshot.to_html("a <b>title</b> with </script>");
    assert_eq!(page.matches("</script>").count(), 2, "the data cannot end its element");
    for word in
        ["http://", "https://", "//cdn", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "WebSocket", "<link", "<img"]
    {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("Content-Security-Policy") && page.contains("default-src 'none'"));
    for mark in ["/*style*/", "/*script*/", "/*data*/"] {
        assert!(!page.contains(mark), "{mark} is filled in");
    }
    let start = page.find("id=\"data\">").expect("the data") + 10;
    let data = &page[start..start + page[start..].find("</script>").expect("its end")];
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["title"], "a <b>title</b> with </script>");
    assert_eq!(list(&data["events"], "action").len(), snapshot.trace.len());
    let columns = ["begin", "end", "address", "size", "requested", "category", "stream", "site", "stack"];
    let len = list(&data["blocks"], "begin").len();
    assert!(len > 500 && columns.iter().all(|column| list(&data["blocks"], column).len() == len));
    let sites = list(&data, "sites");
    assert!(sites.iter().any(|site| site[0] == "gelu" && site[1].as_str().is_some_and(|file| file.ends_with("story.rs"))));
}
