//! Tests calls whose messages a broker kept while callbridge or the broker was away. Each call is
//! journaled correctly, however late.
//!
//! ```text
//!          live            T          away          back
//!  ────────────────────────┤░░░░░░░░░░░░░░░░░░░░░░░░├──────────▶  our clock
//!  every recording is moved so that a quarter of its messages, or two or three, are sent before T;
//!  messages of the time between T and "back" arrive late
//! ```

use crate::e2e::calls::every_recording::told_by_cel;
use crate::e2e::calls::freeswitch::{self, micros, moved};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program, preload};
use crate::support::recordings::{self, LEADS, Recording};
use callbridge_call::EventTime;
use callbridge_model::clock;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::Server;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::expected::Expected;
use callbridge_testbed::switch::{self, FakeSwitch};
use callbridge_testbed::wait::pass;
use futures_util::future::join_all;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// If this variable is set, every moment and outage length is tried, and a quiet FreeSWITCH is
/// watched for ten minutes instead of one second. `tests/run late` does this and takes most of an
/// hour.
pub const FULL: &str = "CALLBRIDGE_LATE_FULL";
/// Seconds in an hour. The tests set the clocks forward instead of waiting.
const HOUR: u64 = 3600;

/// The id of the recorded FreeSWITCH process.
const CORE: &str = "00bff2bc-2d37-46ec-b361-c093dd40feab";

/// Programs that run at the same time. More would overload the machine.
const AT_ONCE: usize = 12;
/// Time for the programs to start. It is also longer than most recordings take until their cut.
const LEAD_IN: Duration = Duration::from_secs(45);
/// The same time for few programs. Earlier messages are sent at once.
const LEAD_IN_OF_FEW: Duration = Duration::from_secs(6);

/// A message and its time.
type Message = (EventTime, String);

/// The messages of some calls in one format.
struct Tale {
    format: &'static str,
    messages: Vec<Message>,
    expected: Vec<Expected>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Killed,
    /// Killed while it reads the messages after T.
    Midway,
    Stopped,
    Broker,
}

fn now() -> EventTime {
    clock::now().wall
}

async fn until(moment: EventTime) {
    pass(moment.since(now())).await;
}

/// Returns the recordings of a FreeSWITCH, each with its cut at T.
fn of_freeswitch(quarter: usize, t: EventTime) -> Tale {
    let mut tale = Tale {
        format: "freeswitch",
        messages: Vec::new(),
        expected: Vec::new(),
    };
    for (n, recording) in freeswitch::recordings().iter().enumerate() {
        // Each recording is moved separately, so each gets its own FreeSWITCH.
        let own = |body: String| body.replace(CORE, &format!("{n:08}-core"));
        let told: Vec<String> = recording.published().into_iter().map(own).collect();
        let cut = micros(&told[told.len() * quarter / 4]);
        let by = t.micros() - cut;
        let bodies = told.iter().map(|body| moved(body, by));
        let timed = bodies.map(|body| (EventTime::from_micros(micros(&body)), body));
        let messages: Vec<Message> = timed.collect();
        for call in &recording.calls {
            let born = |(_, body): &&Message| {
                body.contains("\"CHANNEL_CREATE\"") && body.contains(&call.linkedid)
            };
            let event = messages.iter().find(born).expect("its first channel");
            let event: Value = serde_json::from_str(&event.1).expect("JSON");
            let created = event["Caller-Channel-Created-Time"].as_str();
            let created: i64 = created.expect("a time").parse().expect("microseconds");
            tale.expected.push(Expected {
                started_at: created / 1_000_000,
                ..call.clone()
            });
        }
        tale.messages.extend(messages);
    }
    tale
}

