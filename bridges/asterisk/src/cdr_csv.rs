//! Call detail records in CSV: `Master.csv` of `cdr_csv`, rows of `cdr_custom`'s samples, and
//! tables exported with a header.
//!
//! ```text
//! cdr_csv      accountcode src dst dcontext clid channel dstchannel lastapp lastdata
//!              start answer end duration billsec disposition amaflags
//!              [uniqueid] [userfield] [peeraccount linkedid sequence]
//! cdr_custom   clid src dst dcontext channel dstchannel lastapp lastdata
//!              start answer end duration billsec disposition amaflags
//!              accountcode uniqueid userfield [sequence]
//! ```
//! A header decides the delimiter and the columns of every row after it. In a file without a
//! header, the first whole row decides, by where its three times and two counts of seconds are.
//! A row that does not fit is unreadable: another split could give it another meaning.

use crate::cdr::{self, is_missing};
use crate::cdr_time::is_time;
use crate::csv_record::{CsvRecord, DELIMITERS};
use callbridge_call::{Decoded, Unreadable};

/// The first columns that each writer puts into a row, in order.
const CDR_CSV: &str = "accountcode,src,dst,dcontext,clid,channel,dstchannel,lastapp,lastdata,start,\
                       answer,end,duration,billsec,disposition,amaflags";
const CDR_CUSTOM: &str = "clid,src,dst,dcontext,channel,dstchannel,lastapp,lastdata,start,answer,\
                          end,duration,billsec,disposition,amaflags,accountcode,uniqueid,userfield";
/// Columns of the oldest form.
const COLUMNS_MIN: usize = 16;

/// Column names of CDRs beside those that [`cdr::set`] reads. Only a header has them.
const OTHER_NAMES: [&str; 7] = [
    "accountcode",
    "amaflags",
    "sequence",
    "peeraccount",
    "recordingfile",
    "cnum",
    "cnam",
];
/// A row with this many names of columns is a header.
const HEADER_NAMES_MIN: usize = 4;
/// A header has fewer digits than this. A record has more in its times alone.
const HEADER_DIGITS_MAX: usize = 10;

/// Reads the rows of one file.
#[derive(Debug, Default)]
pub(crate) struct CdrRows {
    layout: Option<Layout>,
    record: CsvRecord,
}

/// The delimiter of a file, and the meaning of its columns.
#[derive(Clone, Debug)]
struct Layout {
    delimiter: u8,
    columns: Columns,
}

#[derive(Clone, Debug)]
enum Columns {
    CdrCsv,
    CdrCustom,
    /// The columns that a header names, in order.
    Named(Vec<String>),
}

impl CdrRows {
    /// Decodes one row. A header sets the columns of the rows after it.
    pub(crate) fn decode<'a>(&'a mut self, row: &[u8]) -> Decoded<'a> {
        if let Some(header) = self.read_header(row) {
            self.layout = Some(header);
            return Decoded::Skipped;
        }
        if self.layout.is_none() {
            self.layout = self.recognize(row);
        }
        let Some(layout) = &self.layout else {
            return Decoded::Unreadable(Unreadable::NotACdr);
        };
        self.record.read(row, layout.delimiter);
        if let Err(why) = layout.columns.check(&self.record) {
            return Decoded::Unreadable(why);
        }
        let names = layout.columns.names(&self.record).into_iter().enumerate();
        let pairs = names.map(|(column, name)| (name, self.record.field(column)));
        let mut repaired = false;
        Decoded::of(cdr::decode(pairs, &mut repaired), repaired)
    }

    /// Returns the layout that this row names; `None` if it is not a header.
    fn read_header(&mut self, row: &[u8]) -> Option<Layout> {
        let digits = row.iter().filter(|byte| byte.is_ascii_digit());
        if digits.take(HEADER_DIGITS_MAX).count() == HEADER_DIGITS_MAX {
            return None;
        }
        for delimiter in DELIMITERS {
            self.record.read(row, delimiter);
            let fields = 0..self.record.len();
            let names: Vec<String> = fields.map(|at| plain_name(self.record.text(at))).collect();
            let known = names.iter().filter(|name| is_column(name)).count();
            if known >= HEADER_NAMES_MIN {
                let columns = Columns::Named(names);
                return Some(Layout { delimiter, columns });
            }
        }
        None
    }

    /// Returns the layout that this row shows by its times.
    fn recognize(&mut self, row: &[u8]) -> Option<Layout> {
        for delimiter in DELIMITERS {
            self.record.read(row, delimiter);
            for columns in [Columns::CdrCsv, Columns::CdrCustom] {
                if columns.check(&self.record).is_ok() {
                    return Some(Layout { delimiter, columns });
                }
            }
        }
        None
    }
}

impl Columns {
    /// Checks that a row has these columns.
    fn check(&self, record: &CsvRecord) -> Result<(), Unreadable> {
        match self {
            Self::CdrCsv if has_times_at(record, 9) => Ok(()),
            // A row of cdr_csv without its first column has its times there too.
            Self::CdrCustom if has_times_at(record, 8) && is_uniqueid(record.text(16)) => Ok(()),
            Self::CdrCsv | Self::CdrCustom => Err(Unreadable::NotACdr),
            Self::Named(names) => check_named(names, record),
        }
    }

