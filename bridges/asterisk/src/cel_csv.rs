//! Rows from `cel_custom` and from CEL tables exported as CSV. The columns are taken from the
//! header or the flags, or determined by trying the layouts of Asterisk's samples, FreePBX, and
//! Wazo.

use crate::cdr::is_missing;
use crate::cel::{CelRow, Field};
use crate::cel_number::EventNumbers;
use crate::cel_time::CelClock;
use crate::csv_record::{CsvRecord, DELIMITERS, is_frame, is_rounded};
use crate::local_time::lacks_seconds;
use callbridge_call::{ChannelEvent, Decoded, PbxEvent, UniqueId, Unreadable};

/// Minimum number of columns in a row with one of the known layouts.
const KNOWN_MIN: usize = 19;

/// Reads the records of a single file.
#[derive(Debug)]
pub(crate) struct CsvRows {
    /// Set by the header or the first row that can be read, and the same for the whole file. With a
    /// different delimiter, a comma in `appdata` would shift all values after it.
    delimiter: Option<u8>,
    columns: Columns,
    /// Whether the columns came from the flags or a header, in which case no other layout is tried.
    named: bool,
    numbers: EventNumbers,
    record: CsvRecord,
}

impl CsvRows {
    pub(crate) fn new(named: Option<Columns>) -> Self {
        Self {
            delimiter: None,
            named: named.is_some(),
            columns: named.unwrap_or_default(),
            numbers: EventNumbers::default(),
            record: CsvRecord::default(),
        }
    }

    /// Decodes a record. A header sets the delimiter and columns of the records after it.
    pub(crate) fn decode<'a>(&'a mut self, record: &[u8], clock: &mut CelClock) -> Decoded<'a> {
        if is_frame(record) {
            return Decoded::Skipped;
        }
        if let Some((delimiter, columns)) = self.read_header(record) {
            self.delimiter = Some(delimiter);
            self.columns = columns;
            self.named = true;
            return Decoded::Skipped;
        }
        let found = match self.delimiter {
            Some(delimiter) => self.split(record, delimiter),
            None => self.split_at_any(record),
        };
        if let Err(why) = found {
            return Decoded::Unreadable(why);
        }
        let mut repaired = false;
        let decoded = match self.read_row(&mut repaired) {
            Ok(row) => row.into_decoded(clock, repaired),
            Err(why) => return Decoded::Unreadable(why),
        };
        if let Decoded::Event { received, .. } = &decoded
            && let PbxEvent::Channel(ChannelEvent { at: None, .. }) = received.event
        {
            return Decoded::Unreadable(Unreadable::NoTime);
        }
        decoded
    }

    /// Reads the values of the last record.
    fn read_row(&mut self, repaired: &mut bool) -> Result<CelRow<'_>, Unreadable> {
        let mut row = CelRow::default();
        for (index, column) in self.columns.0.iter().enumerate() {
            if let Some(column) = column {
                row.set(*column, present(self.record.field(index)), repaired);
            }
        }
        if let Some(number) = EventNumbers::parse(&row.event) {
            let has_extra = self.columns.place(Field::Extra).is_some();
            row.event = self.numbers.name(number, &row, has_extra)?.into();
        }
        if is_rounded(&row.channel.uniqueid) || is_rounded(&row.channel.linkedid) {
            return Err(Unreadable::RoundedId);
        }
        // Going by such times, either nobody talked, or everybody talked for a minute.
        if lacks_seconds(&row.time) {
            return Err(Unreadable::NoSeconds);
        }
        Ok(row)
    }

    /// Returns the delimiter and columns of a header, or `None` if this record isn't one.
    ///
    /// Only records containing `unique` are compared with the known names, because few call rows
    /// contain it.
    fn read_header(&mut self, record: &[u8]) -> Option<(u8, Columns)> {
        let has_unique = memchr::memchr2_iter(b'q', b'Q', record).any(|q| {
            let word = q.checked_sub(3).and_then(|from| record.get(from..q + 3));
            word.is_some_and(|word| word.eq_ignore_ascii_case(b"unique"))
        });
        if !has_unique {
            return None;
        }
        for delimiter in DELIMITERS {
            self.record.read(record, delimiter);
            let names = (0..self.record.len()).map(|index| self.record.text(index));
            if let Ok(columns) = Columns::from_names(names) {
                return Some((delimiter, columns));
            }
        }
        None
    }

    /// Finds the delimiter that splits this record into CEL's columns, for a file without a header.
    /// All later rows are split at the same delimiter.
    fn split_at_any(&mut self, record: &[u8]) -> Result<(), Unreadable> {
        let mut first = Ok(());
        for delimiter in DELIMITERS {
            let split = self.split(record, delimiter);
            if split.is_ok() {
                self.delimiter = Some(delimiter);
                return Ok(());
            }
            // The error from a split with enough columns is the most useful, so that's the one
            // returned.
            if first.is_ok() || first == Err(Unreadable::TooFewColumns) {
                first = split;
            }
        }
        first
    }

    /// Splits a record and checks that it's a CEL row.
    fn split(&mut self, record: &[u8], delimiter: u8) -> Result<(), Unreadable> {
        self.record.read(record, delimiter);
        if !self.named && !self.columns.fit(&self.record) {
            match Columns::recognize(&self.record) {
                Some(columns) => self.columns = columns,
                None if self.record.len() < KNOWN_MIN => return Err(Unreadable::TooFewColumns),
                None => return Err(Unreadable::UnknownColumns),
            }
        }
        let needed = [Field::Event, Field::Uniqueid, Field::Linkedid].into_iter();
        let last = needed.filter_map(|column| self.columns.place(column)).max();
        if last.is_none_or(|last| last >= self.record.len()) {
            return Err(Unreadable::TooFewColumns);
        }
        // A delimiter in an unquoted field shifts the IDs to other columns.
        if self.record.len() > self.columns.0.len() && self.named && !self.columns.fit(&self.record)
        {
            return Err(Unreadable::OtherColumns);
        }
        if is_event(self.columns.text(&self.record, Field::Event)) {
            Ok(())
        } else {
            Err(Unreadable::NoEvent)
        }
    }
}

