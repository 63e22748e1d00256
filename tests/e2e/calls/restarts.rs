//! callbridge is killed inside each call of a FreeSWITCH and restarted at once. With only the event
//! socket, each call is correct or reported as incomplete. With FreeSWITCH's own records too, each
//! call is journaled correctly. The same holds if callbridge is frozen for some seconds.

use crate::e2e::calls::freeswitch::{Recording, TRUNKS, micros, moved, recordings};
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

/// Time from the connection of all programs until the first calls.
const LEAD_IN: Duration = Duration::from_secs(1);
/// Length of a restart. Events in this time are not received.
const RESTART: Duration = Duration::from_millis(100);
/// Length of a freeze. It is longer than the allowed difference of clocks.
const STANDSTILL: Duration = Duration::from_secs(7);
/// The journal has whole seconds, so values can differ by this many seconds.
const ROUNDED: f64 = 1.0;

/// The live channels, as FreeSWITCH would list and dump them.
#[derive(Default)]
struct Channels {
    live: BTreeMap<String, Value>,
    /// FreeSWITCH's time, in microseconds: the time of its last event, even if the test is late.
    at: Value,
}

impl Channels {
    fn takes(&mut self, event: &str) {
        let event: Value = serde_json::from_str(event).expect("JSON");
        let Some(id) = event["Unique-ID"].as_str() else {
            return;
        };
        self.at = event["Event-Date-Timestamp"].clone();
        if event["Event-Name"] == "CHANNEL_HANGUP_COMPLETE" {
            self.live.remove(id);
            return;
        }
        let sides = ["Bridge-A-Unique-ID", "Bridge-B-Unique-ID"].map(|it| event[it].as_str());
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

    fn show(&self, switch: &FakeSwitch) {
        for (id, event) in &self.live {
            let mut dump = event.clone();
            dump["Event-Name"] = json!("CHANNEL_DATA");
            dump["Event-Date-Timestamp"] = self.at.clone();
            switch.answers(&format!("uuid_dump {id} json"), &dump.to_string());
        }
        let row = |(id, event): (&String, &Value)| {
            let name = &event["Channel-Name"];
            json!({"uuid": id, "name": name, "direction": event["Call-Direction"]})
        };
        let rows: Vec<Value> = self.live.iter().map(row).collect();
        let list = json!({"row_count": rows.len(), "rows": rows});
        switch.answers("show channels as json", &list.to_string());
    }
}

/// What happens to callbridge before one of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is killed and restarted.
    Killed,
    /// It is killed and restarted, and FreeSWITCH writes records.
    KilledBesideRecords,
    /// It is stopped by SIGSTOP and continues after some seconds.
    StandsStill,
}

/// A recording that is played from a given time, with a fault in it.
struct Scene {
    name: String,
    place: Place,
    crm: Server,
    switch: FakeSwitch,
    flags: Vec<String>,
    events: Vec<String>,
    records: Vec<String>,
    expected: Vec<Expected>,
    cut: usize,
    fault: Fault,
}

impl Scene {
    /// Reads the recording and starts a callbridge that listens.
    async fn new(recording: &Recording, quarter: usize, fault: Fault) -> (Self, Program) {
        let (place, switch) = (Place::new(), FakeSwitch::start().await);
        let events = recording.told();
        let secret = place.write("secret", switch::PASSWORD);
        std::fs::create_dir(place.at("cdr")).expect("a folder");
        let source = format!("--source=esl://{}?secret-file={secret}", switch.addr());
        let mut flags = vec![source, RATE_FLAG.to_owned()];
        flags.extend(TRUNKS.map(str::to_owned));
        if fault == Fault::KilledBesideRecords {
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
            records: recording.written(),
            expected: recording.calls.clone(),
            crm,
            place,
            switch,
            flags,
            fault,
        };
        (scene, program)
    }

    /// Moves the whole recording by whole seconds.
    fn begin(&mut self, at: EventTime) {
        let seconds = (at.micros() - micros(&self.events[0])).div_euclid(1_000_000);
        for text in self.events.iter_mut().chain(&mut self.records) {
            *text = moved(text, seconds * 1_000_000);
        }
        for call in &mut self.expected {
            call.started_at += seconds;
        }
    }

