//! Call detail records: AMI's `Cdr` event and the bodies of asterisk-cdr-amqp.

use crate::cdr_time::is_time;
use crate::mend::Scratch;
use crate::text::{JsonText, RawPairs, RawValue, epoch, known, same, seconds};
use callbridge_call::{Cdr, PbxEvent};
use callbridge_call::{Decoded, Unreadable};

/// Reads a record. The names are AMI's, those of `cdr.conf`, and `linkedid` as an administrator
/// may have mapped it; all without case and underscores.
pub(crate) fn tell<'a>(
    pairs: impl RawPairs<'a>,
    mended: &mut bool,
) -> Result<PbxEvent<'a>, Unreadable> {
    let known = pairs.filter_map(|(key, value)| Some((field(key.as_ref())?, value)));
    tell_fields(known, mended)
}

/// Reads a record whose fields are known already.
pub(crate) fn tell_fields<'a, V: RawValue<'a>>(
    fields: impl Iterator<Item = (Field, V)>,
    mended: &mut bool,
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
        *place = known(value, mended);
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
    match tell(texts.into_iter(), &mut repaired) {
        // A channel event of another module, or of ARI: no record is without times and outcome.
        Ok(PbxEvent::Cdr(cdr)) if cdr.start.is_empty() && cdr.disposition.is_empty() => {
            Decoded::Unreadable(Unreadable::NoEvent)
        }
        told => Decoded::of(told, repaired),
    }
}

/// What calls need of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
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

/// AMI's name first, then that of `cdr.conf` and of asterisk-cdr-amqp.
const NAMES: [(&[u8], Field); 40] = [
    (b"Timestamp", Field::Timestamp),
    (b"UniqueID", Field::Uniqueid),
    (b"unique_id", Field::Uniqueid),
    (b"LinkedID", Field::Linkedid),
    (b"linked_id", Field::Linkedid),
    (b"Channel", Field::Channel),
    (b"DestinationChannel", Field::DestChannel),
    (b"dstchannel", Field::DestChannel),
    (b"Source", Field::Source),
    (b"src", Field::Source),
    (b"Destination", Field::Destination),
    (b"dst", Field::Destination),
    (b"did", Field::Did),
    (b"DestinationContext", Field::Context),
    (b"dcontext", Field::Context),
    (b"LastApplication", Field::LastApp),
    (b"lastapp", Field::LastApp),
    (b"LastData", Field::LastData),
    (b"last_data", Field::LastData),
    (b"last_app", Field::LastApp),
    (b"StartTime", Field::Start),
    (b"start", Field::Start),
    (b"AnswerTime", Field::Answer),
    (b"answer", Field::Answer),
    (b"EndTime", Field::End),
    (b"end", Field::End),
    (b"Duration", Field::Duration),
    (b"durationsec", Field::Duration),
    (b"duration_sec", Field::Duration),
    (b"BillableSeconds", Field::Billable),
    (b"billsec", Field::Billable),
    (b"billable_sec", Field::Billable),
    (b"Disposition", Field::Disposition),
    (b"UserField", Field::Userfield),
    (b"user_field", Field::Userfield),
    (b"CallerID", Field::CallerId),
    (b"clid", Field::CallerId),
    (b"caller_id", Field::CallerId),
    (b"calldate", Field::Start),
    (b"start_time", Field::Start),
];

/// The field of this name.
pub(crate) fn field(key: &[u8]) -> Option<Field> {
    let letter = key.first()? | 0x20;
    // Length and first letter turn nearly all names away.
    let may_be = |name: &[u8]| name.len() == key.len() && name[0] | 0x20 == letter;
    NAMES
        .iter()
        .find(|(name, _)| may_be(name) && same(key, name))
        .map(|&(_, field)| field)
}
