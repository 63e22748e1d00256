//! CSV files for spreadsheets, with cells that no spreadsheet will evaluate as a formula.

use crate::{answer, shell::PageShell};
use bytes::Bytes;
use callbridge_listener::body::{self, Body};
use callbridge_model::safe_cell;
use hyper::Response;

/// Maximum length of a cell in characters. Spreadsheets accept no more than twice that.
const CELL_CHARS: usize = 16_000;

/// CSV rows with a header (RFC 4180). The file starts with a byte-order mark, because Excel
/// misreads UTF-8 without one.
#[derive(Debug, Default)]
pub(crate) struct CsvText(String);

/// A file's columns, each with its header and the function that creates its cells.
pub(crate) type Columns<T> = [(&'static str, fn(&T, &PageShell) -> String)];

impl CsvText {
    /// Starts a file with the byte-order mark and the header.
    pub(crate) fn new<T>(columns: &Columns<T>) -> Self {
        let mut text = Self("\u{feff}".to_owned());
        text.cells(columns.iter().map(|(head, _)| (*head).to_owned()));
        text
    }

    pub(crate) fn row<T>(&mut self, columns: &Columns<T>, row: &T, shell: &PageShell) {
        self.cells(columns.iter().map(|(_, cell)| cell(row, shell)));
    }

    fn cells(&mut self, cells: impl Iterator<Item = String>) {
        for (at, cell) in cells.enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            let cut: String = cell.chars().take(CELL_CHARS).collect();
            let cell = safe_cell(&cut);
            if cell.contains([',', '"', '\n', '\r', ';', '\t']) {
                self.0 += &format!("\"{}\"", cell.replace('"', "\"\""));
            } else {
                self.0 += &cell;
            }
        }
        self.0.push_str("\r\n");
    }

    pub(crate) const KIND: &str = "text/csv; charset=utf-8";

    /// Returns the bytes of this part of the file. A part without a header continues the previous
    /// one.
    pub(crate) fn bytes(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// Creates a response that the browser saves as a file called `name`, with one CSV line per row.
pub(crate) fn download<T>(
    columns: &Columns<T>,
    rows: impl IntoIterator<Item = T>,
    shell: &PageShell,
    name: &str,
) -> Response<Body> {
    let mut csv = CsvText::new(columns);
    for row in rows {
        csv.row(columns, &row, shell);
    }
    answer::download(body::whole(csv.0), CsvText::KIND, name)
}

pub(crate) fn cell(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_never_formulas_and_never_split() {
        let mut csv = CsvText::default();
        csv.0.push('\u{feff}');
        for row in [
            ["phone", "name"],
            ["+998901110001", "=1+1,\"x\""],
            ["@SUM(A1)", "-2+3"],
        ] {
            csv.cells(row.map(str::to_owned).into_iter());
        }
        assert_eq!(
            csv.0,
            "\u{feff}phone,name\r\n+998901110001,\"'=1+1,\"\"x\"\"\"\r\n'@SUM(A1),'-2+3\r\n"
        );
    }
}
