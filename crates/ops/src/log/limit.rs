//! Limits log lines to ten of one kind per second, and counts the others. Otherwise someone who can
//! cause a log line repeatedly could fill the disk.
//!
//! Lines are of one kind if they come from the same place in the code. Lines that are left out are
//! counted, and reported when their second is over. A thread that runs while lines are left out
//! reports them, and so does the end of the program.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, callsite::Identifier};
use tracing_subscriber::{Layer, layer::Context};

/// Maximum lines of one kind that are written within one [`SPAN`].
pub(super) const LINES_MAX: u32 = 10;
/// The time over which lines of one kind are counted.
const SPAN: Duration = Duration::from_secs(1);
/// Maximum characters of a left-out line's text that are reported.
const WORDS_MAX: usize = 120;

/// Lines that were left out within one second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub level: Level,
    /// The text of the first line that was left out, without fields.
    pub message: String,
    pub lines: u64,
}

/// A function that logs a line about lines that were left out.
pub(super) type Say = Arc<dyn Fn(&LeftOut) + Send + Sync>;

/// The lines of one kind in its current second.
struct Count {
    until: Instant,
    said: u32,
    left_out: Option<LeftOut>,
}

/// The counts of lines by kind. This type uses no clock and starts no thread.
struct RepeatCounts<K> {
    kinds: HashMap<K, Count>,
    /// A thread that reports left-out lines is running.
    is_reporting: bool,
}

impl<K: std::hash::Hash + Eq> RepeatCounts<K> {
    fn new() -> Self {
        Self {
            kinds: HashMap::new(),
            is_reporting: false,
        }
    }

    /// Returns `true` if a line of this kind is written now. Otherwise the line is counted as left
    /// out, and `first_line` is called if it is the first line that is left out.
    fn admit(
        &mut self,
        kind: K,
        now: Instant,
        first_line: impl FnOnce() -> (Level, String),
    ) -> bool {
        let count = self.kinds.entry(kind).or_insert(Count {
            until: now + SPAN,
            said: 0,
            left_out: None,
        });
        // Lines left out of a past second are reported before new lines.
        if count.until <= now && count.left_out.is_none() {
            count.until = now + SPAN;
            count.said = 0;
        }
        if count.said < LINES_MAX {
            count.said += 1;
            return true;
        }
        let left_out = count.left_out.get_or_insert_with(|| {
            let (level, message) = first_line();
            LeftOut {
                level,
                message,
                lines: 0,
            }
        });
        left_out.lines += 1;
        false
    }

    /// Returns the counts of left-out lines whose second is over. Each count is returned once.
    fn due(&mut self, now: Instant) -> Vec<LeftOut> {
        let over = self.kinds.values_mut().filter(|count| count.until <= now);
        over.filter_map(|count| count.left_out.take()).collect()
    }

    /// Returns the end of the next second that has lines to report. `None` if there are no such
    /// lines.
    fn next(&self) -> Option<Instant> {
        let kinds = self.kinds.values().filter(|count| count.left_out.is_some());
        kinds.map(|count| count.until).min()
    }
}

struct LimiterState {
    counts: Mutex<RepeatCounts<Identifier>>,
    say: Say,
}

/// Lets ten lines of a kind through per second. Clones share their counts.
#[derive(Clone)]
pub(super) struct LogLimit(Arc<LimiterState>);

impl LogLimit {
    /// Makes a limit that calls `say` with the counts of left-out lines.
    pub(super) fn new(say: Say) -> Self {
        let counts = Mutex::new(RepeatCounts::new());
        Self(Arc::new(LimiterState { counts, say }))
    }

    /// Reports the lines left out so far, including those of the current second.
    pub(super) fn flush(&self) {
        // At this time, every second that is counted now is over.
        let ahead = Instant::now() + SPAN;
        let due = self.0.lock().due(ahead);
        self.0.say_all(&due);
    }

    fn admit(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        let now = Instant::now();
        let mut counts = self.0.lock();
        let taken = counts.admit(metadata.callsite(), now, || {
            (*metadata.level(), event_message(event))
        });
        if !taken && !counts.is_reporting {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("log-limit".to_owned());
            counts.is_reporting = thread.spawn(move || shared.report()).is_ok();
        }
        // Without the thread, left-out lines are reported with the next line of any kind.
        let due = if counts.is_reporting {
            Vec::new()
        } else {
            counts.due(now)
        };
        drop(counts);
        self.0.say_all(&due);
        taken
    }
}

