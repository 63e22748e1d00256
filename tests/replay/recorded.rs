//! Runs the recordings in `tests/recordings` through the decoder and the assembler, and reports
//! errors in their calls.

use callbridge_call::{
    Assembler, Direction, Endpoints, EventTime, FinishedCall, Origin, PbxEvent, Settings, Timing,
    TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use callbridge_model::{Country, number};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

/// A recording's real calls.
#[derive(Debug, Deserialize)]
pub struct Expected {
    story: String,
    pub calls: Vec<ExpectedCall>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedCall {
    linkedid: String,
    direction: Direction,
    answered: bool,
    lead_id: Option<u64>,
    trunk: Option<String>,
    client_phone: Option<String>,
    did: Option<String>,
    employee: Option<String>,
    employees_in_order: Vec<String>,
    started_at: i64,
    duration_sec: f64,
    talk_time_sec: f64,
    reason: Option<String>,
}

/// Calls that started by dialing the customer. CEL has no dial string, and the channel's number
/// there is the company's own.
const NUMBER_UNTOLD_BY_CEL: [&str; 4] = [
    "call_file",
    "campaign_extension",
    "campaign_no_answer",
    "campaign_queue",
];

/// Prefix of recordings made with the settings from `deploy/asterisk`, which have no CEL over AMI.
const WITHOUT_CEL: &str = "deployed_";

/// The kinds of events to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKinds {
    Both,
    Only(Origin),
}

pub fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let entries = fs::read_dir(folder).expect("the recordings");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.retain(|path| path.join("expected.json").exists());
    all.sort();
    assert!(all.len() >= 16, "only {} recordings", all.len());
    all
}

pub fn assembler() -> Assembler {
    let trunks = [("city", "PJSIP/city"), ("gsm", "PJSIP/gsm")];
    let endpoints = trunks.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    Assembler::new(Settings::new(
        Endpoints::new(endpoints.to_vec()).expect("no conflict"),
    ))
}

/// A message, along with when it arrives.
pub type Arrival<'a> = (EventTime, &'a [u8]);

/// Returns a recording's messages, each of which arrives at its own time.
pub fn messages(bytes: &[u8], format: Format) -> Vec<Arrival<'_>> {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut at = EventTime::from_seconds(0);
    let mut messages = Vec::new();
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            continue;
        };
        if let Decoded::Event { received, .. } = decoder.decode(message) {
            at = time_of(&received.event).unwrap_or(at);
        }
        messages.push((at, message));
    }
    messages
}

/// Returns `true` for formats whose broker keeps messages that weren't received.
const fn is_kept_by_broker(format: Format) -> bool {
    matches!(format, Format::CelAmqp | Format::Wazo)
}

fn time_of(pbx_event: &PbxEvent<'_>) -> Option<EventTime> {
    match pbx_event {
        PbxEvent::Channel(event) => event.at,
        PbxEvent::Cdr(cdr) => cdr.at,
        PbxEvent::Mark(_) => None,
    }
}

