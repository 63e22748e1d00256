//! Tests that each pause is reported with its fix, that every call is kept, and that sending
//! continues automatically once the problem has been fixed.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program, TOKEN, preload};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_model::Status;
use callbridge_model::status::PAUSES;
use callbridge_sandbox::token::TokenKind;
use callbridge_sandbox::{Action, Endpoint, Rule, Server, ViolationKind};
use callbridge_testbed::wait::until;
use std::fs;
use std::os::unix::fs::symlink;

/// A running program with calls to send, and the CRM that they're sent to.
struct Stage {
    place: Place,
    crm: Server,
    calls: Vec<Recording>,
    program: Program,
}

/// Names of the recordings used by the tests.
const NAMES: [&str; 7] = [
    "inbound_answered",
    "outbound_answered",
    "blind_transfer",
    "attended_transfer",
    "ring_group",
    "inbound_no_answer",
    "blonde_transfer",
];

/// Creates a place whose recording has the first `count` calls in `NAMES`.
fn place_with_calls(count: usize) -> (Place, Vec<Recording>) {
    let place = Place::new();
    let calls: Vec<Recording> = NAMES[..count]
        .iter()
        .map(|name| recordings::one(name))
        .collect();
    for call in &calls {
        place.append("recorded", &call.ami);
    }
    (place, calls)
}

fn run(place: &Place, crm: &Server) -> Program {
    run_with(place, crm, &[])
}

fn run_with(place: &Place, crm: &Server, variables: &[(&str, String)]) -> Program {
    let source = place.file("recorded", "ami");
    let listen = "--listen=127.0.0.1:0";
    let flags = [
        &source,
        TRUNKS[0],
        TRUNKS[1],
        RATE_FLAG,
        "--cdr-wait=1s",
        listen,
    ];
    place.run_with(&crm.url(), &flags, variables)
}

impl Stage {
    /// Starts the program with `count` calls, and a CRM that has these faults.
    async fn new(count: usize, faults: Vec<Rule>) -> Self {
        let (place, calls) = place_with_calls(count);
        let crm = crm::start().await;
        crm.admin(|core, _| core.set_faults(faults));
        let program = run(&place, &crm);
        Self {
            place,
            crm,
            calls,
            program,
        }
    }

    /// Checks that `status`, the log, and the metrics show a pause for this reason, that the
    /// pause's fix contains `fix`, and that no call is lost.
    async fn check_paused(&mut self, reason: &str, fix: &str) -> Status {
        let calls = self.calls.len() as u64;
        let status = self
            .program
            .until(reason, |status| {
                let pause = status.pause.as_ref().map(|pause| pause.reason.as_str());
                pause == Some(reason) && status.books.finished == calls
            })
            .await;
        let shown_fix = &status.pause.as_ref().expect("a pause").fix;
        assert!(shown_fix.contains(fix), "{reason}: {shown_fix}");
        assert!(status.books.balance(), "{:?}", status.books);
        let text = self.place.command(&["status"]).await.stdout;
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(
            text.starts_with("nothing reaches the CRM\n")
                && text.contains(&format!("paused ({reason}): ")),
            "{text}"
        );
        assert!(text.contains(fix), "{text}");
        let metrics = crate::e2e::operations::monitoring::metrics(&self.program).await;
        for pause_reason in PAUSES {
            let line = format!(
                "callbridge_paused{{reason=\"{pause_reason}\"}} {}\n",
                i32::from(pause_reason == reason)
            );
            assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
        }
        let log_line = format!("paused reason={reason} fix=");
        assert!(
            self.program.log().contains(&log_line),
            "{}",
            self.program.log()
        );
        status
    }

