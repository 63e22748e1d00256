//! Tracks the applications a channel has run, as far as they matter for calls.

use super::fact::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::EventTime;
use crate::trunk::is_one_of;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::time::Duration;

/// Applications that play a prompt to the dialed phone before connecting it, such as an
/// announcement or a request to confirm.
const PROMPTS: [&str; 10] = [
    "Read",
    "Playback",
    "ControlPlayback",
    "Background",
    "WaitExten",
    "Macro",
    "Gosub",
    "AGI",
    "SayDigits",
    "Festival",
];

/// `Dial` options that run a macro or subroutine on the dialed channel.
const ASKING: [&str; 2] = ["M(", "U("];

/// Conference applications, in which all channels can hear each other. FreeSWITCH's is
/// `conference`.
pub(crate) const CONFERENCES: [&str; 4] = ["ConfBridge", "MeetMe", "Conference", "Konference"];

/// How long `RetryDial` waits between attempts if its data doesn't say.
const PAUSE_DEFAULT: Duration = Duration::from_secs(10);

/// The longest wait between redials that is taken into account.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(300);

/// A `Dial` or `RetryDial` that the channel ran, along with when it was first and last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenDial {
    /// The arguments of `Dial`: destinations, timeout, and options.
    pub(crate) data: SmolStr,
    pub(crate) first: EventTime,
    pub(crate) last: EventTime,
    /// How long `RetryDial` waits before dialing again, or zero for `Dial`.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub(crate) pause: Duration,
}

/// The applications run by one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applications {
    pub(crate) dials: Vec<SeenDial>,
    /// When the channel was first seen running an application reserved for dialed channels.
    pub(crate) outgoing: Option<EventTime>,
    /// When the channel was first seen running a conference application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conference: Option<EventTime>,
    /// When the channel was first seen running one of the [`PROMPTS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<EventTime>,
    /// When the channel was first seen to belong to a logged-in agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<EventTime>,
}

impl Applications {
    /// Stores an application that the channel runs if it matters for calls, returning `true` if
    /// anything changed.
    ///
    /// The `data` of a `Dial` or `RetryDial` includes the dialed number. `AppDial`, `AppDial2`, and
    /// `AppQueue` only run on dialed channels.
    pub(super) fn run(&mut self, at: EventTime, name: &str, data: &str) -> bool {
        if matches!(name, "AppDial" | "AppDial2" | "AppQueue") {
            return earliest(&mut self.outgoing, at);
        }
        if is_one_of(&CONFERENCES, name) {
            return earliest(&mut self.conference, at);
        }
        if name == "AgentLogin" {
            return earliest(&mut self.agent, at);
        }
        if is_one_of(&PROMPTS, name) {
            return earliest(&mut self.prompt, at);
        }
        let (data, pause) = match name {
            "Dial" => (data, Duration::ZERO),
            "RetryDial" => retried(data),
            _ => return false,
        };
        if data.is_empty() || data.len() > TEXT_BYTES_MAX {
            return false;
        }
        self.note_dial(SeenDial {
            data: data.into(),
            first: at,
            last: at,
            pause,
        })
    }

    /// Stores a `Dial`, returning `true` if anything changed.
    fn note_dial(&mut self, dial: SeenDial) -> bool {
        let mut dials = self.dials.iter_mut();
        if let Some(known) = dials.find(|known| known.data == dial.data) {
            let before = known.clone();
            known.first = known.first.min(dial.first);
            known.last = known.last.max(dial.last);
            known.pause = known.pause.max(dial.pause);
            return *known != before;
        }
        let room = self.dials.len() < TEXTS_MAX;
        if room {
            self.dials.push(dial);
        }
        room
    }

    /// Returns `true` if a `Dial` of the channel ran a macro or subroutine on the dialed channels.
    pub(crate) fn asks_the_dialed(&self) -> bool {
        self.dials.iter().any(|dial| {
            let options = dial.data.splitn(3, [',', '|']).nth(2).unwrap_or_default();
            ASKING.iter().any(|option| options.contains(option))
        })
    }

    pub(super) fn absorb(&mut self, other: Self) {
        for dial in other.dials {
            self.note_dial(dial);
        }
        self.outgoing = self.outgoing.into_iter().chain(other.outgoing).min();
        self.conference = self.conference.into_iter().chain(other.conference).min();
        self.agent = self.agent.into_iter().chain(other.agent).min();
        self.prompt = self.prompt.into_iter().chain(other.prompt).min();
    }
}

/// Splits `RetryDial`'s arguments into those for `Dial` and the pause between attempts. They start
/// with an announcement, the pause in seconds, and the number of attempts.
fn retried(data: &str) -> (&str, Duration) {
    let mut arguments = data.splitn(4, [',', '|']).skip(1);
    let pause = arguments.next().and_then(|pause| pause.trim().parse().ok());
    let pause = pause.filter(|&seconds: &u16| seconds > 0);
    let pause = pause.map_or(PAUSE_DEFAULT, |seconds| Duration::from_secs(seconds.into()));
    (arguments.nth(1).unwrap_or_default(), pause.min(PAUSE_MAX))
}

/// Sets `known` to the earlier of the two times, returning `true` if it changed.
fn earliest(known: &mut Option<EventTime>, at: EventTime) -> bool {
    let earlier = known.is_none_or(|known| at < known);
    if earlier {
        *known = Some(at);
    }
    earlier
}
