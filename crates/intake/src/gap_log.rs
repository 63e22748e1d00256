//! Gaps that have ended. `status` lists the most recent ones, which are kept across restarts. A gap
//! is marked as filled once the PBX's own file has reported its calls.

use callbridge_call::EventTime;
use callbridge_model::status::SourceGap;
use callbridge_source::url::without_secret_file;
use callbridge_spool::Op;
use serde::{Deserialize, Serialize};

/// Maximum number of gaps. The oldest is dropped first.
const KEPT: usize = 50;
/// Name of the spool setting that holds the gaps.
pub const KEY: &str = "gaps";

/// A gap that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Time of the last event stored before the gap.
    pub from: EventTime,
    /// When events started to be received again.
    pub until: EventTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Logged {
    #[serde(flatten)]
    gap: SourceGap,
    /// Whether a catch-up file was being followed when the gap ended and will contain its calls.
    awaited: bool,
}

/// The most recent gaps of all sources, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GapLog {
    gaps: Vec<Logged>,
    changed: bool,
}

impl GapLog {
    /// Restores the stored log, or an empty one if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't in this version's format.
    pub fn restore(text: Option<&str>) -> Result<Self, serde_json::Error> {
        let gaps = text.map(serde_json::from_str).transpose()?;
        Ok(Self {
            gaps: gaps.unwrap_or_default(),
            changed: false,
        })
    }

    /// Adds a gap of the source with this URL. `awaited` means that a catch-up file will contain
    /// the gap's calls.
    pub(super) fn add(&mut self, source: &str, gap: &Gap, awaited: bool) {
        self.gaps.push(Logged {
            gap: SourceGap {
                source: source.to_owned(),
                from: gap.from.floor_seconds().get(),
                to: gap.until.floor_seconds().get(),
                filled: false,
            },
            awaited,
        });
        let over = self.gaps.len().saturating_sub(KEPT);
        self.gaps.drain(..over);
        self.changed = true;
    }

    /// Returns `true` if a file is still expected to contain calls from one of the gaps.
    pub(super) fn is_awaited(&self) -> bool {
        self.gaps.iter().any(|logged| logged.awaited)
    }

    /// Marks gaps that have been filled. `is_reported` takes a source's URL and a gap's end, and
    /// returns `true` if the source's catch-up file is past that end.
    pub(super) fn fill(&mut self, is_reported: impl Fn(&str, EventTime) -> bool) {
        for logged in self.gaps.iter_mut().filter(|logged| logged.awaited) {
            let end = EventTime::from_seconds(logged.gap.to + 1);
            if is_reported(&logged.gap.source, end) {
                logged.gap.filled = true;
                logged.awaited = false;
                self.changed = true;
            }
        }
    }

    /// Returns the operation that stores the log, or `None` if nothing has changed since the last
    /// call.
    pub(super) fn take(&mut self) -> Option<Op> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        // Strings, numbers, and lists can always be serialized.
        let value = serde_json::to_string(&self.gaps).unwrap_or_default();
        Some(Op::meta(KEY, value))
    }

    /// Returns the gaps for `status`, oldest first, with URLs that don't show secret files.
    pub fn into_gaps(self) -> Vec<SourceGap> {
        // Each gap is stored with its source's full URL.
        let gaps = self.gaps.into_iter().map(|logged| SourceGap {
            source: without_secret_file(&logged.gap.source),
            ..logged.gap
        });
        gaps.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "ami://a@pbx:5038";

    fn gap(from: i64, until: i64) -> Gap {
        Gap {
            from: EventTime::from_seconds(from),
            until: EventTime::from_seconds(until),
        }
    }

    fn take_stored(log: &mut GapLog) -> Option<String> {
        match log.take() {
            Some(Op::Meta { key, value }) => {
                assert_eq!(key, KEY);
                Some(value)
            }
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    #[test]
    fn gap_log_is_restored_and_stored_only_when_changed() {
        let mut log = GapLog::default();
        assert_eq!(take_stored(&mut log), None);
        log.add(URL, &gap(10, 20), true);
        log.add(URL, &gap(30, 40), false);
        let text = take_stored(&mut log).expect("two gaps");
        assert_eq!(take_stored(&mut log), None);
        assert_eq!(GapLog::restore(Some(&text)).expect("of this version"), log);
        assert_eq!(GapLog::restore(None).expect("nothing"), GapLog::default());
        assert!(GapLog::restore(Some("{")).is_err());
        let first =
            r#"[{"source":"ami://a@pbx:5038","from":10,"to":20,"filled":false,"awaited":true}"#;
        assert!(text.starts_with(first), "{text}");
    }

    /// Returns whether each gap has been filled.
    fn filled_flags(log: &GapLog) -> Vec<bool> {
        let gaps = log.clone().into_gaps();
        gaps.iter().map(|gap| gap.filled).collect()
    }

    #[test]
    fn awaited_gap_is_filled_once_file_is_past_gap_end() {
        let mut log = GapLog::default();
        log.add(URL, &gap(10, 20), true);
        log.add(URL, &gap(30, 40), true);
        log.add(URL, &gap(50, 60), false);
        log.fill(|_, end| end.floor_seconds().get() <= 25);
        assert_eq!(filled_flags(&log), [true, false, false]);
        assert!(log.is_awaited());
        log.fill(|_, end| end.floor_seconds().get() <= 100);
        assert_eq!(
            filled_flags(&log),
            [true, true, false],
            "no file tells of the third"
        );
        assert!(!log.is_awaited());
    }

    #[test]
    fn last_fifty_gaps_are_kept() {
        let mut log = GapLog::default();
        for n in 0..60 {
            log.add(URL, &gap(n, n + 1), false);
        }
        let listed = log.into_gaps();
        assert_eq!((listed.len(), listed[0].from), (KEPT, 10));
    }
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<Vec<Logged>>("gaps");
    }
}
