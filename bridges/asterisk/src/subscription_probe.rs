//! Checks whether a logged-in connection receives call events, since the PBX also accepts logins
//! from accounts without permissions but never sends them any. Like [`Login`], it does no I/O.
//!
//! A channel event proves that such events arrive, whereas a response to a request doesn't. Until
//! there's a channel event, the PBX is asked for its live channels from time to time. A channel
//! that wasn't in the previous list is new, so an event should have reported it.
//!
//! In addition, callbridge sends an event to itself if its account allows that. If it doesn't come
//! back, the PBX accepted the filter but interprets it differently, so that nothing gets through.
//! If it does, events arrive, but not necessarily call events, so it only counts if the live
//! channels are listed as well.

use crate::ami::Pairs;
use crate::login::{Login, is_error, is_own_event};
use callbridge_call::framing::Outgoing;
use std::collections::BTreeSet;

/// Events with a channel's unique ID that don't prove that events in the `call` class arrive.
const NO_PROOF: [&[u8]; 2] = [b"Cdr", b"UserEvent"];
/// Maximum number of channels to keep from a list.
const CHANNELS_MAX: usize = 20_000;

/// A permission that a connection's account lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingRight {
    /// Call events. This many channels were created without any event reporting them.
    Calls(usize),
    /// Events in the `system` class, such as when the PBX starts or stops.
    System,
    /// The list of live channels (`CoreShowChannels`).
    List,
    /// No permission is missing, but no event got through the filter, so the connection is read
    /// without one.
    Filter,
    /// The PBX sent callbridge's own event, but it didn't come back, either because the `user`
    /// class is missing or because nothing gets through the account's own filter.
    Echo,
}

/// What a frame reveals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFinding {
    /// Whether the frame merely responds to our request and shouldn't be passed to the decoder.
    pub ours: bool,
    /// A permission that's missing, judging by this frame. Each one is reported once.
    pub missing: Option<MissingRight>,
    /// Set once, when events are known to arrive because callbridge's own event came back and the
    /// live channels are listed.
    pub events_flow: bool,
}

/// Evidence that the subscription of one connection works.
#[derive(Debug, Default)]
pub struct SubscriptionProbe {
    /// Whether this is AMI 1.x, which doesn't have all the events of later releases.
    old: bool,
    proved: bool,
    booted: bool,
    /// ID of the first request for the live channels. The decoder needs this list as well.
    first: Option<String>,
    /// ID of a later request for the live channels. Only the probe needs this list.
    own: Option<String>,
    channels: ListedChannels,
    reported: bool,
    echo: Echo,
    /// Whether callbridge's own event came back. `said` is set once this has been reported as
    /// `events_flow`.
    back: bool,
    said: bool,
}

/// Channels in the lists of live channels.
#[derive(Debug, Default)]
struct ListedChannels {
    /// Whether the account may request the list and a complete one has been received.
    listed: bool,
    before: BTreeSet<Vec<u8>>,
    now: BTreeSet<Vec<u8>>,
    /// Number of channels created between two lists. Their events should arrive before the next
    /// request.
    born: usize,
}

/// State of the event that callbridge sends to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Echo {
    /// The event wasn't sent, was rejected, or came back.
    #[default]
    Settled,
    /// The event was sent under this action ID, and there's been no response yet.
    Asked(String),
    /// The PBX has sent the event, but it hasn't come back after this many checks.
    Missing(u8),
}

/// Number of checks after which callbridge's own event is considered missing. Checks are 20 s
/// apart.
const LOOKS: u8 = 2;

impl SubscriptionProbe {
    /// Creates the probe for a connection whose PBX sent this banner.
    pub fn new(banner: &str) -> Self {
        let version = banner.rsplit('/').next();
        Self {
            old: version.is_none_or(|version| version.starts_with("1.")),
            ..Self::default()
        }
    }

    /// Creates callbridge's own event, which must come back if any event does, and returns the
    /// bytes to send.
    pub fn event(&mut self, login: &mut Login) -> Outgoing {
        let (id, outgoing) = login.event();
        self.echo = Echo::Asked(id);
        outgoing
    }

