//! Call detail records in CSV, which include `Master.csv` from `cdr_csv`, rows from `cdr_custom`'s
//! samples, and tables exported with a header.
//!
//! ```text
//! cdr_csv      accountcode src dst dcontext clid channel dstchannel lastapp lastdata
//!              start answer end duration billsec disposition amaflags
//!              [uniqueid] [userfield] [peeraccount linkedid sequence]
//! cdr_custom   clid src dst dcontext channel dstchannel lastapp lastdata
//!              start answer end duration billsec disposition amaflags
//!              accountcode uniqueid userfield [sequence]
//! ```
//! A header determines the delimiter and columns of all rows after it. If a file has no header,
//! they're determined by where the first complete row has its three times and two counts of
//! seconds. A row that doesn't match is unreadable, because its values might be in the wrong
//! columns.

use crate::cdr::{self, is_missing};
use crate::cdr_time::is_time;
use crate::csv_record::{CsvRecord, DELIMITERS, is_frame, is_rounded};
use callbridge_call::{Decoded, Unreadable};

/// The columns in every `cdr_csv` row, in order.
const CDR_CSV: &str = "accountcode,src,dst,dcontext,clid,channel,dstchannel,lastapp,lastdata,start,\
                       answer,end,duration,billsec,disposition,amaflags";
const CDR_CUSTOM: &str = "clid,src,dst,dcontext,channel,dstchannel,lastapp,lastdata,start,answer,\
                          end,duration,billsec,disposition,amaflags,accountcode,uniqueid,userfield";
/// Number of columns in the oldest form of `cdr_csv`.
const COLUMNS_MIN: usize = 16;

/// CDR column names besides those read by `cdr::set`. They only occur in headers.
const OTHER_NAMES: [&str; 7] = [
    "accountcode",
    "amaflags",
    "sequence",
    "peeraccount",
    "recordingfile",
    "cnum",
    "cnam",
];
/// A row with at least this many column names is a header.
const HEADER_NAMES_MIN: usize = 4;
/// A header has fewer digits than this. A record has more, because it contains times.
const HEADER_DIGITS_MAX: usize = 10;

/// Reads the rows of a single file.
#[derive(Debug, Default)]
pub(crate) struct CdrRows {
    /// The names from `--columns`, for a file without a header.
    named: Option<Vec<String>>,
    layout: Option<Layout>,
    record: CsvRecord,
}

/// A file's delimiter, and what its columns mean.
#[derive(Clone, Debug)]
struct Layout {
    delimiter: u8,
    columns: Columns,
}

#[derive(Clone, Debug)]
enum Columns {
    CdrCsv,
    CdrCustom,
    /// The columns listed in a header, in order.
    Named(Vec<String>),
}

impl CdrRows {
    pub(crate) fn new(named: Option<Vec<String>>) -> Self {
        Self {
            named,
            ..Self::default()
        }
    }

    /// Decodes a row. A header sets the columns of the rows after it.
    pub(crate) fn decode<'a>(&'a mut self, row: &[u8]) -> Decoded<'a> {
        if is_frame(row) {
            return Decoded::Skipped;
        }
        if let Some(header) = self.read_header(row) {
            self.layout = Some(header);
            return Decoded::Skipped;
        }
        if self.layout.is_none() {
            match self.recognize(row) {
                Ok(layout) => self.layout = Some(layout),
                Err(why) => return Decoded::Unreadable(why),
            }
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
        Decoded::from_event(cdr::decode(pairs, &mut repaired), repaired)
    }

    /// Returns the layout specified by a header, or `None` if this row isn't one.
    fn read_header(&mut self, row: &[u8]) -> Option<Layout> {
        let digits = row.iter().filter(|byte| byte.is_ascii_digit());
        if digits.take(HEADER_DIGITS_MAX).count() == HEADER_DIGITS_MAX {
            return None;
        }
        for delimiter in DELIMITERS {
            self.record.read(row, delimiter);
            let fields = 0..self.record.len();
            let names = names(fields.map(|column| self.record.text(column)));
            if is_header(&names) {
                let columns = Columns::Named(names);
                return Some(Layout { delimiter, columns });
            }
        }
        None
    }

    /// Returns the layout of a file without a header that starts with this row. It's either the one
    /// from `--columns` or the known layout that fits the row's times.
    fn recognize(&mut self, row: &[u8]) -> Result<Layout, Unreadable> {
        let known = match &self.named {
            Some(names) => vec![Columns::Named(names.clone())],
            None => vec![Columns::CdrCsv, Columns::CdrCustom],
        };
        let mut most = (0, Unreadable::NotACdr);
        for delimiter in DELIMITERS {
            self.record.read(row, delimiter);
            for columns in &known {
                let Err(why) = columns.check(&self.record) else {
                    let columns = columns.clone();
                    return Ok(Layout { delimiter, columns });
                };
                if self.record.len() > most.0 {
                    most = (self.record.len(), why);
                }
            }
        }
        Err(most.1)
    }
}

