//! Tests that callbridge uses a fallback if the token loses a permission while it's running.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::Status;
use callbridge_sandbox::token::Grant;
use callbridge_sandbox::{Action, Endpoint, Rule, Server, ViolationKind};
use callbridge_testbed::wait::until;
use serde_json::Value;

/// The grants for writing and reading calls.
const CALL_GRANTS: [&str; 2] = [
    "PERMISSION_OPEN_API_CALL:SAVE",
    "PERMISSION_OPEN_API_CALL:READ",
];
const LEAD_SAVE: &str = "PERMISSION_OPEN_API_LEAD:SAVE";

/// Parses grant names.
fn parse_grants(names: &[&str]) -> Vec<Grant> {
    names.iter().filter_map(|text| Grant::parse(text)).collect()
}

/// Replaces the token's grants.
fn set_grants(crm: &Server, names: &[&str]) {
    crm.admin(|core, now| core.set_grants(now, parse_grants(names)));
}

/// Starts the program with the usual flags and those in `more`.
fn start(place: &Place, crm: &Server, more: &[&str]) -> Program {
    let source = place.file("recorded", "ami");
    let usual = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    place.run(&crm.url(), &[&usual[..], more].concat())
}

/// Returns the value of a field of lead 4001, or null if the lead has none.
fn field(crm: &Server, id: &str) -> Value {
    crate::e2e::leads::lead_fields::field(crm, 4_001, id)
}

#[tokio::test]
async fn grant_added_while_running_takes_effect_after_crm_answer() {
    let (place, crm) = (Place::new(), crm::start().await);
    set_grants(&crm, &CALL_GRANTS);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &["--lead-field=last_call=11"]);
    program.settled(1).await;
    program
        .until("the right is missing", |status| {
            let fields = status.lead_fields.as_ref();
            fields.is_some_and(|fields| fields.state == "off" && fields.waiting == 1)
        })
        .await;
    assert_eq!(field(&crm, "11"), Value::Null);
    set_grants(&crm, &[CALL_GRANTS[0], CALL_GRANTS[1], LEAD_SAVE]);
    // The token can't read fields (403), but callbridge still writes values.
    let set = place.command(&["lead", "set", "4001", "12=x"]).await;
    assert!(set.status.success(), "{set:?}");
    until("the field has a value", async || {
        field(&crm, "11") != Value::Null
    })
    .await;
    let status = program.status().await.expect("a status");
    assert!(
        status.token.grants.iter().any(|grant| grant == LEAD_SAVE),
        "{:?}",
        status.token.grants
    );
    program.terminate().await;
}

/// Makes the CRM reject polls with 403, as if the token weren't allowed to poll.
fn refuse_polls(crm: &Server) {
    let rule = Rule::always(Endpoint::Request, Action::Status(403));
    crm.admin(|core, _| core.set_faults(vec![rule]));
}

