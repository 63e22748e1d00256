//! Rows of `cel_custom`, and of tables of CEL exported as CSV.

use crate::cel::{CelRow, Field};
use crate::cel_columns::{COLUMNS_MIN, Columns, is_event};
use crate::cel_time::CelClock;
use crate::csv_record::CsvRecord;
use callbridge_call::{Decoded, Unreadable};
use memchr::memmem;
use std::borrow::Cow;

/// A row of fewer columns has none of the layouts known here.
const KNOWN_MIN: usize = 19;

/// Reads records, and keeps the last one's fields.
#[derive(Debug)]
pub(crate) struct CsvRows {
    columns: Columns,
    /// The columns were named, by the flags or a header: no other layout is tried.
    named: bool,
    record: CsvRecord,
}

impl CsvRows {
    pub(crate) fn new(named: Option<Columns>) -> Self {
        Self {
            named: named.is_some(),
            columns: named.unwrap_or_default(),
            record: CsvRecord::new(),
        }
    }

    /// Decodes one record; a header row sets the columns of those that follow.
    pub(crate) fn decode<'a>(&'a mut self, record: &[u8], clock: &mut CelClock) -> Decoded<'a> {
        self.record.read(&unescaped(record), COLUMNS_MIN);
        if let Some(columns) = Columns::header(&self.record) {
            self.columns = columns;
            self.named = true;
            return Decoded::Skipped;
        }
        if !self.named && !self.columns.fit(&self.record) {
            match Columns::recognised(&self.record) {
                Some(columns) => self.columns = columns,
                None if self.record.len() < KNOWN_MIN => {
                    return Decoded::Unreadable(Unreadable::TooFewColumns);
                }
                None => return Decoded::Unreadable(Unreadable::UnknownColumns),
            }
        }
        let needed = [Field::Event, Field::Uniqueid, Field::Linkedid];
        let last = needed
            .into_iter()
            .filter_map(|column| self.columns.place(column))
            .max();
        if last.is_none_or(|last| last >= self.record.len()) {
            return Decoded::Unreadable(Unreadable::TooFewColumns);
        }
        let (mut row, mut repaired) = (CelRow::default(), false);
        for (index, column) in self.columns.iter() {
            row.set(column, self.field(index), &mut repaired);
        }
        if !is_event(&row.event) {
            return Decoded::Unreadable(Unreadable::NoEvent);
        }
        row.decoded(clock, repaired)
    }

    /// A field; what a database writes for nothing is nothing.
    fn field(&self, index: usize) -> &[u8] {
        match self.record.field(index) {
            b"NULL" | b"\\N" => b"",
            field => field,
        }
    }
}

/// MySQL writes a quote in a quoted field as `\"`, as it stands in JSON alone.
fn unescaped(record: &[u8]) -> Cow<'_, [u8]> {
    if memmem::find(record, br#"{\""#).is_none() {
        return Cow::Borrowed(record);
    }
    let mut plain = Vec::with_capacity(record.len());
    for (at, &byte) in record.iter().enumerate() {
        let escapes = byte == b'\\' && record.get(at + 1) == Some(&b'"');
        plain.push(if escapes { b'"' } else { byte });
    }
    Cow::Owned(plain)
}
