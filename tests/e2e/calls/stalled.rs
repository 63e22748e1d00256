//! Tests stalled connections and a frozen callbridge. Although events arrive late, they have the
//! times at which they happened, so each call must be journaled correctly.

use crate::e2e::calls::late;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_call::EventTime;
use callbridge_model::clock;
use callbridge_sandbox::Server;
use callbridge_testbed::expected::{Expected, uuid};
use callbridge_testbed::pbx::{self, FakePbx};
use callbridge_testbed::wait::pass;
use futures_util::future::join_all;
use rustix::process::Signal;
use std::time::Duration;

/// A 17-second call with 16 seconds of talk time.
const RECORDING: &str = include_str!("../../recordings/field/asterisk-stalled-line/ami.raw");
const RECORDED_AT: f64 = 1_795_706_937.990_989;
/// The seconds of the call at which the connection stalls, which are before the first event, before
/// the answer, at the answer, during the conversation, and in the middle of the hangups.
const PLACES: [f64; 5] = [0.0, 0.5, 1.02, 9.0, 17.028];
/// Time from the last login until the first call.
const LEAD_IN: Duration = Duration::from_secs(2);

/// The connection over which a PBX reports its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Ami,
    WebSocket,
}

/// The conditions for one PBX's call.
#[derive(Clone, Copy, Debug)]
struct Case {
    transport: Transport,
    /// The second of the call at which the connection stalls, and the length of the stall in
    /// seconds.
    stall: (f64, f64),
    /// How many seconds the PBX's clock is ahead of this machine's.
    clock_ahead: f64,
    /// Time in seconds from the start of the scene until the call starts.
    delay: f64,
}

struct PlayingPbx {
    case: Case,
    number: usize,
    pbx: FakePbx,
}

/// An event, and the second of the call at which it happened.
struct RecordedEvent {
    second: f64,
    text: &'static str,
}

fn recorded_events() -> Vec<RecordedEvent> {
    let events = RECORDING
        .split("\r\n\r\n")
        .filter(|event| !event.trim().is_empty());
    let mut last = 0.0;
    let timed = events.map(|text| {
        let time = text
            .lines()
            .find_map(|line| line.strip_prefix("Timestamp: "));
        let time = time.map(|time| time.parse::<f64>().expect("a time") - RECORDED_AT);
        last = time.unwrap_or(last);
        RecordedEvent { second: last, text }
    });
    timed.collect()
}

impl PlayingPbx {
    async fn new(number: usize, case: Case) -> Self {
        let pbx = match case.transport {
            Transport::Ami => FakePbx::ami().await,
            Transport::WebSocket => FakePbx::websocket().await,
        };
        Self { case, number, pbx }
    }

    fn name(&self) -> String {
        format!("pbx{}", self.number)
    }

    fn source(&self, secret: &str) -> String {
        let (address, name) = (self.pbx.addr(), self.name());
        match self.case.transport {
            Transport::Ami => {
                format!("--source=ami://bridge@{address}?secret-file={secret}&pbx={name}")
            }
            Transport::WebSocket => format!("--source=ws://{address}/?pbx={name}"),
        }
    }

    /// Returns the PBX's time at this second of the call, in seconds.
    fn time(&self, scene_start: EventTime, second: f64) -> f64 {
        let start = scene_start.micros() as f64 / 1e6 + self.case.delay;
        start + second + self.case.clock_ahead
    }

    /// Reports the call, sending each event when it's due or at the end of the stall.
    async fn play(&self, scene_start: EventTime) {
        let (from, length) = self.case.stall;
        for event in recorded_events() {
            let is_stalled = (from..from + length).contains(&event.second);
            let second = if is_stalled {
                from + length
            } else {
                event.second
            };
            let due = scene_start.plus(Duration::from_secs_f64(self.case.delay + second));
            pass(due.since(clock::now().wall)).await;
            self.pbx.say(&self.message(scene_start, &event)).await;
        }
    }

    fn message(&self, scene_start: EventTime, event: &RecordedEvent) -> Vec<u8> {
        let time = format!("Timestamp: {:.6}", self.time(scene_start, event.second));
        let (ids, own_ids) = ("1795706937.", self.ids(scene_start));
        let lines = event.text.lines().map(|line| {
            if line.starts_with("Timestamp: ") {
                time.clone()
            } else {
                line.replace(ids, &own_ids)
                    .replace("LEAD_ID=4141", "LEAD_ID=4001")
            }
        });
        match self.case.transport {
            Transport::Ami => (lines.collect::<Vec<_>>().join("\r\n") + "\r\n\r\n").into_bytes(),
            Transport::WebSocket => as_json(lines),
        }
    }

    /// Returns the prefix of this PBX's channel IDs.
    fn ids(&self, scene_start: EventTime) -> String {
        format!("{}.{}", self.time(scene_start, 0.0) as i64, self.number)
    }

    fn expected(&self, scene_start: EventTime) -> Expected {
        let linkedid = format!("{}683", self.ids(scene_start));
        Expected {
            uuid: uuid(&self.name(), &linkedid),
            linkedid,
            lead: Some(4001),
            reason: None,
            employee: Some(501),
            direction: "INBOUND".to_owned(),
            answered: true,
            started_at: self.time(scene_start, 0.0) as i64,
            duration: 17.0,
            talk: 16.0,
        }
    }
}

