//! Reads recordings, and compares finished calls with those that were recorded.

use callbridge_call::framing::FrameStep;
use callbridge_call::{
    Assembler, Decoded, Direction, Endpoints, EventTime, FinishedCall, Folder, Mark, PbxEvent,
    Settings, TrunkEndpoint,
};
use callbridge_freeswitch::{Decoder, Splitter};
use serde::Deserialize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, str};

#[derive(Debug, Deserialize)]
pub struct Expected {
    pub calls: Vec<ExpectedCall>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedCall {
    pub linkedid: String,
    pub direction: Direction,
    pub answered: bool,
    pub lead_id: Option<u64>,
    pub trunk: Option<String>,
    pub client_phone: Option<String>,
    pub did: Option<String>,
    pub employee: Option<String>,
    pub employees_in_order: Vec<String>,
    pub started_at: i64,
    pub duration_sec: f64,
    pub talk_time_sec: f64,
}

/// A recorded scenario, which has its own directory.
pub struct Recording {
    pub name: String,
    folder: PathBuf,
}

pub fn recordings() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings/freeswitch");
    let folder = std::env::var_os("FREESWITCH_RECORDINGS").map_or(folder, PathBuf::from);
    let entries = fs::read_dir(folder).expect("the recordings");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let folders = paths.filter(|path| path.join("expected.json").exists());
    let mut all: Vec<Recording> = folders
        .map(|folder| Recording {
            name: folder
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
            folder,
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() >= 25, "only {} recordings", all.len());
    all
}

impl Recording {
    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.folder.join(file)).expect("a recording")
    }

    pub fn expected(&self) -> Expected {
        serde_json::from_slice(&self.read("expected.json")).expect("what happened")
    }
}

/// Splits a stream's bytes into messages.
pub fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::default();
    let (mut rest, mut messages) = (bytes, Vec::new());
    loop {
        let step = splitter.step(rest, true);
        match step {
            FrameStep::Message { from, to, .. } => messages.push(rest[from..to].to_vec()),
            FrameStep::TooLong { .. } => {}
            FrameStep::More { .. } => return messages,
        }
        rest = &rest[step.used()..];
    }
}

/// Returns the bodies of AMQP messages, which are recorded one per line.
pub fn bodies(lines: &[u8]) -> Vec<Vec<u8>> {
    let lines = str::from_utf8(lines).expect("text").lines();
    let bodies = lines.map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).expect("a message");
        let body = message["body"].as_str().expect("a body");
        body.as_bytes().to_vec()
    });
    bodies.collect()
}

pub fn settings() -> Settings {
    let trunks = [
        ("city", "gateway/city"),
        ("city", "address/127.0.0.1:16000"),
    ];
    let others = [("gsm", "gateway/gsm"), ("gsm", "address/127.0.0.1:16001")];
    let endpoints = trunks.into_iter().chain(others);
    let endpoints = endpoints.chain([("one-o-one", "gateway/101")]);
    let renamed = [
        ("city", "gateway/8c5e6a70-9a5f-4be8"),
        ("city", "address/127.0.0.1:17000"),
    ];
    let endpoints = endpoints.chain(renamed);
    let endpoints = endpoints.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    Settings::new(Endpoints::new(endpoints.collect()).expect("no conflict"))
}

/// Reads a file recorded in a special situation, such as a switch being killed.
pub fn special_recording(file: &str) -> Vec<u8> {
    let folder = "../../tests/recordings/freeswitch-moments";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    fs::read(path.join(file)).expect("a recording")
}

/// What's true at the end of the messages, and which calls to consider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All calls are over, and those with customers are considered.
    Calls,
    /// The recording ends, possibly with open calls, and calls with customers are considered.
    Recording,
    /// All calls are over, and calls between employees are considered as well.
    Everything,
}

/// Returns the calls with customers. Each message arrives at its own time.
pub fn finished_calls(messages: &[Vec<u8>]) -> Vec<FinishedCall> {
    finished_calls_when(messages, Ended::Calls)
}

