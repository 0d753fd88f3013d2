//! The caching allocator: a state machine without wgpu, locks, clocks, threads or I/O.
//!
//! Memory is bought from the driver in **segments** and lent out as **blocks**; a freed block is kept and lent
//! again. The **pool** decides and answers with values; whoever holds it does what the answer says:
//!
//! | direction | call |
//! |---|---|
//! | command | [`Pool::alloc`], [`Pool::free`], [`Pool::empty_cache`] |
//! | answer | [`Answer`] |
//! | report in | [`Pool::handle_segment`], [`Pool::handle_segment_failed`], [`Pool::handle_completed`] |
//! | ask out | [`Pool::poll_release`] |
//! | inspect | [`Pool::stats`], [`Pool::validate`] |

mod pool;

pub use pool::*;
