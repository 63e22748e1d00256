//! A fault at a statement, for tests of the whole program. Debug builds only.
//!
//! `FAULT_STATEMENT=N:kill` ends the process before its N-th statement. `N:stop` freezes it there
//! until SIGCONT. Statements of readers do not count.

use crate::StatementHook;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of statements of this process, over all its sessions.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The hook that the environment asks for.
pub(crate) fn hook() -> Option<StatementHook> {
    let plan = std::env::var("FAULT_STATEMENT").ok()?;
    let (number, action) = plan.split_once(':')?;
    let number: u64 = number.parse().ok()?;
    let signal = match action {
        "kill" => Signal::KILL,
        "stop" => Signal::STOP,
        _ => return None,
    };
    Some(Arc::new(move |_| {
        if COUNT.fetch_add(1, Ordering::Relaxed) + 1 == number {
            // A process can always signal itself.
            kill_process(getpid(), signal).ok();
        }
        true
    }))
}
