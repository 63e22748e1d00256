//! How the journal lets itself be read: what the document does not publish of the filter (§4.7),
//! learned by trying, and remembered over restarts.

use callbridge_call::EventTime;
use callbridge_crm::PageSize;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time for which reconciliations are left alone after a refusal or a poor yield.
pub const OFF: Duration = Duration::from_secs(3600);

/// The least and the most that persisting is taken to last.
const PERSISTING: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));

/// Beginning of a reconciliation's range. Each is tried when the one before it misses calls that
/// the journal is known to hold. The words are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::VariantArray)]
pub enum Range {
    /// The moment the first of them was sent; clocks agree.
    Sent,
    /// A minute before it; clocks differ a little.
    SentMinute,
    /// Ten minutes before it; clocks differ much.
    SentMinutes,
    /// The start of the first of them: the journal goes by the calls' own times.
    Started,
    /// No range: the service refuses or ignores it.
    Whole,
}

impl Range {
    /// The next to try; `None` after the last.
    pub fn next(self) -> Option<Self> {
        <Self as strum::VariantArray>::VARIANTS
            .get(self as usize + 1)
            .copied()
    }

    /// Seconds subtracted from the moment of sending: the service's clock may be behind ours.
    pub const fn margin_seconds(self) -> i64 {
        match self {
            Self::Sent => 3,
            Self::SentMinute => 60,
            Self::SentMinutes => 600,
            Self::Started | Self::Whole => 0,
        }
    }
}

/// End of the pages at which the newest records stand. The words are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// On the first page: pages are read forwards.
    #[default]
    First,
    /// On the last page: pages are read backwards.
    Last,
}

/// The first of so many pages that is not read yet, from this end.
pub fn unread(total: u32, end: End, read: &BTreeSet<u32>) -> Option<u32> {
    let unread = |page: &u32| !read.contains(page);
    match end {
        End::First => (1..=total).find(unread),
        End::Last => (1..=total).rev().find(unread),
    }
}

/// Parameters of the filter that have proved good, kept over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageStrategy {
    /// Records a page; smaller after a `MAX` (§7.5).
    pub size: PageSize,
    /// Beginning of the range, chosen anew for each reconciliation.
    pub range: Range,
    /// End of the pages at which reading begins.
    pub end: End,
    /// Pages that the journal had, in that range, when it was read last.
    pub pages: u32,
    /// The journal has shown calls of ours this way.
    pub proven: bool,
    /// Not to be reconciled before this moment.
    pub off_until: Option<EventTime>,
    /// But it can be read: what nothing else can find is looked for all the same.
    #[serde(default)]
    pub poor: bool,
    /// Time that the service takes to persist an accepted call, as far as it is known: 2 to 120 s.
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
    /// Returns `true` when the journal may be reconciled now. An `off_until` more than an hour
    /// ahead was stored before the clock was set back, and does not count.
    pub fn is_on(&self, now: EventTime) -> bool {
        (self.off_until).is_none_or(|until| until <= now || until > now.plus(OFF))
    }

    /// Returns `true` when the journal may be read for what nothing else can find, though that pays
    /// for nothing more.
    pub fn is_readable(&self, now: EventTime) -> bool {
        self.is_on(now) || self.poor
    }

    /// Turns reconciliations off for an hour: the journal cannot be read this way.
    pub fn off(&mut self, now: EventTime) {
        self.off_until = Some(now.plus(OFF));
        self.poor = false;
    }

    /// The range missed calls that the journal holds, or is refused: the next one, from its
    /// start; off for an hour after the last.
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

    /// Asks without a range from now on: the service refuses it. Where that is refused, too,
    /// reconciliations are off for an hour.
    pub fn no_range(&mut self, now: EventTime) {
        if self.range != Range::Whole {
            // the last but one
            self.range = Range::Started;
        }
        self.next_range(now);
    }

    /// The size is above the maximum: the next smaller one; off for an hour after the smallest.
    pub fn smaller(&mut self, now: EventTime) {
        match self.size.smaller() {
            Some(size) => self.size = size,
            None => {
                self.size = PageSize::LARGEST;
                self.off(now);
            }
        }
    }

    /// A call was seen in the journal this long after it was accepted; `at_first` when it was not
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
    fn what_is_refused_is_tried_smaller_and_then_not_at_all_for_an_hour() {
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
