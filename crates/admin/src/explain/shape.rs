//! The JSON of `explain --json`: one object per finished call. Its keys always have the same order.

use super::text::Explained;
use callbridge_call::timeline::{Channel, Way};
use callbridge_call::{
    Direction, EpochSeconds, EventTime, FinishedCall, MomentKind, Role, Timeline, WrongCall,
};
use callbridge_model::{
    ByHand, CallRecord, CallUuid, Judged, LeadId, Outcome, Phone, Reason, Zone, safe, safe_json,
};
use serde::{Deserialize, Serialize};

/// Another call of the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Other {
    /// The PBX's id of the call.
    pub linkedid: String,
    /// `None` if the call is not journaled.
    pub uuid: Option<CallUuid>,
    /// Start of the call by the PBX's clock.
    pub started_at: EpochSeconds,
}

impl Other {
    /// Returns the entry for a call in the list of a number's calls.
    pub fn from_record(record: &CallRecord) -> Self {
        Self {
            linkedid: record.linkedid.clone(),
            uuid: record.uuid,
            started_at: record.started_at,
        }
    }
}

/// Returns the other calls of a number for people, each as `1795151317.146  2026-11-20 10:08:37
/// +05`. Empty if there are none.
pub fn others_to_text(others: &[Other], zone: &Zone) -> String {
    let mut lines = String::new();
    for other in others {
        let at = zone.second(other.started_at.get());
        lines += &format!("    {}  {at}\n", safe(&other.linkedid));
    }
    if lines.is_empty() {
        return lines;
    }
    format!("  other calls of this number, newest first:\n{lines}\n")
}

/// The JSON of a judged call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape<'a> {
    uuid: Option<CallUuid>,
    linkedid: &'a str,
    direction: Direction,
    answered: bool,
    lead_id: Option<LeadId>,
    trunk: Option<&'a str>,
    client_phone: Option<&'a Phone>,
    employee: Option<&'a str>,
    employees_in_order: &'a [String],
    started_at: EpochSeconds,
    duration_sec: u32,
    talk_time_sec: u32,
    outcome: Outcome,
    reason: Option<Reason>,
    incomplete: bool,
    estimate: bool,
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_hand: Option<ByHand>,
    /// Other calls of the number, newest first, for a search by number with `--call`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    others: &'a [Other],
    /// The call's events, and the event that decided each value. Only set with `--call`.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Story<'a>>,
}

impl<'a> Shape<'a> {
    pub fn from_judged(judged: &'a Judged) -> Self {
        let record = &judged.record;
        let message = judged.message.as_str();
        let is_letter = judged.outcome == Outcome::DeadLetter;
        Self {
            uuid: record.uuid,
            linkedid: &record.linkedid,
            direction: record.direction,
            answered: record.answered,
            lead_id: record.lead_id,
            trunk: record.trunk.as_deref(),
            client_phone: record.client_phone.as_ref(),
            employee: record.employee.as_deref(),
            employees_in_order: &record.employees_in_order,
            started_at: record.started_at,
            duration_sec: record.duration_sec,
            talk_time_sec: record.talk_time_sec,
            outcome: judged.outcome,
            reason: judged.reason,
            incomplete: record.incomplete,
            estimate: record.estimate,
            message: if is_letter && !message.is_empty() {
                Some(message)
            } else {
                None
            },
            by_hand: record.by_hand,
            others: &[],
            timeline: None,
        }
    }

    /// Makes the JSON of a call with its events, and the other calls of its number.
    pub fn with_story(of: &Explained<'a>, others: &'a [Other]) -> Self {
        Self {
            others,
            timeline: Story::from_call(of.call),
            ..Self::from_judged(of.judged)
        }
    }

    /// Returns the JSON as one line with a line end.
    pub fn to_line(&self) -> String {
        // Strings, numbers and lists always serialize.
        let mut line = safe_json(&serde_json::to_string(self).unwrap_or_default());
        line.push('\n');
        line
    }
}

/// The events of a call, and the event that decided each value, for `explain --call --json`. Times
/// are seconds since the epoch, with microseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Story<'a> {
    channels: Vec<Lane<'a>>,
    talk: Vec<TalkShape<'a>>,
    decided: Vec<Decided<'a>>,
    left_out: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lane<'a> {
    uniqueid: &'a str,
    name: &'a str,
    party: &'static str,
    trunk: Option<&'a str>,
    extension: Option<&'a str>,
    way: &'static str,
    from: f64,
    to: f64,
    hung_up: bool,
    events: Vec<EventShape<'a>>,
    bridges: Vec<StayShape<'a>>,
}

#[derive(Debug, Serialize)]
struct EventShape<'a> {
    at: f64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<u16>,
}

#[derive(Debug, Serialize)]
struct StayShape<'a> {
    bridge: &'a str,
    from: f64,
    to: f64,
    holding: bool,
}

#[derive(Debug, Serialize)]
struct TalkShape<'a> {
    with: &'a str,
    from: f64,
    to: f64,
}

#[derive(Debug, Serialize)]
struct Decided<'a> {
    value: &'a str,
    at: f64,
    channel: &'a str,
    message: &'a str,
}

impl<'a> Story<'a> {
    /// Returns the story of a call. `None` if it has no channel events.
    fn from_call(call: &'a FinishedCall) -> Option<Self> {
        let timeline = call.timeline.as_ref()?;
        let lanes = timeline
            .channels
            .iter()
            .map(|channel| lane(channel, timeline));
        let talk = timeline.talk.iter().map(|talk| TalkShape {
            with: channel_name(timeline, talk.with),
            from: seconds(talk.from),
            to: seconds(talk.to),
        });
        let decided = call.decided_by.iter().map(|because| Decided {
            value: &because.value,
            at: seconds(because.at),
            channel: &because.channel,
            message: &because.message,
        });
        Some(Self {
            channels: lanes.collect(),
            talk: talk.collect(),
            decided: decided.collect(),
            left_out: timeline.left_out,
        })
    }
}

