//! Tests that every FreeSWITCH call is journaled correctly, both over the event socket and from a
//! queue, even if a process is killed.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_model::clock;
use callbridge_sandbox::Server;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::expected::Expected;
use callbridge_testbed::switch::{self, FakeSwitch};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Two carriers' trunks. Neither carrier registers, so incoming calls are identified by its
/// address.
pub const TRUNKS: [&str; 2] = [
    "--trunk=city=gateway/city|address/127.0.0.1:16000,country=UZ,lead=var:lead_id",
    "--trunk=gsm=gateway/gsm|address/127.0.0.1:16001,country=UZ,lead=var:lead_id",
];

/// A recording of a real FreeSWITCH.
pub struct Recording {
    pub name: String,
    folder: PathBuf,
    pub calls: Vec<Expected>,
}

fn read_recording(folder: PathBuf) -> Recording {
    let expected = std::fs::read(folder.join("expected.json")).expect("what happened");
    let expected: Value = serde_json::from_slice(&expected).expect("JSON");
    let calls = expected["calls"].as_array().expect("calls");
    let name = folder.file_name().expect("a name").to_string_lossy();
    Recording {
        calls: calls.iter().map(Expected::of).collect(),
        name: name.into_owned(),
        folder,
    }
}

/// Returns all recordings in chronological order.
pub fn recordings() -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/freeswitch");
    let entries = std::fs::read_dir(root).expect("the recordings");
    let folders = entries.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<Recording> = folders.map(read_recording).collect();
    all.sort_by_key(|recording| recording.calls.iter().map(|call| call.started_at).min());
    assert!(all.len() >= 25, "only {} recordings", all.len());
    all
}

impl Recording {
    fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.folder.join(file)).expect("a recording")
    }

    /// Returns the event socket's output after the subscription.
    fn event_socket_output(&self) -> Vec<u8> {
        let recorded = self.read("esl.txt");
        switch::frames_after_subscription(&recorded).to_vec()
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = String::from_utf8(self.read(file)).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the event socket's events as JSON.
    pub fn events(&self) -> Vec<String> {
        self.lines("esl.jsonl")
    }

    /// Returns the records written by `mod_json_cdr`, one per channel.
    pub fn cdr_records(&self) -> Vec<String> {
        self.lines("json_cdr.jsonl")
    }

    /// Returns the bodies published by `mod_amqp`.
    pub fn amqp_bodies(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        for line in self.lines("amqp.jsonl") {
            let message: Value = serde_json::from_str(&line).expect("JSON");
            bodies.push(message["body"].as_str().expect("a body").to_owned());
        }
        bodies
    }
}

/// Returns an event's time in microseconds.
pub fn micros(body: &str) -> i64 {
    let event: Value = serde_json::from_str(body).expect("JSON");
    let time = event["Event-Date-Timestamp"].as_str().expect("a time");
    time.parse().expect("microseconds")
}

/// Adds `by` microseconds to every time in an event that's in microseconds. callbridge doesn't read
/// any other times.
pub fn move_times(body: &str, by: i64) -> String {
    let mut result = String::with_capacity(body.len());
    let mut parts = body.split('"');
    result.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let time = Some(part).filter(|text| text.len() == 16 && text.starts_with("1795"));
        let time = time.and_then(|text| text.parse::<i64>().ok());
        result.push('"');
        result.push_str(&time.map_or_else(|| part.to_owned(), |time| (time + by).to_string()));
    }
    result
}

fn expected_calls(recordings: &[Recording]) -> Vec<Expected> {
    let calls = recordings
        .iter()
        .flat_map(|recording| recording.calls.iter().cloned());
    calls.collect()
}

fn count_calls(recordings: &[Recording]) -> u64 {
    u64::try_from(expected_calls(recordings).len()).expect("few")
}

/// A FreeSWITCH, a callbridge, and a CRM.
struct Scene {
    place: Place,
    crm: Server,
    switch: FakeSwitch,
}

impl Scene {
    async fn new() -> Self {
        Self {
            place: Place::new(),
            crm: crm::start().await,
            switch: FakeSwitch::start().await,
        }
    }

    fn run(&self) -> Program {
        let secret = self.place.write("secret", switch::PASSWORD);
        let address = self.switch.addr();
        let source = format!("--source=esl://{address}?secret-file={secret}");
        let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
        self.place.run(&self.crm.url(), &flags)
    }

    /// Sends these bytes in pieces that end anywhere.
    async fn send(&self, bytes: &[u8]) {
        self.switch.send_in_pieces(bytes, 997).await;
    }

    /// Waits for all calls to end, stops the program, and checks the journal.
    async fn finish(self, mut program: Program, expected: &[Expected]) {
        let finished = u64::try_from(expected.len()).expect("few");
        let status = program.settled(finished).await;
        assert_eq!(status.books.finished, finished);
        program.terminate().await;
        crm::judge(&self.crm, &self.place.letters().await, expected);
    }
}

