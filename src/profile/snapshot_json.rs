//! A snapshot as JSON that PyTorch's memory_viz page accepts: drop the file onto it.
//!
//! The page draws a history by walking it backwards from the segments at its end, so both come from one snapshot. Names
//! of fields and actions are PyTorch's. What it has no word for is told in its terms: a move is a free and an allocation,
//! and a block counts as what it was used for last.

use rustc_hash::FxHashMap;
use serde::Serialize;
use smallvec::{SmallVec, smallvec};

use crate::memory::{Action, Event, Frame, Policy, SegmentSnapshot, Snapshot, StackId, Tag};

#[derive(Serialize)]
struct File<'a> {
    segments: Vec<SegmentJson<'a>>,
    device_traces: [Vec<EntryJson<'a>>; 1],
    allocator_settings: SettingsJson,
    external_annotations: [(); 0],
}

#[derive(Serialize)]
struct SegmentJson<'a> {
    device: u32,
    address: u64,
    total_size: u64,
    allocated_size: u64,
    active_size: u64,
    requested_size: u64,
    stream: u32,
    segment_type: &'static str,
    segment_pool_id: [u32; 2],
    is_expandable: bool,
    frames: Vec<FrameJson<'a>>,
    blocks: Vec<BlockJson<'a>>,
}

#[derive(Serialize)]
struct BlockJson<'a> {
    address: u64,
    size: u64,
    requested_size: u64,
    state: &'static str,
    frames: Vec<FrameJson<'a>>,
}

#[derive(Serialize)]
struct EntryJson<'a> {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_free: Option<u64>,
    size: u64,
    stream: u32,
    time_us: u64,
    compile_context: &'static str,
    user_metadata: &'static str,
    pool_id: [u32; 2],
    frames: Vec<FrameJson<'a>>,
    category: &'static str,
}

#[derive(Clone, Serialize)]
struct FrameJson<'a> {
    filename: &'a str,
    line: u32,
    name: &'a str,
}

#[derive(Serialize)]
struct SettingsJson {
    #[serde(rename = "PYTORCH_CUDA_ALLOC_CONF")]
    conf: &'static str,
    linn_policy: &'static str,
    max_split_size: i64,
    garbage_collection_threshold: f64,
    expandable_segments: bool,
    roundup_power2_divisions: std::collections::BTreeMap<String, u64>,
    trace_alloc_max_entries: usize,
    trace_alloc_overflowed: u64,
}

/// PyTorch's page needs a category of this name as soon as there is any.
const UNKNOWN: &str = "unknown";

impl Snapshot {
    /// The snapshot as JSON, in the form that PyTorch's memory_viz page takes.
    pub fn to_json(&self) -> String {
        let config = &self.config;
        let file = File {
            segments: self.segments.iter().map(|segment| self.segment_json(segment)).collect(),
            device_traces: [self.trace_json()],
            allocator_settings: SettingsJson {
                conf: "",
                linn_policy: if config.policy == Policy::Pytorch { "pytorch" } else { "linn" },
                max_split_size: config.max_split_size as i64,
                garbage_collection_threshold: config.garbage_collection_threshold,
                expandable_segments: false,
                roundup_power2_divisions: (0..).map(|at| (1u64 << at).to_string()).zip(config.roundup_power2_divisions).collect(),
                trace_alloc_max_entries: self.history.map_or(0, |history| history.max_entries),
                trace_alloc_overflowed: self.overflowed,
            },
            external_annotations: [],
        };
        // Only maps with keys that are not strings and failing writers make errors, and here are none.
        serde_json::to_string(&file).unwrap_or_default()
    }

    fn segment_json(&self, segment: &SegmentSnapshot) -> SegmentJson<'_> {
        let blocks = segment.blocks.iter().map(|block| BlockJson {
            address: block.address,
            size: block.size,
            requested_size: block.requested_size,
            state: block.state.name(),
            frames: block.tag.map(|tag| self.frames(tag, block.stack)).unwrap_or_default(),
        });
        SegmentJson {
            device: 0,
            address: segment.address,
            total_size: segment.total_size,
            allocated_size: segment.allocated_size,
            active_size: segment.active_size,
            requested_size: segment.requested_size,
            stream: segment.stream.0,
            segment_type: if segment.is_small { "small" } else { "large" },
            segment_pool_id: [0, segment.pool.0],
            is_expandable: false,
            frames: self.frames(segment.tag, None),
            blocks: blocks.collect(),
        }
    }

    fn trace_json(&self) -> Vec<EntryJson<'_>> {
        let mut entries: Vec<EntryJson<'_>> = Vec::with_capacity(self.trace.len() + 1);
        // The `alloc` entries of blocks that live at this point of the walk, by address: one for each place it lay at.
        let mut live: FxHashMap<u64, SmallVec<[usize; 1]>> = FxHashMap::default();
        for event in &self.trace {
            match event.action {
                Action::SetCategory => {
                    for at in live.get(&event.address).into_iter().flatten() {
                        entries[*at].category = event.tag.category.name();
                    }
                }
                Action::Move => {
                    let mut places = live.remove(&event.from).unwrap_or_default();
                    for action in [Action::FreeRequested, Action::FreeCompleted] {
                        entries.push(self.entry(&Event { action, address: event.from, ..*event }));
                    }
                    places.push(entries.len());
                    live.insert(event.address, places);
                    entries.push(self.entry(&Event { action: Action::Alloc, ..*event }));
                }
                Action::Alloc => {
                    live.insert(event.address, smallvec![entries.len()]);
                    entries.push(self.entry(event));
                }
                Action::FreeRequested => {
                    live.remove(&event.address);
                    entries.push(self.entry(event));
                }
                Action::FreeCompleted | Action::SegmentAlloc | Action::SegmentFree | Action::Oom | Action::Snapshot => {
                    entries.push(self.entry(event));
                }
                Action::SegmentRetiring | Action::SegmentRestored => {}
            }
        }
        if !entries.is_empty() && entries.iter().all(|entry| entry.category != UNKNOWN) {
            entries.extend(self.trace.last().map(|last| {
                let size = self.stats.allocated_bytes.current;
                self.entry(&Event { action: Action::Snapshot, address: 0, size, ..*last })
            }));
        }
        entries
    }

    fn entry(&self, event: &Event) -> EntryJson<'_> {
        let allocates = event.action == Action::Alloc;
        let has_frames = allocates || matches!(event.action, Action::SegmentAlloc | Action::Oom);
        EntryJson {
            action: event.action.name(),
            addr: (event.action != Action::Oom).then_some(event.address),
            device_free: (event.action == Action::Oom).then_some(event.free),
            size: event.size,
            stream: event.stream.0,
            time_us: event.time_us,
            compile_context: "N/A",
            user_metadata: event.tag.label,
            pool_id: [0, event.pool.0],
            frames: match event.stack {
                None if !has_frames => Vec::new(),
                stack => self.frames(event.tag, stack),
            },
            category: if allocates { event.tag.category.name() } else { UNKNOWN },
        }
    }

    /// The stack, or the caller's line alone.
    fn frames(&self, tag: Tag, stack: Option<StackId>) -> Vec<FrameJson<'_>> {
        match stack.and_then(|StackId(at)| self.stacks.get(at as usize)) {
            Some(stack) => {
                let frame = stack.iter().map(|Frame { name, file, line }| FrameJson { filename: file, line: *line, name });
                frame.collect()
            }
            None => vec![FrameJson { filename: tag.location.file(), line: tag.location.line(), name: tag.label }],
        }
    }
}
