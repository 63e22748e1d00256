//! What a process holds over time, and whether that stays the same.

use rusqlite::Connection;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// The longest that one window of comparison lasts.
const WINDOW_MAX: Duration = Duration::from_secs(20 * 60);
/// The longest that is left to the start. What is used rarely is opened late: SQLite opens the log
/// for a connection that reads for the first time.
const START_MAX: Duration = Duration::from_secs(5 * 60);
/// The last window may hold so much more than the first, in hundredths.
const GROWTH_PERCENT_MAX: u64 = 5;
/// Of files and threads, which are few, so many more.
const GROWTH_MAX: u64 = 2;

/// The times that are compared: the first 20 minutes and the last. In a run shorter than an hour
/// each is a third of it. The first tenth, five minutes at most, is left to the start.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    pub first: (Duration, Duration),
    pub last: (Duration, Duration),
}

impl Windows {
    pub fn of(time: Duration) -> Self {
        let length = (time / 3).min(WINDOW_MAX);
        let begin = (time / 10).min(START_MAX);
        Self {
            first: (begin, begin.max(length)),
            last: (time - length, time),
        }
    }
}

/// What a process holds at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Duration,
    /// Resident memory, KiB.
    pub memory: u64,
    /// Open files and sockets.
    pub files: u64,
    pub threads: u64,
}

/// Looks at a process; `None` when it is gone.
pub fn sample(at: Duration, pid: u32) -> Option<Sample> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // They are root's alone to see: the process forbids dumps of itself.
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    Some(Sample {
        at,
        memory: number("VmRSS:")?,
        files: u64::try_from(files).ok()?,
        threads: number("Threads:")?,
    })
}

/// The value of a window that stands in so many hundredths of it; `None` for an empty one.
fn ranked(
    samples: &[Sample],
    window: (Duration, Duration),
    hundredths: usize,
    value: impl Fn(&Sample) -> u64,
) -> Option<u64> {
    let within = samples
        .iter()
        .filter(|it| (window.0..=window.1).contains(&it.at));
    let mut values: Vec<u64> = within.map(value).collect();
    values.sort_unstable();
    values.get(values.len() * hundredths / 100).copied()
}

/// A line for each thing held, and whether all of them stayed flat.
pub fn compare(name: &str, samples: &[Sample], windows: Windows) -> (String, bool) {
    let (mut table, mut flat) = (String::new(), true);
    type Value = fn(&Sample) -> u64;
    // A request opens a file for as long as it is under way, on a loaded machine most of the time;
    // what leaks is open at the quietest moment, too.
    let values: [(&str, u64, usize, Value); 3] = [
        ("resident memory, KiB", 0, 50, |it| it.memory),
        ("open files, fewest", GROWTH_MAX, 0, |it| it.files),
        ("threads, fewest", GROWTH_MAX, 0, |it| it.threads),
    ];
    for (what, more, hundredths, value) in values {
        let first = ranked(samples, windows.first, hundredths, value);
        let last = ranked(samples, windows.last, hundredths, value);
        let peak = samples.iter().map(value).max();
        let (Some(first), Some(last), Some(peak)) = (first, last, peak) else {
            let _ = writeln!(table, "{name:<8} {what:<21} too few samples");
            flat = false;
            continue;
        };
        let most = (first * (100 + GROWTH_PERCENT_MAX) / 100).max(first + more);
        let kept = last <= most;
        flat &= kept;
        let change = 100.0 * (last as f64 / first as f64 - 1.0);
        let word = if kept { "flat" } else { "GROWS" };
        let _ = writeln!(
            table,
            "{name:<8} {what:<21} {first:>9} {last:>9} {change:>+7.1} % {peak:>9}  {word}"
        );
    }
    (table, flat)
}

/// Sizes of a spool, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// The database as it lies on the disk.
    pub file: u64,
    /// The pages of it that hold rows and their indexes: all but the free ones.
    pub live: u64,
    /// The log of changes that stands beside it until it is taken over.
    pub log: u64,
}

impl Size {
    /// Of the spool in a state folder.
    pub fn of(state: &Path) -> Option<Self> {
        let length = |name: &str| std::fs::metadata(state.join(name)).map_or(0, |it| it.len());
        let spool = Connection::open(state.join("spool.db")).ok()?;
        let number = |what: &str| {
            let pragma = format!("PRAGMA {what}");
            spool
                .query_row(&pragma, [], |row| row.get::<_, i64>(0))
                .ok()
        };
        let used = number("page_count")? - number("freelist_count")?;
        Some(Self {
            file: length("spool.db"),
            live: (used * number("page_size")?).unsigned_abs(),
            log: length("spool.db-wal"),
        })
    }

    /// At most twice as much as lives in it.
    pub fn is_bounded(&self) -> bool {
        self.file <= 2 * self.live
    }
}
