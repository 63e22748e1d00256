//! Tests calls whose messages were kept by a broker while callbridge or the broker was down. Each
//! call must be journaled correctly, no matter how late.
//!
//! ```text
//!          live            T          down          back
//!  ────────────────────────┤░░░░░░░░░░░░░░░░░░░░░░░░├──────────▶  our clock
//!  one, two, or three quarters of each recording's messages are sent before T,
//!  and messages between T and "back" arrive late
//! ```

use crate::e2e::calls::every_recording::calls_in_cel;
use crate::e2e::calls::freeswitch::{self, micros, move_times};
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

/// If this environment variable is set, every moment and outage length is tried, and a silent
/// FreeSWITCH is watched for ten minutes instead of one second. `tests/run late` does this, which
/// takes most of an hour.
pub const FULL: &str = "CALLBRIDGE_LATE_FULL";
/// Number of seconds in an hour. The tests set the clocks forward instead of waiting.
const HOUR: u64 = 3600;

/// The recorded FreeSWITCH process's ID.
const CORE: &str = "00bff2bc-2d37-46ec-b361-c093dd40feab";

/// Number of programs to run at the same time. More than that would overload the machine.
const AT_ONCE: usize = 12;
/// Time for the programs to start. Most recordings take less time than that to get to their cut at
/// T.
const LEAD_IN: Duration = Duration::from_secs(45);
/// Time for a small number of programs to start. Messages that are due earlier are sent right away.
const LEAD_IN_OF_FEW: Duration = Duration::from_secs(6);

/// A message's time and text.
type Message = (EventTime, String);

/// The messages for some calls in one format, along with the expected calls.
struct Script {
    format: &'static str,
    messages: Vec<Message>,
    expected: Vec<Expected>,
}

/// Why messages arrive late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Killed,
    /// callbridge is killed while it's reading the messages after T.
    Midway,
    Stopped,
    Broker,
}

fn now() -> EventTime {
    clock::now().wall
}

async fn wait_until(moment: EventTime) {
    pass(moment.since(now())).await;
}

/// Returns all FreeSWITCH recordings, each with `quarter` quarters of its messages before T.
fn freeswitch_script(quarter: usize, t: EventTime) -> Script {
    let mut script = Script {
        format: "freeswitch",
        messages: Vec::new(),
        expected: Vec::new(),
    };
    for (n, recording) in freeswitch::recordings().iter().enumerate() {
        // Each recording is shifted separately, so each gets a FreeSWITCH of its own.
        let core = format!("{n:08}-core");
        let recorded = recording.amqp_bodies().into_iter();
        let recorded: Vec<String> = recorded.map(|body| body.replace(CORE, &core)).collect();
        let cut = micros(&recorded[recorded.len() * quarter / 4]);
        let by = t.micros() - cut;
        let bodies = recorded.iter().map(|body| move_times(body, by));
        let timed = bodies.map(|body| (EventTime::from_micros(micros(&body)), body));
        let messages: Vec<Message> = timed.collect();
        for call in &recording.calls {
            let event = messages.iter().find(|(_, body)| {
                body.contains("\"CHANNEL_CREATE\"") && body.contains(&call.linkedid)
            });
            let (_, event) = event.expect("its first channel");
            let event: Value = serde_json::from_str(event).expect("JSON");
            let created = event["Caller-Channel-Created-Time"].as_str();
            let created: i64 = created.expect("a time").parse().expect("microseconds");
            script.expected.push(Expected {
                started_at: created / 1_000_000,
                ..call.clone()
            });
        }
        script.messages.extend(messages);
    }
    script
}

/// Returns the messages for recorded Asterisk calls, in groups whose calls don't share any IDs. For
/// each call, `quarter` quarters of the messages come before T, the last of them less than a second
/// before it.
fn asterisk_scripts(format: &'static str, quarter: usize, t: EventTime) -> Vec<Script> {
    let mut all = recordings::all();
    all.retain(|recording| format == "wazo" || recording.is_in_cel());
    recordings::simultaneous(all)
        .iter()
        .map(|group| asterisk_script(format, quarter, t, group))
        .collect()
}

/// Returns the messages for one group of recorded calls, sent by a fake Asterisk. See
/// [`asterisk_scripts`] for `quarter` and `t`.
fn asterisk_script(
    format: &'static str,
    quarter: usize,
    t: EventTime,
    group: &[Recording],
) -> Script {
    let mut script = Script {
        format,
        messages: Vec::new(),
        expected: Vec::new(),
    };
    for (n, recording) in group.iter().enumerate() {
        // Each recording is shifted separately, so each gets an Asterisk of its own. Otherwise, an
        // ID with a later second but a lower counter would prove a restart.
        let recording = recording.with_system_name(&format!("pbx{n}"));
        let recorded = recording.timed(format);
        let cut = recorded[recorded.len() * quarter / 4].0;
        let by = (t.micros() - cut.micros()).div_euclid(1_000_000);
        let moved_recording = recording.moved_to(recording.start() + by);
        script.messages.extend(moved_recording.timed(format));
        script.expected.extend(match format {
            "wazo" => recordings::expected(std::slice::from_ref(&moved_recording)),
            _ => calls_in_cel(&moved_recording),
        });
    }
    script
}