/// Promise: Every recorded call is logged as it happened, over every transport.
#[tokio::test]
async fn recordings_over_event_socket_are_journaled_once_despite_kill() {
    let (scene, all) = (Scene::new().await, recordings());
    let (first, second) = all.split_at(all.len() / 2);
    let mut program = scene.run();
    scene.switch.subscribed(1).await;
    for recording in first {
        scene.send(&recording.event_socket_output()).await;
    }
    program.settled(count_calls(first)).await;
    program.kill().await;

    let mut program = scene.run();
    scene.switch.subscribed(2).await;
    // The switch resends the last three recordings of the first half, and then drops the
    // connection.
    for recording in &first[first.len() - 3..] {
        scene.send(&recording.event_socket_output()).await;
    }
    scene.switch.cut().await;
    scene.switch.subscribed(3).await;
    for recording in second {
        scene.send(&recording.event_socket_output()).await;
    }
    let status = program.settled(count_calls(&all)).await;
    assert_eq!(status.sources[0].unreadable, 0);
    let commands = scene.switch.requests();
    let passwords = commands
        .iter()
        .filter(|command| command.contains(switch::PASSWORD));
    assert_eq!(passwords.count(), 3, "once per login: {commands:?}");
    assert!(!scene.place.logs().contains(switch::PASSWORD));
    scene.finish(program, &expected_calls(&all)).await;
}

#[tokio::test]
async fn recordings_from_mod_amqp_queue_are_journaled_once_over_kills() {
    let (place, crm, all) = (Place::new(), crm::start().await, recordings());
    // The broker has the users, permissions, exchange, and queue from
    // deploy/rabbitmq/definitions.json.
    let (broker, queue) = (Broker::shared(), "freeswitch");
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url("callbridge");
    let source = format!("--source={base}?queue={queue}&format=freeswitch&secret-file={secret}");
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let bodies: Vec<String> = all.iter().flat_map(Recording::amqp_bodies).collect();
    broker.publish_as_mod_amqp(&bodies).await;
    for n in 1..=4_u64 {
        let mut program = place.run(&crm.url(), &flags);
        let part = n * count_calls(&all) / 5;
        program
            .until("some of the calls", |status| status.books.finished >= part)
            .await;
        program.kill().await;
    }
    let mut program = place.run(&crm.url(), &flags);
    let expected = expected_calls(&all);
    let status = program.settled(count_calls(&all)).await;
    assert_eq!(status.books.finished, count_calls(&all));
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &expected);
    assert_eq!(broker.depth(queue).await, 0, "all is acknowledged");
}

#[tokio::test]
async fn call_of_killed_switch_ends_once_as_incomplete() {
    let (scene, all) = (Scene::new().await, recordings());
    let call = all
        .iter()
        .find(|recording| recording.name == "inbound_answered");
    let call = call.expect("the recording");
    let output = call.event_socket_output();
    let end = memchr::memmem::find(&output, b"Event-Name: CHANNEL_HANGUP\n");
    let until_hangup = &output[..end.expect("a hang-up")];
    let frame = memchr::memmem::rfind(until_hangup, b"Content-Length: ").expect("a frame");
    let mut program = scene.run();
    scene.switch.subscribed(1).await;
    scene.send(&output[..frame]).await;
    program
        .until("the events before the hangup", |status| {
            status.sources[0].read >= 4
        })
        .await;
    // The next process doesn't know the call and started a second ago.
    scene.switch.answers("uptime ms", "1000\n");
    scene.switch.cut().await;
    scene.switch.subscribed(2).await;
    let wanted = Expected {
        reason: Some("incomplete".to_owned()),
        ..call.calls[0].clone()
    };
    scene.finish(program, &[wanted]).await;
}

/// Returns a heartbeat that's sent this many seconds after the event `last`. It comes from another
/// process with the ID `next_core`, unless that's empty.
fn heartbeat_after(last: &str, next_core: &str, seconds: i64) -> String {
    let mut beat: Value = serde_json::from_str(last).expect("JSON");
    let at = micros(last) + seconds * 1_000_000;
    beat.as_object_mut().expect("an event").retain(|key, _| {
        key.starts_with("Core-") || key.starts_with("FreeSWITCH-") || key.starts_with("Event-")
    });
    beat["Event-Name"] = "HEARTBEAT".into();
    beat["Event-Date-Timestamp"] = at.to_string().into();
    beat["Event-Sequence"] = (1_000 + seconds).to_string().into();
    if !next_core.is_empty() {
        beat["Core-UUID"] = next_core.into();
        beat["Uptime-msec"] = "5000".into();
    }
    beat.to_string()
}

/// Returns the messages in a queue whose FreeSWITCH was killed just after a call was answered, with
/// added heartbeats from the killed process (`alive`) and from the next one (`next`), in seconds
/// after the last message. Also returns the last message's time in microseconds.
fn killed_switch_messages(alive: &[i64], next: &[i64]) -> (Vec<String>, i64) {
    let folder = "tests/recordings/freeswitch-moments/switch_killed";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let recording = Recording {
        name: "switch_killed".to_owned(),
        calls: Vec::new(),
        folder,
    };
    let mut messages = recording.amqp_bodies();
    // The messages must be less than an hour old when callbridge reads them.
    let by = clock::now().wall.micros() - 600_000_000 - micros(&messages[0]);
    messages
        .iter_mut()
        .for_each(|body| *body = move_times(body, by));
    let last = messages.last().expect("a message").clone();
    for seconds in alive {
        messages.push(heartbeat_after(&last, "", *seconds));
    }
    for seconds in next {
        messages.push(heartbeat_after(&last, "the next process", *seconds));
    }
    (messages, micros(&last))
}

