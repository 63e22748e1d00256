//! Bodies of asterisk-cel-amqp.

use crate::cel::{CelRow, Extra, Field};
use crate::cel_time::CelClock;
use crate::json::{Json, Members};
use crate::mend::Scratch;
use crate::text::JsonText;
use callbridge_call::{Decoded, Unreadable};

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
    let (mut row, mut mended) = (CelRow::default(), false);
    for (name, value) in members {
        match (Field::named(&name), value) {
            (None, Json::Object(caller)) if name.eq_ignore_ascii_case("caller_id") => {
                let number = caller.into_iter().find(|(name, _)| name == "num");
                if let Some((_, number)) = number {
                    row.set(Field::Number, JsonText(number.into_text()), &mut mended);
                }
            }
            (None, _) => {}
            (Some(Field::Extra), Json::Object(members)) => row.extra = Extra::Members(members),
            (Some(field), value) => row.set(field, JsonText(value.into_text()), &mut mended),
        }
    }
    row
}
