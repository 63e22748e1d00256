//! One pass through the pages of the journal, from the first to the last.

use callbridge_crm::Page;
use callbridge_model::CallUuid;
use callbridge_sender::confirm::reader::JournalReader;

/// Rows of the smallest page size of an endpoint, if the document leaves the largest one to it
/// (§4.7).
const SMALLEST_PAGE: u32 = 30;

/// The progress of one pass over the pages, with their form so far.
#[derive(Clone, Debug)]
pub(super) struct JournalPass {
    pub(super) reader: JournalReader,
    /// Rows of the first page. All others except the last have as many.
    rows: Option<u32>,
    /// The uuids on the page read last, by which a repeated page is recognized.
    last: Vec<CallUuid>,
}

impl JournalPass {
    pub(super) const fn new(reader: JournalReader) -> Self {
        Self {
            reader,
            rows: None,
            last: Vec::new(),
        }
    }

    /// Returns the number of the page to request, from 1.
    pub(super) const fn page(&self) -> u32 {
        self.reader.next().page
    }

    /// Returns a message why this page cannot be right. `None` if nothing contradicts it.
    pub(super) fn contradiction(&self, page: &Page) -> Option<String> {
        let number = self.page();
        let rows = page.rows;
        if let Some(current) = page.current.filter(|current| *current != number) {
            return Some(format!(
                "page {number} was requested, but page {current} came"
            ));
        }
        if rows > 0 && !self.last.is_empty() && page.uuids == self.last {
            let before = number - 1;
            return Some(format!("page {number} repeats page {before}"));
        }
        let first = self.rows.unwrap_or(rows);
        if rows > first {
            return Some(format!(
                "page {number} holds {rows} records, and page 1 held {first}"
            ));
        }
        let total = page.total?;
        if let Some(before) = self.reader.total().filter(|before| *before > total) {
            return Some(format!("it had {before} pages, and then {total}"));
        }
        if number > total && rows > 0 {
            return Some(format!(
                "it has {total} pages, and page {number} holds records"
            ));
        }
        let short = rows < first || rows == 0;
        (number < total && short).then(|| {
            format!("page {number} of {total} holds {rows} records, and page 1 held {first}")
        })
    }

    /// Counts a page. Returns whether another must be requested: the next, or the one beyond the
    /// end.
    pub(super) fn count_page(&mut self, page: &Page) -> bool {
        let first = *self.rows.get_or_insert(page.rows);
        let full = match self.reader.read() {
            0 => page.rows >= SMALLEST_PAGE,
            _ => page.rows == first,
        };
        let more = match page.total {
            Some(total) => self.page() < total || page.rows > 0 && full,
            // Without a page count, the first page says nothing about its size.
            None => page.rows > 0 && page.rows == first,
        };
        self.reader.on_page(page);
        self.last.clone_from(&page.uuids);
        more
    }

    /// Returns `true` if the next page is beyond the last one.
    pub(super) fn is_past_end(&self) -> bool {
        let total = self.reader.total();
        total.is_some_and(|total| self.reader.read() >= total)
    }
}
