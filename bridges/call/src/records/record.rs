//! The fields of a call detail record that determine a call's values.

use crate::facts::{CONFERENCES, Leg};
use crate::resolve::command_patience;
use crate::talk::ANSWERED_FROM;
use crate::trunk::{self, unmarked};
use crate::units;
use crate::{Cdr, EventTime, UniqueId, is_one_of};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum length of a stored text in bytes. Longer ones are truncated.
const TEXT_BYTES_MAX: usize = 512;
/// A channel's first record starts in the second of its unique ID or the one after it.
const BIRTH_SLACK: Duration = Duration::from_secs(1);

/// Applications that connect two people. After a failed `Dial`, Asterisk before 12 writes the
/// dialed channel into a record with the next application, whereas after an answered one, the
/// record keeps `Dial` as its application, because it ends with the bridge.
const CONNECTS: [&str; 13] = [
    "Dial",
    "RetryDial",
    "Queue",
    "Bridge",
    "AppDial",
    "AppDial2",
    "ParkedCall",
    "FollowMe",
    "Page",
    "ConfBridge",
    "MeetMe",
    "Pickup",
    TRANSFERRED,
];

/// Applications that don't connect anyone. If an application is neither here nor in [`CONNECTS`],
/// its record doesn't show whether anyone talked.
const CONNECTS_NO_ONE: [&str; 28] = [
    "Hangup",
    "VoiceMail",
    "VoiceMailMain",
    "Playback",
    "BackGround",
    "Congestion",
    "Busy",
    "Playtones",
    "Progress",
    "Ringing",
    "Answer",
    "MusicOnHold",
    "WaitMusicOnHold",
    "Park",
    "Record",
    "Read",
    "Wait",
    "WaitExten",
    "Echo",
    "Milliwatt",
    "Directory",
    "ChanSpy",
    "ExtenSpy",
    "SayDigits",
    "SayNumber",
    "SayAlpha",
    "ControlPlayback",
    "MinivmGreet",
];

/// Other applications that connect a channel to an existing one. As with conferences, the record's
/// destination wasn't dialed.
const JOINS: [&str; 5] = [LOGIN, "AgentRequest", "Bridge", "ParkedCall", "Pickup"];
const LOGIN: &str = "AgentLogin";

/// Technology prefixes of the temporary channels that Asterisk before 12 creates to move a channel,
/// whose name follows the slash, as in `AsyncGoto/SIP/city-00000002`.
const MOVES: [&str; 3] = ["AsyncGoto", "Transfered", "Parked"];

/// Largest valid duration. Anything larger is a negative number that became positive in an unsigned
/// 32-bit column.
const SECONDS_MAX: i64 = i32::MAX as i64;

/// The application in the record of a channel dialed by another one in the call.
const DIALED_SIDE: &str = "AppDial";
/// The application in the record of a transfer by feature code.
const TRANSFERRED: &str = "Transferred Call";

/// Dispositions of an answered record. `cdr_odbc` writes numbers unless it's configured otherwise.
const YES: [&str; 3] = ["ANSWERED", "ANSWER", "8"];
/// Dispositions of a record that wasn't answered.
const NO: [&str; 12] = [
    "NO ANSWER",
    "NOANSWER",
    "BUSY",
    "FAILED",
    "CONGESTION",
    "CANCEL",
    "0",
    "1",
    "2",
    "4",
    "16",
    "32",
];

/// One path between two parties. Serialized to survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The channel's unique ID, or empty if the PBX doesn't log any.
    pub(super) uniqueid: String,
    pub(super) linkedid: String,
    pub(super) channel: String,
    /// The second channel's name, or empty if there was no second party.
    pub(super) dest: String,
    pub(super) source: String,
    pub(super) caller_id: String,
    pub(super) destination: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) context: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) did: String,
    pub(super) app: String,
    pub(super) data: String,
    /// The bridge of the conference room that the record's channels were in, such as `room 600`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<String>,
    pub(super) userfield: String,
    /// Whether the record was answered according to its disposition or, if that isn't a known one,
    /// whether it has billed seconds or an answer time.
    pub(super) answered: bool,
    /// The disposition of a record that's only assumed to be answered because the disposition isn't
    /// a known one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unknown_disposition: Option<String>,
    /// Whether the disposition isn't a known no, and neither billed seconds nor an answer time were
    /// reported, so it's unknown whether or how long anyone talked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lacks_answer: bool,
    pub(super) start: EventTime,
    pub(super) end: EventTime,
    /// When the billed time starts, i.e., when the call was answered.
    pub(super) billed_from: EventTime,
    /// When the channel was answered, if it was.
    pub(super) answer: Option<EventTime>,
    /// Whether the channel was answered in the same second that the record ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_brief: bool,
    /// Whether the start's time zone is known. Otherwise, it's a local time in an unknown time
    /// zone.
    pub(super) placed: bool,
    /// Whether the duration is negative because the PBX's clock was set back during the call, which
    /// makes the end unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_negative: bool,
    /// The billed time if it's impossible, i.e., negative or more than a second longer than the
    /// duration. A negative value is stored as it would appear in an unsigned 32-bit column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) excess: Option<Duration>,
    /// Whether any of the call's channels proves that this is Asterisk 12 or later. Set once all
    /// records of the call have arrived.
    #[serde(skip)]
    pub(super) since_12: bool,
    /// The channel that the record describes, followed by the channels it refers to, or empty if
    /// the record describes a path between two parties.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) legs: Vec<Leg>,
}

