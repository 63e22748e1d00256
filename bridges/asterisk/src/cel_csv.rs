//! Rows of `cel_custom`, and of tables of CEL exported as CSV. Which column holds what is known by
//! the header, by the flags, or by trying the layouts that Asterisk's samples, FreePBX and Wazo
//! have.

use crate::cel::{CelRow, Field};
use crate::cel_time::CelClock;
use crate::csv_record::CsvRecord;
use callbridge_call::{Decoded, UniqueId, Unreadable};
use memchr::memmem;
use std::borrow::Cow;
use std::str::FromStr;

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
            record: CsvRecord::default(),
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
        let needed = [Field::Event, Field::Uniqueid, Field::Linkedid].into_iter();
        let last = needed.filter_map(|column| self.columns.place(column)).max();
        if last.is_none_or(|last| last >= self.record.len()) {
            return Decoded::Unreadable(Unreadable::TooFewColumns);
        }
        let (mut row, mut repaired) = (CelRow::default(), false);
        for (index, column) in self.columns.0.iter().enumerate() {
            if let Some(column) = column {
                row.set(*column, self.field(index), &mut repaired);
            }
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

/// Columns that tie a row to its channel and its call.
const IDS: [Field; 2] = [Field::Uniqueid, Field::Linkedid];

/// Fewer columns make no CEL row.
const COLUMNS_MIN: usize = 5;

/// Fields in the columns of a CEL file, in order; `None` for a column that no call depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(Vec<Option<Field>>);

/// The layouts of files without a header, the likeliest first.
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
        Self::listed(KNOWN[0])
    }
}

impl FromStr for Columns {
    type Err = MissingColumn;

    /// Names separated by commas, as a header row or the mapping in `cel_custom.conf` has them.
    fn from_str(names: &str) -> Result<Self, MissingColumn> {
        Self::of(names.split(','))
    }
}

/// A CEL file without this column tells of no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a CEL file needs the column {0}")]
pub struct MissingColumn(&'static str);

impl Columns {
    fn listed(names: &str) -> Self {
        Self(once_each(names.split(',').map(Field::named)))
    }

    fn of<'n>(names: impl Iterator<Item = &'n str>) -> Result<Self, MissingColumn> {
        let columns = once_each(names.map(Field::named));
        for (column, name) in [
            (Field::Event, "eventtype"),
            (Field::Time, "eventtime"),
            (Field::Channel, "channame"),
            (Field::Uniqueid, "uniqueid"),
            (Field::Linkedid, "linkedid"),
        ] {
            if !columns.contains(&Some(column)) {
                return Err(MissingColumn(name));
            }
        }
        Ok(Self(columns))
    }

    /// The fields of a record, for whoever is to name its columns.
    pub fn seen(record: &[u8]) -> Vec<String> {
        let mut fields = CsvRecord::default();
        fields.read(record, COLUMNS_MIN);
        let text = |at| String::from_utf8_lossy(fields.field(at)).into_owned();
        (0..fields.len()).map(text).collect()
    }

    /// The columns, if this record is a header. Hardly a row of calls holds `unique`, and so hardly
    /// one has to be looked at name by name.
    fn header(record: &CsvRecord) -> Option<Self> {
        let bytes = record.bytes();
        let is_unique = |q: usize| {
            let word = q.checked_sub(3).and_then(|from| bytes.get(from..q + 3));
            word.is_some_and(|word| word.eq_ignore_ascii_case(b"unique"))
        };
        if !memchr::memchr2_iter(b'q', b'Q', bytes).any(is_unique) {
            return None;
        }
        Self::of((0..record.len()).map(|index| record.text(index))).ok()
    }

    /// The layout that this record has, of those known: by its ids, or by the number of its columns
    /// where ARI or `Originate` chose the ids.
    fn recognised(record: &CsvRecord) -> Option<Self> {
        let known = || KNOWN.iter().map(|names| Self::listed(names));
        let by_ids = known().find(|columns| columns.fit(record));
        by_ids.or_else(|| known().find(|columns| columns.fit_in_number(record)))
    }

    /// Returns `true` when the record has an event's name, a channel and two unique ids in these
    /// columns.
    fn fit(&self, record: &CsvRecord) -> bool {
        let text = |column| self.text(record, column);
        is_event(text(Field::Event))
            && (text(Field::Channel).contains('/') || text(Field::Channel).is_empty())
            && (IDS.into_iter()).all(|id| UniqueId::epoch_in(text(id)).is_some())
    }

    /// Returns `true` when the record has as many columns, and all of that but for the form of its
    /// ids.
    fn fit_in_number(&self, record: &CsvRecord) -> bool {
        let text = |column| self.text(record, column);
        record.len() == self.0.len()
            && is_event(text(Field::Event))
            && text(Field::Channel).contains('/')
            && IDS.into_iter().all(|id| !text(id).is_empty())
    }

    fn text<'r>(&self, record: &'r CsvRecord, column: Field) -> &'r str {
        self.place(column).map_or("", |at| record.text(at))
    }

    /// Returns the index of a column; `None` where the file lacks it.
    fn place(&self, column: Field) -> Option<usize> {
        self.0.iter().position(|&other| other == Some(column))
    }
}

/// Leaves each field the first of its columns: FreePBX's table has an empty `channel` after
/// `channame`.
fn once_each(columns: impl Iterator<Item = Option<Field>>) -> Vec<Option<Field>> {
    let mut each: Vec<Option<Field>> = Vec::new();
    for column in columns {
        each.push(column.filter(|_| !each.contains(&column)));
    }
    each
}

/// Returns `true` for a text in the form of an event's name: `CHAN_START`, `OF_A_LATER_RELEASE`.
fn is_event(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9');
    text.starts_with(|first: char| first.is_ascii_uppercase()) && text.bytes().all(is_name)
}
