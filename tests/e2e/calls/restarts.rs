//! Tests that callbridge doesn't produce a wrong call if it's killed during a FreeSWITCH call and
//! restarted right away. With only the event socket, each call must be either correct or
//! incomplete. If callbridge also reads FreeSWITCH's CDR files, or if it's merely frozen, each call
//! must be correct.

use crate::e2e::calls::freeswitch::{Recording, TRUNKS, micros, move_times, recordings};
use crate::e2e::calls::late;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_call::EventTime;
use callbridge_model::clock;
use callbridge_sandbox::Server;
use callbridge_testbed::expected::Expected;
use callbridge_testbed::switch::{self, FakeSwitch};
use callbridge_testbed::wait::pass;
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time from when all programs are connected until the first calls.
const LEAD_IN: Duration = Duration::from_secs(1);
/// Length of a restart, during which callbridge doesn't receive any events.
const RESTART: Duration = Duration::from_millis(100);
/// Length of a freeze, which is longer than the tolerated difference between clocks.
const STANDSTILL: Duration = Duration::from_secs(7);
/// The journal has whole seconds, so values may differ by this many seconds.
const ROUNDED: f64 = 1.0;

/// The live channels, as FreeSWITCH would list and dump them.
#[derive(Default)]
struct Channels {
    live: BTreeMap<String, Value>,
    /// The last event's time in microseconds, which FreeSWITCH reports as the current time.
    time: Value,
}

impl Channels {
    /// Updates the channels with an event.
    fn apply(&mut self, event: &str) {
        let event: Value = serde_json::from_str(event).expect("JSON");
        let Some(id) = event["Unique-ID"].as_str() else {
            return;
        };
        self.time = event["Event-Date-Timestamp"].clone();
        if event["Event-Name"] == "CHANNEL_HANGUP_COMPLETE" {
            self.live.remove(id);
            return;
        }
        let sides = ["Bridge-A-Unique-ID", "Bridge-B-Unique-ID"].map(|key| event[key].as_str());
        if let ("CHANNEL_BRIDGE", [Some(a), Some(b)]) =
            (event["Event-Name"].as_str().unwrap_or_default(), sides)
        {
            for (side, other) in [(a, b), (b, a)] {
                let Some(channel) = self.live.get_mut(side) else {
                    continue;
                };
                channel["variable_bridge_uuid"] = json!(other);
                channel["Caller-Channel-Bridged-Time"] = event["Event-Date-Timestamp"].clone();
            }
        }
        if event["Event-Name"] == "CHANNEL_CREATE" || self.live.contains_key(id) {
            self.live.insert(id.to_owned(), event);
        }
    }

    /// Sets how the switch responds to the commands that list and dump channels.
    fn set_answers(&self, switch: &FakeSwitch) {
        for (id, event) in &self.live {
            let mut dump = event.clone();
            dump["Event-Name"] = json!("CHANNEL_DATA");
            dump["Event-Date-Timestamp"] = self.time.clone();
            switch.answers(&format!("uuid_dump {id} json"), &dump.to_string());
        }
        let mut rows = Vec::new();
        for (id, event) in &self.live {
            let name = &event["Channel-Name"];
            rows.push(json!({"uuid": id, "name": name, "direction": event["Call-Direction"]}));
        }
        let list = json!({"row_count": rows.len(), "rows": rows});
        switch.answers("show channels as json", &list.to_string());
    }
}

/// What happens to callbridge before one of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// callbridge is killed and restarted.
    Killed,
    /// callbridge is killed and restarted, and also reads FreeSWITCH's CDR files.
    KilledWithRecords,
    /// callbridge is stopped with SIGSTOP and resumed after [`STANDSTILL`].
    Frozen,
}

/// A recording played by a fake FreeSWITCH, along with the callbridge that experiences the fault.
struct Scene {
    name: String,
    place: Place,
    crm: Server,
    switch: FakeSwitch,
    flags: Vec<String>,
    events: Vec<String>,
    records: Vec<String>,
    expected: Vec<Expected>,
    /// Index of the first event after the start of the fault.
    cut: usize,
    fault: Fault,
}