/// Returns the name of a channel by its number. Empty if the timeline does not keep the channel.
fn channel_name(timeline: &Timeline, number: u16) -> &str {
    let channel = timeline.channels.get(usize::from(number));
    channel.map_or("", |channel| channel.name.as_str())
}

fn lane<'a>(channel: &'a Channel, timeline: &'a Timeline) -> Lane<'a> {
    let (party, trunk, extension) = match &channel.party {
        Role::Customer(trunk) => ("customer", trunk.as_deref(), None),
        Role::Trunk(trunk) => ("trunk", Some(trunk.as_str()), None),
        Role::Extension(extension) => ("extension", None, Some(extension.as_str())),
        Role::Plumbing => ("plumbing", None, None),
    };
    let events = channel.moments.iter().map(|moment| {
        let (event, by, text, cause) = match &moment.what {
            MomentKind::Dialed { by, string } => {
                let by = by.map(|number| channel_name(timeline, number));
                ("dialed", by, Some(string.as_str()), None)
            }
            MomentKind::Rings => ("rings", None, None, None),
            MomentKind::Up => ("up", None, None, None),
            MomentKind::DialEnded(status) => ("dial_ended", None, Some(status.as_str()), None),
            MomentKind::HungUp { cause } => ("hung_up", None, None, *cause),
        };
        EventShape {
            at: seconds(moment.at),
            event,
            by,
            detail: text.filter(|text| !text.is_empty()),
            cause,
        }
    });
    let stays = channel.stays.iter().map(|stay| {
        let bridge = timeline.bridges.get(usize::from(stay.bridge));
        StayShape {
            bridge: bridge.map_or("", String::as_str),
            from: seconds(stay.from),
            to: seconds(stay.to),
            holding: stay.holding,
        }
    });
    Lane {
        uniqueid: channel.id.as_str(),
        name: &channel.name,
        party,
        trunk,
        extension,
        way: match channel.way {
            Way::CameIn => "came_in",
            Way::Dialed => "dialed",
        },
        from: seconds(channel.from),
        to: seconds(channel.to),
        hung_up: channel.hung_up(),
        events: events.collect(),
        bridges: stays.collect(),
    }
}

/// Converts a time to seconds. Microseconds of this century are exact in an f64.
fn seconds(at: EventTime) -> f64 {
    at.micros() as f64 / 1e6
}

/// Returns a line about a message that is not a possible call. With `json`, the line is JSON with
/// the keys of a call.
pub fn wrong_message(wrong: &WrongCall, json: bool) -> String {
    let id = wrong.id.as_deref().unwrap_or_default();
    let mut line = if json {
        let call = serde_json::json!({
            "uuid": null, "linkedid": id, "direction": null, "answered": null, "leadId": null,
            "trunk": null, "clientPhone": null, "employee": null, "employeesInOrder": [],
            "startedAt": null, "durationSec": null, "talkTimeSec": null,
            "outcome": Outcome::DeadLetter, "reason": Reason::Unreadable, "incomplete": false,
            "estimate": false, "message": wrong.message,
        });
        safe_json(&call.to_string())
    } else {
        let id = safe(if id.is_empty() { "a message" } else { id });
        format!("{id}  dead letter unreadable: {}", safe(&wrong.message))
    };
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_mapping::{People, Rules, Trunk, Trunks, judge};
    use callbridge_model::is_hostile;
    use callbridge_testkit::sample::call;

    #[test]
    fn json_line_escapes_terminal_controls_and_keeps_value() {
        let call = call();
        let people = People::default();
        let mut judged = judge(&call, "pbx1", &Rules::default(), &people, call.ended);
        judged.record.employee = Some("1\u{9b}2J\u{202e}".to_owned());
        let line = Shape::from_judged(&judged).to_line();
        assert!(!line.trim_end().contains(is_hostile), "{line:?}");
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["employee"], "1\u{9b}2J\u{202e}");
    }

    #[test]
    fn json_keys_have_fixed_names_and_order() {
        let trunk =
            callbridge_mapping::trunk::parse("city=PJSIP/city,country=UZ", &Trunk::default());
        let trunks = Trunks::new(vec![trunk.expect("good")]).expect("one");
        let rules = Rules {
            trunks,
            ..Rules::default()
        };
        let call = call();
        let judged = judge(&call, "explain", &rules, &People::default(), call.ended);
        insta::assert_snapshot!(Shape::from_judged(&judged).to_line().replace(",\"", "\n,\""), @r#"
        {"uuid":"217a8488-e365-54d7-9ba2-a0dc4e86a3c8"
        ,"linkedid":"1795151317.146"
        ,"direction":"INBOUND"
        ,"answered":true
        ,"leadId":null
        ,"trunk":"city"
        ,"clientPhone":"+998901110001"
        ,"employee":"101"
        ,"employeesInOrder":["101"]
        ,"startedAt":1795151317
        ,"durationSec":5
        ,"talkTimeSec":4
        ,"outcome":"dead_letter"
        ,"reason":"no_lead"
        ,"incomplete":false
        ,"estimate":false
        ,"message":"trunk city has no lead rule: set `lead=` or --lead"}
        "#);
    }
}