/// A script and the callbridge that reads its messages. From T on, callbridge or the broker is down
/// for `seconds` seconds.
struct Scene {
    place: Place,
    crm: Server,
    flags: Vec<String>,
    queue: String,
    script: Script,
    away: Away,
    t: EventTime,
    seconds: u64,
}

impl Scene {
    /// Creates a scene. `case` consists of the reason for the outage, T, and the outage's length in
    /// seconds.
    async fn new(
        mut script: Script,
        broker: &Broker,
        case: (Away, EventTime, u64),
        name: &str,
    ) -> Self {
        script.messages.sort_by_key(|(at, _)| *at);
        let (away, t, seconds) = case;
        let place = Place::new();
        let queue = format!("late-{name}-{away:?}-{seconds}");
        broker.declare(&queue).await;
        let secret = place.write("secret", broker::SECRET);
        let (base, format) = (broker.url(broker::ADMINISTRATOR), script.format);
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
            crm: start_immediate_crm().await,
            flags,
            queue,
            script,
            away,
            t,
            seconds,
        }
    }

    /// Starts the program with a time since boot that's `ahead` seconds ahead.
    fn run(&self, ahead: u64) -> Program {
        let arguments = self.place.arguments(&self.crm.url(), &self.flags);
        let library = preload(&self.place, "clock.c");
        let clock = self.place.path("clock");
        let variables = [("LD_PRELOAD", library.as_str()), ("TEST_CLOCK", &clock)];
        // Only root can set the time since boot for a single process.
        if ahead == 0 || !rustix::process::geteuid().is_root() {
            return self.place.start(&arguments, &variables);
        }
        let ahead = ahead.to_string();
        let since_boot = ["--boottime", &ahead, "--monotonic", &ahead];
        let wrapper = [&["/usr/bin/unshare", "--time"], &since_boot[..], &["--"]].concat();
        self.place.start_under(&wrapper, &arguments, &variables)
    }

    /// Sets the program's wall clock ahead by one hour.
    fn advance_clock(&self) {
        self.place.write("clock", format!("-{HOUR}"));
    }

    /// Sends each message when it's due. If the outage lasts an hour, the messages after T are sent
    /// right away.
    async fn publish(&self, broker: &Broker, messages: &[Message]) {
        let mut rest = messages;
        while let Some(&(next, _)) = rest.first() {
            if self.seconds < HOUR || next < self.t {
                wait_until(next).await;
            }
            let due = if next < self.t {
                now()
            } else {
                next.max(now())
            };
            let count = rest.iter().take_while(|(at, _)| *at <= due).count();
            let bodies: Vec<&String> = rest[..count].iter().map(|(_, body)| body).collect();
            broker.publish(&self.queue, &bodies).await;
            rest = &rest[count..];
        }
    }

    /// Plays the scene and returns all errors in its calls. The scene waits twice at the barrier
    /// `gone`, first before the broker is stopped, and then until it's back.
    async fn play(self, broker: &Broker, gone: &tokio::sync::Barrier) -> Vec<String> {
        let first = self
            .script
            .messages
            .iter()
            .take_while(|(at, _)| *at < self.t);
        let (first, second) = self.script.messages.split_at(first.count());
        let mut program = self.run(0);
        program
            .until("a connected source", |status| {
                status.sources[0].state.is_up()
            })
            .await;
        self.publish(broker, first).await;
        let read = u64::try_from(first.len()).expect("few");
        program
            .until("the first part", |status| {
                status.sources[0].read + status.sources[0].skipped >= read
            })
            .await;
        wait_until(self.t).await;
        let back = self.t.plus(Duration::from_secs(self.seconds));
        let (send_late, is_hour) = (self.publish(broker, second), self.seconds == HOUR);
        let leave = async {
            match self.away {
                Away::Killed | Away::Midway => program.kill().await,
                Away::Stopped => program.terminate().await,
                Away::Broker => {
                    gone.wait().await;
                    // The broker is now stopped and restarted.
                    gone.wait().await;
                    return Some(program);
                }
            }
            None
        };
        let program = match (self.away, is_hour) {
            (Away::Broker, _) => {
                let program = leave.await;
                if is_hour {
                    self.advance_clock();
                }
                send_late.await;
                program
            }
            (Away::Killed | Away::Stopped, true) => {
                leave.await;
                send_late.await;
                self.advance_clock();
                None
            }
            (Away::Midway, true) => {
                send_late.await;
                leave.await;
                self.advance_clock();
                None
            }
            (_, false) => {
                let away = async {
                    leave.await;
                    wait_until(back).await;
                    self.run(0)
                };
                Some(tokio::join!(send_late, away).1)
            }
        };
        let mut program = program.unwrap_or_else(|| self.run(HOUR));
        let finished = u64::try_from(self.script.expected.len()).expect("few");
        program.settled(finished).await;
        program.terminate().await;
        let letters = self.place.letters().await;
        let wrong = crm::compare(&self.crm, &letters, &self.script.expected).into_iter();
        let queue = &self.queue;
        wrong.map(|error| format!("{queue}: {error}")).collect()
    }
}