/// Returns groups of Asterisk recordings that share no id, each with its cut less than a second
/// before T.
fn of_asterisk(format: &'static str, quarter: usize, t: EventTime) -> Vec<Tale> {
    let mut all = recordings::all();
    all.retain(|it| format == "wazo" || it.is_told_by_cel());
    let told = |group: Vec<Recording>| {
        let mut tale = Tale {
            format,
            messages: Vec::new(),
            expected: Vec::new(),
        };
        for (n, recording) in group.into_iter().enumerate() {
            // Each recording is moved separately, so each gets its own Asterisk. Otherwise, an id
            // with a later second and a lower counter would prove a restart.
            let recording = recording.of_system(&format!("pbx{n}"));
            let told = recording.timed(format);
            let cut = told[told.len() * quarter / 4].0;
            let by = (t.micros() - cut.micros()).div_euclid(1_000_000);
            let moved = recording.moved_to(recording.began() + by);
            tale.messages.extend(moved.timed(format));
            tale.expected.extend(match format {
                "wazo" => recordings::expected(std::slice::from_ref(&moved)),
                _ => told_by_cel(&moved),
            });
        }
        tale
    };
    recordings::at_once(all).into_iter().map(told).collect()
}

/// A tale and the callbridge that reads it. callbridge is away for `seconds` seconds from T on.
struct Scene {
    place: Place,
    crm: Server,
    flags: Vec<String>,
    queue: String,
    tale: Tale,
    away: Away,
    t: EventTime,
    seconds: u64,
}

impl Scene {
    async fn new(
        mut tale: Tale,
        broker: &Broker,
        case: (Away, EventTime, u64),
        name: &str,
    ) -> Self {
        tale.messages.sort_by_key(|(at, _)| *at);
        let (away, t, seconds) = case;
        let place = Place::new();
        let queue = format!("late-{name}-{away:?}-{seconds}");
        broker.declare(&queue).await;
        let secret = place.write("secret", broker::SECRET);
        let (base, format) = (broker.url(broker::ADMINISTRATOR), tale.format);
        let source = format!("--source={base}?queue={queue}&format={format}&secret-file={secret}");
        let mut flags = vec![source, RATE_FLAG.to_owned()];
        let leads = format!("--lead=csv:{}", place.write("leads.csv", LEADS));
        let trunks = ["--trunk=city=PJSIP/city", "--trunk=gsm=PJSIP/gsm"];
        let cel = [&trunks[..], &["--country=UZ", "--strip=9", &leads]].concat();
        let more = match format {
            "freeswitch" => freeswitch::TRUNKS.to_vec(),
            "wazo" => recordings::TRUNKS.to_vec(),
            _ => cel,
        };
        flags.extend(more.into_iter().map(str::to_owned));
        Self {
            place,
            crm: writing_at_once().await,
            flags,
            queue,
            tale,
            away,
            t,
            seconds,
        }
    }

    /// Starts the program with its time since boot `ahead` seconds ahead.
    fn run(&self, ahead: u64) -> Program {
        let arguments = self.place.arguments(&self.crm.url(), &self.flags);
        let library = preload(&self.place, "clock.c");
        let clock = self.place.path("clock");
        let variables = [("LD_PRELOAD", library.as_str()), ("TEST_CLOCK", &clock)];
        // Only root can set the time since boot for one process.
        if ahead == 0 || !rustix::process::geteuid().is_root() {
            return self.place.start(&arguments, &variables);
        }
        let ahead = ahead.to_string();
        let since_boot = ["--boottime", &ahead, "--monotonic", &ahead];
        let wrapper = [&["/usr/bin/unshare", "--time"], &since_boot[..], &["--"]].concat();
        self.place.start_under(&wrapper, &arguments, &variables)
    }

    /// Sets the program's wall clock one hour ahead.
    fn an_hour_passes(&self) {
        self.place.write("clock", format!("-{HOUR}"));
    }

    /// Sends the messages as they happen. Messages of the past are sent at once.
    async fn tells(&self, broker: &Broker, messages: &[Message]) {
        let mut rest = messages;
        while let Some(&(next, _)) = rest.first() {
            if self.seconds < HOUR || next < self.t {
                until(next).await;
            }
            let due = if next < self.t {
                now()
            } else {
                next.max(now())
            };
            let come = rest.iter().take_while(|(at, _)| *at <= due).count();
            let bodies: Vec<&String> = rest[..come].iter().map(|(_, body)| body).collect();
            broker.publish(&self.queue, &bodies).await;
            rest = &rest[come..];
        }
    }

