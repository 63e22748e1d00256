//! The columns listed in `--columns`, for files without a header.

use crate::cdr_csv;
use crate::cel_csv::Columns;
use std::str::FromStr;

/// Column names of a CEL file or a CDR table, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns {
    pub(crate) cel: Option<Columns>,
    pub(crate) cdr: Option<Vec<String>>,
}

/// An error indicating that a required column is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {file} needs the column {column}")]
pub struct MissingColumn {
    file: &'static str,
    column: &'static str,
}

impl FromStr for CsvColumns {
    type Err = MissingColumn;

    /// Parses comma-separated names, as in a header or in `cel_custom.conf`'s mapping.
    fn from_str(text: &str) -> Result<Self, MissingColumn> {
        let names = cdr_csv::names(text.split(','));
        let missing = cdr_csv::missing_column(&names);
        let cel = Columns::from_names(text.split(','));
        if let (Err(column), Some(missing)) = (&cel, missing) {
            let is_cdr = cdr_csv::is_header(&names) && !text.contains("event");
            let (file, column) = if is_cdr {
                ("CDR table", missing)
            } else {
                ("CEL file", *column)
            };
            return Err(MissingColumn { file, column });
        }
        let cdr = if missing.is_none() { Some(names) } else { None };
        Ok(Self { cel: cel.ok(), cdr })
    }
}
