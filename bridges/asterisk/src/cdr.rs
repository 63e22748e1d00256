//! Call detail records: AMI's `Cdr` event, the bodies of asterisk-cdr-amqp, and rows: `Master.csv`
//! of `cdr_csv`, rows of `cdr_custom`'s sample, and tables exported with a header.
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

use crate::cdr_time::is_time;
use crate::csv_record::CsvRecord;
use crate::repair::Scratch;
use crate::text::{JsonText, RawPairs, RawValue, epoch, known, seconds};
use callbridge_call::{Cdr, Decoded, PbxEvent, Unreadable};

/// Reads a record. The names are AMI's, those of `cdr.conf`, and `linkedid` as an administrator
/// may have mapped it; all without case and underscores.
pub(crate) fn decode<'a>(
    pairs: impl RawPairs<'a>,
    repaired: &mut bool,
) -> Result<PbxEvent<'a>, Unreadable> {
    let known = pairs.filter_map(|(key, value)| Some((field(key.as_ref())?, value)));
    decode_fields(known, repaired)
}

/// Reads a record whose fields are known already.
fn decode_fields<'a, V: RawValue<'a>>(
    fields: impl Iterator<Item = (Field, V)>,
    repaired: &mut bool,
) -> Result<PbxEvent<'a>, Unreadable> {
    let mut cdr = Cdr::default();
    for (field, value) in fields {
        let place = match field {
            Field::Timestamp => {
                cdr.at = epoch(value.as_ref());
                continue;
            }
            Field::Duration => {
                cdr.duration_sec = seconds(value.as_ref());
                continue;
            }
            Field::Billable => {
                cdr.billable_sec = seconds(value.as_ref());
                continue;
            }
            Field::Uniqueid => &mut cdr.uniqueid,
            Field::Linkedid => &mut cdr.linkedid,
            Field::Channel => &mut cdr.channel,
            Field::DestChannel => &mut cdr.dest_channel,
            Field::Source => &mut cdr.source,
            Field::Destination => &mut cdr.destination,
            Field::Did => &mut cdr.did,
            Field::Context => &mut cdr.context,
            Field::LastApp => &mut cdr.last_app,
            Field::LastData => &mut cdr.last_data,
            Field::Start => &mut cdr.start,
            Field::Answer => &mut cdr.answer,
            Field::End => &mut cdr.end,
            Field::Disposition => &mut cdr.disposition,
            Field::Userfield => &mut cdr.userfield,
            Field::CallerId => &mut cdr.caller_id,
        };
        *place = known(value, repaired);
    }
    if cdr.channel.is_empty() && cdr.uniqueid.is_empty() {
        return Err(Unreadable::NoChannel);
    }
    // asterisk-cdr-amqp writes the epoch where a call was not answered.
    if !is_time(&cdr.answer) {
        cdr.answer = "".into();
    }
    Ok(PbxEvent::Cdr(Box::new(cdr)))
}

/// Decodes a body of asterisk-cdr-amqp.
pub(crate) fn decode_amqp<'a>(message: &'a [u8], scratch: &'a mut Scratch) -> Decoded<'a> {
    let Some((members, mut repaired)) = scratch.object(message) else {
        return Decoded::Unreadable(Unreadable::NotJson);
    };
    let mut texts = Vec::with_capacity(members.len());
    for (key, value) in members {
        value.into_texts(|text| texts.push((JsonText(key.clone()), JsonText(text))));
    }
    match decode(texts.into_iter(), &mut repaired) {
        // A channel event of another module, or of ARI: no record is without times and outcome.
        Ok(PbxEvent::Cdr(cdr)) if cdr.start.is_empty() && cdr.disposition.is_empty() => {
            Decoded::Unreadable(Unreadable::NoEvent)
        }
        event => Decoded::of(event, repaired),
    }
}

/// Fields of a record that calls depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Timestamp,
    Uniqueid,
    Linkedid,
    Channel,
    DestChannel,
    Source,
    Destination,
    Did,
    Context,
    LastApp,
    LastData,
    Start,
    Answer,
    End,
    Duration,
    Billable,
    Disposition,
    Userfield,
    CallerId,
}

/// The longest name that there is.
const NAME_BYTES_MAX: usize = b"destinationchannel".len();

/// The field of this name: AMI's, or that of `cdr.conf` and of asterisk-cdr-amqp.
fn field(key: &[u8]) -> Option<Field> {
    let (mut name, mut length) = ([0; NAME_BYTES_MAX], 0);
    for byte in key.iter().filter(|byte| **byte != b'_') {
        *name.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    Some(match &name[..length] {
        b"timestamp" => Field::Timestamp,
        b"uniqueid" => Field::Uniqueid,
        b"linkedid" => Field::Linkedid,
        b"channel" => Field::Channel,
        b"destinationchannel" | b"dstchannel" => Field::DestChannel,
        b"source" | b"src" => Field::Source,
        b"destination" | b"dst" => Field::Destination,
        b"did" => Field::Did,
        b"destinationcontext" | b"dcontext" => Field::Context,
        b"lastapplication" | b"lastapp" => Field::LastApp,
        b"lastdata" => Field::LastData,
        b"starttime" | b"start" | b"calldate" => Field::Start,
        b"answertime" | b"answer" => Field::Answer,
        b"endtime" | b"end" => Field::End,
        b"duration" | b"durationsec" => Field::Duration,
        b"billableseconds" | b"billsec" | b"billablesec" => Field::Billable,
        b"disposition" => Field::Disposition,
        b"userfield" => Field::Userfield,
        b"callerid" | b"clid" => Field::CallerId,
        _ => return None,
    })
}

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
        Decoded::of(decode_fields(fields, &mut repaired), repaired)
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
    field(plain.as_bytes())
}

/// Returns `true` for an id as Asterisk makes it: `1536293101.12458`, `pbx1-1536293101.12458`.
fn is_uniqueid(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let tail = text.rsplit_once('-').map_or(text, |(_, tail)| tail);
    tail.split_once('.')
        .is_some_and(|(epoch, counter)| digits(epoch) && digits(counter))
}
