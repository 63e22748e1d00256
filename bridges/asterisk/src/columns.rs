//! The columns that `--columns` names, for files without a header.

use crate::cdr_csv;
use crate::cel_csv::Columns;
use std::str::FromStr;

/// Names of the columns of a CEL file, or of a CDR table, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns {
    pub(crate) cel: Option<Columns>,
    pub(crate) cdr: Option<Vec<String>>,
}

/// The error that a needed column is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {file} needs the column {column}")]
pub struct MissingColumn {
    file: &'static str,
    column: &'static str,
}

impl FromStr for CsvColumns {
    type Err = MissingColumn;

    /// Reads names separated by commas, as in a header or in the mapping of `cel_custom.conf`.
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
