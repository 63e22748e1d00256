//! Tests that callbridge uses a fallback when the token loses a right while it runs.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::Status;
use callbridge_sandbox::token::Grant;
use callbridge_sandbox::{Action, Endpoint, Rule, Server, ViolationKind};
use callbridge_testbed::wait::until;
use serde_json::Value;

const CALLS: [&str; 2] = [
    "PERMISSION_OPEN_API_CALL:SAVE",
    "PERMISSION_OPEN_API_CALL:READ",
];
const LEAD_SAVE: &str = "PERMISSION_OPEN_API_LEAD:SAVE";

fn grants(all: &[&str]) -> Vec<Grant> {
    all.iter().filter_map(|text| Grant::parse(text)).collect()
}

fn grant(crm: &Server, all: &[&str]) {
    crm.admin(|core, now| core.set_grants(now, grants(all)));
}

fn start(place: &Place, crm: &Server, more: &[&str]) -> Program {
    let source = place.file("recorded", "ami");
    let usual = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    place.run(&crm.url(), &[&usual[..], more].concat())
}

fn field(crm: &Server, id: &str) -> Value {
    crate::e2e::leads::lead_fields::field(crm, 4_001, id)
}

#[tokio::test]
async fn grant_added_while_running_takes_effect_after_crm_answer() {
    let (place, crm) = (Place::new(), crm::start().await);
    grant(&crm, &CALLS);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &["--lead-field=last_call=11"]);
    program.settled(1).await;
    let off = |it: &Status| {
        let fields = it.lead_fields.as_ref();
        fields.is_some_and(|fields| fields.state == "off" && fields.waiting == 1)
    };
    program.until("the right is missing", off).await;
    assert_eq!(field(&crm, "11"), Value::Null);
    grant(&crm, &[CALLS[0], CALLS[1], LEAD_SAVE]);
    // The fields cannot be read (403), but values are still written.
    let set = place.command(&["lead", "set", "4001", "12=x"]).await;
    assert!(set.status.success(), "{set:?}");
    until("the lead shows its call", async || {
        field(&crm, "11") != Value::Null
    })
    .await;
    let status = program.status().await.expect("a status");
    assert!(
        status.token.grants.iter().any(|it| it == LEAD_SAVE),
        "{:?}",
        status.token.grants
    );
    program.terminate().await;
}

/// Makes the sandbox refuse polls as if the right were missing.
fn no_polls(crm: &Server) {
    let rule = Rule::always(Endpoint::Request, Action::Status(403));
    crm.admin(|core, _| core.set_faults(vec![rule]));
}