    /// Plays the scene and returns all errors in its calls.
    async fn plays(self, broker: &Broker, gone: &tokio::sync::Barrier) -> Vec<String> {
        let before = self.tale.messages.iter().take_while(|(at, _)| *at < self.t);
        let (first, second) = self.tale.messages.split_at(before.count());
        let mut program = self.run(0);
        program
            .until("a line", |it| it.sources[0].state.is_up())
            .await;
        self.tells(broker, first).await;
        let read = u64::try_from(first.len()).expect("few");
        let all =
            |it: &callbridge_model::Status| it.sources[0].read + it.sources[0].skipped >= read;
        program.until("the first part", all).await;
        until(self.t).await;
        let back = self.t.plus(Duration::from_secs(self.seconds));
        let (told, is_hour) = (self.tells(broker, second), self.seconds == HOUR);
        let ended = async {
            match self.away {
                Away::Killed | Away::Midway => program.kill().await,
                Away::Stopped => program.terminate().await,
                Away::Broker => {
                    gone.wait().await;
                    // The broker stops and comes back.
                    gone.wait().await;
                    return Some(program);
                }
            }
            None
        };
        let program = match (self.away, is_hour) {
            (Away::Broker, _) => {
                let program = ended.await;
                if is_hour {
                    self.an_hour_passes();
                }
                told.await;
                program
            }
            (Away::Killed | Away::Stopped, true) => {
                ended.await;
                told.await;
                self.an_hour_passes();
                None
            }
            (Away::Midway, true) => {
                told.await;
                ended.await;
                self.an_hour_passes();
                None
            }
            (_, false) => {
                let away = async {
                    ended.await;
                    until(back).await;
                    self.run(0)
                };
                Some(tokio::join!(told, away).1)
            }
        };
        let mut program = program.unwrap_or_else(|| self.run(HOUR));
        let finished = u64::try_from(self.tale.expected.len()).expect("few");
        program.settled(finished).await;
        program.terminate().await;
        let letters = self.place.letters().await;
        let wrong = crm::compare(&self.crm, &letters, &self.tale.expected).into_iter();
        let queue = &self.queue;
        wrong.map(|words| format!("{queue}: {words}")).collect()
    }
}

/// Starts a CRM that journals without delay. The hour does not pass for it, so a call that was
/// accepted just before a kill must be in the journal when callbridge is back.
async fn writing_at_once() -> Server {
    let mut config = crm::settings();
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    sandbox::start(config).await.expect("a sandbox")
}

/// Plays the scenes at the same time and returns all errors. A broker that goes away is used only
/// by them.
async fn play(broker: Arc<Broker>, scenes: Vec<Scene>) -> Vec<String> {
    let first = scenes.first().expect("a scene");
    let (away, t, seconds) = (first.away, first.t, first.seconds);
    let gone = tokio::sync::Barrier::new(scenes.len() + 1);
    let restarts = async {
        if away != Away::Broker {
            return;
        }
        gone.wait().await;
        let node = Arc::clone(&broker);
        let stops = move || node.stop();
        tokio::task::spawn_blocking(stops).await.expect("stopped");
        if seconds != HOUR {
            until(t.plus(Duration::from_secs(seconds))).await;
        }
        let node = Arc::clone(&broker);
        let starts = move || node.start_again();
        tokio::task::spawn_blocking(starts).await.expect("there");
        gone.wait().await;
    };
    let plays = scenes.into_iter().map(|scene| scene.plays(&broker, &gone));
    let (wrong, ()) = tokio::join!(join_all(plays), restarts);
    wrong.concat()
}

/// Returns the tales of this format. At most `quarter` quarters of the messages come before T.
fn tales(format: &'static str, quarter: usize, t: EventTime) -> Vec<Tale> {
    match format {
        "freeswitch" => vec![of_freeswitch(quarter, t)],
        _ => of_asterisk(format, quarter, t),
    }
}

