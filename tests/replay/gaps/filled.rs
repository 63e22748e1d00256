//! Tests recordings in which some of the channel events are missing, but the PBX's CEL file has
//! them.

use super::cut::cuts;
use super::recorded::{Recording, all, is_cel};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_intake::{Intake, Memory, Settings, SourceSettings};
use callbridge_mapping::{People, Rules, Trunks, trunk};
use callbridge_model::{CallRecord, Outcome};
use callbridge_source::{Frame, Outage, SourceId};
use callbridge_spool::{Known, Op};
use std::collections::BTreeMap;
use std::time::Duration;

const LINE: SourceId = SourceId(0);
const FILE: SourceId = SourceId(1);
/// The file is read four times a second.
const READ_AFTER: Duration = Duration::from_millis(250);
/// Number of cuts per recording, out of those that are tried without a file.
const CUTS: usize = 4;

type Span = (EventTime, EventTime);

/// An input for the intake.
enum Step<'a> {
    Receive(SourceId, &'a [u8]),
    Down,
    Up,
}

/// A model of the spool that tells calls apart.
#[derive(Default)]
struct Stored {
    calls: BTreeMap<String, CallRecord>,
    known: BTreeMap<String, Known>,
    finished: u32,
}

impl Stored {
    fn store(&mut self, op: Op) {
        let Op::Finish(finished) = op else { return };
        if finished.judged.outcome == Outcome::Internal {
            return;
        }
        let (record, call) = (finished.judged.record, finished.call);
        let incomplete = call.incomplete.is_some();
        for id in call.also_known_as.iter().chain([&call.linkedid]) {
            let own = *id == call.linkedid;
            let known = Known {
                own,
                started: call.started.floor_seconds(),
                caller: None,
                incomplete,
                letter: incomplete.then(|| Box::new(call.clone())),
            };
            self.known.insert(id.as_str().to_owned(), known);
        }
        self.finished += 1;
        self.calls.insert(record.linkedid.clone(), record);
    }
}

fn intake() -> Intake {
    let trunks = [
        "city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
        "gsm=PJSIP/gsm,country=UZ,strip=9,lead=var:LEAD_ID",
    ];
    let trunks = trunks.map(|text| {
        let defaults = trunk::Trunk::default();
        trunk::parse(text, &defaults).expect("a trunk")
    });
    let settings = Settings {
        calls: callbridge_call::Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            max_call: Duration::from_secs(3600),
            max_open_calls: 1_000,
            ..callbridge_call::Settings::new(Default::default())
        },
        zone: None,
        columns: None,
        clock_right_from: EventTime::from_seconds(0),
        rules: Rules {
            trunks: Trunks::new(trunks.to_vec()).expect("trunks"),
            ..Rules::default()
        },
    };
    let sources = vec![source_settings(false), source_settings(true)];
    Intake::new(settings, sources, Memory::default()).expect("an intake")
}

/// Returns the settings for the catch-up file, or else for the connection.
fn source_settings(catch_up: bool) -> SourceSettings {
    SourceSettings {
        shown: if catch_up { "file" } else { "line" }.to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: if catch_up {
            Format::CelCsv
        } else {
            Format::Ami
        },
        file: catch_up,
        forgets: !catch_up,
        catch_up,
    }
}

/// Processes everything that's due at this time, and stores it.
fn take(intake: &mut Intake, stored: &mut Stored, now: EventTime) {
    intake.tick(now);
    let known = &stored.known;
    intake.reconcile(now, &mut |_, id| known.get(id).cloned());
    let batch = intake.take(&People::default(), now);
    batch.ops.into_iter().for_each(|op| stored.store(op));
    intake.note_commit();
}

