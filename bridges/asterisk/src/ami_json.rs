//! AMI as JSON: amiws's envelope, an event as one flat object, or Wazo's bus body.

use crate::cel_time::CelClock;
use crate::event::{self, Rule};
use crate::frame_json::{Collected, Head};
use crate::names::Names;
use crate::repair::Scratch;
use crate::text::{JsonText, same};
use callbridge_call::{Decoded, Kind, Mark, Origin, PbxEvent, ServerEvent, Text, Unreadable};

/// Knowledge from earlier frames of a connection that later ones need.
#[derive(Debug, Default)]
pub(crate) struct FrameContext {
    names: Names,
    /// AMI's own channel events are told here, not CEL's alone.
    channel_events: bool,
}

/// Decodes one frame; `of_bus`: only an envelope of Wazo's bus is one.
pub(crate) fn decode<'a>(
    frame: &'a [u8],
    of_bus: bool,
    scratch: &'a mut Scratch,
    memory: &mut FrameContext,
    clock: &mut CelClock,
) -> Decoded<'a> {
    let (collected, repaired) = match std::str::from_utf8(frame).ok().and_then(Collected::read) {
        Some(whole) => (whole, false),
        None => match Collected::read(scratch.repair(frame)) {
            Some(repaired) => (repaired, true),
            None => return Decoded::Unreadable(Unreadable::NotJson),
        },
    };
    if of_bus && !collected.is_of_bus() {
        return Decoded::Unreadable(Unreadable::NoEvent);
    }
    decode_collected(collected, repaired, memory, clock)
}

fn decode_collected<'a>(
    collected: Collected<'a>,
    mut repaired: bool,
    memory: &mut FrameContext,
    clock: &mut CelClock,
) -> Decoded<'a> {
    let Collected {
        server,
        pairs,
        head,
        timestamp,
        ..
    } = collected;
    let cut = repaired;
    clock.set_server(server.as_deref());
    let event = match head {
        Head::Nothing => return Decoded::Unreadable(Unreadable::NoEvent),
        Head::Needless => return Decoded::Skipped,
        Head::Response if is_login(&pairs) => Ok(Some(PbxEvent::Mark(Mark::LoggedIn))),
        Head::Response => return Decoded::Skipped,
        Head::Event(rule) => {
            let pairs = pairs.into_iter().map(|(key, value)| (key, JsonText(value)));
            event::decode(rule, pairs, clock, &mut repaired)
        }
    };
    match event {
        Ok(None) => Decoded::Skipped,
        Ok(Some(mut event)) => {
            if let PbxEvent::Channel(event) = &mut event {
                if event.at.is_none() {
                    let born = matches!(event.kind, Kind::Born { .. });
                    event.at = clock.at(&timestamp, &event.channel.uniqueid, born);
                }
                memory.channel_events |= event.origin == Origin::Channel;
                memory.names.note(server.as_deref(), event, cut);
            }
            Decoded::Event {
                received: ServerEvent { server, event },
                repaired,
            }
        }
        // The channel events of the same connection tell what the cut row would have told.
        Err(Unreadable::NoChannel)
            if cut && head == Head::Event(Rule::Cel) && memory.channel_events =>
        {
            Decoded::Skipped
        }
        Err(why) => Decoded::Unreadable(why),
    }
}

/// Returns `true` for an accepted login, the only response that says something about the stream.
fn is_login(pairs: &[(&str, Text<'_>)]) -> bool {
    let has = |name: &[u8], words: &str| {
        pairs
            .iter()
            .any(|(key, value)| same(key.as_bytes(), name) && value == words)
    };
    has(b"Response", "Success") && has(b"Message", "Authentication accepted")
}
