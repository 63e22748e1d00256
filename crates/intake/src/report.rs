//! Log messages about a source's connection. There's one when an outage starts, one when it ends,
//! and only a few if the connection is lost frequently. Changes beyond that limit are added up and
//! logged with the next message. This is pure code that's given `now` by the caller.

use super::gap_log::Gap;
use callbridge_call::EventTime;
use std::time::Duration;

/// How many lines can be logged about a source in quick succession.
const ROOM: u32 = 8;
/// How long it takes until one more line is allowed.
const ONE_MORE_AFTER: Duration = Duration::from_secs(300);

/// What has changed about a source's connection since that was last logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// `true` if the source came up, `false` if it went down, or `None` if its state hasn't
    /// changed.
    pub up: Option<bool>,
    /// Why the source is or was down, or why events are missing.
    pub why: Option<String>,
    /// From the start of the first gap to the end of the last one.
    pub gap: Option<(EventTime, EventTime)>,
    /// The total length of all gaps in that time.
    pub missing: Duration,
    pub gaps: u32,
    /// How many times the connection came up.
    pub reconnects: u32,
}

impl News {
    /// Logs the changes.
    pub fn log(&self, source: &str) {
        let reconnects = if self.reconnects > 1 {
            Some(self.reconnects)
        } else {
            None
        };
        let gaps = if self.gaps > 1 { Some(self.gaps) } else { None };
        let message = match (self.up, self.gap) {
            (Some(true), None) => {
                return tracing::info!(source, reconnects, "the source is up");
            }
            (Some(true), Some(_)) => {
                "the source is up again, after a gap: events of that time were not received"
            }
            (Some(false), _) => "the source is down",
            (None, Some(_)) => "a gap: events of that time were not received",
            (None, None) => "events may be missing",
        };
        tracing::warn!(
            source,
            reason = self.why.as_deref(),
            from = self.gap.map(|(from, _)| tracing::field::display(from)),
            until = self.gap.map(|(_, until)| tracing::field::display(until)),
            missing_sec = self.gap.map(|_| self.missing.as_secs()),
            gaps,
            reconnects,
            "{message}"
        );
    }
}

/// The log of a source's connection, with the lines used up and the changes still to be logged.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// How many of the [`ROOM`] lines have been used up.
    logged: u32,
    /// Since when [`ONE_MORE_AFTER`] has been counted for the next allowed line.
    filled: Option<EventTime>,
    unreported: Option<News>,
    /// Why the connection went down, or `None` while it's up.
    down: Option<String>,
}

impl Report {
    pub(super) fn up(&mut self) {
        let why = self.down.take();
        let news = self.unreported.get_or_insert_default();
        news.up = Some(true);
        news.reconnects += 1;
        news.why = why.or(news.why.take());
    }

    /// Records that the connection is down. If the reason changes during an outage, the new one
    /// isn't logged until the outage ends. With `is_ours`, the cause is our secret or a setting, so
    /// the reason is logged immediately, because someone has to fix it.
    pub(super) fn down(&mut self, why: String, is_ours: bool) {
        let is_known = self.down.replace(why.clone()).is_some();
        if is_known && !is_ours && self.unreported.is_none() {
            return;
        }
        let news = self.unreported.get_or_insert_default();
        news.up = Some(false);
        news.why = Some(why);
    }

    /// Records that the source reported missing events, for the reason `why`.
    pub(super) fn note_loss(&mut self, why: String) {
        self.unreported.get_or_insert_default().why = Some(why);
    }

    /// Adds a gap that has ended to the log message.
    pub(super) fn gap(&mut self, gap: &Gap) {
        let news = self.unreported.get_or_insert_default();
        let from = news.gap.map_or(gap.from, |(from, _)| from.min(gap.from));
        news.gap = Some((from, gap.until));
        news.missing += gap.until.since(gap.from);
        news.gaps += 1;
    }

    /// Takes the changes once the log allows another line.
    pub(super) fn take(&mut self, now: EventTime) -> Option<News> {
        self.unreported.as_ref()?;
        let filled = *self.filled.get_or_insert(now);
        let more = now.since(filled).as_secs() / ONE_MORE_AFTER.as_secs();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(ROOM);
            self.logged = self.logged.saturating_sub(more);
            self.filled = Some(now);
        }
        if self.logged >= ROOM {
            return None;
        }
        self.logged += 1;
        self.unreported.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(second: i64) -> EventTime {
        EventTime::from_seconds(1_795_000_000 + second)
    }

    fn gap(from: i64, until: i64) -> Gap {
        Gap {
            from: time_at(from),
            until: time_at(until),
        }
    }

    #[test]
    fn reconnect_is_logged_on_one_line_with_gap_and_reason() {
        let mut report = Report::default();
        report.down("cut".to_owned(), false);
        assert!(report.take(time_at(0)).is_some());
        report.up();
        report.gap(&gap(-2, 3));
        let news = report.take(time_at(3)).expect("a line");
        assert_eq!((news.up, news.why.as_deref()), (Some(true), Some("cut")));
        assert_eq!(news.gap, Some((time_at(-2), time_at(3))));
        assert_eq!(report.take(time_at(4)), None);
    }

    #[test]
    fn outage_with_several_reasons_logs_two_lines() {
        let mut report = Report::default();
        let mut lines = Vec::new();
        for outage in 0..4 {
            for (second, why) in [(0, "closed"), (1, "refused"), (5, "reset"), (9, "refused")] {
                let now = outage * 20 + second;
                report.down(why.to_owned(), false);
                lines.extend(report.take(time_at(now)));
            }
            report.up();
            lines.extend(report.take(time_at(outage * 20 + 12)));
        }
        let logged = lines
            .iter()
            .map(|news: &News| (news.up, news.why.as_deref()));
        let logged: Vec<_> = logged.collect();
        let outage = [(Some(false), Some("closed")), (Some(true), Some("refused"))];
        assert_eq!(logged, outage.repeat(4));
    }

    #[test]
    fn problem_for_a_person_to_fix_is_logged_during_an_outage() {
        let mut report = Report::default();
        report.down("refused".to_owned(), false);
        report.take(time_at(0));
        report.down("wrong secret".to_owned(), true);
        let logged = report.take(time_at(1));
        assert_eq!(
            logged.and_then(|news| news.why).as_deref(),
            Some("wrong secret")
        );
    }

    #[test]
    fn flapping_source_logs_rarely_and_counts_every_gap() {
        let mut report = Report::default();
        let mut lines: Vec<News> = Vec::new();
        for n in 0..720 {
            let now = n * 5;
            report.down("cut".to_owned(), false);
            lines.extend(report.take(time_at(now)));
            report.up();
            report.gap(&gap(now, now + 2));
            lines.extend(report.take(time_at(now + 2)));
        }
        for now in 3_600..4_000 {
            lines.extend(report.take(time_at(now)));
        }
        let number = lines.len();
        assert!((10..=20).contains(&number), "{number} lines in an hour");
        let (mut gaps, mut missing, mut ups) = (0, Duration::ZERO, 0);
        for news in &lines {
            gaps += news.gaps;
            missing += news.missing;
            ups += news.reconnects;
        }
        assert_eq!((gaps, missing, ups), (720, Duration::from_secs(1_440), 720));
        let last = lines.last().and_then(|news| news.up);
        assert_eq!(last, Some(true), "the last line says how it is");
    }
}