#[tokio::test]
async fn missing_poll_right_confirms_calls_by_pages_and_is_shown() {
    let (place, crm) = (Place::new(), crm::start().await);
    refuse_polls(&crm);
    let calls = ["inbound_answered", "outbound_answered", "blind_transfer"].map(recordings::one);
    for call in &calls {
        place.append("recorded", &call.ami);
    }
    let mut program = start(&place, &crm, &[]);
    program
        .until("all confirmed", |status| status.books.journaled == 3)
        .await;
    let last = recordings::one("inbound_no_answer");
    place.append("recorded", &last.ami);
    let status = program
        .until("the fourth call confirmed", |current| {
            current.books.journaled == 4
        })
        .await;
    assert_eq!(status.pause, None);
    let polls = status.degraded.iter().find(|part| part.part == "polls");
    let polls = polls.expect("polls are degraded");
    assert!(polls.reason.starts_with("403"), "{}", polls.reason);
    assert!(polls.fallback.starts_with("pages of the CRM's journal"));
    program.terminate().await;
    let polls_sent = crm.admin(|core, _| core.counts().get(&(Endpoint::Request, 403)).copied());
    assert_eq!(polls_sent, Some(1), "one poll per hour");
    let violations = crm::conduct(&crm, |_| false);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[tokio::test]
async fn unconfirmable_calls_are_sent_and_confirmed_once_possible() {
    let (place, crm) = (Place::new(), crm::start().await);
    set_grants(&crm, &CALL_GRANTS[..1]);
    refuse_polls(&crm);
    let calls = ["inbound_answered", "outbound_answered", "blind_transfer"].map(recordings::one);
    place.append("recorded", &calls[0].ami);
    let mut program = start(&place, &crm, &[]);
    let fallback = "nothing shows whether they are journaled";
    program
        .until("the missing confirmation is reported", |status| {
            let polls = status.degraded.iter().find(|part| part.part == "polls");
            polls.is_some_and(|part| part.fallback.contains(fallback))
        })
        .await;
    for call in &calls[1..] {
        place.append("recorded", &call.ami);
    }
    let status = program
        .until("all sent", |current| current.books.submitted == 3)
        .await;
    assert_eq!(status.pause, None);
    until("all journaled", async || crm.journal().len() == 3).await;
    crm.admin(|core, _| core.set_faults(Vec::new()));
    set_grants(&crm, &CALL_GRANTS);
    program.terminate().await;
    let mut program = start(&place, &crm, &[]);
    let status = program.settled(3).await;
    assert_eq!((status.books.journaled, status.pause), (3, None));
    program.terminate().await;
    let violations = crm::conduct(&crm, |kind| kind == ViolationKind::RepeatAfter403);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

fn is_failing(status: &Status) -> bool {
    let pause = status.pause.as_ref();
    pause.is_some_and(|pause| pause.reason == "failing")
}

#[tokio::test]
async fn lead_values_set_by_hand_are_sent_while_submissions_fail() {
    let (place, crm) = (Place::new(), crm::start().await);
    set_grants(&crm, &[CALL_GRANTS[0], CALL_GRANTS[1], LEAD_SAVE]);
    let rule = Rule::always(Endpoint::CallHistory, Action::Status(503));
    crm.admin(|core, _| core.set_faults(vec![rule]));
    let calls = [
        "inbound_answered",
        "outbound_answered",
        "blind_transfer",
        "attended_transfer",
        "ring_group",
    ];
    for call in calls.map(recordings::one) {
        place.append("recorded", &call.ami);
    }
    let mut program = start(&place, &crm, &[]);
    let status = program.until("failing submissions", is_failing).await;
    let fix = status.pause.expect("a pause").fix;
    assert!(fix.starts_with("submissions failing since"), "{fix}");
    let set = place
        .command(&["lead", "set", "4001", "15:=5", "16:=true"])
        .await;
    assert!(set.status.success(), "{set:?}");
    assert_eq!(field(&crm, "15"), 5);
    assert_eq!(field(&crm, "16"), true);
    program.terminate().await;
}

#[tokio::test]
async fn gateway_404_is_not_shown_as_missing_lead_in_dead_letter() {
    let (place, crm) = (Place::new(), crm::start().await);
    set_grants(
        &crm,
        &[
            CALL_GRANTS[0],
            CALL_GRANTS[1],
            "PERMISSION_OPEN_API_LEAD:READ",
        ],
    );
    crm.admin(|core, _| {
        let failed = Rule::always(Endpoint::CallHistory, Action::Failed);
        core.set_faults(vec![
            failed,
            Rule::always(Endpoint::Lead, Action::Gateway(404)),
        ]);
    });
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &[]);
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    until("the lookup", async || {
        let key = (Endpoint::Lead, 404);
        crm.admin(|core, _| core.counts().get(&key).is_some())
    })
    .await;
    let pause_message = "leads of failed calls are not looked up for an hour";
    until("the pause of lookups in the log", async || {
        program.log().contains(pause_message)
    })
    .await;
    let letter = place.letters().await.remove(0);
    let message = letter["message"].as_str().expect("text");
    assert!(!message.contains("does not exist"), "{message}");
    program.terminate().await;
}

/// The reasons for problems with the token or its grants.
const TOKEN_REASONS: [&str; 3] = ["token_refused", "no_grant", "token_shared"];

/// Returns how many requests to this endpoint got a response with this HTTP status.
fn answers(crm: &Server, endpoint: Endpoint, status: u16) -> Option<u64> {
    crm.admin(|core, _| core.counts().get(&(endpoint, status)).copied())
}

/// Checks that the status doesn't show any problem with the token or its grants.
fn check_token(status: &Status, message: &str) {
    let reason = status.pause.as_ref().map(|pause| pause.reason.as_str());
    let about_token = reason.is_some_and(|reason| TOKEN_REASONS.contains(&reason));
    assert!(!about_token, "{message}: {reason:?}");
    let state = status.token.state.as_str();
    assert!(
        !["refused", "no_grant"].contains(&state),
        "{message}: {state}"
    );
}

/// Checks that calls are journaled even though a proxy responds to the first request to each
/// endpoint with an error page that has this HTTP status.
async fn check_proxy_errors(status: u16) {
    let (place, crm) = (Place::new(), crm::start().await);
    let page = Action::Gateway(status);
    // A single call is confirmed by a poll.
    let endpoints = [
        Endpoint::TokenInfo,
        Endpoint::CallHistory,
        Endpoint::Request,
    ];
    let rules = endpoints.map(|endpoint| Rule::next(endpoint, 1, page));
    crm.admin(|core, _| core.set_faults(rules.into()));
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &[]);
    let settled = program.settled(1).await;
    assert_eq!(settled.books.journaled, 1, "{status}");
    check_token(&settled, &format!("first call, {status}"));
    for endpoint in endpoints {
        let count = answers(&crm, endpoint, status);
        assert_eq!(count, Some(1), "{endpoint:?} {status}");
    }
    let log = program.log();
    for word in TOKEN_REASONS {
        assert!(!log.contains(word), "{status}: {log}");
    }
    // The CRM rejects polls, so the next call is confirmed by a page of the journal.
    let rules = vec![
        Rule::always(Endpoint::Request, Action::Status(403)),
        Rule::next(Endpoint::Filter, 1, page),
    ];
    crm.admin(|core, _| core.set_faults(rules));
    place.append("recorded", &recordings::one("outbound_answered").ami);
    let settled = program.settled(2).await;
    assert_eq!(settled.books.journaled, 2, "{status}");
    check_token(&settled, &format!("second call, {status}"));
    assert_eq!(answers(&crm, Endpoint::Filter, status), Some(1), "{status}");
    program.terminate().await;
}

#[tokio::test]
async fn proxy_error_pages_affect_no_call_grant_or_token() {
    tokio::join!(
        check_proxy_errors(400),
        check_proxy_errors(401),
        check_proxy_errors(403),
        check_proxy_errors(406),
        check_proxy_errors(409),
        check_proxy_errors(413),
        check_proxy_errors(422),
        check_proxy_errors(429),
    );
}

#[tokio::test]
async fn rejected_dead_letter_has_the_crm_parse_error() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    // The CRM expects a number in `talkTimeSec`, but this mapping sends the phone number, which is
    // a string.
    let fields = ["--field=talk=spoken", "--field=phone=talkTimeSec"];
    let mut program = start(&place, &crm, &fields);
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    let letter = place.letters().await.remove(0);
    let message = letter["message"].as_str().expect("text");
    assert_eq!(letter["reason"], "rejected");
    assert!(message.contains("talkTimeSec"), "{message}");
    assert!(message.contains("messageCode 3705"), "{message}");
    program.terminate().await;
}