impl Record {
    /// Converts a CDR that arrived at `arrived`, returning `None` if it doesn't have a channel.
    pub(super) fn from_cdr(cdr: &Cdr<'_>, arrived: EventTime) -> Option<Self> {
        let channel = moved(unmarked(&cdr.channel));
        if channel.is_empty() {
            return None;
        }
        let lasted = cdr.duration_micros.and_then(duration);
        let is_negative = cdr.duration_micros.is_some() && lasted.is_none();
        let reported = cdr.ended_at.or(cdr.at).unwrap_or(arrived);
        let start = cdr
            .started_at
            .or(birth(&cdr.uniqueid))
            .unwrap_or_else(|| reported.minus(lasted.unwrap_or_default()));
        let disposition = cdr.disposition.trim();
        let unknown_disposition = if is_unknown(disposition) && has_answer(cdr) {
            Some(clip(disposition))
        } else {
            None
        };
        let answered = is_one_of(&YES, disposition) || unknown_disposition.is_some();
        let end = if is_negative {
            // The end is unknown, but every call lasts at least a second.
            start.plus(Duration::from_secs(1))
        } else {
            end(cdr.ended_at, start, lasted.unwrap_or_default())
        };
        let excess = if is_negative {
            None
        } else {
            cdr.billed_micros
                .and_then(|billed| excess(billed, end.since(start)))
        };
        let billed_from = if is_negative || excess.is_some() {
            start
        } else {
            billed_from(cdr, start, end)
        };
        Some(Self {
            uniqueid: clip(&cdr.uniqueid),
            linkedid: clip(&cdr.linkedid),
            channel: clip(strip_half_suffix(channel)),
            dest: clip(strip_half_suffix(moved(unmarked(dest(cdr))))),
            source: clip(&cdr.source),
            caller_id: clip(&cdr.caller_id),
            destination: clip(&cdr.destination),
            context: clip(&cdr.context),
            did: clip(&cdr.did),
            app: clip(&cdr.last_app),
            data: clip(&cdr.last_data),
            room: room(cdr),
            userfield: clip(&cdr.userfield),
            answered,
            unknown_disposition,
            lacks_answer: !is_one_of(&NO, disposition)
                && cdr.billed_micros.is_none()
                && cdr.answered_at.is_none(),
            start,
            end,
            billed_from,
            answer: cdr.answered_at,
            is_brief: answered && is_answered_within_a_second(cdr, billed_from, end),
            placed: !cdr.zoneless,
            is_negative,
            excess,
            since_12: false,
            legs: legs_of(cdr),
        })
    }