/// Returns the finished calls that result from the messages. See [`Ended`] for `ended`.
pub fn finished_calls_when(messages: &[Vec<u8>], ended: Ended) -> Vec<FinishedCall> {
    finished_calls_with_gap(messages, 0..0, ended)
}

/// Returns the calls finished within `millis` milliseconds of the start of a scene. Channels may
/// still be live at that point.
pub fn finished_calls_by(messages: &[Vec<u8>], millis: u64) -> Vec<FinishedCall> {
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(settings());
    for message in messages {
        let Decoded::Event { received, .. } = decoder.decode(message) else {
            panic!("{}", String::from_utf8_lossy(message));
        };
        let at = match &received.event {
            PbxEvent::Channel(event) => event.at.expect("a time"),
            PbxEvent::Mark(Mark::Alive { at, .. }) => *at,
            PbxEvent::Mark(_) | PbxEvent::Cdr(_) => continue,
        };
        assembler.tick(at);
        assembler.on_event(&received.event, at);
    }
    let begin = EventTime::from_seconds(crate::switch::BEGIN.cast_signed());
    assembler.tick(begin.plus(Duration::from_millis(millis)));
    assembler.take_finished()
}

/// Returns the snapshots of the calls that are still open after the messages.
pub fn snapshots(messages: &[Vec<u8>]) -> Vec<String> {
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(settings());
    for message in messages {
        if let Decoded::Event { received, .. } = decoder.decode(message)
            && let PbxEvent::Channel(event) = &received.event
        {
            assembler.on_event(&received.event, event.at.expect("a time"));
        }
    }
    let changes = assembler.take_changes().into_iter();
    let stored = changes.filter_map(|change| change.snapshot);
    stored
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

/// Returns the finished calls that result from the messages, except for those in the range
/// `missed`, which aren't received because the connection is lost.
pub fn finished_calls_with_gap(
    messages: &[Vec<u8>],
    missed: Range<usize>,
    ended: Ended,
) -> Vec<FinishedCall> {
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(settings());
    let mut now = EventTime::from_seconds(0);
    for (at, message) in messages.iter().enumerate() {
        if at == missed.start && !missed.is_empty() {
            assembler.begin_gap(now);
        }
        match decoder.decode(message) {
            Decoded::Event { received, .. } => {
                if let PbxEvent::Channel(event) = &received.event {
                    now = now.max(event.at.unwrap_or(now));
                }
                if at == missed.end && !missed.is_empty() {
                    assembler.end_gap(now);
                }
                if !missed.contains(&at) {
                    assembler.on_event(&received.event, now);
                }
            }
            Decoded::Skipped => {}
            other => panic!("{other:?}: {}", String::from_utf8_lossy(message)),
        }
    }
    assembler.tick(now.plus(Duration::from_secs(2)));
    if ended == Ended::Recording {
        assembler.finish_all(now);
    } else {
        assert_eq!(assembler.open_calls(), 0, "calls stay open");
    }
    let mut calls = assembler.take_finished();
    calls.retain(|call| ended == Ended::Everything || call.direction != Direction::Internal);
    calls.sort_by_key(|call| call.started);
    calls
}

/// Returns the calls with customers from files written by `mod_json_cdr`, which may be in any
/// order.
pub fn folded_calls<'f>(files: impl Iterator<Item = &'f [u8]>) -> Vec<FinishedCall> {
    // No call is emitted before the last file.
    fold_with_wait(files, Duration::from_secs(86_400))
}