/// Returns the finished calls that result from these messages, oldest first and without internal
/// ones, and the number of calls that remain open.
pub fn finished_calls(
    arrivals: &[Arrival<'_>],
    format: Format,
    on_event: EventKinds,
) -> (Vec<FinishedCall>, usize) {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut assembler = assembler();
    assembler.timing(Timing {
        kept: is_kept_by_broker(format),
        ..Timing::default()
    });
    let mut now = EventTime::from_seconds(0);
    for (at, message) in arrivals {
        now = now.max(*at);
        let Decoded::Event { received, .. } = decoder.decode(message) else {
            continue;
        };
        let wanted = match (&received.event, on_event) {
            (PbxEvent::Channel(event), EventKinds::Only(origin)) => event.origin == origin,
            (
                PbxEvent::Channel(_) | PbxEvent::Cdr(_) | PbxEvent::Mark(_),
                EventKinds::Both | EventKinds::Only(_),
            ) => true,
        };
        if wanted {
            assembler.on_event(&received.event, now);
        }
    }
    assembler.tick(now.plus(Duration::from_secs(2)));
    let open = assembler.open_calls();
    let mut calls = assembler.take_finished();
    calls.retain(|call| call.direction != Direction::Internal);
    calls.sort_by(|a, b| a.linkedid.age().cmp(&b.linkedid.age()));
    (calls, open)
}

fn text(value: &dyn fmt::Debug) -> String {
    format!("{value:?}")
}

/// Returns the differences between a call and the expected one. The list is empty if there are
/// none.
fn differences(call: &FinishedCall, expected: &ExpectedCall, on_event: EventKinds) -> Vec<String> {
    let phone = call.number.as_ref().and_then(|received| {
        let uzbekistan = Country::parse("UZ");
        ["9", "8"].iter().find_map(|prefix| {
            number::normalize(received, uzbekistan, Some(prefix), call.direction)
        })
    });
    let phone = phone.map(|phone| phone.as_str().to_owned());
    let employee = call.employee.as_ref().map(|employee| employee.as_str());
    let employees: Vec<&str> = call.employees_in_order.iter().map(|e| e.as_str()).collect();
    let started = call.started.floor_seconds().get();
    let complete: Option<String> = None;
    let mut rows = vec![
        (
            "linkedid",
            text(&call.linkedid.as_str()),
            text(&expected.linkedid),
        ),
        (
            "direction",
            text(&call.direction),
            text(&expected.direction),
        ),
        ("answered", text(&call.answered), text(&expected.answered)),
        ("trunk", text(&call.trunk), text(&expected.trunk)),
        ("phone", text(&phone), text(&expected.client_phone)),
        ("did", text(&call.did), text(&expected.did)),
        ("employee", text(&employee), text(&expected.employee)),
        (
            "employees",
            text(&employees),
            text(&expected.employees_in_order),
        ),
        ("start", text(&started), text(&expected.started_at)),
        ("incomplete", text(&call.incomplete), text(&complete)),
    ];
    if on_event != EventKinds::Only(Origin::Cel) {
        let (lead, ambiguous) = lead_of(call);
        let two = expected.reason.as_deref() == Some("ambiguous_lead");
        rows.push(("lead", text(&lead), text(&expected.lead_id)));
        rows.push(("two leads", text(&ambiguous), text(&two)));
    }
    let wrong = rows.into_iter().filter(|(_, is, should)| is != should);
    let mut wrong: Vec<String> = wrong
        .map(|(what, is, should)| format!("{what}: {is} instead of {should}"))
        .collect();
    let duration = call.ended.since(call.started).as_secs_f64();
    let talk = call.talk.as_secs_f64();
    for (what, is, should) in [
        ("duration", duration, expected.duration_sec),
        ("talk", talk, expected.talk_time_sec),
    ] {
        if (is - should).abs() > 1.0 {
            wrong.push(format!("{what}: {is:.2} instead of {should:.2}"));
        }
    }
    if talk > duration {
        wrong.push(format!("talk {talk} above duration {duration}"));
    }
    wrong
}

/// Returns the call's lead, and whether its variables contain two. Frames that were cut off in the
/// caller's name have no variables, in which case the lead comes from the CDR's user field.
fn lead_of(call: &FinishedCall) -> (Option<u64>, bool) {
    let lead = call
        .variables
        .iter()
        .find(|variable| variable.name == "LEAD_ID");
    let values = lead.map_or(&[][..], |lead| &lead.values);
    let mut userfields = call.userfields.iter().map(String::as_str);
    let lead = match values {
        [] => userfields.find_map(|text| text.strip_prefix("lead=")),
        [one] => Some(one.as_str()),
        [_, ..] => None,
    };
    (lead.and_then(|lead| lead.parse().ok()), values.len() > 1)
}

/// Returns the errors in one recording's calls as text, which is empty if there are none.
pub fn errors_as_text(
    name: &str,
    expected: &Expected,
    calls: &[FinishedCall],
    open: usize,
    on_event: EventKinds,
) -> String {
    let mut differ = Vec::new();
    if open > 0 {
        differ.push(format!("{open} calls left open"));
    }
    if calls.len() != expected.calls.len() {
        let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
        differ.push(format!(
            "{} calls instead of {}: {ids:?}",
            calls.len(),
            expected.calls.len()
        ));
    }
    for (call, expected) in calls.iter().zip(&expected.calls) {
        differ.extend(differences(call, expected, on_event));
    }
    if differ.is_empty() {
        return String::new();
    }
    format!(
        "{name}: {}\n    {}\n",
        expected.story,
        differ.join("\n    ")
    )
}

pub fn expected(path: &Path) -> Expected {
    serde_json::from_slice(&fs::read(path).expect("what is expected")).expect("its shape")
}

/// Checks `file` in all recordings and reports all errors together. `arrange` changes the order and
/// the times at which messages arrive.
pub fn check_all(
    format: Format,
    file: &str,
    on_event: EventKinds,
    arrange: fn(&mut Vec<Arrival<'_>>),
) {
    check_each(
        format,
        |folder| fs::read(folder.join(file)).expect("the recording"),
        on_event,
        arrange,
    );
}

/// Checks all recordings. `read` returns the bytes for a recording's directory, and `arrange`
/// changes the arrivals.
pub fn check_each(
    format: Format,
    read: impl Fn(&Path) -> Vec<u8>,
    on_event: EventKinds,
    arrange: impl Fn(&mut Vec<Arrival<'_>>),
) {
    let mut all_wrong = String::new();
    for folder in recordings() {
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let mut expected = expected(&folder.join("expected.json"));
        if on_event == EventKinds::Only(Origin::Cel) {
            if NUMBER_UNTOLD_BY_CEL.contains(&name) {
                expected.calls[0].client_phone = None;
            }
            if name.starts_with(WITHOUT_CEL) {
                continue;
            }
        }
        let bytes = read(&folder);
        let mut arrivals = messages(&bytes, format);
        arrange(&mut arrivals);
        let (calls, open) = finished_calls(&arrivals, format, on_event);
        all_wrong += &errors_as_text(name, &expected, &calls, open, on_event);
    }
    assert!(all_wrong.is_empty(), "\n{all_wrong}");
}

pub fn keep_arrivals(_: &mut Vec<Arrival<'_>>) {}

pub fn duplicate_each(arrivals: &mut Vec<Arrival<'_>>) {
    *arrivals = arrivals
        .iter()
        .flat_map(|&arrival| [arrival, arrival])
        .collect();
}

pub fn repeat_all(arrivals: &mut Vec<Arrival<'_>>) {
    let again = arrivals.clone();
    arrivals.extend(again);
}

/// Returns a function that delays the messages after this quarter by `later`, like a broker that
/// kept them. Messages that happened before the end of the delay arrive all at once.
pub fn delay_from(quarter: usize, later: Duration) -> impl Fn(&mut Vec<Arrival<'_>>) {
    move |arrivals| {
        let cut = arrivals.len() * quarter / 4;
        let last_before = arrivals[..cut].iter().map(|&(at, _)| at).max();
        let back = last_before.map(|at| at.plus(later));
        for (at, _) in &mut arrivals[cut..] {
            *at = back.map_or(*at, |back| back.max(*at));
        }
    }
}

/// Makes each message arrive up to 400 ms late, using a fixed sequence of numbers.
pub fn delay_randomly(arrivals: &mut Vec<Arrival<'_>>) {
    let mut chance: u64 = 0x9e37_79b9_7f4a_7c15;
    for (at, _) in arrivals.iter_mut() {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *at = at.plus(Duration::from_micros((chance >> 33) % 400_000));
    }
    arrivals.sort_by_key(|&(at, _)| at);
}