    /// Returns `true` once if the PBX sent callbridge's own event and it hasn't come back after two
    /// checks. Call this with each ping.
    pub fn misses_own_event(&mut self) -> bool {
        if let Echo::Missing(looks) = &mut self.echo
            && !self.proved
        {
            *looks = looks.saturating_add(1);
            return *looks == LOOKS;
        }
        false
    }

    /// Creates the first request for the live channels. The response should be passed to the
    /// decoder as well.
    pub fn list(&mut self, login: &mut Login) -> Outgoing {
        let (id, outgoing) = login.list();
        self.first = Some(id);
        outgoing
    }

    /// Requests the live channels again to find channels whose hangup event was lost. Only the
    /// decoder uses the response.
    ///
    /// Returns no bytes until it's known that the account may request the list and receives call
    /// events.
    pub fn list_again(&self, login: &mut Login) -> Outgoing {
        if self.proved && self.channels.listed {
            login.list().1
        } else {
            Outgoing::default()
        }
    }

    /// Creates another request for the live channels, unless call events have arrived. If channels
    /// were created and no event has reported any of them by now, returns a missing permission
    /// instead. Call this with each ping.
    pub fn ask(&mut self, login: &mut Login) -> (Option<Outgoing>, Option<MissingRight>) {
        if self.proved || self.reported || !self.channels.listed || self.own.is_some() {
            return (None, None);
        }
        if self.channels.born > 0 {
            self.reported = true;
            return (None, Some(MissingRight::Calls(self.channels.born)));
        }
        let (id, outgoing) = login.list();
        self.own = Some(id);
        (Some(outgoing), None)
    }

    /// Processes a frame, including the one that accepted the login.
    pub fn on_frame(&mut self, frame: &[u8]) -> FrameFinding {
        let mut finding = self.examine(frame);
        finding.events_flow = self.back && self.channels.listed && !self.said;
        self.said |= finding.events_flow;
        finding
    }

    fn examine(&mut self, frame: &[u8]) -> FrameFinding {
        let asked = matches!(self.echo, Echo::Asked(_));
        let settled = self.echo == Echo::Settled || self.proved && !asked;
        if self.proved && self.first.is_none() && self.own.is_none() && settled {
            return FrameFinding::default();
        }
        let pairs = Pairs::new(frame);
        let id = pairs.get("ActionID");
        let first = id.is_some() && id == self.first.as_ref().map(String::as_bytes);
        let ours = id.is_some() && id == self.own.as_ref().map(String::as_bytes);
        let mut finding = FrameFinding {
            ours,
            ..FrameFinding::default()
        };
        if self.take_own_event(&pairs) {
            finding.ours = true;
        } else if let Some(event) = pairs.get("Event") {
            if first || ours {
                self.on_channel(event, &pairs);
            } else if event == b"FullyBooted" {
                self.booted = true;
            } else if id.is_none() && !NO_PROOF.contains(&event) && pairs.get("Uniqueid").is_some()
            {
                self.proved = true;
                self.channels.before.clear();
                self.channels.now.clear();
            }
        } else if first || ours {
            finding.missing = self.on_answer(first, &pairs);
        }
        finding
    }

    /// Processes callbridge's own event and the response to the action that sends it, returning
    /// `false` for any other frame.
    fn take_own_event(&mut self, pairs: &Pairs<'_>) -> bool {
        if is_own_event(pairs) {
            self.echo = Echo::Settled;
            self.back = true;
            return true;
        }
        let Echo::Asked(id) = &self.echo else {
            return false;
        };
        let answered = pairs.get("ActionID") == Some(id.as_bytes());
        if answered && pairs.get("Response").is_some() {
            // A server with a different message may respond with `Success` to any action.
            self.echo = if pairs.get("Message") == Some(b"Event Sent") {
                Echo::Missing(0)
            } else {
                Echo::Settled
            };
        }
        answered
    }

    /// Processes the response to a request for the channels, which comes after everything that
    /// follows a login, including `FullyBooted`.
    fn on_answer(&mut self, first: bool, pairs: &Pairs<'_>) -> Option<MissingRight> {
        if is_error(pairs) {
            self.first = None;
            self.own = None;
            self.channels.listed = false;
            // The account doesn't lack a permission if the release has no such list.
            let message = pairs.get("Message")?;
            if message.eq_ignore_ascii_case(b"Permission denied") {
                return Some(MissingRight::List);
            }
            return None;
        }
        if first && !self.booted && !self.old {
            Some(MissingRight::System)
        } else {
            None
        }
    }