/// Returns the calls with customers from files written by `mod_json_cdr`, each of which arrives
/// when its channel ends. A call waits this long for further files.
pub fn fold_with_wait<'f>(
    files: impl Iterator<Item = &'f [u8]>,
    cdr_wait: Duration,
) -> Vec<FinishedCall> {
    let mut decoder = Decoder::new(None);
    let mut folder = Folder::new(Settings {
        cdr_wait: Some(cdr_wait),
        ..settings()
    });
    let mut now = EventTime::from_seconds(0);
    for file in files {
        let Decoded::Event { received, .. } = decoder.decode_cdr(file) else {
            panic!("{}", String::from_utf8_lossy(file));
        };
        let PbxEvent::Cdr(cdr) = &received.event else {
            panic!("{:?}", received.event);
        };
        now = now.max(cdr.ended_at.unwrap_or(now));
        folder.tick(now);
        folder.on_cdr(cdr, now);
    }
    folder.finish_all();
    let mut calls = folder.take_finished();
    calls.retain(|call| call.direction != Direction::Internal);
    calls.sort_by_key(|call| call.started);
    calls
}

/// Returns the differences between the calls and the expected ones. Times may differ by up to
/// `slack` seconds.
pub fn faults(calls: &[FinishedCall], expected: &Expected, slack: f64) -> Vec<String> {
    let (got, wanted) = (calls.len(), expected.calls.len());
    if got != wanted {
        return vec![format!("{got} calls, not {wanted}")];
    }
    let mut faults = Vec::new();
    for (call, wanted) in calls.iter().zip(&expected.calls) {
        let texts = describe_call(call).into_iter().zip(wanted.describe());
        let wrong = texts.filter(|((_, got), (_, wanted))| got != wanted);
        faults.extend(
            wrong.map(|((what, got), (_, wanted))| format!("{what} is {got}, not {wanted}")),
        );
        let seconds = [
            ("talk", call.talk, wanted.talk_time_sec),
            (
                "duration",
                call.ended.since(call.started),
                wanted.duration_sec,
            ),
        ];
        for (what, got, wanted) in seconds {
            let got = got.as_secs_f64();
            if (got - wanted).abs() > slack {
                faults.push(format!("{what} is {got:.2}, not {wanted:.2}"));
            }
        }
    }
    faults
}

type Description = Vec<(&'static str, String)>;

/// Returns a finished call's values, each with its name.
pub fn describe_call(call: &FinishedCall) -> Description {
    let number = call.number.as_ref().map(|number| &number.text);
    let phone = number.map(|text| format!("+{}", text.trim_start_matches('+')));
    let lead = call
        .variables
        .iter()
        .find(|variable| variable.name == "lead_id");
    let lead = lead.map(|variable| variable.values.join(" and "));
    let employee = call.employee.as_ref().map(ToString::to_string);
    let employees = call.employees_in_order.iter().map(ToString::to_string);
    vec![
        ("linkedid", call.linkedid.to_string()),
        ("direction", format!("{:?}", call.direction)),
        ("answered", call.answered.to_string()),
        ("lead", format!("{lead:?}")),
        ("trunk", format!("{:?}", call.trunk)),
        ("phone", format!("{phone:?}")),
        ("did", format!("{:?}", call.did)),
        ("employee", format!("{employee:?}")),
        ("employees", employees.collect::<Vec<_>>().join(",")),
        ("startedAt", call.started.floor_seconds().to_string()),
        ("incomplete", format!("{:?}", call.incomplete)),
    ]
}

impl ExpectedCall {
    /// Returns the expected call's values, each with its name.
    fn describe(&self) -> Description {
        let lead = self.lead_id.map(|lead| lead.to_string());
        vec![
            ("linkedid", self.linkedid.clone()),
            ("direction", format!("{:?}", self.direction)),
            ("answered", self.answered.to_string()),
            ("lead", format!("{lead:?}")),
            ("trunk", format!("{:?}", self.trunk)),
            ("phone", format!("{:?}", self.client_phone)),
            ("did", format!("{:?}", self.did)),
            ("employee", format!("{:?}", self.employee)),
            ("employees", self.employees_in_order.join(",")),
            ("startedAt", self.started_at.to_string()),
            ("incomplete", "None".to_owned()),
        ]
    }
}
