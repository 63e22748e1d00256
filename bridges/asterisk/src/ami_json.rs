//! AMI as JSON: amiws's envelope, an event as one flat object, or Wazo's bus body.

use crate::cdr::texts;
use crate::cel_time::CelClock;
use crate::decoder::{Decoded, Heard, Unreadable};
use crate::event;
use crate::json::{Json, Members};
use crate::mend::Scratch;
use crate::names::Names;
use crate::text::same;
use callbridge_call::event::Text;
use callbridge_call::{Mark, Origin, Told};

/// Decodes one frame.
pub(crate) fn decode<'a>(
    frame: &'a [u8],
    scratch: &'a mut Scratch,
    memory: &mut Memory,
    clock: &mut CelClock,
) -> Decoded<'a> {
    let Some((members, mut repaired)) = scratch.object(frame) else {
        return Decoded::Unreadable(Unreadable::NotJson);
    };
    let (server, pairs) = open(members);
    let (cut, is_cel) = (repaired, is_cel(&pairs));
    let mut told = match told(pairs, clock, &mut repaired) {
        Ok(Some(told)) => told,
        Ok(None) => return Decoded::Skipped,
        // The channel events of the same connection tell what the cut row would have told.
        Err(Unreadable::NoChannel) if cut && is_cel && memory.channel_events => {
            return Decoded::Skipped;
        }
        Err(why) => return Decoded::Unreadable(why),
    };
    if let Told::Channel(event) = &mut told {
        memory.channel_events |= event.origin == Origin::Channel;
        memory.names.note(server.as_deref(), event, cut);
    }
    Decoded::Event {
        heard: Heard { server, told },
        repaired,
    }
}

/// What later frames of a connection need.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    names: Names,
    /// AMI's own channel events are told here, not CEL's alone.
    channel_events: bool,
}

fn is_cel(pairs: &Members<'_>) -> bool {
    let is_cel = |value: &Json<'_>| matches!(value, Json::Text(text) if text == "CEL");
    pairs
        .iter()
        .any(|(key, value)| same(key.as_bytes(), b"Event") && is_cel(value))
}

/// Takes the AMI message and its server's name out of the envelope, if there is one.
fn open(members: Members<'_>) -> (Option<Text<'_>>, Members<'_>) {
    let enveloped = members
        .iter()
        .any(|(name, value)| name == "data" && matches!(value, Json::Object(_)));
    if !enveloped {
        let server = members.iter().find(|(name, _)| name == "server_name");
        return (
            server.and_then(|(_, value)| name_of(value.clone())),
            members,
        );
    }
    let (mut server, mut pairs) = (None, Vec::new());
    for (name, value) in members {
        match (name.as_ref(), value) {
            ("data", Json::Object(inner)) => pairs = inner,
            ("server_name", value) => server = name_of(value),
            _ => {}
        }
    }
    (server, pairs)
}

fn name_of(value: Json<'_>) -> Option<Text<'_>> {
    Some(value.into_text()).filter(|name| !name.is_empty())
}

fn told<'a>(
    pairs: Members<'a>,
    clock: &mut CelClock,
    repaired: &mut bool,
) -> Result<Option<Told<'a>>, Unreadable> {
    for (key, value) in &pairs {
        let Json::Text(value) = value else { continue };
        if same(key.as_bytes(), b"Event") {
            let Some(rule) = event::rule(value.as_bytes()) else {
                return Ok(None);
            };
            return event::tell(rule, texts(pairs), clock, repaired).map(Some);
        }
        if same(key.as_bytes(), b"Response") {
            let accepted = value == "Success" && pairs.iter().any(is_accepted);
            return Ok(accepted.then_some(Told::Mark(Mark::LoggedIn)));
        }
    }
    Err(Unreadable::NoEvent)
}

fn is_accepted((key, value): &(Text<'_>, Json<'_>)) -> bool {
    same(key.as_bytes(), b"Message")
        && matches!(value, Json::Text(text) if text == "Authentication accepted")
}