/// Returns the value, replacing markers for a missing value, such as `NULL`, with an empty one.
fn present(value: &[u8]) -> &[u8] {
    if is_missing(value) { b"" } else { value }
}

/// Columns that identify a row's channel and call.
const IDS: [Field; 2] = [Field::Uniqueid, Field::Linkedid];

/// Which field is in each column of a CEL file, in order. `None` is a column that doesn't matter
/// for calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns(Vec<Option<Field>>);

/// The layouts of files without a header, most likely first.
const KNOWN: [&str; 6] = [
    // Asterisk's sample mapping (`cel_custom.conf.sample`).
    "eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,userfield,userdeftype,\
     eventextra",
    // FreePBX's `cel` table, with and without its number.
    "id,eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     src,dst,channel,dstchannel,appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,\
     userdeftype,extra,userfield",
    "eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     src,dst,channel,dstchannel,appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,\
     userdeftype,extra,userfield",
    // Wazo's `cel` table.
    "id,eventtype,eventtime,userdeftype,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,\
     context,channame,appname,appdata,amaflags,accountcode,peeraccount,uniqueid,linkedid,\
     userfield,peer,call_log_id,extra",
    // Asterisk's samples for databases (`contrib/realtime` and the cel_odbc documentation).
    "id,eventtype,eventtime,userdeftype,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,\
     context,channame,appname,appdata,amaflags,accountcode,peeraccount,uniqueid,linkedid,\
     userfield,peer",
    "id,eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,userdeftype,userfield,extra",
];

impl Default for Columns {
    /// Returns the columns of Asterisk's sample mapping.
    fn default() -> Self {
        Self::from_list(KNOWN[0])
    }
}

impl Columns {
    fn from_list(names: &str) -> Self {
        Self(keep_first(names.split(',').map(Field::from_name)))
    }

    /// Reads the column names in a header, returning the missing column as the error.
    pub(crate) fn from_names<'n>(
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Self, &'static str> {
        let columns = keep_first(names.map(Field::from_name));
        for (column, name) in [
            (Field::Event, "eventtype"),
            (Field::Time, "eventtime"),
            (Field::Channel, "channame"),
            (Field::Uniqueid, "uniqueid"),
            (Field::Linkedid, "linkedid"),
        ] {
            if !columns.contains(&Some(column)) {
                return Err(name);
            }
        }
        Ok(Self(columns))
    }

    /// Returns the known layout that has unique IDs in the right columns of this record. If the IDs
    /// were chosen by ARI or `Originate`, they can have any form, so the number of columns decides.
    fn recognize(record: &CsvRecord) -> Option<Self> {
        Self::known_layouts()
            .find(|columns| columns.fit(record))
            .or_else(|| Self::known_layouts().find(|columns| columns.fit_in_number(record)))
    }

    fn known_layouts() -> impl Iterator<Item = Self> {
        KNOWN.iter().map(|names| Self::from_list(names))
    }

    /// Returns `true` if the record has an event name, a channel, and two unique IDs in these
    /// columns.
    fn fit(&self, record: &CsvRecord) -> bool {
        let channel = self.text(record, Field::Channel);
        is_event(self.text(record, Field::Event))
            && (channel.contains('/') || channel.is_empty())
            && IDS
                .into_iter()
                .all(|id| UniqueId::epoch_in(self.text(record, id)).is_some())
    }

    /// Returns `true` if the record has the same number of columns, an event name, and a channel,
    /// regardless of the form of the IDs.
    fn fit_in_number(&self, record: &CsvRecord) -> bool {
        record.len() == self.0.len()
            && is_event(self.text(record, Field::Event))
            && self.text(record, Field::Channel).contains('/')
            && IDS.into_iter().all(|id| !self.text(record, id).is_empty())
    }

    fn text<'r>(&self, record: &'r CsvRecord, column: Field) -> &'r str {
        self.place(column).map_or("", |at| record.text(at))
    }

    /// Returns a column's index, or `None` if the file doesn't have it.
    fn place(&self, column: Field) -> Option<usize> {
        self.0.iter().position(|&other| other == Some(column))
    }
}

/// Keeps only the first column for each field. FreePBX's table has an empty `channel` after
/// `channame`.
fn keep_first(columns: impl Iterator<Item = Option<Field>>) -> Vec<Option<Field>> {
    let mut each: Vec<Option<Field>> = Vec::new();
    for column in columns {
        let is_repeated = each.contains(&column);
        each.push(if is_repeated { None } else { column });
    }
    each
}

/// Returns `true` for anything that looks like an event name (`CHAN_START`, `OF_A_LATER_RELEASE`)
/// or an event number.
fn is_event(text: &str) -> bool {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return EventNumbers::parse(text).is_some();
    }
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'A'..=b'Z' | b'_' | b'0'..=b'9'))
}
