//! Tests that every call is journaled once with tokens that are only valid for seconds, even though
//! callbridge is killed and a company ends the connection, which is then continued by a new
//! consent.

use crate::e2e::tokens::consent::Stage;
use crate::support::crm;
use crate::support::program::Program;
use crate::support::recordings::{self, Recording};
use callbridge_sandbox::faults::{Action, Rule};
use callbridge_sandbox::{Endpoint, Sandbox, Server};
use callbridge_testbed::expected::Expected;
use callbridge_testbed::wait::until;
use std::time::Duration;

/// The size of a run.
struct Size {
    /// How long an access token is valid.
    life: Duration,
    /// Number of calls before the company revokes the tokens. A tenth as many come after that.
    calls: usize,
    /// How many times the program is killed.
    kills: usize,
}

/// Returns `count` calls of different kinds, one every 20 seconds.
fn calls(count: usize) -> Vec<Recording> {
    let kinds = ["inbound_answered", "outbound_answered", "inbound_no_answer"];
    let kinds = kinds.map(recordings::one);
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let total = i64::try_from(count).expect("few");
    let kinds = (0..total).zip(kinds.iter().cycle());
    kinds
        .map(|(n, kind)| kind.moved_to(now - 600 - (total - n) * 20))
        .collect()
}

/// Waits until `count` calls are in the journal, with a separate deadline for every ten calls.
async fn wait_for_journal(crm: &Server, count: usize) {
    loop {
        let before = crm.journal().len();
        if before >= count {
            return;
        }
        let step = count.min(before + 10);
        let what = format!("{step} calls in the journal");
        until(&what, async || crm.journal().len() >= step).await;
    }
}

/// Kills the program while it isn't refreshing a token. If it's killed during a refresh, the
/// response with the new tokens is lost, after which only a new consent can reconnect the program.
async fn kill_between_refreshes(stage: &Stage, program: Program) {
    until("no refresh under way", async || {
        let stored = stage.stored().expect("stored");
        stored["refreshBeganAt"].is_null()
    })
    .await;
    program.kill().await;
}

/// Returns how many pairs of an access and a refresh token the CRM has issued.
pub fn pairs(crm: &Server) -> u64 {
    crm.admin(|core, _| pairs_of(core))
}

pub fn pairs_of(core: &Sandbox) -> u64 {
    answers_of(core, 200)
}

/// Returns how many responses with this HTTP status the token endpoint has sent.
fn answers(crm: &Server, status: u16) -> u64 {
    crm.admin(|core, _| answers_of(core, status))
}

fn answers_of(core: &Sandbox, status: u16) -> u64 {
    let key = (Endpoint::OauthToken, status);
    core.counts().get(&key).copied().unwrap_or_default()
}

/// Appends calls to the recording that the program reads.
fn append_calls(stage: &Stage, calls: &[Recording]) {
    for call in calls {
        stage.place.append("recorded", &call.ami);
    }
}

/// Checks that every call is journaled once while tokens are refreshed, the program is killed, and
/// the company revokes the tokens and gives its consent again.
async fn check_connection(stage: &Stage, size: &Size) {
    stage.approve_connection().await;
    let all = calls(size.calls + size.calls / 10);
    let (first, later) = all.split_at(size.calls);
    let mut parts = first.chunks(first.len().div_ceil(size.kills + 1));
    let mut written = 0;
    for _ in 0..size.kills {
        let part = parts.next().unwrap_or_default();
        append_calls(stage, part);
        written += part.len();
        let program = stage.place.start(&stage.flags(&[]), &[]);
        wait_for_journal(&stage.crm, written * 2 / 3).await;
        kill_between_refreshes(stage, program).await;
    }
    let part = parts.next().unwrap_or_default();
    append_calls(stage, part);
    written += part.len();
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    wait_for_journal(&stage.crm, written).await;
    program.settled(written as u64).await;
    let pairs = pairs(&stage.crm);
    assert!(pairs > size.kills as u64, "{pairs} pairs");
    stage.revoke();
    let reconnect = program.until("the end of the connection", |status| {
        status
            .pause
            .as_ref()
            .is_some_and(|pause| pause.reason == "reconnect")
    });
    let paused = reconnect.await;
    assert_eq!(paused.token.state, "reconnect");
    let fix = paused.pause.expect("a pause").fix;
    assert!(fix.contains("run: callbridge connect --crm-url"), "{fix}");
    append_calls(stage, later);
    let total = written + later.len();
    let status = program
        .until("all calls taken", |status| {
            status.books.finished == total as u64
        })
        .await;
    assert!(status.books.balance());
    stage.approve_connection().await;
    wait_for_journal(&stage.crm, total).await;
    let status = program.settled(total as u64).await;
    assert_eq!(status.books.journaled, total as u64);
    assert_eq!(status.pause, None);
    program.terminate().await;
    let expected: Vec<Expected> = recordings::expected(&all);
    let mut violations = crm::compare(&stage.crm, &[], &expected);
    violations.extend(crm::conduct(&stage.crm, |_| false));
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Promise: Calls reach the CRM across token refreshes, kills, and a new consent.
///
/// With `tests/run consent`, the test sends 200 calls at the request rate given in the CRM's
/// document, which takes a few minutes.
#[tokio::test]
async fn calls_are_journaled_across_refreshes_kills_and_new_consent() {
    if std::env::var_os("CALLBRIDGE_CONSENT_FULL").is_some() {
        let size = Size {
            life: Duration::from_secs(20),
            calls: 200,
            kills: 8,
        };
        let stage = Stage::at_full_rate(size.life).await;
        check_connection(&stage, &size).await;
    } else {
        let size = Size {
            life: Duration::from_secs(3),
            calls: 60,
            kills: 3,
        };
        let stage = Stage::new(size.life).await;
        check_connection(&stage, &size).await;
    }
}

/// The token endpoint fails for longer than an access token is valid, in every way that keeps the
/// refresh token valid. Calls wait and are then sent automatically, without a new consent.
#[tokio::test]
async fn failing_token_endpoint_past_expiry_keeps_connection() {
    let stage = Stage::new(Duration::from_secs(3)).await;
    stage.approve_connection().await;
    let all = calls(20);
    let faults = [Action::Status(503), Action::Gateway(400), Action::Cut];
    let rules = faults.map(|action| Rule::next(Endpoint::OauthToken, 1, action));
    stage.crm.admin(|core, _| core.set_faults(rules.into()));
    let before = pairs(&stage.crm);
    let (first, later) = all.split_at(10);
    append_calls(&stage, first);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    program
        .until("the end of the token", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| {
                pause.reason == "unreachable" && pause.fix.contains("tries again automatically")
            })
        })
        .await;
    append_calls(&stage, later);
    let status = program.settled(all.len() as u64).await;
    assert_eq!((status.books.journaled, status.pause), (20, None));
    assert!(pairs(&stage.crm) > before);
    assert_eq!((answers(&stage.crm, 503), answers(&stage.crm, 400)), (1, 1));
    program.terminate().await;
    let violations = crm::conduct(&stage.crm, |_| false);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// callbridge exchanges the code again, because neither error says anything about the code.
#[tokio::test]
async fn code_exchange_is_retried_after_gateway_and_503_errors() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let faults = [Action::Gateway(401), Action::Status(503)];
    let rules = faults.map(|action| Rule::next(Endpoint::OauthToken, 1, action));
    stage.crm.admin(|core, _| core.set_faults(rules.into()));
    stage.approve_connection().await;
    assert_eq!(pairs(&stage.crm), 1);
    stage.judge();
}
