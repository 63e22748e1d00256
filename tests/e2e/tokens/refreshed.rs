//! Tests tokens that live for seconds. Every call is journaled once while tokens are refreshed and
//! callbridge is killed. A new consent continues a connection that ended.

use crate::e2e::tokens::consent::Stage;
use crate::support::crm;
use crate::support::program::Program;
use crate::support::recordings::{self, Recording};
use callbridge_sandbox::faults::{Action, Rule};
use callbridge_sandbox::{Endpoint, Server};
use callbridge_testbed::expected::Expected;
use callbridge_testbed::wait::until;
use std::time::Duration;

/// The size of a run.
struct Size {
    /// The life of an access token.
    life: Duration,
    /// Calls before the connection ends. A tenth of them follows after it.
    calls: usize,
    kills: usize,
}

/// Returns calls of different kinds, one after the other.
fn calls(count: usize) -> Vec<Recording> {
    let kinds = ["inbound_answered", "outbound_answered", "inbound_no_answer"];
    let kinds = kinds.map(recordings::one);
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let many = i64::try_from(count).expect("few");
    let kinds = (0..many).zip(kinds.iter().cycle());
    kinds
        .map(|(n, kind)| kind.moved_to(now - 600 - (many - n) * 20))
        .collect()
}

/// Waits until `count` calls are in the journal, a few at a time. Each step has its own deadline.
async fn journaled(crm: &Server, count: usize) {
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

/// Kills the program while no refresh is under way. If a kill loses the answer to a refresh, the
/// pair of tokens is lost, and only another consent helps.
async fn kill(stage: &Stage, program: Program) {
    let quiet = async || {
        let stored = stage.stored().expect("stored");
        stored["refreshBeganAt"].is_null()
    };
    until("no refresh under way", quiet).await;
    program.kill().await;
}

/// Returns the number of pairs of tokens that the CRM issued.
pub fn pairs(crm: &Server) -> u64 {
    answers(crm, 200)
}

/// Returns the number of answers of the token endpoint with this status.
fn answers(crm: &Server, status: u16) -> u64 {
    crm.admin(|core, _| {
        let token = |key: &(Endpoint, u16)| *key == (Endpoint::OauthToken, status);
        let counts = core.counts().iter().filter(|(key, _)| token(key));
        counts.map(|(_, count)| *count).sum()
    })
}

async fn journey(stage: &Stage, size: &Size) {
    stage.connected().await;
    let all = calls(size.calls + size.calls / 10);
    let (first, later) = all.split_at(size.calls);
    let mut parts = first.chunks(first.len().div_ceil(size.kills + 1));
    let mut told = 0;
    let mut tell = |part: &[Recording]| {
        part.iter()
            .for_each(|call| stage.place.append("recorded", &call.ami));
        told += part.len();
        told
    };
    for _ in 0..size.kills {
        let so_far = tell(parts.next().unwrap_or_default());
        let program = stage.place.start(&stage.flags(&[]), &[]);
        journaled(&stage.crm, so_far * 2 / 3).await;
        kill(stage, program).await;
    }
    let so_far = tell(parts.next().unwrap_or_default());
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    journaled(&stage.crm, so_far).await;
    program.settled(so_far as u64).await;
    let pairs = pairs(&stage.crm);
    assert!(pairs > size.kills as u64, "{pairs} pairs");
    stage.revoke();
    let over = program.until("the end of the connection", |it| {
        it.pause
            .as_ref()
            .is_some_and(|pause| pause.reason == "reconnect")
    });
    let over = over.await;
    assert_eq!(over.token.state, "reconnect");
    let fix = over.pause.expect("a pause").fix;
    assert!(fix.contains("run: callbridge connect --crm-url"), "{fix}");
    let whole = tell(later);
    let kept = |it: &callbridge_model::Status| it.books.finished == whole as u64;
    let status = program.until("all calls taken", kept).await;
    assert!(status.books.balance());
    stage.connected().await;
    journaled(&stage.crm, whole).await;
    let status = program.settled(whole as u64).await;
    assert_eq!(status.books.journaled, whole as u64);
    assert_eq!(status.pause, None);
    program.terminate().await;
    let expected: Vec<Expected> = recordings::expected(&all);
    let mut wrong = crm::compare(&stage.crm, &[], &expected);
    wrong.extend(crm::conduct(&stage.crm, |_| false));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Promise: Calls reach the CRM across token refreshes, kills, and a new consent.
#[tokio::test]
async fn calls_are_journaled_across_refreshes_kills_and_new_consent() {
    let life = Duration::from_secs(3);
    let size = Size {
        life,
        calls: 60,
        kills: 3,
    };
    let stage = Stage::new(size.life).await;
    journey(&stage, &size).await;
}

/// Runs with 200 calls at the rate in the document. It takes some minutes: `tests/run consent`.
#[tokio::test]
async fn opt_in_run_with_20s_tokens_journals_every_call() {
    if std::env::var_os("CALLBRIDGE_CONSENT_FULL").is_none() {
        return;
    }
    let life = Duration::from_secs(20);
    let size = Size {
        life,
        calls: 200,
        kills: 8,
    };
    let stage = Stage::at_full_rate(size.life).await;
    journey(&stage, &size).await;
}

/// The token endpoint fails in every way that does not make the refresh token invalid, for longer
/// than an access token lives. Calls wait and are sent automatically, without a new consent.
#[tokio::test]
async fn failing_token_endpoint_past_expiry_keeps_connection() {
    let stage = Stage::new(Duration::from_secs(3)).await;
    stage.connected().await;
    let all = calls(20);
    let failing = [Action::Status(503), Action::Gateway(400), Action::Cut];
    let rules = failing.map(|action| Rule::next(Endpoint::OauthToken, 1, action));
    stage.crm.admin(|core, _| core.set_faults(rules.into()));
    let before = pairs(&stage.crm);
    let (first, later) = all.split_at(10);
    let tell = |part: &[Recording]| {
        part.iter()
            .for_each(|call| stage.place.append("recorded", &call.ami));
    };
    tell(first);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    let waits = |it: &callbridge_model::Status| {
        let pause = it.pause.as_ref();
        pause.is_some_and(|it| {
            it.reason == "unreachable" && it.fix.contains("tries again automatically")
        })
    };
    program.until("the end of the token", waits).await;
    tell(later);
    let status = program.settled(all.len() as u64).await;
    assert_eq!((status.books.journaled, status.pause), (20, None));
    assert!(pairs(&stage.crm) > before);
    assert_eq!((answers(&stage.crm, 503), answers(&stage.crm, 400)), (1, 1));
    program.terminate().await;
    let wrong = crm::conduct(&stage.crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A code is exchanged again if no answer refers to it.
#[tokio::test]
async fn code_is_exchanged_though_a_gateway_answers_first() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let failing = [Action::Gateway(401), Action::Status(503)];
    let rules = failing.map(|action| Rule::next(Endpoint::OauthToken, 1, action));
    stage.crm.admin(|core, _| core.set_faults(rules.into()));
    stage.connected().await;
    assert_eq!(pairs(&stage.crm), 1);
    stage.judge();
}
