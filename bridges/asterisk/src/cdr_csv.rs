//! Rows of call detail records: `Master.csv` of `cdr_csv`, rows of `cdr_custom`'s sample, and
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
//! What a row without a header is can be told for sure by where its three times and two counts of
//! seconds stand. A row that has them nowhere is torn.

use crate::cdr::{self, Field};
use crate::cdr_time::is_time;
use crate::csv_record::CsvRecord;
use callbridge_call::{Decoded, Unreadable};

/// The first columns that each writer puts into a row, in order.
const CDR_CSV: &str = "accountcode,src,dst,dcontext,clid,channel,dstchannel,lastapp,lastdata,start,\
                       answer,end,duration,billsec,disposition,amaflags";
const CDR_CUSTOM: &str = "clid,src,dst,dcontext,channel,dstchannel,lastapp,lastdata,start,answer,\
                          end,duration,billsec,disposition,amaflags,accountcode,uniqueid,userfield";
/// Columns of the oldest form.
const COLUMNS_MIN: usize = 16;

/// Reads rows, and keeps the columns of a header.
#[derive(Debug)]
pub(crate) struct CdrRows {
    header: Option<Vec<Option<Field>>>,
    cdr_csv: Vec<Option<Field>>,
    cdr_custom: Vec<Option<Field>>,
    record: CsvRecord,
}

impl CdrRows {
    pub(crate) fn new() -> Self {
        let columns = |names: &str| names.split(',').map(named).collect();
        Self {
            header: None,
            cdr_csv: columns(CDR_CSV),
            cdr_custom: columns(CDR_CUSTOM),
            record: CsvRecord::new(),
        }
    }

    /// Decodes one row; a header sets the columns of those that follow.
    pub(crate) fn decode<'a>(&'a mut self, row: &[u8]) -> Decoded<'a> {
        self.record.read(row, COLUMNS_MIN / 2);
        if let Some(header) = self.read_header() {
            self.header = Some(header);
            return Decoded::Skipped;
        }
        let Some(columns) = self.columns().or_else(|| self.by_header()) else {
            return Decoded::Unreadable(Unreadable::NotACdr);
        };
        let fields = columns.into_iter().enumerate();
        let fields =
            fields.filter_map(|(at, field)| field.map(|field| (field, self.record.field(at))));
        let mut repaired = false;
        let event = cdr::decode_fields(fields, &mut repaired);
        Decoded::of(event, repaired)
    }

    /// The columns, if this row is a header: it names a channel, a start and a disposition.
    fn read_header(&self) -> Option<Vec<Option<Field>>> {
        let names = (0..self.record.len()).map(|at| named(self.record.text(at)));
        let fields: Vec<Option<Field>> = names.collect();
        let has = |field: Field| fields.contains(&Some(field));
        (has(Field::Channel) && has(Field::Start) && has(Field::Disposition)).then_some(fields)
    }

    /// The header's columns, if the row has its start where they say.
    fn by_header(&self) -> Option<Vec<Option<Field>>> {
        let header = self.header.as_ref()?;
        let start = header
            .iter()
            .position(|field| *field == Some(Field::Start))?;
        (is_time(self.record.text(start)) && self.record.len() + 1 >= header.len())
            .then(|| header.clone())
    }

    /// The columns that this row shows by its times.
    fn columns(&self) -> Option<Vec<Option<Field>>> {
        if self.times_stand_at(9) {
            return Some(self.of_cdr_csv());
        }
        // A row of cdr_csv that lost its first column has its times there, too.
        let custom = self.times_stand_at(8) && is_uniqueid(self.record.text(16));
        custom.then(|| self.cdr_custom.clone())
    }

    /// Returns `true` when start, answer, end, duration and billed seconds stand from this column
    /// on.
    fn times_stand_at(&self, start: usize) -> bool {
        let text = |at| self.record.text(at);
        let whole = |at: usize| text(at).trim().parse::<u32>().is_ok();
        let none = |text: &str| {
            text.is_empty()
                || is_time(text)
                || text.starts_with("0000-")
                || text.starts_with("1970-")
                || text == "0"
        };
        self.record.len() >= start + COLUMNS_MIN - 9
            && is_time(text(start))
            && none(text(start + 1))
            && (is_time(text(start + 2)) || text(start + 2).is_empty())
            && whole(start + 3)
            && whole(start + 4)
            && text(start - 4).contains('/')
    }

    /// By how many columns follow the sixteenth; a single one is an id or a user field.
    fn of_cdr_csv(&self) -> Vec<Option<Field>> {
        let (uniqueid, userfield) = (Some(Field::Uniqueid), Some(Field::Userfield));
        let linkedid = Some(Field::Linkedid);
        let one = match is_uniqueid(self.record.text(COLUMNS_MIN)) {
            true => uniqueid,
            false => userfield,
        };
        let more: &[Option<Field>] = match self.record.len().saturating_sub(COLUMNS_MIN) {
            0 => &[],
            1 => &[one],
            2 => &[uniqueid, userfield],
            3 => &[None, linkedid, None],
            4 => &[one, None, linkedid, None],
            _ => &[uniqueid, userfield, None, linkedid, None],
        };
        [&self.cdr_csv, more].concat()
    }
}

/// A column of a header, by its name in `cdr.conf`, in a table or in a report:
/// `dstchannel`, `Destination Channel`, `Billable (secs)`.
fn named(name: &str) -> Option<Field> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let plain = match name.as_str() {
        "sourcechannel" => "channel",
        "destchannel" | "dstchan" => "dstchannel",
        "lastapparg" | "lastappdata" | "appdata" => "lastdata",
        "starttime" | "startdate" => "start",
        "answeredtime" | "answerdate" => "answer",
        "enddate" => "end",
        "durationsecs" => "duration",
        "billablesecs" => "billsec",
        "callersource" | "callernumber" => "src",
        other => other,
    };
    cdr::field(plain.as_bytes())
}

/// Returns `true` for an id as Asterisk makes it: `1536293101.12458`, `pbx1-1536293101.12458`.
fn is_uniqueid(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let tail = text.rsplit_once('-').map_or(text, |(_, tail)| tail);
    tail.split_once('.')
        .is_some_and(|(epoch, counter)| digits(epoch) && digits(counter))
}
