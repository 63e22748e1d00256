//! The time that a thread was on a core: what others do on the machine does not count.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How long this thread was on a core so far, to the nanosecond. (`/proc/thread-self/schedstat` is
/// brought up to date by the tick alone on some kernels: a short pass then takes no time.)
pub fn on_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("it never runs backwards");
    Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).expect("below a second"),
    )
}
