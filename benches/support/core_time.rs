//! CPU time of a thread. Other load on the machine does not count.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time of this thread so far, in nanoseconds. On some kernels,
/// `/proc/thread-self/schedstat` is only updated by the tick, so a short pass would take no time.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("it never runs backwards");
    Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).expect("below a second"),
    )
}