#[tokio::test]
async fn missing_poll_right_confirms_calls_by_pages_and_is_shown() {
    let (place, crm) = (Place::new(), crm::start().await);
    no_polls(&crm);
    let calls = ["inbound_answered", "outbound_answered", "blind_transfer"].map(recordings::one);
    for call in &calls {
        place.append("recorded", &call.ami);
    }
    let mut program = start(&place, &crm, &[]);
    program
        .until("all confirmed", |it| it.books.journaled == 3)
        .await;
    let last = recordings::one("inbound_no_answer");
    place.append("recorded", &last.ami);
    let status = program
        .until("one alone", |it| it.books.journaled == 4)
        .await;
    assert_eq!(status.pause, None);
    let polls = status.degraded.iter().find(|it| it.part == "polls");
    let polls = polls.expect("it is said");
    assert!(polls.reason.starts_with("403"), "{}", polls.reason);
    assert!(polls.fallback.starts_with("pages of the CRM's journal"));
    program.terminate().await;
    let asked = crm.admin(|core, _| core.counts().get(&(Endpoint::Request, 403)).copied());
    assert_eq!(asked, Some(1), "once in an hour");
    let wrong = crm::conduct(&crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn unconfirmable_calls_are_sent_and_confirmed_once_possible() {
    let (place, crm) = (Place::new(), crm::start().await);
    grant(&crm, &CALLS[..1]);
    no_polls(&crm);
    let calls = ["inbound_answered", "outbound_answered", "blind_transfer"].map(recordings::one);
    place.append("recorded", &calls[0].ami);
    let mut program = start(&place, &crm, &[]);
    let said = |it: &Status| {
        let polls = it.degraded.iter().find(|it| it.part == "polls");
        polls.is_some_and(|it| {
            it.fallback
                .contains("nothing shows whether they are journaled")
        })
    };
    program.until("it is said", said).await;
    for call in &calls[1..] {
        place.append("recorded", &call.ami);
    }
    let status = program
        .until("all sent", |it| it.books.submitted == 3)
        .await;
    assert_eq!(status.pause, None);
    until("all journaled", async || crm.journal().len() == 3).await;
    crm.admin(|core, _| core.set_faults(Vec::new()));
    grant(&crm, &CALLS);
    program.terminate().await;
    let mut program = start(&place, &crm, &[]);
    let status = program.settled(3).await;
    assert_eq!((status.books.journaled, status.pause), (3, None));
    program.terminate().await;
    let wrong = crm::conduct(&crm, |kind| kind == ViolationKind::RepeatAfter403);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_failing(status: &Status) -> bool {
    let pause = status.pause.as_ref();
    pause.is_some_and(|pause| pause.reason == "failing")
}

#[tokio::test]
async fn values_by_hand_go_out_while_the_crm_takes_no_calls() {
    let (place, crm) = (Place::new(), crm::start().await);
    grant(&crm, &[CALLS[0], CALLS[1], LEAD_SAVE]);
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
    grant(&crm, &[CALLS[0], CALLS[1], "PERMISSION_OPEN_API_LEAD:READ"]);
    crm.admin(|core, _| {
        let failed = Rule::always(Endpoint::CallHistory, Action::Failed);
        core.set_faults(vec![
            failed,
            Rule::always(Endpoint::Lead, Action::Gateway(404)),
        ]);
    });
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &[]);
    program.until("a letter", |it| it.books.dead == 1).await;
    let asked = async || {
        let key = (Endpoint::Lead, 404);
        crm.admin(|core, _| core.counts().get(&key).is_some())
    };
    until("the lookup", asked).await;
    let rests = "leads of failed calls are not looked up for an hour";
    until("its rest", async || program.log().contains(rests)).await;
    let letter = place.letters().await.remove(0);
    let message = letter["message"].as_str().expect("text");
    assert!(!message.contains("does not exist"), "{message}");
    program.terminate().await;
}

/// Sends a call through a proxy that first answers with its own pages of this status.
async fn through_a_proxy(status: u16) {
    let (place, crm) = (Place::new(), crm::start().await);
    let page = Action::Gateway(status);
    let endpoints = [
        Endpoint::TokenInfo,
        Endpoint::CallHistory,
        Endpoint::Request,
        Endpoint::Filter,
    ];
    let rules = endpoints.map(|endpoint| Rule::next(endpoint, 1, page));
    crm.admin(|core, _| core.set_faults(rules.into()));
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &[]);
    let settled = program.settled(1).await;
    assert_eq!(settled.books.journaled, 1, "{status}");
    let log = program.log();
    for word in ["token_refused", "no_grant", "token_shared"] {
        assert!(!log.contains(word), "{status}: {log}");
    }
    program.terminate().await;
}

#[tokio::test]
async fn proxy_error_pages_affect_no_call_grant_or_token() {
    tokio::join!(
        through_a_proxy(400),
        through_a_proxy(401),
        through_a_proxy(403),
        through_a_proxy(406),
        through_a_proxy(409),
        through_a_proxy(413),
        through_a_proxy(422),
        through_a_proxy(429),
    );
}

#[tokio::test]
async fn rejected_dead_letter_has_the_crm_parse_error() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    // A number field gets a phone number, which is a text.
    let fields = ["--field=talk=spoken", "--field=phone=talkTimeSec"];
    let mut program = start(&place, &crm, &fields);
    program.until("a letter", |it| it.books.dead == 1).await;
    let letter = place.letters().await.remove(0);
    let message = letter["message"].as_str().expect("text");
    assert_eq!(letter["reason"], "rejected");
    assert!(message.contains("talkTimeSec"), "{message}");
    assert!(message.contains("messageCode 3705"), "{message}");
    program.terminate().await;
}