impl Scene {
    /// Reads the recording and starts callbridge. The fault starts after `quarter` quarters of the
    /// events.
    async fn new(recording: &Recording, quarter: usize, fault: Fault) -> (Self, Program) {
        let (place, switch) = (Place::new(), FakeSwitch::start().await);
        let events = recording.events();
        let secret = place.write("secret", switch::PASSWORD);
        std::fs::create_dir(place.at("cdr")).expect("a folder");
        let source = format!("--source=esl://{}?secret-file={secret}", switch.addr());
        let mut flags = vec![source, RATE_FLAG.to_owned()];
        flags.extend(TRUNKS.map(str::to_owned));
        if fault == Fault::KilledWithRecords {
            let folder = place.path("cdr");
            flags.push(format!("--catch-up=file://{folder}/?format=freeswitch-cdr"));
        }
        let crm = crm::start().await;
        let program = place.run(&crm.url(), &flags);
        switch.subscribed(1).await;
        let scene = Self {
            name: format!("{} at {quarter}/4", recording.name),
            cut: (events.len() * quarter / 4).max(1),
            events,
            records: recording.cdr_records(),
            expected: recording.calls.clone(),
            crm,
            place,
            switch,
            flags,
            fault,
        };
        (scene, program)
    }

    /// Shifts the recording by whole seconds, so that it starts at this time.
    fn move_to(&mut self, begin: EventTime) {
        let seconds = (begin.micros() - micros(&self.events[0])).div_euclid(1_000_000);
        for text in self.events.iter_mut().chain(&mut self.records) {
            *text = move_times(text, seconds * 1_000_000);
        }
        for call in &mut self.expected {
            call.started_at += seconds;
        }
    }

    /// Writes a channel's CDR file if this event ends the channel.
    fn write_record(&self, event: &str) {
        let event: Value = serde_json::from_str(event).expect("JSON");
        if event["Event-Name"] != "CHANNEL_HANGUP_COMPLETE" {
            return;
        }
        let id = event["Unique-ID"].as_str().expect("an id");
        for record in &self.records {
            let read: Value = serde_json::from_str(record).expect("JSON");
            if read["variables"]["uuid"] == id {
                self.place.write(&format!("cdr/{id}.cdr.json"), record);
            }
        }
    }

    fn time_of(&self, event: &str) -> EventTime {
        EventTime::from_micros(micros(event))
    }

    /// Returns `true` for events between the kill and the end of the restart.
    fn is_missed(&self, event: &str) -> bool {
        self.time_of(event) < self.time_of(&self.events[self.cut]).plus(RESTART)
    }

    /// Plays the recording from this time on, with the fault, and returns all errors.
    async fn play(mut self, mut program: Program, begin: EventTime) -> Vec<String> {
        self.move_to(begin);
        let mut channels = Channels::default();
        let (first, second) = self.events.split_at(self.cut);
        self.send_events(first, &mut channels).await;
        let read = u64::try_from(first.len()).expect("few");
        program
            .until("the first part", |status| {
                status.sources[0].read + status.sources[0].skipped >= read
            })
            .await;
        if self.fault == Fault::Frozen {
            self.play_frozen(&program, second, &mut channels).await;
            return self.collect_errors(program, 0.0).await;
        }
        program.kill().await;
        let missed = second
            .iter()
            .take_while(|event| self.is_missed(event))
            .count();
        for event in &second[..missed] {
            self.send_event(event, &mut channels).await;
        }
        channels.set_answers(&self.switch);
        let program = self.place.run(&self.crm.url(), &self.flags);
        self.switch.subscribed(2).await;
        // If a call ended during the restart, callbridge can't know when, and may assume that it
        // lasted until the end of the restart.
        let away = clock::now()
            .wall
            .since(self.time_of(&second[0]))
            .as_secs_f64();
        self.send_events(&second[missed..], &mut channels).await;
        self.collect_errors(program, away).await
    }

    /// Freezes the program, sends the events, and resumes the program after [`STANDSTILL`].
    async fn play_frozen(&self, program: &Program, events: &[String], channels: &mut Channels) {
        program.freeze().await;
        let freeze_end = clock::now().wall.plus(STANDSTILL);
        let during_freeze = events
            .iter()
            .take_while(|event| self.time_of(event) < freeze_end)
            .count();
        let (late, rest) = events.split_at(during_freeze);
        self.send_events(late, channels).await;
        pass(freeze_end.since(clock::now().wall)).await;
        program.signal(Signal::CONT);
        self.send_events(rest, channels).await;
    }

