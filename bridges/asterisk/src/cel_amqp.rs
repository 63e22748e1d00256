//! Bodies of asterisk-cel-amqp.

use crate::cel::{CelRow, Extra};
use crate::cel_time::CelClock;
use crate::decoder::{Decoded, Unreadable};
use crate::json::{Json, Members};
use crate::mend::Scratch;
use callbridge_call::event::Text;

/// Decodes one body. The module's own misspelling (`peer_acount`) stands in a member that no call
/// depends on; `extra` is an object or a text that holds one.
pub(crate) fn decode<'a>(
    body: &'a [u8],
    scratch: &'a mut Scratch,
    clock: &mut CelClock,
) -> Decoded<'a> {
    let Some((members, repaired)) = scratch.object(body) else {
        return Decoded::Unreadable(Unreadable::NotJson);
    };
    let row = row(members);
    if row.event.is_empty() {
        return Decoded::Unreadable(Unreadable::NoEvent);
    }
    row.decoded(clock, repaired)
}

fn row(members: Members<'_>) -> CelRow<'_> {
    let mut row = CelRow::default();
    for (name, value) in members {
        let channel = &mut row.channel;
        let place = match name.to_ascii_lowercase().as_str() {
            "event_name" => &mut row.event,
            "event_time" => &mut row.time,
            "extension" => &mut channel.exten,
            "context" => &mut channel.context,
            "channel" => &mut channel.name,
            "application" => &mut row.application,
            "app_data" => &mut row.app_data,
            "unique_id" => &mut channel.uniqueid,
            "linked_id" => &mut channel.linkedid,
            "user_field" => &mut channel.userfield,
            "peer" => &mut row.peer,
            "caller_id" => {
                channel.caller_number = caller_number(value);
                continue;
            }
            "extra" => {
                row.extra = match value {
                    Json::Object(members) => Extra::Members(members),
                    other => Extra::Text(other.into_text()),
                };
                continue;
            }
            _ => continue,
        };
        *place = known(value.into_text());
    }
    row
}

/// `caller_id.num`
fn caller_number(caller: Json<'_>) -> Text<'_> {
    let Json::Object(members) = caller else {
        return Text::default();
    };
    let number = members.into_iter().find(|(name, _)| name == "num");
    number
        .map(|(_, value)| known(value.into_text()))
        .unwrap_or_default()
}

fn known(text: Text<'_>) -> Text<'_> {
    if text == "<unknown>" {
        Text::default()
    } else {
        text
    }
}
