//! The state machine: what it holds, its settings and what can be asked about it.

use std::collections::VecDeque;

use super::block::{Arena, Block, BlockState, Segment};
use super::compact::{Move, Wish};
use super::counters::Counters;
use super::free_list::FreeList;
use super::history::History;
use super::policy::{Category, Config, Policy, Tag};
use super::private::Private;
use super::pytorch::{self, Waiting};
use super::report::Holder;
use super::size_class::MAX_SEGMENT;
use super::snapshot::Addresses;
use crate::ids::{BlockId, FenceSet, SegmentId};

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer.
    pub segment: SegmentId,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes, rounded up from what was asked for.
    pub size: u64,
}

/// The caching allocator of one device. See the [module](super) for its words and its contract.
#[derive(Debug)]
pub struct Pool {
    pub(super) config: Config,
    pub(super) blocks: Arena<Block>,
    pub(super) segments: Arena<Segment>,
    /// Bytes that may be reserved: the share of the limit that the settings allow.
    pub(super) limit: u64,
    /// Free blocks of open segments that are everybody's.
    pub(super) free: FreeList,
    /// Private pools by number, from 1; `None` for those that were dropped.
    pub(super) private: Vec<Option<Box<Private>>>,
    /// Segments in state `Marked`.
    pub(super) marked: Vec<u32>,
    /// Segments in state `Retiring`.
    pub(super) retiring: Vec<u32>,
    /// Imported segments whose owners are done with them.
    pub(super) leaving: Vec<u32>,
    /// Bytes answered with `NeedSegment` and not yet reported.
    pub(super) pending: u64,
    /// Planned and not yet enqueued.
    pub(super) moves: VecDeque<Move>,
    /// A plan of moves that was looked for in vain, as long as looking again would be.
    pub(super) vain: Option<Wish>,
    /// Segments bought so far.
    pub(super) births: u32,
    /// Requests so far that a segment was bought for.
    pub(super) buyers: u32,
    /// Policy `pytorch`: freed blocks that other streams still use.
    pub(super) waiting: Vec<Waiting>,
    /// Policy `pytorch`: searches of the large pool, the clock of garbage collection.
    pub(super) searches: u64,
    pub(super) stats: Counters,
    /// Bytes asked for by live blocks, per category.
    pub(super) requested: [u64; Category::ALL.len()],
    /// Bytes of segments on their way back to the driver.
    pub(super) leaving_bytes: u64,
    pub(super) addresses: Addresses,
    /// Events, while they are recorded.
    pub(super) history: Option<Box<History>>,
}

impl Pool {
    /// An empty pool. The alignment becomes a power of two of at least 256 (policy `pytorch`: 512); divisions that are no
    /// powers of two count as none.
    pub fn new(mut config: Config) -> Pool {
        config.alignment = config.alignment.clamp(256, MAX_SEGMENT).next_power_of_two();
        if config.policy == Policy::Pytorch {
            config.alignment = config.alignment.max(pytorch::MIN_BLOCK);
        }
        config.roundup_power2_divisions =
            config.roundup_power2_divisions.map(|count| if count.is_power_of_two() { count } else { 0 });
        config.max_segment = config.max_segment.min(MAX_SEGMENT);
        let stats = Counters { max_split_size: config.max_split_size, ..Counters::default() };
        Pool {
            limit: config.effective_limit(),
            config,
            blocks: Arena::new(),
            segments: Arena::new(),
            free: FreeList::default(),
            private: Vec::new(),
            marked: Vec::new(),
            retiring: Vec::new(),
            leaving: Vec::new(),
            pending: 0,
            moves: VecDeque::new(),
            vain: None,
            births: 0,
            buyers: 0,
            waiting: Vec::new(),
            searches: 0,
            stats,
            requested: [0; Category::ALL.len()],
            leaving_bytes: 0,
            addresses: Addresses::default(),
            history: None,
        }
    }

    /// Bytes that may be reserved from now on, of which the settings may allow a share only. Idle segments above that are
    /// marked for release; blocks that are lent stay.
    pub fn set_limit(&mut self, limit: u64) {
        self.config.limit = limit;
        self.limit = self.config.effective_limit();
        let leaving: u64 = self.marked.iter().chain(&self.retiring).map(|at| self.segments[*at].size).sum();
        let mut stays = self.stats.reserved_bytes.current - leaving;
        for segment in self.idle_segments() {
            if stays <= self.limit {
                break;
            }
            stays -= self.segments[segment].size;
            self.mark(segment);
        }
    }

    /// Where a lent block lies.
    pub fn place(&self, block: BlockId) -> Place {
        let record = &self.blocks[block.0];
        Place { segment: SegmentId(record.segment), offset: record.offset, size: record.size }
    }

    /// Unsubmitted commands (as of its last free) that used the bytes of a lent block before: those of the stream that
    /// asked, which program order covers, included. A first use on *another* stream must be ordered after these.
    pub fn inherited(&self, block: BlockId) -> &FenceSet {
        &self.blocks[block.0].uses
    }

    /// Gives `tag` of a lent block, for reports.
    pub fn tag(&self, block: BlockId) -> Tag {
        self.blocks[block.0].tag
    }

    /// Bytes that may be reserved; `u64::MAX` for no limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of live blocks, and the most so far.
    pub fn allocated(&self) -> (u64, u64) {
        (self.stats.allocated_bytes.current, self.stats.allocated_bytes.peak)
    }

    /// Bytes bought from the driver and not given back, and the most so far.
    pub fn reserved(&self) -> (u64, u64) {
        (self.stats.reserved_bytes.current, self.stats.reserved_bytes.peak)
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The `count` largest holders of live memory, by label and caller's line, largest first.
    pub fn largest_holders(&self, count: usize) -> Vec<Holder> {
        let lent = self.blocks.iter().map(|(_, block)| block).filter(|block| block.state == BlockState::Lent);
        let mut all = Holder::sum(lent.map(|block| (block.tag, block.size)));
        all.truncate(count);
        all
    }
}