#[tokio::test]
async fn killed_switch_call_in_shared_queue_ends_at_last_heartbeat() {
    let (place, crm, all) = (Place::new(), crm::start().await, recordings());
    let broker = Broker::shared();
    broker.declare("killed-switches").await;
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let source =
        format!("--source={base}?queue=killed-switches&format=freeswitch&secret-file={secret}");
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    let (messages, last) = killed_switch_messages(&[20, 40, 60], &[90, 120]);
    // Before the last four heartbeats, another FreeSWITCH reports a call.
    let other_recording = all
        .iter()
        .find(|recording| recording.name == "inbound_answered");
    let other_recording = other_recording.expect("the recording");
    let other = other_recording.amqp_bodies();
    let by = (last - micros(&other[0])).div_euclid(1_000_000);
    let other: Vec<String> = other
        .iter()
        .map(|body| move_times(body, by * 1_000_000))
        .collect();
    let (first, last_four) = messages.split_at(messages.len() - 4);
    broker.publish("killed-switches", first).await;
    broker.publish("killed-switches", &other).await;
    broker.publish("killed-switches", last_four).await;
    program.settled(2).await;
    let missed = place.lines(&["missed", "--json"]).await;
    assert_eq!(missed, [] as [Value; 0]);
    program.terminate().await;
    let letters = place.letters().await;
    let call = &letters[0]["call"];
    assert_eq!(letters[0]["reason"], "incomplete");
    assert_eq!(call["answered"], true);
    // The call was answered a moment before the last event, after ringing for a second.
    for (figure, wanted) in [("talkTimeSec", 60), ("durationSec", 61)] {
        let value = call[figure].as_i64().expect("seconds");
        assert!((value - wanted).abs() <= 1, "{figure}: {call}");
    }
    let wanted = Expected {
        started_at: other_recording.calls[0].started_at + by,
        ..other_recording.calls[0].clone()
    };
    crm::judge(&crm, &[], &[wanted]);
}

#[tokio::test]
async fn wrong_password_is_shown_in_status_with_a_fix() {
    let scene = Scene::new().await;
    let secret = scene.place.write("secret", "ClueCon");
    let address = scene.switch.addr();
    let source = format!("--source=esl://{address}?secret-file={secret}");
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = scene.place.run(&scene.crm.url(), &flags);
    let refusal = "refused the password; give the password of event_socket";
    program
        .until("the refusal", |status| {
            let reason = status.sources[0].reason.as_deref();
            reason.is_some_and(|reason| reason.contains(refusal))
        })
        .await;
    program.terminate().await;
    assert!(!scene.place.logs().contains("ClueCon"));
}

/// Returns the dump of a channel, based on the values in its CHANNEL_ANSWER event. `events` has one
/// event per line.
fn second_leg(events: &str, id: &str) -> String {
    let events = events.lines().rev();
    let mut events = events.map(|event| serde_json::from_str::<Value>(event).expect("JSON"));
    let last =
        events.find(|event| event["Event-Name"] == "CHANNEL_ANSWER" && event["Unique-ID"] == id);
    let mut last = last.expect("its answer");
    last["Event-Name"] = "CHANNEL_DATA".into();
    last.to_string()
}

fn read_text(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).expect("recorded")
}

#[tokio::test]
async fn call_active_at_start_is_journaled_with_values_from_switch() {
    let scene = Scene::new().await;
    let folder = "tests/recordings/freeswitch-moments/late_listener";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let list = read_text(&folder, "show_channels.json");
    scene.switch.answers("show channels as json", &list);
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let ids: Vec<&str> = [0, 1]
        .map(|row| list["rows"][row]["uuid"].as_str().expect("an id"))
        .into();
    let first = read_text(&folder, "uuid_dump.json");
    let second = second_leg(&read_text(&folder, "esl.broken_off.jsonl"), ids[1]);
    for (id, dump) in ids.iter().zip(&[first, second]) {
        scene.switch.answers(&format!("uuid_dump {id} json"), dump);
    }
    let mut program = scene.run();
    scene.switch.subscribed(1).await;
    program
        .until("both channels", |status| status.sources[0].read >= 2)
        .await;
    for event in read_text(&folder, "esl.jsonl").lines() {
        scene.switch.event(event).await;
    }
    // The call had only one bridge, so its talk time is complete.
    let wanted = Expected::of(&serde_json::json!({
        "linkedid": ids[0], "direction": "INBOUND", "answered": true, "leadId": 4001,
        "trunk": "city", "clientPhone": "+998901110001", "employee": "101",
        "employeesInOrder": ["101"], "startedAt": 1_795_212_236,
        "durationSec": 5.03, "talkTimeSec": 3.95,
    }));
    scene.finish(program, &[wanted]).await;
}
