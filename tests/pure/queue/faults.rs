//! Mistakes that the simulation has to notice, each within so many seeds and with a program short enough to read.

use super::explore::{first_failure, minimal, run};

/// One thing that host or queue do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No order edges for reads.
    ReadNotTold,
    /// Read after write is ordered one command late.
    ReadToldLate,
    /// Writes order like reads.
    WriteToldAsRead,
    /// Write after read and write after write are ordered one command late.
    WriteToldLate,
    /// An op that writes what it reads counts as a reader.
    InPlaceToldAsRead,
    /// A block is used without the edges that its memory came with.
    ReuseForgotten,
    /// A block is lent again as if nothing had used it.
    LastUsesForgotten,
    /// `wait_event` and `wait_stream` do nothing.
    WaitIgnored,
    /// An event forgets what its stream waits for.
    PendingNotRecorded,
    /// `record_stream` does nothing.
    ForeignForgotten,
    /// A move does not wait for what used its new place.
    MoveEdgesForgotten,
    /// The table of places changes when a move is enqueued, not when it is encoded.
    MovedAtOnce,
    /// Staging memory is written again once the copy is submitted.
    StagingReusedEarly,
    /// The host is given the bytes of a read once the copy is submitted.
    ReadAnsweredEarly,
    /// One submission more counts as done than was executed.
    ReportedEarly,
    /// Memory counts as given back to the driver while work in flight uses it.
    GivenBackEarly,
    /// A batch is encoded stream by stream.
    EncodedByStream,
    /// A flush takes what was asked for and not what has to go before.
    TargetNotClosed,
    /// Urgent streams go first, whatever they depend on.
    UrgentIgnoresEdges,
    /// A loss is not told to those who wait.
    LossNotTold,
    /// A loss leaves commands recorded.
    RecordingsKept,
    /// What waits for another device goes to the driver.
    HoldIgnored,
    /// A loss leaves commands held that nobody will open.
    HeldAfterLoss,
}

const ALL: [Fault; 23] = [
    Fault::ReadNotTold,
    Fault::ReadToldLate,
    Fault::WriteToldAsRead,
    Fault::WriteToldLate,
    Fault::InPlaceToldAsRead,
    Fault::ReuseForgotten,
    Fault::LastUsesForgotten,
    Fault::WaitIgnored,
    Fault::PendingNotRecorded,
    Fault::ForeignForgotten,
    Fault::MoveEdgesForgotten,
    Fault::MovedAtOnce,
    Fault::StagingReusedEarly,
    Fault::ReadAnsweredEarly,
    Fault::ReportedEarly,
    Fault::GivenBackEarly,
    Fault::EncodedByStream,
    Fault::TargetNotClosed,
    Fault::UrgentIgnoresEdges,
    Fault::LossNotTold,
    Fault::RecordingsKept,
    Fault::HoldIgnored,
    Fault::HeldAfterLoss,
];

/// Seeds within which each fault is noticed.
const SEEDS: u64 = 20_000;
/// Steps of the program that is left.
const STEPS: usize = 14;

#[test]
fn every_fault_is_noticed_and_shrinks_to_a_short_program() {
    for fault in ALL {
        let Some(failure) = first_failure(1..=SEEDS, Some(fault)) else { panic!("{fault:?} is not noticed") };
        let program = minimal(failure.program, Some(fault));
        let text = run(&program, Some(fault)).expect_err("still fails");
        println!("{fault:?}: seed {}, {} steps: {text}", failure.seed, program.steps.len());
        assert!(program.steps.len() <= STEPS, "{fault:?}: {program}");
        assert_eq!(run(&program, None), Ok(()), "{fault:?}: the program is fine without it");
    }
}
