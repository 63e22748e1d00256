//! A scenario: callbridge, the judge, the CRM behind it, and the calls to be journaled.

use crate::support::crm_process::Crm;
use crate::support::judge::fault::{Dice, WEATHER};
use crate::support::judge::rules::{self, Law};
use crate::support::judge::seen::Seen;
use crate::support::judge::{Judge, purposes, truth};
use crate::support::program::{Place, Program, TOKEN};
use crate::support::recordings::{self, Recording, TRUNKS};
use crate::support::stored;
use callbridge_model::Status;
use callbridge_testbed::expected::Expected;
use callbridge_testbed::wait::{pass, until_within};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The size of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub calls: usize,
    /// Length of the window of 60 requests, in seconds.
    pub window: u64,
    /// Number of kills in a scenario with kills.
    pub kills: usize,
    /// Range of the time between two kills, in milliseconds.
    pub apart: (u64, u64),
    /// Percentage of requests that get a fault.
    pub percent: u64,
    /// Length of an outage or another problem, in seconds.
    pub trouble: u64,
    /// Life of an access token, in seconds.
    pub life: u64,
}

const SHORT: Scale = Scale {
    calls: 60,
    window: 2,
    kills: 5,
    apart: (700, 2_500),
    percent: 8,
    trouble: 3,
    life: 4,
};
/// The scale of `tests/run chaos`.
const LONG: Scale = Scale {
    calls: 300,
    window: 6,
    kills: 25,
    apart: (2_000, 4_000),
    percent: 12,
    trouble: 20,
    life: 20,
};

/// Returns the scale of this run.
pub fn scale() -> Scale {
    match std::env::var("CALLBRIDGE_CHAOS").as_deref() {
        Ok("long") => LONG,
        _ => SHORT,
    }
}

/// A running scenario.
pub struct Scene {
    name: &'static str,
    pub place: Place,
    pub crm: Crm,
    pub judge: Judge,
    pub scale: Scale,
    pub law: Law,
    /// Violations that the CRM counts and that the scenario causes on purpose.
    pub allowed: &'static [&'static str],
    /// Whether callbridge's token comes from a connection and is in no file.
    pub by_consent: bool,
    calls: Vec<Recording>,
    flags: Vec<String>,
    dice: Mutex<Dice>,
    begun: Instant,
    pauses: Mutex<Vec<(String, String)>>,
}

