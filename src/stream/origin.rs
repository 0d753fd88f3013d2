//! On whose behalf memory is asked for, where the library's own lines stand between: a backward pass, an optimizer's step.
//!
//! Holders of memory are named by the line of the program. Most calls carry it down with `#[track_caller]`; where closures
//! and tables of rules come between, the outermost call leaves its line here.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    static ORIGIN: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Until it is dropped, what this thread allocates is asked for by the outermost origin's line.
pub(crate) struct Origin(Option<&'static Location<'static>>);

impl Origin {
    /// The caller's line, unless an outer call has left its own.
    #[track_caller]
    pub(crate) fn enter() -> Origin {
        let before = ORIGIN.get();
        ORIGIN.set(Some(before.unwrap_or(Location::caller())));
        Origin(before)
    }

    /// The line that asks: the outermost origin's, else the caller's.
    #[track_caller]
    pub(crate) fn line() -> &'static Location<'static> {
        ORIGIN.get().unwrap_or(Location::caller())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        ORIGIN.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_line_counts_while_it_lasts() {
        let here = line!() + 1;
        let outer = Origin::enter();
        let inner = Origin::enter();
        assert_eq!(Origin::line().line(), here);
        drop(inner);
        assert_eq!(Origin::line().line(), here);
        drop(outer);
        assert_eq!(Origin::line().line(), line!());
    }
}
