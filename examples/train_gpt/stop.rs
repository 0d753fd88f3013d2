//! Signals that ask the program to end. The first ends the training after the work that is
//! enqueued, and the checkpoint is saved; the second ends the program at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The first signal that came; 0 for none.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The signal that asked the program to end.
pub fn signal() -> Option<u8> {
    u8::try_from(SIGNAL.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
}

/// The program ends at once: what the main thread still finds out is no news.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Nothing is to be said any more.
pub fn at_once() -> bool {
    AT_ONCE.load(Ordering::Relaxed)
}

/// Waits for signals on a thread.
#[cfg(unix)]
pub fn watch() -> std::io::Result<()> {
    use signal_hook::consts::SIGHUP;
    use std::time::{Duration, Instant};

    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    SIGNAL.store(signal as usize, Ordering::Relaxed);
                    super::tell("ending after the work already enqueued, then saving; Ctrl-C again ends at once");
                }
                // One request can come as several signals: a shell passes a hang-up on, `timeout` signals twice.
                Some(first) if signal == SIGINT && first.elapsed() > Duration::from_millis(500) => {
                    super::tell("ended at once; nothing more was saved");
                    AT_ONCE.store(true, Ordering::Relaxed);
                    // Exit handlers would take the device from under the main thread.
                    signal_hook::low_level::exit(128 + signal)
                }
                Some(_) => {}
            }
        }
    })?;
    Ok(())
}

#[cfg(not(unix))]
pub fn watch() -> std::io::Result<()> {
    [SIGINT, SIGTERM]
        .iter()
        .try_for_each(|signal| signal_hook::flag::register_usize(*signal, SIGNAL.clone(), *signal as usize).map(|_| ()))
}

/// Whoever started this program wants it to survive the signal, as `nohup` does. Where the system does not say, nobody does.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
