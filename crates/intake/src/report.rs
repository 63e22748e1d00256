//! What is told of a source's line in the log: one line as an outage begins and one as it ends, and
//! few where it comes and goes. What finds no room is added up and told with the next. Pure: `now`
//! comes in from outside.

use super::gap_log::Gap;
use callbridge_call::EventTime;
use std::time::Duration;

/// So many lines are told of a source one after the other.
const ROOM: u32 = 8;
/// And one more after each of these times.
const ONE_MORE_AFTER: Duration = Duration::from_secs(300);

/// Changes of a source's line since they were last logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// New state, up or down; `None` where it has not changed.
    pub up: Option<bool>,
    /// Reason for which it is or was down, or events are missing.
    pub why: Option<String>,
    /// Span of the gaps: the first beginning and the last end.
    pub gap: Option<(EventTime, EventTime)>,
    /// The length of all gaps in it.
    pub missing: Duration,
    /// Number of gaps in that span.
    pub gaps: u32,
    /// Times the line came up.
    pub reconnects: u32,
}

impl News {
    /// Logs it, with what there is to say.
    pub fn log(&self, source: &str) {
        let reason = self.why.as_deref();
        let (from, until) = (self.gap.map(|it| it.0), self.gap.map(|it| it.1));
        let from = from.as_ref().map(tracing::field::display);
        let until = until.as_ref().map(tracing::field::display);
        let missing_sec = self.gap.map(|_| self.missing.as_secs());
        let gaps = (self.gaps > 1).then_some(self.gaps);
        let reconnects = (self.reconnects > 1).then_some(self.reconnects);
        let words = match (self.up, self.gap) {
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
            reason,
            from,
            until,
            missing_sec,
            gaps,
            reconnects,
            "{words}"
        );
    }
}

/// The lines of all sources.
#[derive(Debug, Default)]
pub struct Reports(Vec<Report>);

#[derive(Debug, Default)]
struct Report {
    /// Of the room for lines, so much is taken.
    logged: u32,
    /// Moment from which the next room for a line is counted.
    filled: Option<EventTime>,
    unreported: Option<News>,
    /// Reason for which the line went down; `None` while it is up.
    down: Option<String>,
}

impl Reports {
    fn of(&mut self, at: usize) -> &mut Report {
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Report::default);
        }
        &mut self.0[at]
    }

    /// The line of the source at this place is up.
    pub fn up(&mut self, at: usize) {
        let report = self.of(at);
        let why = report.down.take();
        let news = report.unreported.get_or_insert_default();
        news.up = Some(true);
        news.reconnects += 1;
        news.why = why.or(news.why.take());
    }

    /// Notes that the line is down. In one outage another reason is logged with its end, unless it
    /// is one of `ours`, which somebody has to mend.
    pub fn down(&mut self, at: usize, why: String, is_ours: bool) {
        let report = self.of(at);
        let is_known = report.down.replace(why.clone()).is_some();
        if is_known && !is_ours && report.unreported.is_none() {
            return;
        }
        let news = report.unreported.get_or_insert_default();
        news.up = Some(false);
        news.why = Some(why);
    }

    /// Events of it are missing, as the source says.
    pub fn lost(&mut self, at: usize, why: String) {
        self.of(at).unreported.get_or_insert_default().why = Some(why);
    }

    /// Adds a gap that has ended to what is to be logged.
    pub fn gap(&mut self, at: usize, gap: &Gap) {
        let news = self.of(at).unreported.get_or_insert_default();
        let from = news.gap.map_or(gap.from, |(from, _)| from.min(gap.from));
        news.gap = Some((from, gap.until));
        news.missing += gap.until.since(gap.from);
        news.gaps += 1;
    }

    /// Takes the changes for which the log has room now, with the places of their sources.
    pub fn take(&mut self, now: EventTime) -> Vec<(usize, News)> {
        let reports = self.0.iter_mut().enumerate();
        reports
            .filter_map(|(at, report)| Some((at, report.take(now)?)))
            .collect()
    }
}