    /// Returns the IDs for finding other records of the call, which are the unique ID and linkedid
    /// along with the IDs of the channels that the record's channel was connected to.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        let own = [self.uniqueid.as_str(), self.linkedid.as_str()];
        let facts = self.legs.first().into_iter().flat_map(|leg| &leg.facts);
        let others = facts.filter_map(|fact| fact.what.partner().or(fact.what.heard_target()));
        let all = own.into_iter().chain(others.map(UniqueId::as_str));
        all.filter(|id| !id.is_empty())
    }

    /// Returns the channel names for finding other records of the call. Both halves of a Local
    /// channel share the same name here.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.channel, &self.dest]
            .into_iter()
            .filter(|name| !name.is_empty())
            .map(|name| trunk::local_pair(name).unwrap_or(name))
    }

    /// Returns the bridges that the record's channel was in, along with when it entered and left
    /// each one.
    pub(super) fn rooms(&self) -> Vec<(&str, EventTime, EventTime)> {
        let facts = self.legs.first().into_iter().flat_map(|leg| &leg.facts);
        let passages = facts.filter_map(|fact| Some((fact.at, fact.what.passage()?)));
        let mut rooms: Vec<(&str, EventTime, EventTime)> = Vec::new();
        rooms.extend(self.room().map(|room| (room, self.billed_from, self.end)));
        for (at, passage) in passages {
            if passage.enters {
                rooms.push((passage.bridge, at, self.end));
            } else if let Some((.., left)) =
                rooms.iter_mut().rfind(|(room, ..)| *room == passage.bridge)
            {
                *left = at;
            }
        }
        rooms
    }

    /// Returns the outside number that an API dialed on the record's channel.
    pub(super) fn commanded_number(&self) -> Option<&str> {
        self.legs.first()?.commanded_number()
    }

    /// Returns `true` if the API command that dialed the record's channel in vain may redial its
    /// number.
    pub(super) fn may_be_redialed(&self) -> bool {
        let mut line = self.legs.first().into_iter();
        !self.answered && line.any(Leg::is_dialed_repeatedly)
    }

    /// Returns how long after the record's end the API command that dialed its channel may dial
    /// another one, or zero if the channel was answered.
    pub(super) fn command_patience(&self) -> Duration {
        let line = self.legs.first().filter(|_| !self.answered);
        line.map_or(Duration::ZERO, command_patience)
    }

    /// Returns `true` if the record's channel was dialed by another channel of the same call.
    pub(super) fn is_dialed_side(&self) -> bool {
        self.app.eq_ignore_ascii_case(DIALED_SIDE)
    }

    /// Returns `true` if the record was written after a feature-code transfer (in Asterisk before
    /// 12), in which case it continues another record with a different party.
    pub(super) fn is_transferred(&self) -> bool {
        self.app.eq_ignore_ascii_case(TRANSFERRED)
    }

    /// Returns `true` if the record's channel was dialed by the PBX or by another channel in the
    /// call.
    pub(super) fn was_called(&self) -> bool {
        self.is_dialed_side() || self.app.eq_ignore_ascii_case("AppDial2")
    }

    /// Returns the span during which the record's two channels could hear each other, or `None` for
    /// a queue or an announcement, whose record has no second channel or wasn't answered.
    pub(super) fn talk(&self) -> Option<(EventTime, EventTime)> {
        (self.connects() && self.billed_from < self.end).then_some((self.billed_from, self.end))
    }

    /// Returns the span to count as talk time if the record's channels were only connected during
    /// its last second, or `None` otherwise.
    pub(super) fn brief_talk(&self) -> Option<(EventTime, EventTime)> {
        let from = self.end.minus(ANSWERED_FROM).max(self.start);
        let to = self.end.max(from.plus(ANSWERED_FROM));
        (self.connects() && self.is_brief && !self.is_dialed_side()).then_some((from, to))
    }

    /// Returns `true` if the record was answered and its application connects its two channels.
    pub(super) fn connects(&self) -> bool {
        let connects = self.since_12 || self.app.is_empty() || is_one_of(&CONNECTS, &self.app);
        self.is_answered_path() && connects
    }

    /// Returns why the outcome of the record's call is uncertain, or `None` if it isn't.
    pub(super) fn doubt(&self) -> Option<String> {
        if !self.placed {
            let reason = "its local times have no zone, or day and month can be in either order: \
                          give --pbx-timezone, and export the times as 2026-12-31 23:59:59";
            return Some(reason.to_owned());
        }
        if self.is_negative {
            let reason = "a record's duration is negative: the PBX's clock was set back";
            return Some(reason.to_owned());
        }
        if let Some(disposition) = &self.unknown_disposition {
            return Some(format!(
                "a record's disposition is \"{disposition}\", which is neither a known yes nor a \
                 known no, although the record has billed seconds or an answer time"
            ));
        }
        let connects_no_one = self.dest.is_empty() || is_one_of(&CONNECTS_NO_ONE, &self.app);
        if self.lacks_answer && !(self.answered && connects_no_one) {
            let reason = "a record that isn't marked as unanswered has neither billed seconds nor \
                          an answer time, so the talk time is unknown: log billsec";
            return Some(reason.to_owned());
        }
        if self.answered && self.is_of_conference() && self.room.is_none() {
            return Some(format!(
                "a record of {} doesn't name its room, so it isn't known who else was in it: log \
                 lastdata",
                self.app
            ));
        }
        self.is_doubtful().then(|| {
            format!(
                "a record is ANSWERED, and its last application, {}, does not show whether people \
                 talked",
                self.app
            )
        })
    }

    /// Returns `true` if the record doesn't show whether its two channels could hear each other.
    fn is_doubtful(&self) -> bool {
        let known = [&CONNECTS[..], &CONNECTS_NO_ONE].concat();
        let is_known = self.app.is_empty() || is_one_of(&known, &self.app);
        self.is_answered_path() && !self.since_12 && !is_known
    }

    fn is_answered_path(&self) -> bool {
        self.answered && !self.dest.is_empty()
    }

    /// Returns `true` if the record is for the `h` extension, which runs after the call.
    pub(super) fn is_of_hangup(&self) -> bool {
        self.destination == "h"
    }

    /// Returns `true` if the record's application only joined its channels, without one having
    /// dialed the other.
    pub(super) fn only_joins(&self) -> bool {
        self.is_of_conference() || is_one_of(&JOINS, &self.app)
    }

    /// Returns `true` if the record is that of a logged-in agent.
    pub(super) fn is_of_login(&self) -> bool {
        self.app.eq_ignore_ascii_case(LOGIN)
    }

    /// Returns the bridge of the conference room that the record's channels were in.
    pub(super) fn room(&self) -> Option<&str> {
        self.room.as_deref()
    }

    /// Returns the application that dialed the record's destination.
    pub(super) fn dialing_app(&self) -> &'static str {
        if self.app.eq_ignore_ascii_case("RetryDial") {
            "RetryDial"
        } else {
            "Dial"
        }
    }

    /// Returns `true` if the record's last application is a conference.
    pub(super) fn is_of_conference(&self) -> bool {
        is_one_of(&CONFERENCES, &self.app)
    }

    /// Returns `true` if either channel is a PJSIP channel, which proves that this is Asterisk 12
    /// or later.
    pub(super) fn has_pjsip(&self) -> bool {
        let mut names = [&self.channel, &self.dest].into_iter();
        names.any(|name| trunk::technology(name).eq_ignore_ascii_case("PJSIP"))
    }

    /// Generates an ID from the channel name, start, and destination, for a channel without a
    /// unique ID.
    pub(super) fn made_id(&self) -> Option<UniqueId> {
        let start = self.start.floor_seconds();
        UniqueId::new(format!("{}@{start}/{}", self.channel, self.destination))
    }

    /// Returns `true` if the record started when its channel was created, which means that it's the
    /// channel's first record.
    pub(super) fn is_birth(&self) -> bool {
        birth(&self.uniqueid).is_some_and(|born| self.start <= born.plus(BIRTH_SLACK))
    }
}