impl LimiterState {
    fn lock(&self) -> MutexGuard<'_, RepeatCounts<Identifier>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_all(&self, due: &[LeftOut]) {
        for left_out in due {
            (self.say)(left_out);
        }
    }

    /// Reports left-out lines when they are due, until no more are left out.
    fn report(&self) {
        loop {
            let (due, next) = {
                let mut counts = self.lock();
                let due = counts.due(Instant::now());
                let next = counts.next();
                counts.is_reporting = next.is_some() || !due.is_empty();
                (due, next)
            };
            self.say_all(&due);
            match next {
                Some(at) => std::thread::sleep(at.saturating_duration_since(Instant::now())),
                None if due.is_empty() => return,
                // A line may have been left out during the report.
                None => {}
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.admit(event)
    }
}

fn event_message(event: &Event<'_>) -> String {
    struct Message(String);
    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            // A field with the same name comes after the message.
            if field.name() == "message" && self.0.is_empty() {
                // A value that cannot be written is shown up to the error.
                let _ = write!(Short(&mut self.0), "{value:?}");
            }
        }
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    message.0
}

/// A writer that keeps the first [`WORDS_MAX`] characters.
struct Short<'a>(&'a mut String);

impl fmt::Write for Short<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = WORDS_MAX.saturating_sub(self.0.chars().count());
        self.0.extend(text.chars().take(room));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    fn line_kind() -> (Level, String) {
        (Level::WARN, "one kind".to_owned())
    }

    fn time_after(begun: Instant, millis: u64) -> Instant {
        begun + Duration::from_millis(millis)
    }

    #[test]
    fn lines_beyond_ten_per_second_of_a_kind_are_counted() {
        let (mut counts, begun) = (RepeatCounts::new(), Instant::now());
        let taken = (0..1_000).filter(|n| counts.admit("flood", time_after(begun, *n), line_kind));
        assert_eq!(taken.count(), 10);
        assert!(
            counts.admit("other", time_after(begun, 999), line_kind),
            "another kind"
        );
        assert_eq!(counts.due(time_after(begun, 999)), []);
        assert_eq!(counts.next(), Some(time_after(begun, 1_000)));
        let left_out = LeftOut {
            level: Level::WARN,
            message: "one kind".to_owned(),
            lines: 990,
        };
        assert_eq!(counts.due(time_after(begun, 1_000)), [left_out]);
        assert_eq!(
            (counts.next(), counts.due(time_after(begun, 1_000))),
            (None, vec![])
        );
        assert!(
            counts.admit("flood", time_after(begun, 1_000), line_kind),
            "the next second"
        );
    }

    #[test]
    fn left_out_lines_are_counted_until_they_are_reported() {
        let (mut counts, begun) = (RepeatCounts::new(), Instant::now());
        let mut admitted = 0;
        for second in 0..5 {
            for _ in 0..100 {
                let now = begun + Duration::from_secs(second);
                admitted += u64::from(counts.admit("flood", now, line_kind));
            }
        }
        let due = counts.due(begun + Duration::from_secs(5));
        assert_eq!(
            admitted + due.iter().map(|left_out| left_out.lines).sum::<u64>(),
            500
        );
    }

    /// Makes a limit. Returns it with the receiver of its reports about left-out lines.
    fn limit() -> (LogLimit, std::sync::mpsc::Receiver<LeftOut>) {
        let (send, receive) = std::sync::mpsc::sync_channel(100);
        let limit = LogLimit::new(Arc::new(move |left_out: &LeftOut| {
            let _ = send.send(left_out.clone());
        }));
        (limit, receive)
    }

    fn flood(limit: &LogLimit) {
        let subscriber = tracing_subscriber::registry().with(limit.clone());
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..25 {
                tracing::warn!(n, "somebody {}", "knocks");
            }
        });
    }

    #[test]
    fn left_out_lines_are_reported_when_their_second_ends() {
        let (limit, reports) = limit();
        flood(&limit);
        let mut lines = 0;
        while lines < 15 {
            // Slow machines take more than a second for 25 lines, and leave out fewer.
            let patience = Duration::from_secs(5);
            let Ok(left_out) = reports.recv_timeout(patience) else {
                break;
            };
            assert_eq!(left_out.message, "somebody knocks");
            assert_eq!(left_out.level, Level::WARN);
            lines += left_out.lines;
        }
        assert!(lines > 0 && lines <= 15, "{lines}");
    }

    #[test]
    fn left_out_lines_are_reported_at_once_by_flush() {
        let (limit, reports) = limit();
        // Acts as if the system had refused to start a thread.
        limit.0.lock().is_reporting = true;
        flood(&limit);
        limit.flush();
        assert!(
            reports
                .try_recv()
                .is_ok_and(|left_out| left_out.lines <= 15)
        );
    }
}
