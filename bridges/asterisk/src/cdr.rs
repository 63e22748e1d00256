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
    let mut cdr = Cdr::default();
    for (name, value) in pairs {
        set(&mut cdr, name.as_ref(), value, repaired);
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

/// Sets the field of this name: AMI's, or that of `cdr.conf` and of asterisk-cdr-amqp. No call
/// depends on the others.
fn set<'a>(cdr: &mut Cdr<'a>, name: &[u8], value: impl RawValue<'a>, repaired: &mut bool) {
    let letters = name.iter().filter(|byte| **byte != b'_');
    let name: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    match name.as_slice() {
        b"timestamp" => cdr.at = epoch(value.as_ref()),
        b"duration" | b"durationsec" => cdr.duration_sec = seconds(value.as_ref()),
        b"billableseconds" | b"billsec" | b"billablesec" => {
            cdr.billable_sec = seconds(value.as_ref());
        }
        b"uniqueid" => cdr.uniqueid = known(value, repaired),
        b"linkedid" => cdr.linkedid = known(value, repaired),
        b"channel" => cdr.channel = known(value, repaired),
        b"destinationchannel" | b"dstchannel" => cdr.dest_channel = known(value, repaired),
        b"source" | b"src" => cdr.source = known(value, repaired),
        b"destination" | b"dst" => cdr.destination = known(value, repaired),
        b"did" => cdr.did = known(value, repaired),
        b"destinationcontext" | b"dcontext" => cdr.context = known(value, repaired),
        b"lastapplication" | b"lastapp" => cdr.last_app = known(value, repaired),
        b"lastdata" => cdr.last_data = known(value, repaired),
        b"starttime" | b"start" | b"calldate" => cdr.start = known(value, repaired),
        b"answertime" | b"answer" => cdr.answer = known(value, repaired),
        b"endtime" | b"end" => cdr.end = known(value, repaired),
        b"disposition" => cdr.disposition = known(value, repaired),
        b"userfield" => cdr.userfield = known(value, repaired),
        b"callerid" | b"clid" => cdr.caller_id = known(value, repaired),
        _ => {}
    }
}

/// The first columns that each writer puts into a row, in order.
const CDR_CSV: &str = "accountcode,src,dst,dcontext,clid,channel,dstchannel,lastapp,lastdata,start,\
                       answer,end,duration,billsec,disposition,amaflags";
const CDR_CUSTOM: &str = "clid,src,dst,dcontext,channel,dstchannel,lastapp,lastdata,start,answer,\
                          end,duration,billsec,disposition,amaflags,accountcode,uniqueid,userfield";
/// Columns of the oldest form.
const COLUMNS_MIN: usize = 16;

/// Reads rows, and keeps the columns of a header.
#[derive(Debug, Default)]
pub(crate) struct CdrRows {
    header: Option<Vec<String>>,
    record: CsvRecord,
}

impl CdrRows {
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
        let columns = columns.into_iter().enumerate();
        let pairs = columns.map(|(at, name)| (name, self.record.field(at)));
        let mut repaired = false;
        Decoded::of(decode(pairs, &mut repaired), repaired)
    }

    /// The columns, if this row is a header: it names a channel, a start and a disposition.
    fn read_header(&self) -> Option<Vec<String>> {
        let names = (0..self.record.len()).map(|at| named(self.record.text(at)));
        let names: Vec<String> = names.collect();
        let has = |name: &&str| names.iter().any(|it| it == name);
        let is_header = ["channel", "start", "disposition"].iter().all(has);
        is_header.then_some(names)
    }

    /// The header's columns, if the row has its start where they say.
    fn by_header(&self) -> Option<Vec<&str>> {
        let header = self.header.as_ref()?;
        let start = header.iter().position(|name| name == "start")?;
        (is_time(self.record.text(start)) && self.record.len() + 1 >= header.len())
            .then(|| header.iter().map(String::as_str).collect())
    }

    /// The columns that this row shows by its times.
    fn columns(&self) -> Option<Vec<&str>> {
        if self.times_stand_at(9) {
            return Some(CDR_CSV.split(',').chain(self.after_cdr_csv()).collect());
        }
        // A row of cdr_csv that lost its first column has its times there, too.
        let custom = self.times_stand_at(8) && is_uniqueid(self.record.text(16));
        custom.then(|| CDR_CUSTOM.split(',').collect())
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
    fn after_cdr_csv(&self) -> Vec<&'static str> {
        let one = match is_uniqueid(self.record.text(COLUMNS_MIN)) {
            true => "uniqueid",
            false => "userfield",
        };
        let columns: &[&str] = match self.record.len().saturating_sub(COLUMNS_MIN) {
            0 => &[],
            1 => &[one],
            2 => &["uniqueid", "userfield"],
            3 => &["peeraccount", "linkedid", "sequence"],
            4 => &[one, "peeraccount", "linkedid", "sequence"],
            _ => &[
                "uniqueid",
                "userfield",
                "peeraccount",
                "linkedid",
                "sequence",
            ],
        };
        columns.to_vec()
    }
}

/// A column of a header, by its name in `cdr.conf`, in a table or in a report:
/// `dstchannel`, `Destination Channel`, `Billable (secs)`.
fn named(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    let plain = match name.as_str() {
        "sourcechannel" => "channel",
        "destchannel" | "dstchan" => "dstchannel",
        "lastapparg" | "lastappdata" | "appdata" => "lastdata",
        "starttime" | "startdate" | "calldate" => "start",
        "answeredtime" | "answerdate" => "answer",
        "enddate" => "end",
        "durationsecs" => "duration",
        "billablesecs" => "billsec",
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