/// Returns the second party's channel name. After a feature-code transfer, the new party is in the
/// application's data, whereas the destination channel is still the previous party.
fn dest<'a>(cdr: &'a Cdr<'_>) -> &'a str {
    let transferred = cdr.last_app.eq_ignore_ascii_case(TRANSFERRED);
    if transferred && cdr.last_data.contains('/') {
        &cdr.last_data
    } else {
        &cdr.dest_channel
    }
}

fn clip(text: &str) -> String {
    units::clip(text, TEXT_BYTES_MAX)
}

/// Returns the name of the original channel if this is a temporary one created to move it, or else
/// the name itself.
fn moved(name: &str) -> &str {
    match name.split_once('/') {
        Some((technology, moved)) if is_one_of(&MOVES, technology) && moved.contains('/') => moved,
        Some(_) | None => name,
    }
}

/// Returns the bridge of the record's conference room, which is named after the application's first
/// argument.
fn room(cdr: &Cdr<'_>) -> Option<String> {
    if !is_one_of(&CONFERENCES, &cdr.last_app) {
        return None;
    }
    let name = cdr.last_data.split([',', '|']).next()?.trim();
    (!name.is_empty()).then(|| clip(&format!("room {name}")))
}

/// Converts microseconds to a duration, returning `None` if the number is negative, or was a
/// negative number of seconds that became positive in an unsigned 32-bit column.
fn duration(micros: i64) -> Option<Duration> {
    if micros / 1_000_000 > SECONDS_MAX {
        return None;
    }
    Some(Duration::from_micros(u64::try_from(micros).ok()?))
}

