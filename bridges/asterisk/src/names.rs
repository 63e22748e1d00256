//! Looks up a channel's unique ID by its name, for frames that were cut off before the ID.
//!
//! amiws cuts off a frame after a caller name that ends in the middle of a character. Most of a
//! call's events contain the caller's name, which comes after `Channel` but before `Uniqueid`.

use callbridge_call::{ChannelEvent, EventTime, Kind, Origin};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum number of live channels per connection. The oldest one is dropped first.
const CHANNELS_MAX: usize = 16_384;

/// The IDs of live channels, by server and name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ids: BTreeMap<String, Ids>,
    seen: u64,
    /// The key being looked up.
    key: String,
}

#[derive(Debug)]
struct Ids {
    uniqueid: String,
    linkedid: String,
    order: u64,
}

impl Names {
    /// Learns the IDs from a complete event, and adds them to an event whose frame was `cut`. A
    /// hangup removes the channel's IDs.
    pub(crate) fn note(&mut self, server: Option<&str>, event: &mut ChannelEvent<'_>, cut: bool) {
        let channel = &event.channel;
        if event.origin == Origin::Cel || channel.name.is_empty() {
            return;
        }
        let whole = !channel.uniqueid.is_empty();
        let learns = matches!(event.kind, Kind::Born { .. } | Kind::BridgeEnter { .. });
        let ends = matches!(event.kind, Kind::Hangup { .. });
        if !ends && if whole { !learns } else { !cut } {
            return;
        }
        self.key.clear();
        self.key.push_str(server.unwrap_or_default());
        self.key.push('\n');
        self.key.push_str(&channel.name);
        if whole && learns {
            self.learn(&channel.uniqueid, &channel.linkedid);
        } else if !whole && cut {
            self.complete(event);
        }
        if ends {
            self.ids.remove(&self.key);
        }
    }

    fn learn(&mut self, uniqueid: &str, linkedid: &str) {
        if self.ids.len() >= CHANNELS_MAX && !self.ids.contains_key(&self.key) {
            let oldest = self.ids.iter().min_by_key(|(_, ids)| ids.order);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.ids.remove(&oldest);
            }
        }
        self.seen += 1;
        let ids = Ids {
            uniqueid: uniqueid.to_owned(),
            linkedid: linkedid.to_owned(),
            order: self.seen,
        };
        self.ids.insert(self.key.clone(), ids);
    }

    /// Completes an event that was cut off. If no complete frame had the channel's ID, one is
    /// generated from its name and the time of its first event, because names are reused after the
    /// PBX is restarted.
    fn complete(&mut self, event: &mut ChannelEvent<'_>) {
        if !self.ids.contains_key(&self.key) {
            let name = &event.channel.name;
            let stand_in = match event.at.map(EventTime::floor_seconds) {
                Some(since) => format!("{name}@{since}"),
                None => name.to_string(),
            };
            self.learn(&stand_in, &stand_in);
        }
        if let Some(ids) = self.ids.get(&self.key) {
            event.channel.uniqueid = Cow::Owned(ids.uniqueid.clone());
            if event.channel.linkedid.is_empty() {
                event.channel.linkedid = Cow::Owned(ids.linkedid.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::{ChannelRef, ChannelState};

    fn event(kind: Kind<'static>, uniqueid: &'static str) -> ChannelEvent<'static> {
        let channel = ChannelRef {
            name: "PJSIP/city-1".into(),
            uniqueid: uniqueid.into(),
            linkedid: uniqueid.into(),
            ..ChannelRef::default()
        };
        let at = Some(EventTime::from_seconds(7));
        ChannelEvent {
            at,
            origin: Origin::Channel,
            channel,
            kind,
        }
    }

    const BORN: Kind<'static> = Kind::Born {
        state: ChannelState::Ring,
    };

    #[test]
    fn cut_event_gets_the_ids_of_its_channel() {
        let mut names = Names::default();
        names.note(Some("pbx1"), &mut event(BORN, "5.1"), false);
        let mut cut = event(Kind::Seen, "");
        names.note(Some("pbx1"), &mut cut, true);
        assert_eq!(
            (&*cut.channel.uniqueid, &*cut.channel.linkedid),
            ("5.1", "5.1")
        );
        // The same name on a different PBX is a different channel.
        let mut other = event(Kind::Seen, "");
        names.note(Some("pbx2"), &mut other, true);
        assert_eq!(other.channel.uniqueid, "PJSIP/city-1@7");
    }

    #[test]
    fn channel_with_only_cut_events_keeps_one_id_until_hangup() {
        let mut names = Names::default();
        for (kind, second, id) in [
            (BORN, 7, "PJSIP/city-1@7"),
            (Kind::Seen, 8, "PJSIP/city-1@7"),
            (Kind::Hangup { cause: None }, 9, "PJSIP/city-1@7"),
            (BORN, 99, "PJSIP/city-1@99"),
        ] {
            let mut cut = event(kind, "");
            cut.at = Some(EventTime::from_seconds(second));
            names.note(None, &mut cut, true);
            assert_eq!(cut.channel.uniqueid, id, "at second {second}");
        }
    }

    #[test]
    fn remembered_channels_are_limited_and_the_oldest_forgotten() {
        let mut names = Names::default();
        for number in 0..CHANNELS_MAX + 10 {
            let mut born = event(BORN, "5.1");
            born.channel.name = format!("PJSIP/city-{number}").into();
            names.note(None, &mut born, false);
        }
        assert_eq!(names.ids.len(), CHANNELS_MAX);
        assert!(!names.ids.contains_key("\nPJSIP/city-9"));
    }
}