/// Plays a recording. The connection receives the events outside of the cut, and the file has all
/// of the CEL.
fn run(recording: &Recording, line: bool, file: bool, cut: Option<Span>) -> Stored {
    let rows: Vec<(EventTime, Vec<u8>)> = recording.rows();
    let mut steps: Vec<(EventTime, Step<'_>)> = Vec::new();
    for (at, message) in recording
        .messages
        .iter()
        .filter(|(_, message)| line && !is_cel(message))
    {
        if cut.is_none_or(|(from, until)| !(from..until).contains(at)) {
            steps.push((*at, Step::Receive(LINE, message)));
        }
    }
    for (at, row) in rows.iter().filter(|_| file) {
        steps.push((at.plus(READ_AFTER), Step::Receive(FILE, row)));
    }
    let begin = recording.messages[0].0.minus(Duration::from_secs(60));
    steps.push((begin, Step::Up));
    if let Some((from, until)) = cut {
        steps.push((from, Step::Down));
        steps.push((until, Step::Up));
    }
    play(steps, 200)
}

/// Plays these steps, and lets a few seconds pass after them.
fn play(mut steps: Vec<(EventTime, Step<'_>)>, seconds: u64) -> Stored {
    steps.sort_by_key(|(at, _)| *at);
    let (mut intake, mut stored) = (intake(), Stored::default());
    let mut now = steps[0].0;
    for (seq, (at, step)) in (1..).zip(steps) {
        now = at;
        match step {
            Step::Receive(source, bytes) => {
                let frame = Frame {
                    seq,
                    arrived: at,
                    bytes: bytes.to_vec().into(),
                    position: None,
                    content_type: None,
                    details: None,
                };
                let known = &stored.known;
                intake
                    .frame(source, &frame, &mut |_, id| known.get(id).cloned())
                    .expect("taken");
            }
            Step::Down => intake.down(
                LINE,
                Outage {
                    why: "cut".to_owned(),
                    since: at,
                    is_ours: false,
                    is_absent: false,
                },
            ),
            Step::Up => intake.up(LINE, at),
        }
        take(&mut intake, &mut stored, now);
    }
    for second in 1..=seconds {
        take(
            &mut intake,
            &mut stored,
            now.plus(Duration::from_secs(second)),
        );
    }
    stored
}

/// Returns the values that identify a record, and its seconds.
fn values(record: &CallRecord) -> (String, [i64; 2]) {
    let who = (&record.employee, &record.employees_in_order);
    let what = (record.direction, record.answered, record.incomplete);
    let customer = (&record.trunk, &record.client_phone, record.started_at);
    let seconds = [record.duration_sec, record.talk_time_sec].map(i64::from);
    (
        format!("{} {what:?} {customer:?} {who:?}", record.linkedid),
        seconds,
    )
}

fn is_same(a: &CallRecord, b: &CallRecord) -> bool {
    let ((a, a_sec), (b, b_sec)) = (values(a), values(b));
    a == b && a_sec.iter().zip(b_sec).all(|(a, b)| (a - b).abs() <= 1)
}

/// Promise: A gap is filled once from the catch-up file.
#[test]
fn cel_catch_up_file_completes_every_cut_call_exactly_once() {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for recording in all() {
        let whole = run(&recording, true, false, None).calls;
        let by_cel = run(&recording, false, true, None).calls;
        for cut in cuts(&recording).into_iter().take(CUTS) {
            tried += 1;
            let filled = run(&recording, true, true, Some(cut));
            let faulty = filled.calls.values().any(|call| {
                let as_told = [whole.get(&call.linkedid), by_cel.get(&call.linkedid)];
                !as_told
                    .into_iter()
                    .flatten()
                    .any(|told| is_same(told, call))
            });
            let missing = whole.keys().any(|id| !filled.calls.contains_key(id));
            let doubled = filled.finished as usize > filled.calls.len();
            if faulty || missing || doubled || filled.calls.len() > whole.len() {
                let filled_values: Vec<_> = filled.calls.values().map(values).collect();
                let wanted: Vec<_> = whole.values().map(values).collect();
                wrong.push(format!(
                    "{} cut {} to {}: told {} as {filled_values:?}\n  and not {wanted:?}",
                    recording.name, cut.0, cut.1, filled.finished
                ));
            }
        }
    }
    let shown = wrong.len().min(20);
    let words = wrong[..shown].join("\n");
    assert!(
        wrong.is_empty(),
        "{} of {tried} wrong:\n{words}",
        wrong.len()
    );
    assert!(tried > 200, "only {tried} cuts");
}

/// The PBX crashes in the middle of a conversation, so the end of the call is never written to its
/// CEL file.
#[test]
fn call_without_end_in_any_source_becomes_incomplete() {
    const BOOTED: &[u8] = b"Event: FullyBooted\r\nStatus: Fully Booted\r\nUptime: 1\r\n";
    let recordings = all();
    let recording = recordings
        .iter()
        .find(|recording| recording.name == "hold_unhold");
    let recording = recording.expect("it is there");
    let mut messages = recording.messages.iter();
    let end = messages.find(|(_, message)| message.starts_with(b"Event: Hangup\r\n"));
    let died = end.expect("an end").0;
    let back = died.plus(Duration::from_secs(5));
    let begin = recording.messages[0].0.minus(Duration::from_secs(60));
    let rows = recording.rows();
    let mut steps = vec![
        (begin, Step::Up),
        (died, Step::Down),
        (back, Step::Up),
        (back, Step::Receive(LINE, BOOTED)),
    ];
    let received = recording
        .messages
        .iter()
        .filter(|(_, message)| !is_cel(message));
    steps.extend(
        received
            .filter(|(at, _)| *at < died)
            .map(|(at, message)| (*at, Step::Receive(LINE, message))),
    );
    let written = rows.iter().filter(|(at, _)| *at < died);
    steps.extend(written.map(|(at, row)| (at.plus(READ_AFTER), Step::Receive(FILE, row))));
    let stored = play(steps, 30);
    let calls: Vec<_> = stored.calls.values().map(values).collect();
    assert_eq!((calls.len(), stored.finished), (1, 1), "{calls:?}");
    assert!(
        stored.calls.values().all(|call| call.incomplete),
        "{calls:?}"
    );
}
