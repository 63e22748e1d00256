//! Rows of `cel_custom`.

use crate::cel::{CelRow, Extra};
use crate::cel_time::CelClock;
use crate::decoder::{Decoded, Unreadable};
use crate::text::{Raw, known};
use callbridge_call::event::Text;
use csv_core::{ReadRecordResult, Reader};
use std::str::FromStr;

/// What a column of a CEL file holds, as far as calls depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Event,
    Time,
    Number,
    Exten,
    Context,
    Channel,
    Application,
    AppData,
    Uniqueid,
    Linkedid,
    Userfield,
    Extra,
    Peer,
    Other,
}

/// The columns of a CEL file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(Vec<Column>);

/// Asterisk's sample mapping (`cel_custom.conf.sample`).
const SAMPLE: &str = "eventtype,eventtime,CALLERID(name),CALLERID(num),CALLERID(ANI),\
CALLERID(RDNIS),CALLERID(DNID),CHANNEL(exten),CHANNEL(context),CHANNEL(channame),\
CHANNEL(appname),CHANNEL(appdata),CHANNEL(amaflags),CHANNEL(accountcode),CHANNEL(uniqueid),\
CHANNEL(linkedid),BRIDGEPEER,CHANNEL(userfield),userdeftype,eventextra";

impl Default for Columns {
    fn default() -> Self {
        Self(SAMPLE.split(',').map(Column::named).collect())
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
    fn of<'n>(names: impl Iterator<Item = &'n str>) -> Result<Self, MissingColumn> {
        let columns: Vec<Column> = names.map(Column::named).collect();
        for (column, name) in [
            (Column::Event, "eventtype"),
            (Column::Time, "eventtime"),
            (Column::Channel, "channame"),
            (Column::Uniqueid, "uniqueid"),
            (Column::Linkedid, "linkedid"),
        ] {
            if !columns.contains(&column) {
                return Err(MissingColumn(name));
            }
        }
        Ok(Self(columns))
    }

    fn place(&self, column: Column) -> Option<usize> {
        self.0.iter().position(|&other| other == column)
    }
}

impl Column {
    /// By the name in the mapping, in AMI, or in a database's table: `${CHANNEL(channame)}`,
    /// `Channel`, `channame`.
    fn named(name: &str) -> Self {
        let name = name
            .trim()
            .trim_start_matches("${")
            .trim_end_matches('}')
            .to_lowercase();
        let name = name
            .strip_prefix("channel(")
            .map_or(name.as_str(), |n| n.trim_end_matches(')'));
        match name {
            "eventtype" | "event_type" | "event" | "eventname" | "event_name" => Self::Event,
            "eventtime" | "event_time" => Self::Time,
            "callerid(num)" | "cid_num" | "calleridnum" | "callerid_num" => Self::Number,
            "exten" | "extension" => Self::Exten,
            "context" => Self::Context,
            "channame" | "channel" | "chan_name" => Self::Channel,
            "appname" | "application" | "app" => Self::Application,
            "appdata" | "app_data" => Self::AppData,
            "uniqueid" | "unique_id" => Self::Uniqueid,
            "linkedid" | "linked_id" => Self::Linkedid,
            "userfield" | "user_field" => Self::Userfield,
            "eventextra" | "extra" => Self::Extra,
            "bridgepeer" | "peer" => Self::Peer,
            _ => Self::Other,
        }
    }
}

/// Reads records, and keeps the last one's fields.
#[derive(Debug)]
pub(crate) struct CsvRows {
    columns: Columns,
    reader: Reader,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl CsvRows {
    pub(crate) fn new(columns: Columns) -> Self {
        Self {
            columns,
            // Not `Reader::default`, which leaves its table of states empty.
            reader: Reader::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Decodes one record; a header row sets the columns of those that follow.
    pub(crate) fn decode<'a>(&'a mut self, record: &[u8], clock: &mut CelClock) -> Decoded<'a> {
        self.read(record);
        if let Some(columns) = self.header() {
            self.columns = columns;
            return Decoded::Skipped;
        }
        let needed = [Column::Event, Column::Uniqueid, Column::Linkedid];
        let last = needed
            .into_iter()
            .filter_map(|column| self.columns.place(column))
            .max();
        if last.is_none_or(|last| last >= self.ends.len()) {
            return Decoded::Unreadable(Unreadable::TooFewColumns);
        }
        let mut repaired = false;
        let row = self.row(&mut repaired);
        let is_name = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9');
        if row.event.is_empty() || !row.event.bytes().all(is_name) {
            return Decoded::Unreadable(Unreadable::NoEvent);
        }
        row.decoded(clock, repaired)
    }

    /// Splits the record into fields without their quotes.
    fn read(&mut self, record: &[u8]) {
        self.reader.reset();
        self.bytes.resize(record.len() + 1, 0);
        self.ends.clear();
        self.ends.resize(record.len() + 2, 0);
        let (mut input, mut written, mut fields) = (record, 0, 0);
        loop {
            let (result, read, wrote, ended) = self.reader.read_record(
                input,
                &mut self.bytes[written..],
                &mut self.ends[fields..],
            );
            input = &input[read..];
            written += wrote;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                // Neither can be full: a field takes a byte of the record, and so does its end.
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => break,
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
        }
        self.ends.truncate(fields);
    }

    fn field(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// The columns, if this record is a header.
    fn header(&self) -> Option<Columns> {
        let text = |index| std::str::from_utf8(self.field(index)).unwrap_or_default();
        Columns::of((0..self.ends.len()).map(text)).ok()
    }

    fn row(&self, mended: &mut bool) -> CelRow<'_> {
        let mut row = CelRow::default();
        for (index, column) in self.columns.0.iter().enumerate().take(self.ends.len()) {
            let place: &mut Text<'_> = match column {
                Column::Other => continue,
                Column::Extra => {
                    row.extra = Extra::Text(self.field(index).text(mended));
                    continue;
                }
                Column::Event => &mut row.event,
                Column::Time => &mut row.time,
                Column::Application => &mut row.application,
                Column::AppData => &mut row.app_data,
                Column::Number => &mut row.channel.caller_number,
                Column::Exten => &mut row.channel.exten,
                Column::Context => &mut row.channel.context,
                Column::Channel => &mut row.channel.name,
                Column::Uniqueid => &mut row.channel.uniqueid,
                Column::Linkedid => &mut row.channel.linkedid,
                Column::Userfield => &mut row.channel.userfield,
                Column::Peer => &mut row.peer,
            };
            *place = known(self.field(index), mended);
        }
        row
    }
}
