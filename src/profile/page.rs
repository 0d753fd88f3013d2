//! A snapshot as a page to look at: one file that needs no network and opens in any browser.
//!
//! It shows allocated and reserved bytes over time by category, the segments with their blocks at any moment, the largest
//! holders at that moment with file and line, and where memory ran out. Everything is computed here; the page only draws.
//! Its parts are plain files beside this one.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::lifetimes::{FOREVER, Use};
use crate::memory::{Action, Category, Policy, Snapshot, StackId, Tag};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(include_str!("page.js"), include_str!("page_hands.js"));

/// Columns of numbers rather than records: a tenth of the text, and quick to read.
#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    policy: &'static str,
    categories: Vec<&'static str>,
    overflowed: u64,
    limit: Option<u64>,
    sites: Vec<(&'static str, &'static str, u32)>,
    stacks: Vec<String>,
    actions: [&'static str; 11],
    events: Events,
    blocks: Blocks,
    segments: Segments,
    moved_bytes: u64,
}

#[derive(Default, Serialize)]
struct Events {
    action: Vec<u8>,
    /// Microseconds since the one before; the first since the epoch.
    time: Vec<i64>,
    size: Vec<u64>,
    site: Vec<u32>,
    /// Cached bytes at an `oom`.
    free: Vec<u64>,
}

/// `end` is -1 for what is there at the end.
#[derive(Default, Serialize)]
struct Blocks {
    begin: Vec<u32>,
    end: Vec<i64>,
    address: Vec<u64>,
    size: Vec<u64>,
    requested: Vec<u64>,
    /// An index of `categories`.
    category: Vec<u8>,
    stream: Vec<u32>,
    site: Vec<u32>,
    /// An index of `stacks`, or -1.
    stack: Vec<i64>,
}

#[derive(Default, Serialize)]
struct Segments {
    begin: Vec<u32>,
    end: Vec<i64>,
    address: Vec<u64>,
    size: Vec<u64>,
    stream: Vec<u32>,
}

const ACTIONS: [Action; 11] = [
    Action::Alloc,
    Action::FreeRequested,
    Action::FreeCompleted,
    Action::SegmentAlloc,
    Action::SegmentFree,
    Action::Oom,
    Action::Snapshot,
    Action::SetCategory,
    Action::SegmentRetiring,
    Action::SegmentRestored,
    Action::Move,
];

/// Numbers the lines of the program.
#[derive(Default)]
struct Sites {
    list: Vec<(&'static str, &'static str, u32)>,
    known: FxHashMap<(&'static str, &'static str, u32), u32>,
}

impl Sites {
    fn of(&mut self, tag: Tag) -> u32 {
        let site = (tag.label, tag.location.file(), tag.location.line());
        *self.known.entry(site).or_insert_with(|| {
            self.list.push(site);
            self.list.len() as u32 - 1
        })
    }
}

impl Snapshot {
    /// The snapshot as one HTML page with `title` over it.
    pub fn to_html(&self, title: &str) -> String {
        let data = serde_json::to_string(&self.page_data(title)).unwrap_or_default();
        // Inside a script element only `<` could end it.
        let data = data.replace('<', "\\u003c");
        let parts = [("/*style*/", STYLE), ("/*script*/", SCRIPT), ("/*data*/", data.as_str())];
        parts.iter().fold(HTML.to_owned(), |page, (mark, text)| page.replacen(mark, text, 1))
    }

    fn page_data<'a>(&self, title: &'a str) -> Data<'a> {
        let lifetimes = self.lifetimes();
        let (mut sites, mut events, mut blocks) = (Sites::default(), Events::default(), Blocks::default());
        let mut before = 0;
        for event in &self.trace {
            let action = ACTIONS.iter().position(|action| *action == event.action).unwrap_or(0);
            events.action.push(action as u8);
            events.time.push(event.time_us as i64 - before);
            before = event.time_us as i64;
            events.size.push(event.size);
            events.site.push(sites.of(event.tag));
            if event.action == Action::Oom {
                events.free.push(event.free);
            }
        }
        let end = |end: u32| if end == FOREVER { -1 } else { i64::from(end) };
        for stay in &lifetimes.blocks {
            blocks.begin.push(stay.begin);
            blocks.end.push(end(stay.end));
            blocks.address.push(stay.address);
            blocks.size.push(stay.size);
            blocks.requested.push(stay.requested);
            blocks.category.push(match stay.used {
                Use::Live(category) => category as u8,
                Use::Retiring => Category::ALL.len() as u8,
            });
            blocks.stream.push(stay.stream.0);
            blocks.site.push(sites.of(stay.tag));
            blocks.stack.push(stay.stack.map_or(-1, |StackId(at)| i64::from(at)));
        }
        let mut segments = Segments::default();
        for segment in &lifetimes.segments {
            segments.begin.push(segment.begin);
            segments.end.push(end(segment.end));
            segments.address.push(segment.address);
            segments.size.push(segment.size);
            segments.stream.push(segment.stream.0);
        }
        let stacks = self.stacks.iter().map(|stack| {
            let lines = stack.iter().map(|frame| format!("{}  {}:{}", frame.name, frame.file, frame.line));
            lines.collect::<Vec<_>>().join("\n")
        });
        Data {
            title,
            policy: if self.config.policy == Policy::Pytorch { "pytorch" } else { "linn" },
            categories: Category::ALL.into_iter().map(Category::name).chain(["retiring"]).collect(),
            overflowed: self.overflowed,
            limit: Some(self.config.effective_limit()).filter(|limit| *limit < 1 << 52),
            stacks: stacks.collect(),
            actions: ACTIONS.map(Action::name),
            moved_bytes: self.trace.iter().filter(|event| event.action == Action::Move).map(|event| event.block_size).sum(),
            sites: sites.list,
            events,
            blocks,
            segments,
        }
    }
}