/// Returns the seed of a scenario. It differs for each scenario and each `CALLBRIDGE_CHAOS_SEED`.
fn seed(name: &str) -> u64 {
    let given = std::env::var("CALLBRIDGE_CHAOS_SEED").ok();
    let given: u64 = given.and_then(|text| text.parse().ok()).unwrap_or(1);
    name.bytes().fold(given, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

impl Scene {
    /// Sets up a scenario. `crm` are additional flags of the CRM.
    pub async fn prepare(name: &'static str, crm: &[&str]) -> Self {
        let scale = scale();
        let rate = format!("--rate=60/{}s", scale.window);
        let mut flags = Vec::new();
        if !crm.iter().any(|flag| flag.starts_with("--rate")) {
            flags.push(rate.as_str());
        }
        if !crm.iter().any(|flag| flag.starts_with("--persist-after")) {
            flags.push("--persist-after=400ms");
        }
        let place = Place::new();
        let state = format!("--state={}", place.path("crm"));
        flags.push(&state);
        flags.extend(crm);
        let crm = Crm::start(TOKEN, &flags).await;
        let judge = Judge::start(crm.addr(), seed(name)).await;
        let source = place.file("recorded", "ami");
        place.append("recorded", b"");
        let law = Law {
            requests: 60,
            window: Duration::from_secs(scale.window),
            host: judge.host(),
            refused_pages: 0,
            again: false,
        };
        let flags = [&source, TRUNKS[0], TRUNKS[1], &rate];
        Self {
            name,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            calls: recordings::consecutive(scale.calls),
            place,
            crm,
            judge,
            scale,
            law,
            allowed: &[],
            by_consent: false,
            dice: Mutex::new(Dice::new(seed(name))),
            begun: Instant::now(),
            pauses: Mutex::new(Vec::new()),
        }
    }

    /// Returns a random number in this range.
    pub fn random_in(&self, (least, most): (u64, u64)) -> u64 {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        least + dice.below(most - least + 1)
    }

    pub fn begin_faults(&self) {
        self.judge.set_faults(self.scale.percent, &WEATHER);
    }

    /// Waits until a third of the work is under way.
    pub async fn wait_until_under_way(&self) {
        self.judge.wait_for_requests(self.scale.calls / 3).await;
    }

    /// Waits for the length of a problem.
    pub async fn wait_out_problem(&self) {
        pass(Duration::from_secs(self.scale.trouble)).await;
    }

    /// Waits until the problem is shown as this pause. With kills, the pause need not be shown, so
    /// the function waits for the length of a problem.
    pub async fn wait_until_problem_shown(&self, kills: usize, reason: &str) {
        if kills > 0 {
            return self.wait_out_problem().await;
        }
        let what = format!("the pause {reason}");
        until_within(self.patience(), &what, async || {
            self.has_shown_pause(reason)
        })
        .await;
    }

    fn has_shown_pause(&self, reason: &str) -> bool {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.iter().any(|(shown, _)| shown == reason)
    }

    pub fn run(&self) -> Program {
        let mut flags = self.place.arguments(&self.judge.url(), &self.flags);
        flags.retain(|flag| !self.by_consent || !flag.starts_with("--token-file="));
        self.place.start(&flags, &[])
    }

    /// Reports the calls in parts, and kills the program after each part but the last. Waits until
    /// all calls are confirmed.
    pub async fn work(&self, kills: usize) {
        let recorded: Vec<&[u8]> = self.calls.iter().map(|call| call.ami.as_slice()).collect();
        let text = recorded.concat();
        let mut parts = text.chunks(text.len().div_ceil(kills + 1));
        for _ in 0..kills {
            self.report(parts.next().unwrap_or_default());
            let program = self.run();
            pass(Duration::from_millis(self.random_in(self.scale.apart))).await;
            self.kill(program).await;
        }
        parts.for_each(|part| self.report(part));
        let mut program = self.run();
        self.wait_until_journaled(&mut program, self.calls.len())
            .await;
        program.terminate().await;
    }

    /// Kills the program with SIGKILL and reads the spool that it left.
    pub async fn kill(&self, program: Program) {
        program.kill().await;
        let left = stored::read(&self.place.at("state"));
        self.judge.record_kill(left).await;
    }

    /// Adds a flag for callbridge.
    pub fn add_flag(&mut self, flag: &str) {
        self.flags.push(flag.to_owned());
    }

    /// Limits callbridge and the CRM to this many requests in two seconds.
    pub fn limit_rate(&mut self, requests: usize) {
        self.flags.retain(|flag| !flag.starts_with("--rate"));
        self.add_flag(&format!("--rate={requests}/2s"));
        self.law.requests = requests;
        self.law.window = Duration::from_secs(2);
    }

    /// Adds a call that is not reported from the file.
    pub fn add_call(&mut self, call: Recording) {
        self.calls.push(call);
    }

    /// Reports all calls at once.
    pub fn report_all(&self) {
        self.report_part(0, 1);
    }

    /// Divides the calls into `of` parts, and reports the part with the index `part`.
    pub fn report_part(&self, part: usize, of: usize) {
        let mut parts = self.calls.chunks(self.calls.len().div_ceil(of));
        let calls = parts.nth(part).unwrap_or_default();
        calls.iter().for_each(|call| self.report(&call.ami));
    }

    /// Appends `part` to the file of the PBX's events.
    pub fn report(&self, part: &[u8]) {
        self.place.append("recorded", part);
    }

    /// Waits until this many calls are confirmed, and records every pause.
    pub async fn wait_until_journaled(&self, program: &mut Program, calls: usize) {
        let calls = u64::try_from(calls).expect("few");
        self.wait_for(program, "every call's end", |status| {
            status.books.finished == calls
        })
        .await;
        let finished_at = Instant::now();
        self.wait_for(program, "every call's record", |status| {
            status.books.journaled == calls
        })
        .await;
        let (name, drained) = (self.name, finished_at.elapsed());
        println!("{name}: {drained:.0?} from the last call to the last record");
    }

    /// Waits until the program's status meets a condition, and records every pause. `what` names
    /// the condition.
    pub async fn wait_for(
        &self,
        program: &mut Program,
        what: &str,
        holds: impl Fn(&Status) -> bool,
    ) {
        let (begun, limit) = (Instant::now(), self.patience());
        let mut last = None;
        until_within(2 * limit, what, async || {
            let status = program.status().await;
            if let Some(status) = &status {
                self.note(status);
                assert!(!self.has_shown_pause("reconnect"), "a consent is asked for");
                assert!(status.books.balance(), "{:?}", status.books);
                let dead = status.books.dead + status.books.waiting;
                assert_eq!(dead, 0, "{}", program.log());
            }
            let done = status.as_ref().is_some_and(&holds);
            let late = begun.elapsed() > limit;
            assert!(!late, "{what}: {last:?}\n{}", program.log());
            last = status.or(last.take());
            done
        })
        .await;
    }

    /// Returns the time after which a wait has failed. The test then shows the log.
    fn patience(&self) -> Duration {
        Duration::from_secs(40 * self.scale.window + 600)
    }

    fn note(&self, status: &Status) {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = status.pause.as_ref();
        let reason = pause.map_or("", |pause| pause.reason.as_str());
        if pauses.last().map_or("", |(last, _)| last) != reason {
            let fix = pause.map_or("", |pause| pause.fix.as_str());
            let at = self.begun.elapsed();
            println!("{} {at:.1?}: `{reason}` {fix}", self.name);
            pauses.push((reason.to_owned(), fix.to_owned()));
        }
    }

    /// Returns the fix that `status` showed for a pause.
    pub fn fix(&self, reason: &str) -> String {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = pauses.iter().find(|(shown, _)| shown == reason);
        shown
            .unwrap_or_else(|| panic!("no pause {reason} in {pauses:?}"))
            .1
            .clone()
    }

    pub fn expected(&self) -> Vec<Expected> {
        recordings::expected(&self.calls)
    }

    /// Checks the requests, the journal, and the spool at the end. Fails if anything is wrong.
    pub async fn check_result(&self) {
        let (seen, times) = (self.judge.seen(), self.judge.times());
        let expected = self.expected();
        let mut wrong = rules::breaches(&seen, &times, &self.law);
        wrong.extend(truth::submitted(&seen, &expected));
        wrong.extend(truth::journal(&self.crm.look("journal").await, &expected));
        wrong.extend(self.complaints().await);
        stored::assert_whole(&self.place.at("state"));
        let each = seen.len() as f64 / expected.len() as f64;
        println!(
            "{}: {} calls in {:.0?}, {} kills, {}, {each:.2} a call\n  faults: {}",
            self.name,
            expected.len(),
            self.begun.elapsed(),
            times.kills.len(),
            purposes(&seen),
            self.judge.fault_counts()
        );
        if !wrong.is_empty() {
            wrong.push(format!("every request: {}", trace(self.name, &seen)));
        }
        assert!(wrong.is_empty(), "{}: {}", self.name, wrong.join("\n"));
    }

    /// Returns the violations that the CRM found.
    async fn complaints(&self) -> Vec<String> {
        let breaches = self.crm.look("breaches").await;
        // The CRM does not know which answers were lost on the way or in a kill, or which requests
        // were under way at that time. The judge does.
        let judged = [200, 400, 401, 403].map(|status| format!("repeat_after{status}"));
        let mut wrong = Vec::new();
        for breach in breaches.as_array().expect("a list") {
            let kind = breach["kind"].as_str().unwrap_or_default();
            if !self.allowed.contains(&kind) && !judged.iter().any(|other| other == kind) {
                wrong.push(format!("the CRM counts {breach}"));
            }
        }
        let requests = self.crm.look("requests").await;
        let fullest = requests["fullest"]["inAWindow"].as_u64();
        if fullest > Some(60) {
            wrong.push(format!("the CRM counts {fullest:?} in a window"));
        }
        wrong
    }
}

/// Writes every request to a file, one per line. Returns its path.
fn trace(name: &str, seen: &[Seen]) -> String {
    let file = format!("callbridge-chaos-{}.txt", name.replace(' ', "-"));
    let path = std::env::temp_dir().join(file);
    let lines: String = seen.iter().map(trace_line).collect();
    std::fs::write(&path, lines).expect("written");
    path.display().to_string()
}

/// Returns the line of [`trace`] about one request, with its answer.
fn trace_line(request: &Seen) -> String {
    let answer = request.answer.as_ref();
    let status = answer.map_or(0, |answer| answer.status);
    let reply = answer.map_or(String::new(), |answer| text(&answer.body));
    let (what, body) = (request.purpose(), text(&request.body));
    let whole = answer.is_some_and(|answer| answer.whole);
    format!(
        "{:>10.3?} life {} {what:?} {} fault {:?} → {status} whole {whole} {body} {reply}\n",
        request.at, request.life, request.path, request.fault
    )
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(160).collect()
}