impl Report {
    fn take(&mut self, now: EventTime) -> Option<News> {
        self.unreported.as_ref()?;
        let filled = *self.filled.get_or_insert(now);
        let more = now.since(filled).as_secs() / ONE_MORE_AFTER.as_secs();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(ROOM);
            self.logged = self.logged.saturating_sub(more);
            self.filled = Some(now);
        }
        (self.logged < ROOM).then_some(())?;
        self.logged += 1;
        self.unreported.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> EventTime {
        EventTime::from_seconds(1_795_000_000 + second)
    }

    fn gap(from: i64, until: i64) -> Gap {
        Gap {
            source: "ami://x".to_owned(),
            from: at(from),
            until: at(until),
            why: None,
        }
    }

    #[test]
    fn a_reconnect_is_one_line_with_its_gap_and_reason() {
        let mut reports = Reports::default();
        reports.down(0, "cut".to_owned(), false);
        assert_eq!(reports.take(at(0)).len(), 1);
        reports.up(0);
        reports.gap(0, &gap(-2, 3));
        let logged = reports.take(at(3));
        let [(0, news)] = &logged[..] else {
            panic!("{logged:?}")
        };
        assert_eq!((news.up, news.why.as_deref()), (Some(true), Some("cut")));
        assert_eq!(news.gap, Some((at(-2), at(3))));
        assert_eq!(reports.take(at(4)), []);
    }

    #[test]
    fn each_outage_has_two_lines_whatever_reasons_follow_one_another_in_it() {
        let mut reports = Reports::default();
        let mut lines = Vec::new();
        for outage in 0..4 {
            for (second, why) in [(0, "closed"), (1, "refused"), (5, "reset"), (9, "refused")] {
                let now = outage * 20 + second;
                reports.down(0, why.to_owned(), false);
                lines.extend(reports.take(at(now)));
            }
            reports.up(0);
            lines.extend(reports.take(at(outage * 20 + 12)));
        }
        let logged = lines.iter().map(|(_, news)| (news.up, news.why.as_deref()));
        let logged: Vec<_> = logged.collect();
        let outage = [(Some(false), Some("closed")), (Some(true), Some("refused"))];
        assert_eq!(logged, outage.repeat(4));
    }

    #[test]
    fn in_an_outage_what_somebody_has_to_mend_is_told_by_itself() {
        let mut reports = Reports::default();
        reports.down(0, "refused".to_owned(), false);
        reports.take(at(0));
        reports.down(0, "wrong secret".to_owned(), true);
        let logged = reports.take(at(1));
        assert_eq!(logged[0].1.why.as_deref(), Some("wrong secret"));
    }

    #[test]
    fn a_line_that_comes_and_goes_is_told_of_seldom_and_nothing_of_it_is_left_out() {
        let mut reports = Reports::default();
        let (mut lines, mut gaps, mut missing, mut ups) = (0, 0, Duration::ZERO, 0);
        let mut last = None;
        let mut tell = |reports: &mut Reports, now: i64| {
            for (_, news) in reports.take(at(now)) {
                lines += 1;
                gaps += news.gaps;
                missing += news.missing;
                ups += news.reconnects;
                last = news.up;
            }
        };
        for n in 0..720 {
            let now = n * 5;
            reports.down(0, "cut".to_owned(), false);
            tell(&mut reports, now);
            reports.up(0);
            reports.gap(0, &gap(now, now + 2));
            tell(&mut reports, now + 2);
        }
        for now in 3_600..4_000 {
            tell(&mut reports, now);
        }
        assert!((10..=20).contains(&lines), "{lines} lines in an hour");
        assert_eq!((gaps, missing, ups), (720, Duration::from_secs(1_440), 720));
        assert_eq!(last, Some(true), "the last line says how it is");
    }
}