/// Returns the billed time if it's impossible, i.e., negative or more than a second longer than the
/// record. A negative time is returned as it would appear in an unsigned 32-bit column.
fn excess(billed_micros: i64, lasted: Duration) -> Option<Duration> {
    let Some(billed) = duration(billed_micros) else {
        let seconds = billed_micros.div_euclid(1_000_000).rem_euclid(1 << 32);
        return u64::try_from(seconds).ok().map(Duration::from_secs);
    };
    if billed > lasted + BIRTH_SLACK {
        Some(billed)
    } else {
        None
    }
}

/// Returns the reported end, or `start` plus `lasted` if that's more than a second later, in which
/// case the PBX reported the record before it ended.
fn end(reported: Option<EventTime>, start: EventTime, lasted: Duration) -> EventTime {
    let by_duration = start.plus(lasted);
    let reported = reported.unwrap_or(by_duration).max(start);
    if by_duration > reported.plus(BIRTH_SLACK) {
        by_duration
    } else {
        reported
    }
}

/// Strips the `;1` or `;2` suffix, which a channel keeps after it has replaced half of a Local
/// channel. A Local channel's own name is returned unchanged.
fn strip_half_suffix(name: &str) -> &str {
    if trunk::local_pair(name).is_some() {
        return name;
    }
    let first = name.strip_suffix(";1");
    first.or(name.strip_suffix(";2")).unwrap_or(name)
}

/// Returns the second in which the channel with this unique ID was created.
pub(super) fn birth(uniqueid: &str) -> Option<EventTime> {
    // Reject small numbers (before the year 2000), because IDs in test setups contain counters
    // instead of times.
    let epoch = UniqueId::epoch_in(uniqueid).filter(|epoch| *epoch > 946_684_800)?;
    (epoch < i64::MAX / 1_000_000).then(|| EventTime::from_seconds(epoch))
}

/// Returns the start of the billed time, which ends with the record. An answer time with fractional
/// seconds is exact, but one in whole seconds may be off by a second, so `end` minus the billed
/// time is used instead.
fn billed_from(cdr: &Cdr<'_>, start: EventTime, end: EventTime) -> EventTime {
    let answer = cdr.answered_at.filter(|at| (start..=end).contains(at));
    let billed = cdr.billed_micros.and_then(duration);
    match (answer, billed) {
        (Some(answer), _) if is_exact(answer) || is_exact(end) => answer,
        (_, Some(billed)) => end.minus(billed).max(start),
        (Some(answer), None) => answer,
        (None, None) => end,
    }
}

/// Returns `true` if the disposition isn't a known one, so it doesn't tell whether the call was
/// answered.
fn is_unknown(disposition: &str) -> bool {
    !is_one_of(&YES, disposition) && !is_one_of(&NO, disposition)
}

/// Returns `true` if the record has billed seconds or an answer time.
fn has_answer(cdr: &Cdr<'_>) -> bool {
    cdr.answered_at.is_some() || cdr.billed_micros.is_some_and(|billed| billed != 0)
}

/// Returns `true` if the record was answered and ended in the same second, in which case a talk
/// time of zero may actually be up to a second. Times with fractions of a second don't have this
/// problem.
fn is_answered_within_a_second(cdr: &Cdr<'_>, billed_from: EventTime, end: EventTime) -> bool {
    let is_whole = |at| !is_exact(at);
    billed_from == end && is_whole(end) && cdr.answered_at.is_some_and(is_whole)
}

fn is_exact(at: EventTime) -> bool {
    at.micros() % 1_000_000 != 0
}

/// Returns the record's channel followed by the channels that its events describe, or nothing if
/// the record describes a path between two parties.
fn legs_of(cdr: &Cdr<'_>) -> Vec<Leg> {
    let mut legs: Vec<Leg> = Vec::new();
    for event in &cdr.events {
        let Some((at, id)) = event.at.zip(UniqueId::new(event.channel.uniqueid.as_ref())) else {
            continue;
        };
        let leg = get_or_add_leg(&mut legs, &id, at);
        leg.on_event(at, event, true);
        leg.linkedids.note(at, &event.channel.linkedid);
        if let Some(other) = event.kind.other().filter(|other| other.traits.is_some())
            && let Some(id) = UniqueId::new(other.uniqueid.as_ref())
        {
            get_or_add_leg(&mut legs, &id, at).describe(at, other);
        }
    }
    legs
}

fn get_or_add_leg<'l>(legs: &'l mut Vec<Leg>, id: &UniqueId, at: EventTime) -> &'l mut Leg {
    let known = legs.iter().position(|leg| leg.id == *id);
    let place = known.unwrap_or_else(|| {
        legs.push(Leg::new(id.clone(), at, 0));
        legs.len() - 1
    });
    &mut legs[place]
}