/// Starts a CRM that journals without delay. Since the tests don't advance its clock, a call that
/// was accepted just before a kill must be in the journal by the time callbridge is back.
async fn start_immediate_crm() -> Server {
    let mut config = crm::settings();
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    sandbox::start(config).await.expect("a sandbox")
}

/// Plays the scenes at the same time and returns all errors. Since the broker is stopped in some
/// cases, no other test uses it.
async fn play_all(broker: Arc<Broker>, scenes: Vec<Scene>) -> Vec<String> {
    let first = scenes.first().expect("a scene");
    let (away, t, seconds) = (first.away, first.t, first.seconds);
    let gone = tokio::sync::Barrier::new(scenes.len() + 1);
    let restart = async {
        if away != Away::Broker {
            return;
        }
        gone.wait().await;
        let node = Arc::clone(&broker);
        tokio::task::spawn_blocking(move || node.stop())
            .await
            .expect("stopped");
        if seconds != HOUR {
            wait_until(t.plus(Duration::from_secs(seconds))).await;
        }
        let node = Arc::clone(&broker);
        tokio::task::spawn_blocking(move || node.start_again())
            .await
            .expect("there");
        gone.wait().await;
    };
    let runs = scenes.into_iter().map(|scene| scene.play(&broker, &gone));
    let (wrong, ()) = tokio::join!(join_all(runs), restart);
    wrong.concat()
}

/// Returns the scripts in this format. At most `quarter` quarters of the messages come before T.
fn scripts(format: &'static str, quarter: usize, t: EventTime) -> Vec<Script> {
    match format {
        "freeswitch" => vec![freeswitch_script(quarter, t)],
        _ => asterisk_scripts(format, quarter, t),
    }
}

/// Plays every recording with the cut at each quarter. By default, only plays one group at the
/// first quarter, an hour late, with the program killed midway or stopped.
async fn check_format(format: &'static str) {
    let is_full = std::env::var_os(FULL).is_some();
    let mut wrong = Vec::new();
    let broker = Arc::new(Broker::start());
    let groups = scripts(format, 1, now()).len();
    let aways = [
        (Away::Killed, &[7, 60, HOUR][..]),
        (Away::Midway, &[HOUR]),
        (Away::Stopped, &[7, 60, HOUR]),
        (Away::Broker, &[7]),
        (Away::Broker, &[60]),
        (Away::Broker, &[HOUR]),
    ];
    let (aways, quarters, groups, lead_in) = if is_full {
        (&aways[..], 1..4, groups, LEAD_IN)
    } else {
        (&aways[1..3], 1..2, 1, LEAD_IN_OF_FEW)
    };
    for &(away, seconds) in aways {
        let seconds = if is_full { seconds } else { &[HOUR] };
        let mut cases = Vec::new();
        for quarter in quarters.clone() {
            for group in 0..groups {
                cases.extend(seconds.iter().map(|length| (quarter, group, *length)));
            }
        }
        for chunk in cases.chunks(AT_ONCE) {
            let t = now().plus(lead_in);
            let mut scenes = Vec::new();
            for &(quarter, group, seconds) in chunk {
                let script = scripts(format, quarter, t).swap_remove(group);
                let name = format!("{format}-{quarter}-{group}");
                scenes.push(Scene::new(script, &broker, (away, t, seconds), &name).await);
            }
            let calls: usize = scenes.iter().map(|scene| scene.script.expected.len()).sum();
            let found = play_all(Arc::clone(&broker), scenes).await;
            let (runs, faults) = (chunk.len(), found.len());
            println!("{format} {away:?} {seconds:?} s: {calls} calls, {runs} runs, {faults} wrong");
            wrong.extend(found);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn late_freeswitch_messages_produce_correct_calls() {
    check_format("freeswitch").await;
}

#[tokio::test]
async fn late_wazo_messages_produce_correct_calls() {
    check_format("wazo").await;
}

#[tokio::test]
async fn late_cel_messages_produce_correct_calls() {
    check_format("asterisk-cel").await;
}

/// Returns a FreeSWITCH heartbeat event. A higher `number` results in a higher sequence number.
fn heartbeat(number: u64) -> String {
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
async fn switch_with_only_heartbeats_keeps_status_ok() {
    let pause = match std::env::var_os(FULL) {
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
            .until("a connected source", |status| {
                status.sources[0].state.is_up()
            })
            .await;
    }
    for number in 0..=30 {
        let event = heartbeat(number);
        broker.publish(queue, &[&event]).await;
        switch.event(&event).await;
        for (place, program) in [&place, &other].into_iter().zip(&mut programs) {
            program
                .until("the heartbeat", |status| status.sources[0].read > number)
                .await;
            let output = place.command(&["status", "--exit-code"]).await;
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(0), "after {number}: {text}");
        }
        pass(pause).await;
    }
    for program in programs {
        program.terminate().await;
    }
}
