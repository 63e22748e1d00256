//! Reads the CRM's journal page by page (`POST call-history/filter`, §4.5, §4.7), for the sender
//! and for `audit`. In: pages. Out: the next page to request.
//!
//! The query has one start, shortly before the oldest call that is looked for, and no order. The
//! caller decides when enough was read.

use callbridge_call::EpochSeconds;
use callbridge_crm::{FilterPage, Page, PageSize};

/// One reading of the journal, from its first page on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalReader {
    /// Only records that were registered since this time are read. `None` for the whole journal.
    pub since: Option<EpochSeconds>,
    /// Records per page: 100, and after a 400 `MAX` 50, then 30 (§4.7).
    pub size: PageSize,
    /// Pages read so far.
    read: u32,
    /// Number of all pages, as the last read page reported it. `None` if it is not reported.
    total: Option<u32>,
}

impl JournalReader {
    pub const fn new(since: Option<EpochSeconds>, size: PageSize) -> Self {
        Self {
            since,
            size,
            read: 0,
            total: None,
        }
    }

    /// Returns the page to request.
    pub const fn next(&self) -> FilterPage {
        FilterPage {
            page: self.read + 1,
            size: self.size,
            since: self.since,
        }
    }

    /// Returns the number of pages read so far.
    pub const fn read(&self) -> u32 {
        self.read
    }

    /// Returns the number of all pages, if it was reported.
    pub const fn total(&self) -> Option<u32> {
        self.total
    }

    /// Counts a page. Returns `true` if another page follows. The reported number of pages decides
    /// that (§2.1). Without a number, another page follows each full page.
    pub fn on_page(&mut self, page: &Page) -> bool {
        self.read += 1;
        self.total = page.total;
        match page.total {
            Some(total) => self.read < total,
            None => page.rows >= self.size.get(),
        }
    }

    /// Begins again with smaller pages. Returns `false` if there is no smaller size.
    pub fn use_smaller_pages(&mut self) -> bool {
        let Some(size) = self.size.smaller() else {
            return false;
        };
        *self = Self::new(self.since, size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: u32, total: Option<u32>) -> Page {
        Page {
            rows,
            total,
            ..Page::default()
        }
    }

    fn reader() -> JournalReader {
        JournalReader::new(Some(EpochSeconds::new(7)), PageSize::LARGEST)
    }

    #[test]
    fn counted_pages_are_read_up_to_the_total() {
        let mut reader = reader();
        assert_eq!(reader.next().page, 1);
        assert!(reader.on_page(&page(100, Some(2))));
        let next = reader.next();
        assert_eq!((next.page, next.size.get()), (2, 100));
        assert_eq!(next.since, Some(EpochSeconds::new(7)));
        assert!(!reader.on_page(&page(100, Some(2))));
        assert_eq!((reader.read(), reader.total()), (2, Some(2)));
    }

    #[test]
    fn uncounted_pages_are_read_while_they_are_full() {
        let mut reader = reader();
        assert!(reader.on_page(&page(100, None)));
        assert!(!reader.on_page(&page(99, None)));
        assert_eq!(reader.total(), None);
    }

    #[test]
    fn reading_restarts_with_pages_of_50_and_then_30() {
        let mut reader = reader();
        reader.on_page(&page(100, Some(9)));
        assert!(reader.use_smaller_pages());
        assert_eq!((reader.next().page, reader.next().size.get()), (1, 50));
        assert_eq!(
            (reader.since, reader.total()),
            (Some(EpochSeconds::new(7)), None)
        );
        assert!(reader.use_smaller_pages());
        assert_eq!(reader.next().size.get(), 30);
        assert!(!reader.use_smaller_pages());
        assert_eq!(reader.next().size.get(), 30);
    }
}
