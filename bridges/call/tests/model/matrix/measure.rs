//! Compares the calls that callbridge makes from a telling with the true ones, and classifies the
//! result.

use crate::telling::moment;
use crate::truth::{ANSWERED_FROM, TrueCall};
use callbridge_call::{
    Assembler, Direction, Endpoints, EventTime, FinishedCall, Folder, Origin, PbxEvent, RawNumber,
    Settings, TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use std::time::Duration;

/// The values of a call that the CRM gets, along with the lead from a variable.
#[derive(Clone, Debug)]
pub struct Facts {
    pub direction: Direction,
    pub answered: bool,
    pub trunk: Option<String>,
    /// Includes the country code.
    pub number: Option<String>,
    pub employee: Option<String>,
    pub started: f64,
    pub duration: f64,
    pub talk: f64,
    pub lead: bool,
}

/// A call as reported by a source.
#[derive(Debug)]
pub struct Given {
    pub facts: Facts,
    pub incomplete: Option<String>,
    pub estimate: bool,
}

impl From<&TrueCall> for Facts {
    fn from(call: &TrueCall) -> Self {
        let answered = call.talk >= ANSWERED_FROM;
        Self {
            direction: call.direction,
            answered,
            trunk: call.trunk.map(str::to_owned),
            number: call.number.clone(),
            employee: call.employee.clone(),
            started: seconds(moment(call.started)),
            duration: (call.ended - call.started) as f64 / 1e6,
            talk: if answered {
                call.talk as f64 / 1e6
            } else {
                0.0
            },
            lead: true,
        }
    }
}

impl From<&FinishedCall> for Given {
    fn from(call: &FinishedCall) -> Self {
        let numbers = call.number.iter().chain(&call.more_numbers);
        let lead = |name: &str| name.eq_ignore_ascii_case(super::scene::LEAD.0);
        Self {
            facts: Facts {
                direction: call.direction,
                answered: call.answered,
                trunk: call.trunk.clone(),
                number: numbers.into_iter().find_map(valid_number),
                employee: call.employee.as_ref().map(ToString::to_string),
                started: seconds(call.started),
                duration: call.ended.since(call.started).as_secs_f64(),
                talk: call.talk.as_secs_f64(),
                lead: call.variables.iter().any(|variable| lead(&variable.name)),
            },
            incomplete: call.incomplete.clone(),
            estimate: call.estimate,
        }
    }
}

fn seconds(at: EventTime) -> f64 {
    at.micros() as f64 / 1e6
}

/// Returns the number, including the country code, if it's valid in Uzbekistan. Phones dial a 9
/// first.
fn valid_number(number: &RawNumber) -> Option<String> {
    let text = number.text.trim_start_matches('+');
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let dialed = text.strip_prefix('9').unwrap_or(text);
    match (text.len(), dialed.len()) {
        (12, _) if text.starts_with("998") => Some(text.to_owned()),
        (9, _) => Some(format!("998{text}")),
        (_, 12) if dialed.starts_with("998") => Some(dialed.to_owned()),
        _ => None,
    }
}

/// Endpoints of the trunks in all stories and recordings.
const ENDPOINTS: [(&str, &str); 8] = [
    ("city", "PJSIP/city"),
    ("city", "SIP/city"),
    ("city", "gateway/city"),
    ("city", "address/127.0.0.1:16000"),
    ("gsm", "PJSIP/gsm"),
    ("gsm", "SIP/gsm"),
    ("gsm", "gateway/gsm"),
    ("gsm", "address/127.0.0.1:16001"),
];

fn settings() -> Settings {
    let endpoints = ENDPOINTS.map(|(trunk, pattern)| TrunkEndpoint::new(trunk, pattern));
    Settings::new(Endpoints::new(endpoints.to_vec()).expect("no conflict"))
}

/// Returns the customers' calls that callbridge makes from these bytes, oldest first. Only events
/// with this origin are considered.
pub fn calls(bytes: &[u8], format: Format, origin: Origin) -> Vec<Given> {
    let mut decoder = Decoder::new(
        format,
        DecoderSettings {
            zone: Some(jiff::tz::TimeZone::UTC),
            ..DecoderSettings::default()
        },
    );
    let mut assembler = Assembler::new(settings());
    let mut folder = Folder::new(settings());
    let mut calls: Vec<FinishedCall> = Vec::new();
    let mut now = EventTime::from_seconds(0);
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            continue;
        };
        match decoder.decode(message) {
            Decoded::Event { received, .. } => match received.event {
                PbxEvent::Cdr(cdr) if format.only_cdrs() => {
                    now = now.max(cdr.ended_at.unwrap_or(now));
                    folder.on_cdr(&cdr, now);
                }
                PbxEvent::Channel(event) if event.origin == origin => {
                    now = now.max(event.at.unwrap_or(now));
                    assembler.on_event(&PbxEvent::Channel(event), now);
                    assembler.tick(now);
                }
                _ => {}
            },
            Decoded::Call(call) => calls.push(call.expect("a valid message").call),
            Decoded::Skipped => {}
            Decoded::Unreadable(why) => panic!("{why}: {}", String::from_utf8_lossy(message)),
        }
    }
    assembler.tick(now.plus(Duration::from_secs(2)));
    assert_eq!(assembler.open_calls(), 0, "calls stay open");
    folder.finish_all();
    calls.extend(assembler.take_finished());
    calls.extend(folder.take_finished());
    calls.retain(|call| call.direction != Direction::Internal);
    calls.sort_by_key(|call| call.started);
    calls.iter().map(Given::from).collect()
}

