//! The only module that reads clocks. Pure modules receive a [`Now`].

use callbridge_call::{ClockDifference, EventTime};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The current time on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, for times that are compared with other machines. It can step.
    pub wall: EventTime,
    /// Time since boot, including suspend (`CLOCK_BOOTTIME`), for the request rate. It never steps.
    pub boot: Duration,
}

/// A longer jump of the wall clock against the time since boot counts as a change. Either the wall
/// clock was set, or the machine was stopped with both of its clocks.
const JUMP: Duration = Duration::from_secs(2);

/// The wall clock minus the time since boot, in microseconds. A change shows that the wall clock
/// was set or that both clocks stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// Makes the offset of two readings that were taken together.
    pub fn from_readings(wall: EventTime, boot: Duration) -> Self {
        let boot = i64::try_from(boot.as_micros()).unwrap_or(i64::MAX);
        Self(wall.micros().saturating_sub(boot))
    }

    /// Makes the offset from the value of [`ClockOffset::micros`].
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds, so an atomic can hold the offset.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Returns `true` if the wall clock jumped forward between this offset and `later`. Events of
    /// the skipped time are not known.
    pub fn has_jumped(self, later: Self) -> bool {
        let by = later.0.saturating_sub(self.0);
        u64::try_from(by).is_ok_and(|by| Duration::from_micros(by) > JUMP)
    }
}

impl Now {
    /// Returns the current offset of the wall clock to the boot clock.
    pub fn offset(self) -> ClockOffset {
        ClockOffset::from_readings(self.wall, self.boot)
    }
}

/// Reads both clocks, one directly after the other.
#[allow(clippy::disallowed_methods)] // this is the place that reads them
pub fn now() -> Now {
    let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => EventTime::from_micros(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)),
        Err(_) => EventTime::from_micros(0),
    };
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let boot = Duration::new(
        u64::try_from(boot.tv_sec).unwrap_or(0),
        u32::try_from(boot.tv_nsec).unwrap_or(0),
    );
    Now { wall, boot }
}

/// The offset of the steady clock to the boot clock in microseconds. `NOT_SET` before its first
/// use.
static STEADY: AtomicI64 = AtomicI64::new(NOT_SET);
const NOT_SET: i64 = i64::MIN;

/// Reads the steady clock. It had the value of the wall clock when it was first read or last set,
/// and has followed the boot clock since. It never steps, so it is used for arrivals of events.
pub fn steady() -> EventTime {
    steady_at(now())
}

/// Returns how far the wall clock is ahead of the steady clock.
pub fn wall_ahead() -> ClockDifference {
    let now = now();
    ClockDifference::between(now.wall, steady_at(now))
}

/// Sets the steady clock to the wall clock, after a wrong wall clock was corrected.
pub fn set_steady() {
    STEADY.store(now().offset().micros(), Ordering::SeqCst);
}

fn steady_at(now: Now) -> EventTime {
    let wall = now.offset().micros();
    let first = STEADY.compare_exchange(NOT_SET, wall, Ordering::SeqCst, Ordering::SeqCst);
    let offset = match first {
        Ok(_) => wall,
        Err(known) => known,
    };
    let boot = i64::try_from(now.boot.as_micros()).unwrap_or(i64::MAX);
    EventTime::from_micros(boot.saturating_add(offset))
}

/// Returns the kernel's id of this boot (`/proc/sys/kernel/random/boot_id`). A time since boot has
/// no meaning in another boot. `None` if the kernel does not show it.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
