//! The caching allocator: a state machine without wgpu, locks, clocks, threads or I/O.
//!
//! A **segment** is memory bought from the driver in one piece (one buffer). Buying is slow and can fail, so segments are
//! larger than most requests and are kept.
//!
//! A **block** is a piece of a segment. The blocks of a segment tile it; each is lent to one storage or free. A free block
//! remembers its *last uses*, the unsubmitted commands that may still touch its bytes. It is split to fit a request and
//! merged with free neighbours.
//!
//! The **pool** holds all of a device's segments, for all its streams. It never calls out: it decides and answers with
//! values, and whoever holds it does what the answer says.
//!
//! | direction | call |
//! |---|---|
//! | command | [`Pool::alloc`], [`Pool::free`], [`Pool::empty_cache`], [`Pool::set_limit`], [`Pool::set_category`], [`Pool::record_history`], [`Pool::compact`], [`Pool::pin`], [`Pool::import`], [`Pool::new_mem_pool`], [`Pool::drop_mem_pool`] |
//! | answer | [`Answer`] |
//! | report in | [`Pool::handle_segment`], [`Pool::handle_segment_failed`], [`Pool::handle_completed`], [`Pool::handle_context`] |
//! | ask out | [`Pool::poll_release`], [`Pool::poll_move`] |
//! | inspect | [`Pool::stats`], [`Pool::breakdown`], [`Pool::largest_holders`], [`Pool::snapshot`], [`Pool::validate`] |
//!
//! # Order instead of waiting
//!
//! Submission order is execution order (one queue), so a block is lent again the moment it is freed. Where a last use is
//! another stream's and not yet submitted, the answer names it in `after`: an order edge for the first command that
//! touches the block. The pool would rather buy than make a stream wait for another's long backlog. Only memory that goes
//! back to the driver waits for completion; until then it is *retiring* and still counts as reserved.
//!
//! # Moves
//!
//! Blocks are held by name, so a live one can move: [`Pool::poll_move`] hands out copies to enqueue, after every
//! [`Pool::alloc`] and [`Pool::compact`] and before anything else is enqueued. What they leave is lent in the same breath.
//! [`Compaction`] says when; pinned blocks stay.
//!
//! # The books
//!
//! requested + rounding = allocated; allocated + cached + retiring = reserved; always ([`Pool::breakdown`]).
//!
//! # Trying it
//!
//! [`sim`] is a pretend device behind the same seam:
//!
//! ```
//! use linn::ids::StreamId;
//! use linn::memory::{Category, Config, Tag, sim::SimDevice};
//!
//! const MIB: u64 = 1 << 20;
//! let (main, side) = (StreamId(0), StreamId(1));
//! let mut device = SimDevice::new(64 * MIB, Config { limit: 48 * MIB, ..Config::default() });
//! let tag = || Tag::here(Category::Temporary, "example");
//!
//! // A block is used on `main`, freed at once and, though nothing was submitted, lent again at the same place.
//! let mut first = device.alloc(main, 20 * MIB, tag())?;
//! let place = first.place;
//! device.use_on(main, &mut first);
//! device.free(first);
//! let mut again = device.alloc(main, 20 * MIB, tag())?;
//! assert_eq!(again.place, place);
//! assert!(again.after.is_empty(), "program order is enough on one stream");
//!
//! // On another stream the same reuse needs an order edge.
//! let fence = device.use_on(main, &mut again);
//! device.free(again);
//! let other = device.alloc(side, 20 * MIB, tag())?;
//! assert_eq!(other.place, place);
//! assert_eq!(other.after.of(main), Some(fence));
//!
//! // Running out is a value that says what to do, and everything goes on.
//! let report = device.alloc(main, 40 * MIB, tag()).unwrap_err();
//! assert!(report.to_string().contains("\nhelp: raise the limit to 60 MiB or more, or free the 20.0 MiB"));
//! assert!(device.alloc(main, 20 * MIB, tag()).is_ok());
//! device.pool().validate()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where to read next: `size_class` (sizes), `ladder` (the rungs), `free_list` (the choice of a block), `books` (blocks:
//! lent, split, merged), `segments` (bought, idle, released), `ledger` (counters), `compact`, `planner` and `layout`
//! (moves), `report` and `ways` (why a request failed, what would help), `history` and `snapshot` (what happened, what is
//! there), `check` (what is always true).

mod block;
mod books;
mod check;
mod compact;
mod counters;
mod free_list;
mod free_tree;
mod history;
mod import;
mod ladder;
mod layout;
mod ledger;
mod planner;
mod policy;
mod pool;
mod private;
pub mod pytorch;
mod report;
mod segments;
pub mod settings;
pub mod sim;
pub mod size_class;
mod snapshot;
mod stats;
mod ways;

pub use compact::{Compacted, Compaction, Move};
pub use history::{Action, Event, HistoryOptions, Recording, StackId, Stacks};
pub use ladder::{Answer, SegmentRequest};
pub use policy::{Caching, Category, Config, Policy, Request, Tag};
pub use pool::{Place, Pool};
pub use private::MemPoolOptions;
pub use report::{Bytes, Holder, OomCause, OomReport};
pub use snapshot::{BlockSnapshot, BlockState, Frame, SegmentSnapshot, Snapshot};
pub use stats::{Breakdown, PoolStats, PrivateStats, Stat, Stats};
pub use ways::Way;