/// The values that a source is asked for, by their names in the docs.
pub const VALUES: [&str; 8] = [
    "direction",
    "answered",
    "trunk",
    "number",
    "employee",
    "start",
    "duration",
    "talk",
];

/// How a value given by a source compares with the true one, ordered from best to worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Right,
    /// The source doesn't have the value.
    Unknown,
    /// The duration or talk time of an estimate is off.
    Off(String),
    Wrong(String),
}

/// How well a source tells a story.
#[derive(Clone, Debug)]
pub struct Cell {
    /// `exact`, `estimate`, `incomplete`, or `wrong`, with details.
    pub class: String,
    /// The outcome for each of [`VALUES`] in each complete call.
    pub outcomes: Vec<[Outcome; VALUES.len()]>,
    pub estimate: bool,
    /// Whether each call has the lead from its variable.
    pub lead: bool,
}

impl Cell {
    /// Compares the calls given by a source with the true ones. Times may differ by `slack`
    /// seconds.
    pub fn measure(truth: &[Facts], given: &[Given], slack: f64) -> Self {
        let pairs = truth.iter().zip(given);
        let complete = pairs.filter(|(_, given)| given.incomplete.is_none());
        let outcomes: Vec<_> = complete
            .map(|(truth, given)| outcomes(truth, given, slack))
            .collect();
        let estimate = given.iter().any(|call| call.estimate);
        let class = if truth.len() > given.len() {
            format!("wrong: {} of {} calls", given.len(), truth.len())
        } else if given.iter().all(|call| call.incomplete.is_some()) {
            "incomplete".to_owned()
        } else if truth.len() < given.len() {
            format!("wrong: {} calls for {}", given.len(), truth.len())
        } else {
            let all = outcomes.len() == given.len();
            class_of_values(&outcomes, estimate, all)
        };
        Self {
            class,
            outcomes,
            estimate,
            lead: given.iter().all(|call| call.facts.lead),
        }
    }

    pub fn is_wrong(&self) -> bool {
        self.class.starts_with("wrong")
    }
}

/// Returns the class of a cell with the right number of calls. `all` is set if none of them is
/// incomplete.
fn class_of_values(outcomes: &[[Outcome; VALUES.len()]], estimate: bool, all: bool) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut wrong: Vec<String> = Vec::new();
    for (name, outcome) in outcomes.iter().flat_map(|call| VALUES.iter().zip(call)) {
        match outcome {
            Outcome::Right => {}
            Outcome::Unknown => notes.push(format!("no {name}")),
            Outcome::Off(by) => notes.push(format!("{name} {by}")),
            Outcome::Wrong(given) => wrong.push(format!("{name} {given}")),
        }
    }
    if !wrong.is_empty() {
        return format!("wrong: {}", wrong.join(", "));
    }
    if !all {
        notes.push("in part incomplete".to_owned());
    }
    notes.dedup();
    let class = if estimate { "estimate" } else { "exact" };
    let notes = notes.into_iter().map(|note| format!(", {note}"));
    class.to_owned() + &notes.collect::<String>()
}

fn outcomes(truth: &Facts, given: &Given, slack: f64) -> [Outcome; VALUES.len()] {
    let facts = &given.facts;
    let equal = |is_right: bool, given: String| {
        if is_right {
            Outcome::Right
        } else {
            Outcome::Wrong(given)
        }
    };
    let known = |truth: &Option<String>, given: &Option<String>| match (truth, given) {
        (truth, given) if truth == given => Outcome::Right,
        (_, None) => Outcome::Unknown,
        (_, Some(given)) => Outcome::Wrong(given.clone()),
    };
    let time = |truth: f64, given: f64| {
        equal(
            (given - truth).abs() <= slack,
            format!("{:+.1} s", given - truth),
        )
    };
    let length = |truth: f64, given_length: f64| match time(truth, given_length) {
        Outcome::Wrong(by) if given.estimate => Outcome::Off(by),
        outcome => outcome,
    };
    [
        equal(
            truth.direction == facts.direction,
            facts.direction.word().to_owned(),
        ),
        equal(truth.answered == facts.answered, facts.answered.to_string()),
        known(&truth.trunk, &facts.trunk),
        known(&truth.number, &facts.number),
        known(&truth.employee, &facts.employee),
        time(truth.started, facts.started),
        length(truth.duration, facts.duration),
        length(truth.talk, facts.talk),
    ]
}