/// Returns an event as sent by amiws.
fn as_json(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let mut data = serde_json::Map::new();
    for line in lines {
        let variable = line.strip_prefix("ChanVariable: ");
        if variable.is_some_and(|variable| !variable.starts_with("LEAD_ID=")) {
            continue;
        }
        let (key, value) = line.split_once(':').expect("a pair");
        data.insert(key.to_owned(), value.trim().into());
    }
    let message = serde_json::json!({"type": 3, "server_id": 1, "server_name": "", "data": data});
    message.to_string().into_bytes()
}

/// PBXs with one call each, and a callbridge that's connected to all of them.
struct Stage {
    place: Place,
    crm: Server,
    program: Program,
    pbxes: Vec<PlayingPbx>,
    /// The start of the scene. Each call starts after the delay given by its case.
    scene_start: EventTime,
}

impl Stage {
    async fn start(cases: &[Case]) -> Self {
        let (place, crm) = (Place::new(), crm::start().await);
        let pbxes = cases.iter().enumerate();
        let pbxes = join_all(pbxes.map(|(number, case)| PlayingPbx::new(number + 1, *case))).await;
        let secret = place.write("secret", pbx::SECRET);
        let mut flags: Vec<String> = pbxes.iter().map(|pbx| pbx.source(&secret)).collect();
        let trunk = "--trunk=city=PJSIP/city,country=UZ,lead=var:LEAD_ID";
        flags.extend([trunk, RATE_FLAG].map(str::to_owned));
        let program = place.run(&crm.url(), &flags);
        join_all(pbxes.iter().map(|pbx| pbx.pbx.logged_in(1))).await;
        // The call starts in the middle of a second, as recorded, so rounding can't change any
        // value.
        let now = clock::now().wall.plus(LEAD_IN).floor_seconds().get();
        Self {
            place,
            crm,
            program,
            pbxes,
            scene_start: EventTime::from_seconds(now + 1).plus(Duration::from_millis(500)),
        }
    }

    async fn play(&self) {
        join_all(self.pbxes.iter().map(|pbx| pbx.play(self.scene_start))).await;
    }

    /// Checks that every call is journaled correctly, and that nothing else is.
    async fn judge(mut self) {
        let expected: Vec<Expected> = self
            .pbxes
            .iter()
            .map(|pbx| pbx.expected(self.scene_start))
            .collect();
        let calls = u64::try_from(expected.len()).expect("few");
        self.program.settled(calls).await;
        self.program.terminate().await;
        let letters = self.place.letters().await;
        let cases: Vec<_> = self
            .pbxes
            .iter()
            .map(|pbx| (pbx.name(), pbx.case))
            .collect();
        let wrong = crm::compare(&self.crm, &letters, &expected);
        assert!(
            wrong.is_empty(),
            "{}\n{cases:#?}\n{letters:#?}",
            wrong.join("\n")
        );
    }
}

fn is_full() -> bool {
    std::env::var_os(late::FULL).is_some()
}

/// By default, the longest stall is omitted, because the test would take a minute and a half.
#[tokio::test]
async fn stalled_connections_change_no_value_of_a_call() {
    let lengths: &[f64] = if is_full() {
        &[8.0, 20.0, 45.0]
    } else {
        &[8.0, 20.0]
    };
    let mut cases = Vec::new();
    for length in lengths {
        for (place, from) in PLACES.into_iter().enumerate() {
            cases.push(Case {
                transport: [Transport::Ami, Transport::WebSocket][place % 2],
                stall: (from, *length),
                clock_ahead: 0.0,
                delay: 0.0,
            });
        }
    }
    for clock_ahead in [-3600.0, -10.0, 10.0, 250.0] {
        cases.push(Case {
            transport: Transport::Ami,
            stall: (0.5, 8.0),
            clock_ahead,
            delay: 0.0,
        });
    }
    let stage = Stage::start(&cases).await;
    stage.play().await;
    stage.judge().await;
}

#[tokio::test]
async fn frozen_daemon_changes_no_value_of_a_call() {
    let standstill = if is_full() { 45.0 } else { 20.0 };
    // callbridge is frozen from second 18 on.
    let delays = PLACES.map(|place| 18.0 - place);
    let cases: Vec<Case> = [Transport::Ami, Transport::WebSocket]
        .into_iter()
        .flat_map(|transport| {
            delays.map(|delay| Case {
                transport,
                stall: (0.0, 0.0),
                clock_ahead: 0.0,
                delay,
            })
        })
        .collect();
    let stage = Stage::start(&cases).await;
    let freeze = async {
        let at = stage.scene_start.plus(Duration::from_secs(18));
        pass(at.since(clock::now().wall)).await;
        stage.program.freeze().await;
        pass(Duration::from_secs_f64(standstill)).await;
        stage.program.signal(Signal::CONT);
    };
    tokio::join!(stage.play(), freeze);
    stage.judge().await;
}
