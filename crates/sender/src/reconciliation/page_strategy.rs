//! How the journal lets itself be read: what the document does not publish of the filter (§4.7),
//! learned by trying, and remembered over restarts.

use callbridge_call::EventTime;
use callbridge_crm::PageSize;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time for which reconciliations are off after a refusal or a low yield.
pub const OFF: Duration = Duration::from_secs(3600);

/// The lowest and the highest estimate of the persisting time.
const PERSISTING: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));

/// Start of a reconciliation's range. Each is tried if the one before it misses calls that the
/// journal holds. The words are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::VariantArray)]
pub enum Range {
    /// The time the first of them was sent. The clocks agree.
    Sent,
    /// A minute before it. The clocks differ a little.
    SentMinute,
    /// Ten minutes before it. The clocks differ a lot.
    SentMinutes,
    /// The start of the first of them. The journal uses the calls' own times.
    Started,
    /// No range. The CRM refuses or ignores it.
    Whole,
}

impl Range {
    /// The next one to try. `None` after the last.
    pub fn next(self) -> Option<Self> {
        <Self as strum::VariantArray>::VARIANTS
            .get(self as usize + 1)
            .copied()
    }

    /// Seconds subtracted from the send time, because the CRM's clock can be behind ours.
    pub const fn margin_seconds(self) -> i64 {
        match self {
            Self::Sent => 3,
            Self::SentMinute => 60,
            Self::SentMinutes => 600,
            Self::Started | Self::Whole => 0,
        }
    }
}

/// End of the pages that has the newest records. The words are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// On the first page: pages are read forwards.
    #[default]
    First,
    /// On the last page: pages are read backwards.
    Last,
}

/// The first unread page of `total`, from this end.
pub fn unread(total: u32, end: End, read: &BTreeSet<u32>) -> Option<u32> {
    let unread = |page: &u32| !read.contains(page);
    match end {
        End::First => (1..=total).find(unread),
        End::Last => (1..=total).rev().find(unread),
    }
}

/// Proven parameters of the filter, kept over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageStrategy {
    /// Records per page. Smaller after a `MAX` (§7.5).
    pub size: PageSize,
    /// Start of the range, computed for each reconciliation.
    pub range: Range,
    /// End of the pages at which reading begins.
    pub end: End,
    /// Number of pages in that range at the last reading.
    pub pages: u32,
    /// The journal has shown our calls in this way.
    pub proven: bool,
    /// No reconciliation before this time.
    pub off_until: Option<EventTime>,
    /// The journal can be read while reconciliations are off, but only for calls that nothing else
    /// can find.
    pub poor: bool,
    /// Estimated time that the CRM takes to persist an accepted call: 2 to 120 s.
    pub persisting: Duration,
}

impl Default for PageStrategy {
    fn default() -> Self {
        Self {
            size: PageSize::LARGEST,
            range: Range::Sent,
            end: End::First,
            pages: 0,
            proven: false,
            off_until: None,
            poor: false,
            persisting: PERSISTING.0,
        }
    }
}

impl PageStrategy {
    /// Returns `true` if the journal can be reconciled now. An `off_until` more than an hour ahead
    /// was stored before the clock was set back, and does not count.
    pub fn is_on(&self, now: EventTime) -> bool {
        (self.off_until).is_none_or(|until| until <= now || until > now.plus(OFF))
    }

    /// Returns `true` if the journal can be read for calls that nothing else can find.
    pub fn is_readable(&self, now: EventTime) -> bool {
        self.is_on(now) || self.poor
    }

    /// Turns reconciliations off for an hour because the journal cannot be read in this way.
    pub fn off(&mut self, now: EventTime) {
        self.off_until = Some(now.plus(OFF));
        self.poor = false;
    }

