//! Measures the resources of a process over time, and checks whether the resources stay the same.

use rusqlite::Connection;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// The longest window of a comparison.
const WINDOW_MAX: Duration = Duration::from_secs(20 * 60);
/// The longest time that is ignored at the start. Some files are opened late: SQLite opens the log
/// for a connection when it reads for the first time.
const START_MAX: Duration = Duration::from_secs(5 * 60);
/// The last window can be larger than the first by this percentage.
const GROWTH_PERCENT_MAX: u64 = 5;
/// Allowed growth of files and threads, which are few.
const GROWTH_MAX: u64 = 2;

/// The times that are compared: the first 20 minutes and the last. In a run of less than an hour,
/// each is a third of it. The first tenth, at most five minutes, is ignored.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    pub first: (Duration, Duration),
    pub last: (Duration, Duration),
}

impl Windows {
    pub fn for_run(time: Duration) -> Self {
        let length = (time / 3).min(WINDOW_MAX);
        let begin = (time / 10).min(START_MAX);
        Self {
            first: (begin, begin.max(length)),
            last: (time - length, time),
        }
    }
}

/// The resources of a process at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Duration,
    /// Resident memory, in KiB.
    pub memory: u64,
    /// Number of open files and sockets.
    pub files: u64,
    pub threads: u64,
}

/// Measures a process. Returns `None` if it has ended.
pub fn sample(at: Duration, pid: u32) -> Option<Sample> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // Only root can see the open files, because the process forbids memory dumps.
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    Some(Sample {
        at,
        memory: number(&status, "VmRSS:")?,
        files: u64::try_from(files).ok()?,
        threads: number(&status, "Threads:")?,
    })
}

/// Returns the number with this name, such as `VmRSS:`, in a `/proc/PID/status`.
fn number(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the value at the percentile `hundredths` of a window, or `None` if the window is empty.
fn percentile(
    samples: &[Sample],
    window: (Duration, Duration),
    hundredths: usize,
    value: impl Fn(&Sample) -> u64,
) -> Option<u64> {
    let in_window = samples
        .iter()
        .filter(|sample| (window.0..=window.1).contains(&sample.at));
    let mut values: Vec<u64> = in_window.map(value).collect();
    values.sort_unstable();
    values.get(values.len() * hundredths / 100).copied()
}

/// Returns a line for each resource, and whether all of them stayed the same.
pub fn compare(name: &str, samples: &[Sample], windows: Windows) -> (String, bool) {
    let (mut table, mut flat) = (String::new(), true);
    type Value = fn(&Sample) -> u64;
    // A request keeps a file open while it is under way, which on a busy machine is most of the
    // time. A leaked file is open at the quietest moment too.
    let values: [(&str, u64, usize, Value); 3] = [
        ("resident memory, KiB", 0, 50, |sample| sample.memory),
        ("open files, fewest", GROWTH_MAX, 0, |sample| sample.files),
        ("threads, fewest", GROWTH_MAX, 0, |sample| sample.threads),
    ];
    for (what, more, hundredths, value) in values {
        let first = percentile(samples, windows.first, hundredths, value);
        let last = percentile(samples, windows.last, hundredths, value);
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

/// Returns the length of a file in bytes, or 0 without the file.
fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Returns the number that a pragma of SQLite reports.
fn pragma(spool: &Connection, name: &str) -> Option<i64> {
    let query = format!("PRAGMA {name}");
    let number = spool.query_row(&query, [], |row| row.get(0));
    number.ok()
}

/// Sizes of a spool, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// The size of the database file.
    pub file: u64,
    /// The pages with rows and indexes, without free pages.
    pub live: u64,
    /// The write-ahead log.
    pub log: u64,
}

impl Size {
    /// Measures the spool in a state folder.
    pub fn measure(state: &Path) -> Option<Self> {
        let spool = Connection::open(state.join("spool.db")).ok()?;
        let used = pragma(&spool, "page_count")? - pragma(&spool, "freelist_count")?;
        Some(Self {
            file: length(&state.join("spool.db")),
            live: (used * pragma(&spool, "page_size")?).unsigned_abs(),
            log: length(&state.join("spool.db-wal")),
        })
    }

    /// Returns `true` if the file is at most twice as large as its live pages.
    pub fn is_bounded(&self) -> bool {
        self.file <= 2 * self.live
    }
}
