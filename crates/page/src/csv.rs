//! Tables for a spreadsheet, which calculates nothing of them.

use crate::answer;
use bytes::Bytes;
use callbridge_listener::body::{self, Body};
use callbridge_model::safe::safe_cell;
use hyper::Response;

/// Of a cell: spreadsheets bear no more than twice as much.
const CELL_CHARS: usize = 16_000;

/// Rows of CSV with a head (RFC 4180). It begins with a byte order mark, without which Excel takes
/// its letters for others.
#[derive(Debug, Default)]
pub(crate) struct CsvText(String);

impl CsvText {
    pub(crate) fn new(head: &[&str]) -> Self {
        let mut text = Self("\u{feff}".to_owned());
        text.row(head.iter().map(|cell| (*cell).to_owned()));
        text
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        for (at, cell) in cells.into_iter().enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            let cut: String = cell.chars().take(CELL_CHARS).collect();
            let cell = safe_cell(&cut);
            if cell.contains([',', '"', '\n', '\r', ';', '\t']) {
                self.0.push('"');
                self.0.push_str(&cell.replace('"', "\"\""));
                self.0.push('"');
            } else {
                self.0.push_str(&cell);
            }
        }
        self.0.push_str("\r\n");
    }

    pub(crate) const KIND: &str = "text/csv; charset=utf-8";

    /// A piece of a file; one without a head goes on where another ended.
    pub(crate) fn bytes(self) -> Bytes {
        Bytes::from(self.0)
    }

    /// As a file of this name, to be kept.
    pub(crate) fn download(self, name: &str) -> Response<Body> {
        answer::download(body::whole(self.0), Self::KIND, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_calculated_and_every_cell_stays_one() {
        let mut csv = CsvText::new(&["phone", "name"]);
        csv.row(["+998901110001".to_owned(), "=1+1,\"x\"".to_owned()]);
        csv.row(["@SUM(A1)".to_owned(), "-2+3".to_owned()]);
        assert_eq!(
            csv.0,
            "\u{feff}phone,name\r\n+998901110001,\"'=1+1,\"\"x\"\"\"\r\n'@SUM(A1),'-2+3\r\n"
        );
    }
}
