//! Reads the CRM's journal page by page (`POST call-history/filter`, §4.5, §4.7), for the sender
//! and for `audit`. It takes in pages and returns the next one to request.
//!
//! The query starts shortly before the oldest call being looked for, and has no particular order.
//! The caller decides when it has read enough.

use callbridge_call::EpochSeconds;
use callbridge_crm::{FilterPage, Page, PageSize};

/// One reading of the journal, starting with its first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalReader {
    /// Only records registered since then are read, or the whole journal if `None`.
    pub since: Option<EpochSeconds>,
    /// Records per page: 100, reduced to 50 and then 30 after a 400 `MAX` (§4.7).
    pub size: PageSize,
    /// Pages read so far.
    read: u32,
    /// Total number of pages according to the last page read, if it reported one.
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

    pub const fn read(&self) -> u32 {
        self.read
    }

    /// Returns the total number of pages, if it was reported.
    pub const fn total(&self) -> Option<u32> {
        self.total
    }

    /// Counts a page, returning `true` if there's another one. The reported number of pages decides
    /// (§2.1). Without one, every full page is followed by another.
    pub fn on_page(&mut self, page: &Page) -> bool {
        self.read += 1;
        self.total = page.total;
        match page.total {
            Some(total) => self.read < total,
            None => page.rows >= self.size.get(),
        }
    }

    /// Starts over with smaller pages, returning `false` if there's no smaller size.
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
