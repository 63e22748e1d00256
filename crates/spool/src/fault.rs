//! Injects failures at a given statement, for tests of the whole program. Debug builds only.
//!
//! `FAULT_STATEMENT=N:kill` kills the process right before its Nth statement, and `N:stop` freezes
//! it there until SIGCONT. `FILE:count` writes each statement's number to a file. Readers'
//! statements aren't counted.

use crate::StatementHook;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of statements run by this process, across all its sessions.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// How long a thread waits after sending its process a signal. The process's threads keep running
/// for a moment after that, but the statement must not run any more.
const STOPPED_WITHIN: Duration = Duration::from_millis(50);

/// Returns the hook described by the environment variable `FAULT_STATEMENT`.
pub(crate) fn hook() -> Option<StatementHook> {
    let plan = std::env::var("FAULT_STATEMENT").ok()?;
    let (place, action) = plan.rsplit_once(':')?;
    if action == "count" {
        let file = place.to_owned();
        return Some(Arc::new(move |_| {
            let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
            // If the file is missing, the test fails.
            std::fs::write(&file, count.to_string()).ok();
            true
        }));
    }
    let number: u64 = place.parse().ok()?;
    let signal = match action {
        "kill" => Signal::KILL,
        "stop" => Signal::STOP,
        _ => return None,
    };
    Some(Arc::new(move |_| {
        if COUNT.fetch_add(1, Ordering::Relaxed) + 1 == number {
            // A process can always signal itself.
            kill_process(getpid(), signal).ok();
            std::thread::park_timeout(STOPPED_WITHIN);
        }
        true
    }))
}