    /// Returns the name of each column of a row that passed [`Columns::check`].
    fn names(&self, record: &CsvRecord) -> Vec<&str> {
        match self {
            Self::CdrCsv => CDR_CSV.split(',').chain(after_cdr_csv(record)).collect(),
            Self::CdrCustom => CDR_CUSTOM.split(',').collect(),
            Self::Named(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// Checks a row against the names of a header. A row with more fields has delimiters in a field
/// that is not quoted, so no value after that field can be trusted. A row with fewer is torn.
fn check_named(names: &[String], record: &CsvRecord) -> Result<(), Unreadable> {
    let place = |wanted: &str| names.iter().position(|name| name == wanted);
    for needed in ["channel", "dstchannel", "start", "disposition"] {
        if place(needed).is_none() {
            return Err(Unreadable::NoColumn(needed));
        }
    }
    if place("end").or(place("duration")).is_none() {
        return Err(Unreadable::NoColumn("duration"));
    }
    if place("answer").or(place("billsec")).is_none() {
        return Err(Unreadable::NoColumn("billsec"));
    }
    let mut beyond = (names.len()..record.len()).map(|column| record.field(column));
    let mut missing = names.iter().skip(record.len());
    if beyond.any(|field| !field.is_empty()) || missing.any(|name| !name.is_empty()) {
        return Err(Unreadable::OtherColumns);
    }
    let text = |name| place(name).map_or("", |column| record.text(column));
    if !is_time(text("start")) {
        return Err(Unreadable::NoStart);
    }
    for name in ["duration", "billsec"] {
        let count = text(name);
        if !is_missing(count.as_bytes()) && cdr::seconds(count.as_bytes()).is_none() {
            return Err(Unreadable::NoCount(name));
        }
    }
    if !is_time(text("end")) && is_missing(text("duration").as_bytes()) {
        return Err(Unreadable::NoCount("duration"));
    }
    Ok(())
}

/// Returns `true` if start, answer, end, duration, and billed seconds begin at this column.
fn has_times_at(record: &CsvRecord, start: usize) -> bool {
    let text = |column| record.text(column);
    let is_count = |column: usize| cdr::seconds(text(column).as_bytes()).is_some();
    record.len() >= start + COLUMNS_MIN - 9
        && is_time(text(start))
        && (is_time(text(start + 1)) || is_no_time(text(start + 1)))
        && (is_time(text(start + 2)) || is_missing(text(start + 2).as_bytes()))
        && is_count(start + 3)
        && is_count(start + 4)
        && text(start - 4).contains('/')
}

/// Returns `true` for a text that stands for no time: `0.000000`, `0000-00-00 00:00:00`, 1970.
fn is_no_time(text: &str) -> bool {
    is_missing(text.as_bytes())
        || text.starts_with("0000-")
        || text.starts_with("1970-")
        || text.parse::<f64>() == Ok(0.0)
}

/// Returns the columns after the sixteenth, by how many they are. A single one is an id or a user
/// field.
fn after_cdr_csv(record: &CsvRecord) -> Vec<&'static str> {
    let one = if is_uniqueid(record.text(COLUMNS_MIN)) {
        "uniqueid"
    } else {
        "userfield"
    };
    let new = ["peeraccount", "linkedid", "sequence"];
    match record.len().saturating_sub(COLUMNS_MIN) {
        0 => Vec::new(),
        1 => vec![one],
        2 => vec!["uniqueid", "userfield"],
        3 => new.to_vec(),
        4 => [&[one][..], &new].concat(),
        _ => [&["uniqueid", "userfield"][..], &new].concat(),
    }
}

fn is_column(name: &str) -> bool {
    OTHER_NAMES.contains(&name) || cdr::is_field(name)
}

/// Returns the name of a column as `cdr.conf` has it. A table or a report can write it otherwise:
/// `calldate`, `Destination Channel`, `Billable (secs)`.
fn plain_name(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let plain = match name.as_str() {
        "sourcechannel" => "channel",
        "destchannel" | "dstchan" | "destinationchannel" => "dstchannel",
        "lastapparg" | "lastappdata" | "appdata" => "lastdata",
        "starttime" | "startdate" | "calldate" => "start",
        "answertime" | "answeredtime" | "answerdate" => "answer",
        "endtime" | "enddate" => "end",
        "durationsec" | "durationsecs" => "duration",
        "billablesec" | "billablesecs" | "billableseconds" => "billsec",
        "callersource" | "callernumber" => "src",
        _ => return name,
    };
    plain.to_owned()
}

/// Returns `true` for an id as Asterisk makes it: `1536293101.12458`, `pbx1-1536293101.12458`.
fn is_uniqueid(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let tail = text.rsplit_once('-').map_or(text, |(_, tail)| tail);
    tail.split_once('.')
        .is_some_and(|(epoch, counter)| digits(epoch) && digits(counter))
}
