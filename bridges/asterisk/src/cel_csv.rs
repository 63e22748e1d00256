//! Rows of `cel_custom`, and of tables of CEL exported as CSV. The columns are known from the
//! header, from the flags, or by trying the layouts of Asterisk's samples, FreePBX, and Wazo.

use crate::cdr::is_missing;
use crate::cel::{CelRow, Field};
use crate::cel_number::EventNumbers;
use crate::cel_time::CelClock;
use crate::csv_record::{CsvRecord, DELIMITERS, is_frame, is_rounded};
use crate::local_time::lacks_seconds;
use callbridge_call::{ChannelEvent, Decoded, PbxEvent, UniqueId, Unreadable};

/// Minimum columns of a row in one of the known layouts.
const KNOWN_MIN: usize = 19;

/// Reads the records of one file.
#[derive(Debug)]
pub(crate) struct CsvRows {
    /// Set by the header, or by the first row that can be read. The delimiter is the same for the
    /// whole file. With another delimiter, a comma in `appdata` would move all values after it.
    delimiter: Option<u8>,
    columns: Columns,
    /// The columns were named by the flags or a header, so no other layout is tried.
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

    /// Decodes one record. A header sets the delimiter and the columns of the records after it.
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
        // With such times, nobody talked or everybody talked for a minute.
        if lacks_seconds(&row.time) {
            return Err(Unreadable::NoSeconds);
        }
        Ok(row)
    }

    /// Returns the delimiter and the columns of a header. `None` if this record is not a header.
    /// Only records that contain `unique` are compared with the names, because few rows of calls
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

    /// Finds the delimiter that splits this record into the columns of CEL, for a file without a
    /// header. All later rows are split at the same delimiter.
    fn split_at_any(&mut self, record: &[u8]) -> Result<(), Unreadable> {
        let mut first = Ok(());
        for delimiter in DELIMITERS {
            let split = self.split(record, delimiter);
            if split.is_ok() {
                self.delimiter = Some(delimiter);
                return Ok(());
            }
            // The reason of a split with enough columns is the most useful, so it is returned.
            if first.is_ok() || first == Err(Unreadable::TooFewColumns) {
                first = split;
            }
        }
        first
    }

    /// Splits a record, and checks that it is a row of CEL.
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
        // A delimiter in a field that is not quoted moves the ids to other columns.
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

/// Columns that identify the channel and the call of a row.
const IDS: [Field; 2] = [Field::Uniqueid, Field::Linkedid];

/// Fields in the columns of a CEL file, in order. `None` is a column on which no call depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns(Vec<Option<Field>>);

/// The layouts of files without a header, the most likely first.
const KNOWN: [&str; 6] = [
    // Asterisk's sample mapping (`cel_custom.conf.sample`).
    "eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,userfield,userdeftype,\
     eventextra",
    // The table `cel` of FreePBX, with and without its number.
    "id,eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     src,dst,channel,dstchannel,appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,\
     userdeftype,extra,userfield",
    "eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,channame,\
     src,dst,channel,dstchannel,appname,appdata,amaflags,accountcode,uniqueid,linkedid,peer,\
     userdeftype,extra,userfield",
    // The table `cel` of Wazo.
    "id,eventtype,eventtime,userdeftype,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,\
     context,channame,appname,appdata,amaflags,accountcode,peeraccount,uniqueid,linkedid,\
     userfield,peer,call_log_id,extra",
    // Asterisk's samples for databases (`contrib/realtime`, the documentation of cel_odbc).
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

    /// Reads the column names of a header. The error names the column that is missing.
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

    /// Returns the known layout that has unique ids in the right columns of this record. If ARI or
    /// `Originate` chose the ids, they can have any form, so the number of columns decides.
    fn recognize(record: &CsvRecord) -> Option<Self> {
        Self::known_layouts()
            .find(|columns| columns.fit(record))
            .or_else(|| Self::known_layouts().find(|columns| columns.fit_in_number(record)))
    }

    fn known_layouts() -> impl Iterator<Item = Self> {
        KNOWN.iter().map(|names| Self::from_list(names))
    }

    /// Returns `true` if the record has an event's name, a channel, and two unique ids in these
    /// columns.
    fn fit(&self, record: &CsvRecord) -> bool {
        let channel = self.text(record, Field::Channel);
        is_event(self.text(record, Field::Event))
            && (channel.contains('/') || channel.is_empty())
            && IDS
                .into_iter()
                .all(|id| UniqueId::epoch_in(self.text(record, id)).is_some())
    }

    /// Returns `true` if the record has the same number of columns, an event's name, and a channel.
    /// The ids can have any form.
    fn fit_in_number(&self, record: &CsvRecord) -> bool {
        record.len() == self.0.len()
            && is_event(self.text(record, Field::Event))
            && self.text(record, Field::Channel).contains('/')
            && IDS.into_iter().all(|id| !self.text(record, id).is_empty())
    }

    fn text<'r>(&self, record: &'r CsvRecord, column: Field) -> &'r str {
        self.place(column).map_or("", |at| record.text(at))
    }

    /// Returns the index of a column. `None` if the file does not have it.
    fn place(&self, column: Field) -> Option<usize> {
        self.0.iter().position(|&other| other == Some(column))
    }
}

/// Keeps only the first column of each field. FreePBX's table has an empty `channel` after
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
