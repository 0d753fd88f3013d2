//! Histories as workloads: the trace of a snapshot ([`Snapshot::to_json`](crate::memory::Snapshot::to_json), or PyTorch's
//! snapshot written as JSON), to be replayed.

use std::collections::HashMap;

use serde::Deserialize;

use super::replay::{Row, Workload};
use crate::error::{Error, Result};
use crate::ids::StreamId;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    segments: Vec<Segment>,
    #[serde(default)]
    device_traces: Vec<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(default)]
    device: usize,
    #[serde(default)]
    stream: u64,
    #[serde(default)]
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    address: u64,
    #[serde(default)]
    requested_size: u64,
    state: String,
}

#[derive(Deserialize)]
struct Entry {
    action: String,
    #[serde(default)]
    addr: u64,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    stream: u64,
}

/// Rows in the making.
#[derive(Default)]
struct Rows {
    /// What lived before the first event.
    start: Vec<Row>,
    rows: Vec<Row>,
    live: HashMap<u64, u64>,
    ids: u64,
    streams: HashMap<u64, u32>,
}

impl Rows {
    fn alloc(&mut self, size: u64, stream: u64) -> (u64, Row) {
        let id = self.ids;
        self.ids += 1;
        // PyTorch's streams are handles: numbered as they appear, the default stream stays 0.
        let next = self.streams.len() as u32 + 1;
        let stream = if stream == 0 { 0 } else { *self.streams.entry(stream).or_insert(next) };
        (id, Row::Alloc { id, size, stream: StreamId(stream) })
    }

    fn take(&mut self, entry: &Entry) {
        match entry.action.as_str() {
            "alloc" if entry.size > 0 => {
                let (id, row) = self.alloc(entry.size, entry.stream);
                // The trace may leave out frees.
                if let Some(id) = self.live.insert(entry.addr, id) {
                    self.rows.push(Row::Free { id });
                }
                self.rows.push(row);
            }
            "free_completed" if entry.size > 0 => {
                let id = self.live.remove(&entry.addr).unwrap_or_else(|| {
                    let (id, row) = self.alloc(entry.size, entry.stream);
                    self.start.push(row);
                    id
                });
                self.rows.push(Row::Free { id });
            }
            _ => {}
        }
    }
}

impl Workload {
    /// The allocations of a recorded history, from a snapshot as JSON: linn's, or PyTorch's, which has the same form (its
    /// pickle must be written as JSON first).
    ///
    /// Blocks that were there before the first event come first. Of several devices the first with events counts. When a
    /// block could be lent again (`free_completed`) it is freed; what the recorded allocator bought, gave back or failed at
    /// was its own affair. A move is a free and an allocation, as the file says.
    ///
    /// # Errors
    /// [`Error::File`] for what is no snapshot, or one without a history.
    pub fn from_snapshot(name: &str, json: &str) -> Result<Workload> {
        let help = "pass what Snapshot::to_json or json.dump(torch.cuda.memory._snapshot(), file) wrote";
        let file: File =
            serde_json::from_str(json).map_err(|error| Error::file(format!("{name} is no snapshot: {error}"), help))?;
        let mut rows = Rows::default();
        let trace = file.device_traces.iter().enumerate().find(|(_, trace)| trace.iter().any(|entry| entry.action == "alloc"));
        let (device, trace) = trace.ok_or_else(|| {
            let help = "call record_memory_history(Some(HistoryOptions::default())) before what is to be replayed";
            Error::file(format!("{name} holds no history of allocations"), help)
        })?;
        trace.iter().for_each(|entry| rows.take(entry));
        for segment in file.segments.iter().filter(|segment| segment.device == device) {
            for block in segment.blocks.iter().filter(|block| block.state == "active_allocated" && block.requested_size > 0) {
                if !rows.live.contains_key(&block.address) {
                    let (_, row) = rows.alloc(block.requested_size, segment.stream);
                    rows.start.push(row);
                }
            }
        }
        rows.start.extend(rows.rows);
        Ok(Workload { name: name.into(), rows: rows.start })
    }
}
