//! The queue without a device: its submit policy as a pure function, and a simulation of all of floor 1 under that policy.
//!
//! The simulation is a host program ([`program`]) whose calls go through the real pool, timeline, place table, wishes and
//! policy ([`host`], [`submit`]) to a model of a device that executes on small integers ([`device`]), late, in bursts or never.
//! Beside it every command takes effect at the moment it is enqueued: serial execution. [`world`] says what always holds,
//! [`faults`] are mistakes that the simulation has to notice.

mod device;
mod explore;
mod faults;
mod host;
mod program;
mod rules;
mod submit;
mod world;

#[allow(unused_imports)]
#[path = "../../../src/stream/policy.rs"]
mod policy;