    /// Sends each event at its time.
    async fn send_events(&self, events: &[String], channels: &mut Channels) {
        for event in events {
            pass(self.time_of(event).since(clock::now().wall)).await;
            self.send_event(event, channels).await;
        }
    }

    /// Sends an event, and does whatever else FreeSWITCH would do at the same time.
    async fn send_event(&self, event: &str, channels: &mut Channels) {
        channels.apply(event);
        channels.set_answers(&self.switch);
        self.switch.event(event).await;
        self.write_record(event);
    }

    /// Waits for all calls to end and returns all errors. An incomplete call may have lower values.
    /// `away` is the length of the restart in seconds.
    async fn collect_errors(self, mut program: Program, away: f64) -> Vec<String> {
        let finished = u64::try_from(self.expected.len()).expect("few");
        program.settled(finished).await;
        program.terminate().await;
        let mut letters = self.place.letters().await;
        let mut expected = self.expected.clone();
        let mut wrong = Vec::new();
        if self.fault == Fault::Killed {
            letters.retain(|letter| {
                if letter["reason"] != "incomplete" {
                    return true;
                }
                let index = expected
                    .iter()
                    .position(|call| letter["linkedid"] == call.linkedid);
                let Some(index) = index else {
                    return true;
                };
                let call = expected.remove(index);
                wrong.extend(contradiction(&call, &letter["call"], away));
                false
            });
        }
        wrong.extend(crm::compare(&self.crm, &letters, &expected));
        wrong
            .into_iter()
            .map(|error| format!("{}: {error}", self.name))
            .collect()
    }
}

/// Returns `true` if the value is missing (i.e., not a number) or not greater than `most`.
fn is_absent_or_at_most(value: &Value, most: f64) -> bool {
    value.as_f64().is_none_or(|number| number <= most)
}

/// Returns an error if a dead letter contradicts the call. Its durations may be lower, because
/// events were missed, or up to `away` seconds higher.
fn contradiction(wanted: &Expected, call: &Value, away: f64) -> Option<String> {
    let is_right = call["direction"] == wanted.direction
        && call["startedAt"]
            .as_i64()
            .is_none_or(|start| start >= wanted.started_at)
        && is_absent_or_at_most(&call["durationSec"], wanted.duration + away + ROUNDED)
        && is_absent_or_at_most(&call["talkTimeSec"], wanted.talk + away + ROUNDED)
        && (wanted.answered || call["answered"] != true);
    (!is_right).then(|| format!("{wanted:?} is incomplete as {call}"))
}

/// Plays all recordings at the same time, with the fault after `quarter` quarters of the events,
/// and returns all errors.
async fn play_all(quarter: usize, fault: Fault) -> Vec<String> {
    let all = recordings();
    let scenes = all.iter();
    let scenes = join_all(scenes.map(|recording| Scene::new(recording, quarter, fault))).await;
    let begin = clock::now().wall.plus(LEAD_IN);
    let scenes = scenes.into_iter();
    let scenes = scenes.map(|(scene, program)| scene.play(program, begin));
    join_all(scenes).await.concat()
}

/// Plays all recordings with the fault at each quarter of the events. By default, only plays them
/// with the fault in the middle.
async fn check_fault(fault: Fault) {
    let is_full = std::env::var_os(late::FULL).is_some();
    let mut wrong = Vec::new();
    for quarter in if is_full { 1..4 } else { 2..3 } {
        wrong.extend(play_all(quarter, fault).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn restart_in_each_call_on_event_socket_makes_no_wrong_call() {
    check_fault(Fault::Killed).await;
}

#[tokio::test]
async fn restart_in_each_call_is_repaired_from_freeswitch_cdr() {
    check_fault(Fault::KilledWithRecords).await;
}

#[tokio::test]
async fn freeze_in_each_call_on_event_socket_changes_no_call() {
    check_fault(Fault::Frozen).await;
}