    /// The range missed calls that the journal holds, or it is refused. Changes to the next range,
    /// from its first page. After the last range, turns reconciliations off for an hour.
    pub fn next_range(&mut self, now: EventTime) {
        self.end = End::First;
        self.proven = false;
        self.pages = 0;
        match self.range.next() {
            Some(next) => self.range = next,
            None => {
                self.range = Range::Sent;
                self.off(now);
            }
        }
    }

    /// Requests no range from now on, because the CRM refuses it. If that is also refused,
    /// reconciliations are off for an hour.
    pub fn no_range(&mut self, now: EventTime) {
        if self.range != Range::Whole {
            // the one before the last, so `next_range` takes `Whole`
            self.range = Range::Started;
        }
        self.next_range(now);
    }

    /// The page size is too large. Takes the next smaller one. After the smallest, turns
    /// reconciliations off for an hour.
    pub fn smaller(&mut self, now: EventTime) {
        match self.size.smaller() {
            Some(size) => self.size = size,
            None => {
                self.size = PageSize::LARGEST;
                self.off(now);
            }
        }
    }

    /// A call was seen in the journal this long after it was accepted. `at_first` if it was not
    /// looked for before.
    pub fn persisted(&mut self, age: Duration, at_first: bool) {
        let (least, most) = PERSISTING;
        self.persisting = if at_first {
            let less = self.persisting.saturating_sub(age) / 8;
            (self.persisting - less).max(least)
        } else {
            self.persisting.max(age).min(most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: EventTime = EventTime::from_seconds(1_795_151_000);

    #[test]
    fn page_size_shrinks_then_reconciliation_pauses_an_hour() {
        let mut page_strategy = PageStrategy::default();
        let sizes: Vec<u32> = std::iter::from_fn(|| {
            let size = page_strategy.size.get();
            page_strategy.smaller(NOW);
            Some(size)
        })
        .take(3)
        .collect();
        assert_eq!(sizes, [100, 50, 30]);
        assert!(!page_strategy.is_on(NOW.plus(OFF - Duration::from_secs(1))));
        assert!(page_strategy.is_on(NOW.plus(OFF)));
        assert!(
            page_strategy.is_on(NOW.minus(Duration::from_secs(1))),
            "set back"
        );
    }

    #[test]
    fn ranges_are_tried_from_the_narrowest_to_none() {
        let mut page_strategy = PageStrategy::default();
        let mut seen = vec![page_strategy.range];
        while page_strategy.is_on(NOW) {
            page_strategy.next_range(NOW);
            seen.push(page_strategy.range);
        }
        assert_eq!(
            seen,
            [
                Range::Sent,
                Range::SentMinute,
                Range::SentMinutes,
                Range::Started,
                Range::Whole,
                Range::Sent
            ]
        );
        let mut refused = PageStrategy::default();
        refused.no_range(NOW);
        assert_eq!((refused.range, refused.is_on(NOW)), (Range::Whole, true));
        refused.no_range(NOW);
        assert!(!refused.is_on(NOW));
    }

    #[test]
    fn the_time_of_persisting_grows_at_once_and_shrinks_slowly() {
        let second = Duration::from_secs(1);
        let mut page_strategy = PageStrategy::default();
        page_strategy.persisted(10 * second, false);
        assert_eq!(page_strategy.persisting, 10 * second);
        page_strategy.persisted(2 * second, true);
        assert_eq!(page_strategy.persisting, 9 * second);
        page_strategy.persisted(40 * second, true);
        assert_eq!(
            page_strategy.persisting,
            9 * second,
            "it may have lain there long"
        );
        page_strategy.persisted(900 * second, false);
        assert_eq!(page_strategy.persisting, 120 * second);
    }

    #[test]
    fn what_is_remembered_is_read_back() {
        let mut page_strategy = PageStrategy::default();
        page_strategy.off(NOW);
        let text = serde_json::to_string(&page_strategy).expect("text");
        assert_eq!(
            serde_json::from_str::<PageStrategy>(&text).expect("ways"),
            page_strategy
        );
    }
}
