//! Call detail records: AMI's `Cdr` event and the bodies of asterisk-cdr-amqp.

use crate::cdr_time::is_time;
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
pub(crate) fn decode_fields<'a, V: RawValue<'a>>(
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

/// The longest name that there is.
const NAME_BYTES_MAX: usize = b"destinationchannel".len();

/// The field of this name: AMI's, or that of `cdr.conf` and of asterisk-cdr-amqp.
pub(crate) fn field(key: &[u8]) -> Option<Field> {
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