    fn on_channel(&mut self, event: &[u8], pairs: &Pairs<'_>) {
        if event.eq_ignore_ascii_case(b"CoreShowChannelsComplete") {
            let channels = &mut self.channels;
            let now = std::mem::take(&mut channels.now);
            if self.own.take().is_some() {
                channels.born = now.difference(&channels.before).count();
            }
            self.first = None;
            channels.before = now;
            channels.listed = true;
        } else if self.channels.now.len() < CHANNELS_MAX && !self.proved {
            let id = pairs.get("Uniqueid").map(<[u8]>::to_vec);
            self.channels.now.extend(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::Settings;
    use secrecy::SecretString;

    const BANNER: &str = "Asterisk Call Manager/11.0.0";
    const BOOTED: &str = "Event: FullyBooted\r\nPrivilege: system,all\r\n";

    /// Returns a connection that has requested its first list, with the ID `callbridge-1`.
    fn line(banner: &str, booted: bool) -> (SubscriptionProbe, Login) {
        let secret = SecretString::from("secret");
        let mut login = Login::new("bridge", secret, Settings::default()).expect("credentials");
        let mut probe = SubscriptionProbe::new(banner);
        let _ = probe.list(&mut login);
        if booted {
            probe.on_frame(BOOTED.as_bytes());
        }
        (probe, login)
    }

    /// Passes the response to the n-th list to the probe, and returns the missing permission, if
    /// any.
    fn answer_list(
        probe: &mut SubscriptionProbe,
        n: u32,
        channels: &[&str],
    ) -> Option<MissingRight> {
        let id = format!("ActionID: callbridge-{n}\r\n");
        let start = format!("Response: Success\r\n{id}EventList: start\r\n");
        let missing = probe.on_frame(start.as_bytes()).missing;
        for channel in channels {
            let row = format!("Event: CoreShowChannel\r\n{id}Uniqueid: {channel}\r\n");
            assert_eq!(probe.on_frame(row.as_bytes()).ours, n > 1);
        }
        let end = format!("Event: CoreShowChannelsComplete\r\n{id}");
        assert_eq!(probe.on_frame(end.as_bytes()).ours, n > 1);
        missing
    }

    #[test]
    fn new_channel_without_events_proves_missing_call_right() {
        let (mut probe, mut login) = line(BANNER, true);
        assert_eq!(
            probe.ask(&mut login),
            (None, None),
            "the first list is still passed on"
        );
        assert_eq!(answer_list(&mut probe, 1, &["17.1"]), None);
        assert!(probe.ask(&mut login).0.is_some());
        assert_eq!(
            probe.ask(&mut login),
            (None, None),
            "a request is under way"
        );
        assert_eq!(answer_list(&mut probe, 2, &["17.1"]), None);
        assert!(probe.ask(&mut login).0.is_some());
        answer_list(&mut probe, 3, &["17.1", "17.2"]);
        assert_eq!(probe.ask(&mut login), (None, Some(MissingRight::Calls(1))));
        assert_eq!(probe.ask(&mut login), (None, None), "reported once");
    }

    #[test]
    fn channel_event_ends_probe_and_cdr_event_does_not() {
        let (mut probe, mut login) = line(BANNER, true);
        answer_list(&mut probe, 1, &[]);
        probe.on_frame(b"Event: Cdr\r\nUniqueID: 17.1\r\n");
        assert!(probe.ask(&mut login).0.is_some());
        answer_list(&mut probe, 2, &["17.2"]);
        // The new channel's event arrives after the list that shows it.
        probe.on_frame(b"Event: Newchannel\r\nUniqueid: 17.2\r\n");
        assert_eq!(probe.ask(&mut login), (None, None));
    }

    #[test]
    fn list_is_requested_again_once_events_of_calls_arrive() {
        let (mut probe, mut login) = line(BANNER, true);
        let is_asked = |probe: &SubscriptionProbe, login: &mut Login| {
            !probe.list_again(login).bytes().is_empty()
        };
        assert!(!is_asked(&probe, &mut login), "the first list is under way");
        answer_list(&mut probe, 1, &[]);
        assert!(
            !is_asked(&probe, &mut login),
            "the probe's own lists suffice"
        );
        probe.on_frame(b"Event: Newchannel\r\nUniqueid: 17.2\r\n");
        assert!(is_asked(&probe, &mut login));
        let (mut refused, mut login) = line(BANNER, true);
        refused.on_frame(list_error("Permission denied").as_bytes());
        refused.on_frame(b"Event: Newchannel\r\nUniqueid: 17.2\r\n");
        assert!(!is_asked(&refused, &mut login));
    }

    /// Returns a probe that has sent callbridge's own event and received this response.
    fn probe_with_answer(answer: &str) -> SubscriptionProbe {
        let (mut probe, mut login) = line(BANNER, true);
        let _ = probe.event(&mut login);
        let response = format!("Response: {answer}\r\nActionID: callbridge-2\r\n");
        assert!(probe.on_frame(response.as_bytes()).ours);
        probe
    }

    #[test]
    fn own_event_without_echo_is_missed_unless_refused() {
        let echo = b"Event: UserEvent\r\nUserEvent: CallbridgeHears\r\nActionID: callbridge-2\r\n";
        let mut missing = probe_with_answer("Success\r\nMessage: Event Sent");
        assert!(!missing.misses_own_event(), "it may be on its way");
        assert!(missing.misses_own_event());
        let mut back = probe_with_answer("Success\r\nMessage: Event Sent");
        assert!(back.on_frame(echo).ours);
        for message in [
            "Error\r\nMessage: Permission denied",
            "Success\r\nMessage: done",
        ] {
            let mut refused = probe_with_answer(message);
            for probe in [&mut refused, &mut back] {
                assert!(!probe.misses_own_event() && !probe.misses_own_event());
            }
        }
        // A channel event proves that all call events are received.
        let mut finding = probe_with_answer("Success\r\nMessage: Event Sent");
        finding.on_frame(b"Event: Newchannel\r\nUniqueid: 17.2\r\n");
        assert!(!finding.misses_own_event() && !finding.misses_own_event());
    }

    #[test]
    fn own_event_echo_proves_event_flow_only_with_channel_list() {
        let echo = b"Event: UserEvent\r\nUserEvent: CallbridgeHears\r\nActionID: callbridge-2\r\n";
        let (mut probe, mut login) = line(BANNER, true);
        let _ = probe.event(&mut login);
        assert!(!probe.on_frame(echo).events_flow, "the list is under way");
        let done = "Event: CoreShowChannelsComplete\r\nActionID: callbridge-1\r\n";
        assert!(probe.on_frame(done.as_bytes()).events_flow);
        assert!(!probe.on_frame(BOOTED.as_bytes()).events_flow, "said once");
        assert!(probe.ask(&mut login).0.is_some(), "channels are watched on");
        // If the account can't list channels, callbridge's own event says nothing about calls.
        let (mut probe, mut login) = line(BANNER, true);
        let _ = probe.event(&mut login);
        let denied = "Response: Error\r\nActionID: callbridge-1\r\nMessage: Permission denied\r\n";
        probe.on_frame(denied.as_bytes());
        assert!(!probe.on_frame(echo).events_flow);
    }

    fn list_error(message: &str) -> String {
        format!("Response: Error\r\nActionID: callbridge-1\r\nMessage: {message}\r\n")
    }

    #[test]
    fn refused_or_missing_events_are_reported_as_missing() {
        let (mut probe, mut login) = line(BANNER, true);
        let missing = probe
            .on_frame(list_error("Permission denied").as_bytes())
            .missing;
        assert_eq!(missing, Some(MissingRight::List));
        assert_eq!(probe.ask(&mut login), (None, None), "it may not");
        let (mut probe, _) = line(BANNER, true);
        let missing = probe
            .on_frame(list_error("Invalid/unknown command").as_bytes())
            .missing;
        assert_eq!(missing, None);
        let (mut probe, _) = line(BANNER, false);
        assert_eq!(answer_list(&mut probe, 1, &[]), Some(MissingRight::System));
        let (mut probe, _) = line("Asterisk Call Manager/1.0", false);
        assert_eq!(answer_list(&mut probe, 1, &[]), None, "it tells nobody");
    }
}