    /// Writes the record of a channel that has just ended, as FreeSWITCH does.
    fn writes(&self, event: &str) {
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

    /// Returns the time of this event.
    fn at(&self, event: &str) -> EventTime {
        EventTime::from_micros(micros(event))
    }

    /// Returns `true` for events between the kill and the end of the restart.
    fn is_missed(&self, event: &str) -> bool {
        self.at(event) < self.at(&self.events[self.cut]).plus(RESTART)
    }

    async fn plays(mut self, mut program: Program, begins: EventTime) -> Vec<String> {
        self.begin(begins);
        let mut channels = Channels::default();
        let (first, second) = self.events.split_at(self.cut);
        self.happen(first, &mut channels).await;
        let read = u64::try_from(first.len()).expect("few");
        let all =
            |it: &callbridge_model::Status| it.sources[0].read + it.sources[0].skipped >= read;
        program.until("the first part", all).await;
        if self.fault == Fault::StandsStill {
            self.stands_still(&program, second, &mut channels).await;
            return self.judged(program, 0.0).await;
        }
        program.kill().await;
        let missed = second.iter().take_while(|it| self.is_missed(it)).count();
        for event in &second[..missed] {
            self.happens(event, &mut channels).await;
        }
        channels.show(&self.switch);
        let program = self.place.run(&self.crm.url(), &self.flags);
        self.switch.subscribed(2).await;
        // callbridge cannot know when a call ended that was over by then. It can assume that it
        // lasted until then.
        let away = clock::now().wall.since(self.at(&second[0])).as_secs_f64();
        self.happen(&second[missed..], &mut channels).await;
        self.judged(program, away).await
    }

    /// Freezes the program. Events of this time arrive late.
    async fn stands_still(&self, program: &Program, events: &[String], channels: &mut Channels) {
        program.freeze().await;
        let goes_on = clock::now().wall.plus(STANDSTILL);
        let meanwhile = events.iter().take_while(|it| self.at(it) < goes_on).count();
        let (late, rest) = events.split_at(meanwhile);
        self.happen(late, channels).await;
        pass(goes_on.since(clock::now().wall)).await;
        program.signal(Signal::CONT);
        self.happen(rest, channels).await;
    }

    /// Sends each event at its time.
    async fn happen(&self, events: &[String], channels: &mut Channels) {
        for event in events {
            pass(self.at(event).since(clock::now().wall)).await;
            self.happens(event, channels).await;
        }
    }

    async fn happens(&self, event: &str, channels: &mut Channels) {
        channels.takes(event);
        channels.show(&self.switch);
        self.switch.event(event).await;
        self.writes(event);
    }

    /// Returns all errors. For an incomplete call, only its customer values are checked.
    async fn judged(self, mut program: Program, away: f64) -> Vec<String> {
        let finished = u64::try_from(self.expected.len()).expect("few");
        program.settled(finished).await;
        program.terminate().await;
        let mut letters = self.place.letters().await;
        let mut whole = self.expected.clone();
        let mut wrong = Vec::new();
        if self.fault == Fault::Killed {
            letters.retain(|letter| {
                let is_incomplete = letter["reason"] == "incomplete";
                let call = whole
                    .iter()
                    .position(|it| letter["linkedid"] == it.linkedid);
                match call.filter(|_| is_incomplete) {
                    Some(at) => wrong.extend(untrue(&whole.remove(at), &letter["call"], away)),
                    None => return true,
                }
                false
            });
        }
        wrong.extend(crm::compare(&self.crm, &letters, &whole));
        wrong
            .into_iter()
            .map(|it| format!("{}: {it}", self.name))
            .collect()
    }
}

/// Returns the error if a dead letter contradicts the call, whatever events were missed.
fn untrue(wanted: &Expected, call: &Value, away: f64) -> Option<String> {
    let at_most = |key: &str, most: f64| {
        let value = call[key].as_f64();
        value.is_none_or(|it| it <= most + away + ROUNDED)
    };
    let is_right = call["direction"] == wanted.direction
        && call["startedAt"]
            .as_i64()
            .is_none_or(|it| it >= wanted.started_at)
        && at_most("durationSec", wanted.duration)
        && at_most("talkTimeSec", wanted.talk)
        && (wanted.answered || call["answered"] != true);
    (!is_right).then(|| format!("{wanted:?} is incomplete as {call}"))
}

/// Plays all recordings at the same time, with the fault at this quarter.
async fn all(quarter: usize, fault: Fault) -> Vec<String> {
    let recordings = recordings();
    let scenes = recordings.iter();
    let scenes = join_all(scenes.map(|it| Scene::new(it, quarter, fault))).await;
    let begins = clock::now().wall.plus(LEAD_IN);
    let scenes = scenes.into_iter();
    let scenes = scenes.map(|(scene, program)| scene.plays(program, begins));
    join_all(scenes).await.concat()
}

/// Plays the fault at each quarter of the messages. By default, only at the half.
async fn every(fault: Fault) {
    let is_full = std::env::var_os(late::FULL).is_some();
    let mut wrong = Vec::new();
    for quarter in if is_full { 1..4 } else { 2..3 } {
        wrong.extend(all(quarter, fault).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn restart_in_each_call_on_event_socket_makes_no_wrong_call() {
    every(Fault::Killed).await;
}

#[tokio::test]
async fn restart_in_each_call_is_repaired_from_freeswitch_cdr() {
    every(Fault::KilledBesideRecords).await;
}

#[tokio::test]
async fn freeze_in_each_call_on_event_socket_changes_no_call() {
    every(Fault::StandsStill).await;
}