/// Plays every recording with its cut at each quarter. By default, it plays only one group at the
/// first quarter, an hour late, with the program killed midway or stopped.
async fn every(format: &'static str) {
    let is_full = std::env::var_os(FULL).is_some();
    let mut wrong = Vec::new();
    let broker = Arc::new(Broker::start());
    let groups = tales(format, 1, now()).len();
    let aways = [
        (Away::Killed, &[7, 60, HOUR][..]),
        (Away::Midway, &[HOUR]),
        (Away::Stopped, &[7, 60, HOUR]),
        (Away::Broker, &[7]),
        (Away::Broker, &[60]),
        (Away::Broker, &[HOUR]),
    ];
    let (aways, quarters, groups, lead_in) = match is_full {
        true => (&aways[..], 1..4, groups, LEAD_IN),
        false => (&aways[1..3], 1..2, 1, LEAD_IN_OF_FEW),
    };
    for &(away, seconds) in aways {
        let seconds = if is_full { seconds } else { &[HOUR] };
        let each = |quarter| (0..groups).map(move |group| (quarter, group));
        let cases = quarters.clone().flat_map(each);
        let cases = cases.flat_map(|it| seconds.iter().map(move |seconds| (it, *seconds)));
        let cases: Vec<_> = cases.collect();
        for cases in cases.chunks(AT_ONCE) {
            let t = now().plus(lead_in);
            let mut scenes = Vec::new();
            for &((quarter, group), seconds) in cases {
                let tale = tales(format, quarter, t).swap_remove(group);
                let name = format!("{format}-{quarter}-{group}");
                scenes.push(Scene::new(tale, &broker, (away, t, seconds), &name).await);
            }
            let calls: usize = scenes.iter().map(|it| it.tale.expected.len()).sum();
            let found = play(Arc::clone(&broker), scenes).await;
            let (runs, faults) = (cases.len(), found.len());
            println!("{format} {away:?} {seconds:?} s: {calls} calls, {runs} runs, {faults} wrong");
            wrong.extend(found);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn late_freeswitch_messages_give_correct_calls() {
    every("freeswitch").await;
}

#[tokio::test]
async fn late_wazo_messages_give_correct_calls() {
    every("wazo").await;
}

#[tokio::test]
async fn late_cel_messages_give_correct_calls() {
    every("asterisk-cel").await;
}

/// Returns a heartbeat of FreeSWITCH.
fn beat(number: u64) -> String {
    let at = now().micros();
    let uptime = 3_600_000 + at / 1000 % 1_000_000_000;
    serde_json::json!({
        "Event-Name": "HEARTBEAT", "Core-UUID": CORE,
        "FreeSWITCH-Hostname": "vm", "FreeSWITCH-Switchname": "vm",
        "Event-Date-Timestamp": at.to_string(), "Event-Sequence": (13_367 + number).to_string(),
        "Event-Info": "System Ready", "Uptime-msec": uptime.to_string(), "Session-Count": "0",
    })
    .to_string()
}

#[tokio::test]
async fn switch_without_calls_is_ok() {
    let apart = match std::env::var_os(FULL) {
        Some(_) => Duration::from_secs(20),
        None => Duration::from_millis(50),
    };
    let (broker, queue) = (Broker::shared(), "quiet");
    broker.declare(queue).await;
    let (place, other) = (Place::new(), Place::new());
    let (crm, switch) = (crm::start().await, FakeSwitch::start().await);
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let amqp = format!("--source={base}?queue={queue}&format=freeswitch&secret-file={secret}");
    let secret = other.write("secret", switch::PASSWORD);
    let esl = format!("--source=esl://{}?secret-file={secret}", switch.addr());
    let trunks = freeswitch::TRUNKS;
    let programs = [(&place, amqp), (&other, esl)]
        .map(|(place, source)| place.run(&crm.url(), &[&source, trunks[0], trunks[1], RATE_FLAG]));
    switch.subscribed(1).await;
    let mut programs = programs;
    for program in &mut programs {
        program
            .until("a line", |it| it.sources[0].state.is_up())
            .await;
    }
    for number in 0..=30 {
        let beat = beat(number);
        broker.publish(queue, &[&beat]).await;
        switch.event(&beat).await;
        for (place, program) in [&place, &other].into_iter().zip(&mut programs) {
            let heard = |it: &callbridge_model::Status| it.sources[0].read > number;
            program.until("the sign of life", heard).await;
            let asked = place.command(&["status", "--exit-code"]).await;
            let words = String::from_utf8_lossy(&asked.stdout);
            assert_eq!(asked.status.code(), Some(0), "after {number}: {words}");
        }
        pass(apart).await;
    }
    for program in programs {
        program.terminate().await;
    }
}