impl Columns {
    /// Checks that a row has these columns.
    fn check(&self, record: &CsvRecord) -> Result<(), Unreadable> {
        // The "asterisk" template of FreeSWITCH's mod_cdr_csv has the same columns as cdr_csv, but
        // its disposition is never ANSWERED.
        let channel = match self {
            Self::CdrCsv => Some(5),
            Self::CdrCustom => Some(4),
            Self::Named(names) => names.iter().position(|name| name == "channel"),
        };
        if channel.is_some_and(|column| record.text(column).starts_with("sofia/")) {
            return Err(Unreadable::SwitchCdr);
        }
        match self {
            Self::CdrCsv if has_times_at(record, 9) => Ok(()),
            // A cdr_csv row without its first column has its times in the same place, so the unique
            // ID is checked too.
            Self::CdrCustom if has_times_at(record, 8) && is_uniqueid(record.text(16)) => Ok(()),
            Self::CdrCsv | Self::CdrCustom => Err(Unreadable::NotACdr),
            Self::Named(names) => check_named(names, record),
        }
    }

    /// Returns the name of each column in a row that passed [`Columns::check`].
    fn names(&self, record: &CsvRecord) -> Vec<&str> {
        match self {
            Self::CdrCsv => CDR_CSV.split(',').chain(after_cdr_csv(record)).collect(),
            Self::CdrCustom => CDR_CUSTOM.split(',').collect(),
            Self::Named(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// Checks a row against the names in a header. A row with more fields has delimiters in an unquoted
/// field, so no value after that field can be trusted. A row with fewer fields was cut off.
fn check_named(names: &[String], record: &CsvRecord) -> Result<(), Unreadable> {
    if let Some(missing) = missing_column(names) {
        return Err(Unreadable::NoColumn(missing));
    }
    let mut beyond = (names.len()..record.len()).map(|column| record.field(column));
    let mut missing = names.iter().skip(record.len());
    if beyond.any(|field| !field.is_empty()) || missing.any(|name| !name.is_empty()) {
        return Err(Unreadable::OtherColumns);
    }
    let uniqueid = text_of_column(names, record, "uniqueid");
    if is_rounded(uniqueid) || is_rounded(text_of_column(names, record, "linkedid")) {
        return Err(Unreadable::RoundedId);
    }
    // A start that the database has lost is in the channel's unique ID.
    let start = text_of_column(names, record, "start");
    let is_start_known = is_time(start) || (is_no_time(start) && is_uniqueid(uniqueid));
    if !is_start_known {
        return Err(Unreadable::NoStart);
    }
    for name in ["duration", "billsec"] {
        let count = text_of_column(names, record, name);
        if !is_missing(count.as_bytes()) && !is_count(count) {
            return Err(Unreadable::NoCount(name));
        }
    }
    let duration = text_of_column(names, record, "duration");
    if !is_time(text_of_column(names, record, "end")) && is_missing(duration.as_bytes()) {
        return Err(Unreadable::NoCount("duration"));
    }
    Ok(())
}

/// Returns the text in the column with this name, or an empty text if there's no such column.
fn text_of_column<'r>(names: &[String], record: &'r CsvRecord, name: &str) -> &'r str {
    let column = names.iter().position(|known| known == name);
    column.map_or("", |column| record.text(column))
}

fn is_count(text: &str) -> bool {
    cdr::seconds(text.as_bytes()).is_some()
}

/// Returns `true` if start, answer, end, duration, and billed seconds start at this column.
fn has_times_at(record: &CsvRecord, start: usize) -> bool {
    let answer = record.text(start + 1);
    let end = record.text(start + 2);
    record.len() >= start + COLUMNS_MIN - 9
        && is_time(record.text(start))
        && (is_time(answer) || is_no_time(answer))
        && (is_time(end) || is_missing(end.as_bytes()))
        && is_count(record.text(start + 3))
        && is_count(record.text(start + 4))
        && record.text(start - 4).contains('/')
}

/// Returns `true` for a text that means no time, such as `0.000000`, `0000-00-00 00:00:00`, or
/// 1970.
fn is_no_time(text: &str) -> bool {
    is_missing(text.as_bytes())
        || text.starts_with("0000-")
        || text.starts_with("1970-")
        || text.parse::<f64>() == Ok(0.0)
}

/// Returns the names of the columns after the sixteenth, depending on how many there are. A single
/// column is either a unique ID or a user field.
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

/// Converts column names to the form used in `cdr.conf`.
pub(crate) fn names<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    names.map(plain_name).collect()
}

/// Returns `true` if these are column names rather than the values of a record.
pub(crate) fn is_header(names: &[String]) -> bool {
    let known = names
        .iter()
        .filter(|name| OTHER_NAMES.contains(&name.as_str()) || cdr::is_field(name));
    known.count() >= HEADER_NAMES_MIN
}

/// Returns a column that's missing from `names` and without which calls can't be read.
pub(crate) fn missing_column(names: &[String]) -> Option<&'static str> {
    for needed in ["channel", "dstchannel", "start", "disposition"] {
        if !has_name(names, needed) {
            return Some(needed);
        }
    }
    if !has_name(names, "end") && !has_name(names, "duration") {
        return Some("duration");
    }
    if !has_name(names, "answer") && !has_name(names, "billsec") {
        return Some("billsec");
    }
    None
}

fn has_name(names: &[String], wanted: &str) -> bool {
    names.iter().any(|name| name == wanted)
}

/// Converts a column name to the form used in `cdr.conf`. Tables and reports may use other forms,
/// such as `calldate`, `Destination Channel`, or `Billable (secs)`.
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

/// Returns `true` for an ID in Asterisk's form, such as `1536293101.12458` or
/// `pbx1-1536293101.12458`.
fn is_uniqueid(text: &str) -> bool {
    let tail = text.rsplit_once('-').map_or(text, |(_, tail)| tail);
    tail.split_once('.')
        .is_some_and(|(epoch, counter)| is_digits(epoch) && is_digits(counter))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
