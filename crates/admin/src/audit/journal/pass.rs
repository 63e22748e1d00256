//! One pass through the pages of the journal, from the first to the last.

use callbridge_crm::Page;
use callbridge_model::CallUuid;
use callbridge_sender::confirm::reader::JournalReader;

/// Number of rows on a page of the smallest size, for endpoints whose largest size is not in the
/// document (§4.7).
const SMALLEST_PAGE: u32 = 30;

/// The progress of one pass over the pages, with facts about the pages so far that recognize a
/// wrong page.
#[derive(Clone, Debug)]
pub(super) struct JournalPass {
    pub(super) reader: JournalReader,
    /// Number of rows on the first page. All other pages except the last must have the same number.
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

    /// Returns a message if this page contradicts itself or earlier pages. Returns `None` if
    /// nothing contradicts it.
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

    /// Counts a page. Returns `true` if another page must be requested: the next page, or the page
    /// after the last one, which must be empty.
    pub(super) fn count_page(&mut self, page: &Page) -> bool {
        let first = *self.rows.get_or_insert(page.rows);
        let full = match self.reader.read() {
            0 => page.rows >= SMALLEST_PAGE,
            _ => page.rows == first,
        };
        let more = match page.total {
            Some(total) => self.page() < total || page.rows > 0 && full,
            // Without a page count, a page with as many rows as the first page need not be the
            // last.
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
