//! Call detail records from AMI's `Cdr` event and from asterisk-cdr-amqp messages. See `cdr_csv`
//! for rows in files.

use crate::cdr_time::is_time;
use crate::repair::Scratch;
use crate::text::{JsonText, RawPairs, RawValue, epoch, text_or_empty};
use callbridge_call::{Cdr, Decoded, PbxEvent, Text, Unreadable};

/// Reads a record with names from either AMI or `cdr.conf`, ignoring case and underscores.
/// `linkedid` is read too if an administrator has mapped it.
pub(crate) fn decode<'a>(
    pairs: impl RawPairs<'a>,
    repaired: &mut bool,
) -> Result<PbxEvent<'a>, Unreadable> {
    let mut cdr = Cdr::default();
    for (name, value) in pairs {
        set(&mut cdr, name.as_ref(), value, repaired);
    }
    if cdr.channel.is_empty() {
        return Err(Unreadable::NoChannel);
    }
    // asterisk-cdr-amqp writes the epoch for an unanswered call.
    if !is_time(&cdr.answer) {
        cdr.answer = "".into();
    }
    Ok(PbxEvent::Cdr(Box::new(cdr)))
}

/// Decodes an asterisk-cdr-amqp message.
pub(crate) fn decode_amqp<'a>(message: &'a [u8], scratch: &'a mut Scratch) -> Decoded<'a> {
    let Some((members, mut repaired)) = scratch.object(message) else {
        return Decoded::Unreadable(Unreadable::NotJson);
    };
    let mut texts = Vec::with_capacity(members.len());
    for (key, value) in members {
        value.into_texts(|text| texts.push((JsonText(key.clone()), JsonText(text))));
    }
    match decode(texts.into_iter(), &mut repaired) {
        // A message without times or an outcome isn't a record, but a channel event from another
        // module or from ARI.
        Ok(PbxEvent::Cdr(cdr)) if cdr.start.is_empty() && cdr.disposition.is_empty() => {
            Decoded::Unreadable(Unreadable::NoEvent)
        }
        event => Decoded::from_event(event, repaired),
    }
}

/// What a database, or a tool that exports its tables, writes for a missing value.
const MISSING: [&[u8]; 5] = [b"NULL", b"\\N", b"(null)", b"None", b"nil"];

/// Returns `true` for an empty value or a text that represents a missing one, such as `NULL`.
pub(crate) fn is_missing(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    value.is_empty() || MISSING.iter().any(|text| value.eq_ignore_ascii_case(text))
}

/// Returns the value as text, or an empty text if it represents a missing one, such as `NULL`.
pub(crate) fn text_if_present<'a>(value: impl RawValue<'a>, repaired: &mut bool) -> Text<'a> {
    if is_missing(value.as_ref()) {
        Text::default()
    } else {
        text_or_empty(value, repaired)
    }
}

/// Parses seconds into microseconds. They may look like `5`, `30.250113`, `30,25` (written by Excel
/// in some countries), or `-3590` for a call during which the PBX's clock was set back.
pub(crate) fn seconds(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.trim().replace(',', ".");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.as_str()),
    };
    Some(sign * epoch(digits.as_bytes())?.micros())
}

/// Returns `true` if [`set`] reads the column with this name.
pub(crate) fn is_field(name: &str) -> bool {
    let mut cdr = Cdr::default();
    set(&mut cdr, name.as_bytes(), &b"1"[..], &mut false);
    cdr != Cdr::default()
}

/// Sets the field of `cdr` that has this name in AMI, `cdr.conf`, or asterisk-cdr-amqp. Other names
/// are ignored, because they don't matter for calls.
fn set<'a>(cdr: &mut Cdr<'a>, name: &[u8], value: impl RawValue<'a>, repaired: &mut bool) {
    let letters = name.iter().filter(|byte| **byte != b'_');
    let plain: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    match plain.as_slice() {
        b"timestamp" => cdr.at = epoch(value.as_ref()),
        b"duration" | b"durationsec" => cdr.duration_micros = seconds(value.as_ref()),
        b"billableseconds" | b"billsec" | b"billablesec" => {
            cdr.billed_micros = seconds(value.as_ref());
        }
        b"uniqueid" => cdr.uniqueid = text_if_present(value, repaired),
        b"linkedid" => cdr.linkedid = text_if_present(value, repaired),
        b"channel" => cdr.channel = text_if_present(value, repaired),
        b"destinationchannel" | b"dstchannel" => {
            cdr.dest_channel = text_if_present(value, repaired);
        }
        b"source" | b"src" => cdr.source = text_if_present(value, repaired),
        b"destination" | b"dst" => cdr.destination = text_if_present(value, repaired),
        b"did" => cdr.did = text_if_present(value, repaired),
        b"destinationcontext" | b"dcontext" => cdr.context = text_if_present(value, repaired),
        b"lastapplication" | b"lastapp" => cdr.last_app = text_if_present(value, repaired),
        b"lastdata" => cdr.last_data = text_if_present(value, repaired),
        b"starttime" | b"start" | b"calldate" => cdr.start = text_if_present(value, repaired),
        b"answertime" | b"answer" => cdr.answer = text_if_present(value, repaired),
        b"endtime" | b"end" => cdr.end = text_if_present(value, repaired),
        b"disposition" => cdr.disposition = text_if_present(value, repaired),
        b"userfield" => cdr.userfield = text_if_present(value, repaired),
        b"callerid" | b"clid" => cdr.caller_id = text_if_present(value, repaired),
        _ => {}
    }
}