    /// Checks that the program sends again automatically and that every call is journaled.
    /// `allowed` selects the violations that the test expects. The problem must already have been
    /// fixed.
    async fn check_recovery(mut self, allowed: impl Fn(ViolationKind) -> bool) {
        let calls = self.calls.len() as u64;
        let status = self.program.settled(calls).await;
        assert_eq!((status.books.journaled, status.pause), (calls, None));
        assert!(self.program.log().contains("no longer paused"));
        self.program.terminate().await;
        let letters = self.place.letters().await;
        let mut problems = crm::compare(&self.crm, &letters, &recordings::expected(&self.calls));
        problems.extend(crm::conduct(&self.crm, allowed));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// Removes all of the CRM's faults.
    fn clear_faults(&self) {
        self.crm.admin(|core, _| core.set_faults(Vec::new()));
    }
}

/// Returns faults that make the CRM respond to every request with this HTTP status.
fn faults_of_every_endpoint(status: u16) -> Vec<Rule> {
    let endpoints = [
        Endpoint::CallHistory,
        Endpoint::Request,
        Endpoint::TokenInfo,
        Endpoint::Filter,
    ];
    let rules = endpoints.map(|endpoint| Rule::always(endpoint, Action::Status(status)));
    rules.to_vec()
}

/// Doesn't allow any violation.
fn allow_none(_: ViolationKind) -> bool {
    false
}

/// Checks the pause that starts if the CRM responds to every submission with this fault.
async fn check_wrong_address(fault: Action) {
    let rule = Rule::always(Endpoint::CallHistory, fault);
    let mut stage = Stage::new(3, vec![rule]).await;
    let status = stage
        .check_paused("wrong_address", "is not at --crm-url")
        .await;
    // One of the calls may be in flight as a probe.
    let books = status.books;
    assert_eq!((books.ready + books.sending, books.dead), (3, 0));
    stage.clear_faults();
    stage.check_recovery(allow_none).await;
}

#[tokio::test]
async fn wrong_address_pauses_and_keeps_calls_until_corrected() {
    tokio::join!(
        check_wrong_address(Action::Status(404)),
        check_wrong_address(Action::Status(405)),
        check_wrong_address(Action::Gateway(415)),
        check_wrong_address(Action::Redirect),
    );
}

#[tokio::test]
async fn status_406_pauses_like_401_and_resumes_automatically() {
    let rule = Rule::next(Endpoint::CallHistory, 1, Action::Status(406));
    let mut stage = Stage::new(3, vec![rule]).await;
    let status = stage
        .check_paused("token_refused", "the CRM refuses the token (406")
        .await;
    assert_eq!(
        (status.books.dead, status.token.state.as_str()),
        (0, "refused")
    );
    assert!(stage.crm.admin(|core, _| core.counts().len()) > 0);
    stage.check_recovery(allow_none).await;
}

#[tokio::test]
async fn five_equal_refusals_pause_and_calls_are_sent_after_restart() {
    let rule = Rule::always(Endpoint::CallHistory, Action::Status(422));
    let mut stage = Stage::new(7, vec![rule]).await;
    let fix = "dead list --reason rejected";
    let status = stage.check_paused("calls_refused", fix).await;
    // Calls that were in flight at the fifth rejection are rejected as well.
    let books = status.books;
    assert!((5..=7).contains(&books.dead), "{books:?}");
    assert_eq!(books.ready + books.sending + books.dead, 7, "{books:?}");
    stage.clear_faults();
    stage.program.terminate().await;
    stage.program = run(&stage.place, &stage.crm);
    // If all seven are dead letters, the books are also settled before the first one is resent.
    let status = stage
        .program
        .until("seven records", |current| current.books.journaled == 7)
        .await;
    assert_eq!(status.pause, None);
    stage.program.terminate().await;
    let letters = stage.place.letters().await;
    let mut problems = crm::compare(&stage.crm, &letters, &recordings::expected(&stage.calls));
    // The restart makes callbridge resend the same body.
    problems.extend(crm::conduct(&stage.crm, |kind| {
        kind == ViolationKind::RepeatAfter400
    }));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn outage_makes_no_dead_letter_while_every_endpoint_fails() {
    let mut stage = Stage::new(7, faults_of_every_endpoint(500)).await;
    let status = stage.check_paused("failing", "(500").await;
    assert_eq!((status.books.ready, status.books.dead), (7, 0));
    stage.clear_faults();
    stage.check_recovery(allow_none).await;
}

#[tokio::test]
async fn outage_of_submissions_pauses_and_makes_no_dead_letters() {
    let rule = Rule::always(Endpoint::CallHistory, Action::Gateway(503));
    let mut stage = Stage::new(7, vec![rule]).await;
    stage.check_paused("failing", "(503").await;
    // Five failures open the circuit breaker.
    until("five failures", async || {
        let key = (Endpoint::CallHistory, 503);
        let count = stage.crm.admin(|core, _| core.counts().get(&key).copied());
        count.is_some_and(|count| count >= 5)
    })
    .await;
    let status = stage.check_paused("failing", "(503").await;
    assert_eq!(status.books.dead, 0);
    stage.clear_faults();
    // The failed calls wait a little longer than the others.
    let status = stage
        .program
        .until("calls that are sent", |current| {
            current.books.journaled >= 4 && current.pause.is_none()
        })
        .await;
    assert!(
        status.books.dead == 0 && status.books.balance(),
        "{:?}",
        status.books
    );
    stage.program.terminate().await;
    let violations = crm::conduct(&stage.crm, allow_none);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Promise: Nothing is written to another company's CRM.
#[tokio::test]
async fn other_company_token_pauses_and_writes_no_call_there() {
    let mut stage = Stage::new(2, Vec::new()).await;
    stage.program.settled(2).await;
    stage
        .crm
        .admin(|core, now| core.issue(now, "svc_pat_other", TokenKind::Pat, 2, None));
    stage.place.write("token", "svc_pat_other");
    let fix = "it belongs to Company 2 (2)";
    stage.check_paused("wrong_company", fix).await;
    let call = recordings::one("blind_transfer");
    stage.place.append("recorded", &call.ami);
    stage.calls.push(call);
    let status = stage.check_paused("wrong_company", fix).await;
    assert_eq!(
        (status.token.state.as_str(), status.books.ready),
        ("wrong_company", 1)
    );
    stage.place.write("token", TOKEN);
    let foreign_records = stage.crm.admin(|core, _| {
        let records = core.records().iter();
        records.filter(|record| record.company_id == 2).count()
    });
    assert_eq!(foreign_records, 0);
    stage.check_recovery(allow_none).await;
}

#[tokio::test]
async fn start_without_token_pauses_and_shows_token_file_error() {
    for (bytes, fix) in [
        (None, "is not there"),
        (Some(""), "is empty"),
        (Some("two words"), "holds more than one line"),
    ] {
        let (place, calls) = place_with_calls(2);
        let crm = crm::start().await;
        fs::remove_file(place.at("token")).expect("removed");
        if let Some(bytes) = bytes {
            place.write("token", bytes);
        }
        let program = run(&place, &crm);
        let mut stage = Stage {
            place,
            crm,
            calls,
            program,
        };
        let status = stage.check_paused("token_missing", fix).await;
        assert_eq!(
            (status.token.state.as_str(), status.books.ready),
            ("missing", 2)
        );
        // A Windows editor writes a byte-order mark and CRLF.
        stage.place.write("token", format!("\u{feff}{TOKEN}\r\n"));
        stage.check_recovery(allow_none).await;
    }
}

#[tokio::test]
async fn new_cause_of_a_pause_is_logged_without_ending_the_pause() {
    let mut stage = Stage::new(7, faults_of_every_endpoint(500)).await;
    stage.check_paused("failing", "(500").await;
    let rules = faults_of_every_endpoint(503);
    stage.crm.admin(|core, _| core.set_faults(rules));
    let status = stage
        .program
        .until("the new cause", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| pause.fix.contains("(503"))
        })
        .await;
    let fix = status.pause.expect("a pause").fix;
    let line = format!("still paused reason=failing fix={fix}");
    until("the new cause in the log", async || {
        stage.program.log().replace('"', "").contains(&line)
    })
    .await;
    assert!(!stage.program.log().contains("no longer paused"));
    stage.clear_faults();
    stage.check_recovery(allow_none).await;
}

#[tokio::test]
async fn second_refused_token_does_not_end_pause() {
    let mut stage = Stage::new(1, Vec::new()).await;
    stage.program.settled(1).await;
    stage.place.write("token", "svc_pat_unknown");
    let fix = "issue a new one in the CRM";
    stage.check_paused("token_refused", fix).await;
    let before = token_refusals(&stage.crm);
    stage.place.write("token", "svc_pat_unknown_too");
    until("a second refusal", async || {
        token_refusals(&stage.crm) > before
    })
    .await;
    let call = recordings::one("outbound_answered");
    stage.place.append("recorded", &call.ami);
    stage.calls.push(call);
    stage.check_paused("token_refused", fix).await;
    let log = stage.program.log();
    assert!(!log.contains("no longer paused"), "{log}");
    stage.place.write("token", TOKEN);
    stage.check_recovery(allow_none).await;
}

/// Returns how many times the CRM has responded to `token/info` with 401.
fn token_refusals(crm: &Server) -> u64 {
    let key = (Endpoint::TokenInfo, 401);
    crm.admin(|core, _| core.counts().get(&key).copied().unwrap_or_default())
}

#[tokio::test]
async fn switched_symlink_of_token_file_loads_the_new_token() {
    let (place, calls) = place_with_calls(1);
    let crm = crm::start().await;
    // This is how a Kubernetes secret is laid out: token -> ..data/token, ..data -> ..1
    let volume = place.at("volume");
    for (version, token) in [("..1", TOKEN), ("..2", "svc_pat_of_the_second")] {
        fs::create_dir_all(volume.join(version)).expect("a folder");
        fs::write(volume.join(version).join("token"), token).expect("written");
    }
    symlink("..1", volume.join("..data")).expect("a link");
    symlink("..data/token", volume.join("token")).expect("a link");
    fs::remove_file(place.at("token")).expect("removed");
    symlink(volume.join("token"), place.at("token")).expect("a link");
    let program = run(&place, &crm);
    let mut stage = Stage {
        place,
        crm,
        calls,
        program,
    };
    stage.program.settled(1).await;
    stage
        .crm
        .admin(|core, now| core.issue_pat(now, "svc_pat_of_the_second", None));
    let call = recordings::one("outbound_answered");
    stage.place.append("recorded", &call.ami);
    stage.calls.push(call);
    stage
        .check_paused("token_refused", "issue a new one in the CRM")
        .await;
    symlink("..2", volume.join("..tmp")).expect("a link");
    fs::rename(volume.join("..tmp"), volume.join("..data")).expect("switched");
    stage.check_recovery(allow_none).await;
}

#[tokio::test]
async fn unreadable_token_file_keeps_previous_token_in_use() {
    let mut stage = Stage::new(1, Vec::new()).await;
    stage.program.settled(1).await;
    // Root can read every file, but not a directory.
    fs::remove_file(stage.place.at("token")).expect("removed");
    fs::create_dir(stage.place.at("token")).expect("a folder");
    let error = "cannot read the token again; the previous one stays in use";
    until("the error in the log", async || {
        stage.program.log().contains(error)
    })
    .await;
    stage
        .place
        .append("recorded", &recordings::one("outbound_answered").ami);
    let status = stage.program.settled(2).await;
    assert_eq!((status.books.journaled, status.pause), (2, None));
    fs::remove_dir(stage.place.at("token")).expect("removed");
    stage
        .crm
        .admin(|core, now| core.issue_pat(now, "svc_pat_new", None));
    stage.place.write("token", "svc_pat_new");
    stage
        .place
        .append("recorded", &recordings::one("blind_transfer").ami);
    let status = stage.program.settled(3).await;
    assert_eq!(status.books.journaled, 3);
    stage.program.terminate().await;
}

/// Promise: While the clock is wrong, nothing is sent and calls are kept.
#[tokio::test]
async fn clock_before_build_date_pauses_requests_until_corrected() {
    let (place, calls) = place_with_calls(2);
    let crm = crm::start().await;
    let library = preload(&place, "clock.c");
    let behind = place.write("clock", "9000000");
    let variables = [("LD_PRELOAD", library), ("TEST_CLOCK", behind)];
    let mut program = run_with(&place, &crm, &variables);
    let status = program
        .until("the pause of a wrong clock", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| pause.reason == "clock")
        })
        .await;
    assert!(status.pause.expect("a pause").fix.contains("timedatectl"));
    let metrics = crate::e2e::operations::monitoring::metrics(&program).await;
    assert!(
        metrics.contains("callbridge_paused{reason=\"clock\"} 1"),
        "{metrics}"
    );
    assert!(
        crm.admin(|core, _| core.counts().is_empty()),
        "nothing was sent"
    );
    fs::remove_file(place.at("clock")).expect("removed");
    let status = program.settled(2).await;
    assert_eq!((status.books.journaled, status.pause), (2, None));
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}
