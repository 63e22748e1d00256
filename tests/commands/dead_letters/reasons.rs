//! Tests that each reason occurs, shows its fix, and ends as its fix promises.

use super::seed;
use crate::commands::sidecar::{PBX, Place, Running, crm};
use callbridge_model::Reason;
use callbridge_sandbox::{Action, Endpoint, Rule, Server};
use callbridge_spool::fix;
use callbridge_testbed::calls::{Call, now, recording};
use callbridge_testbed::pbx::FakePbx;
use serde_json::{Value, json};

/// Returns the only dead letter, which must have this reason.
async fn only_letter(place: &Place, reason: Reason) -> Value {
    let mut letters = place.letters("").await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = letters.remove(0);
    assert_eq!(letter["reason"], json!(reason.word()), "{letter}");
    let fix = fix(reason).replace(" ID", &format!(" {}", letter["id"]));
    let says = letter["fix"].as_str().unwrap_or_default();
    assert!(says.starts_with(&fix), "{letter}");
    let message = letter["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{letter}");
    letter
}

/// Runs until these calls are finished.
async fn run_calls(place: &Place, crm: &Server, calls: &[Call], more: &[String]) {
    place.write("calls.ami", recording(calls));
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.extend_from_slice(more);
    place.run_until_idle(&flags).await;
}

/// A running callbridge that ended an inbound call after `--max-call`, with its PBX and its CRM.
struct CutCall {
    place: Place,
    crm: Server,
    call: Call,
    daemon: Running,
    flags: Vec<String>,
    _pbx: FakePbx,
}

/// Reports a call up to its first event of this kind, and waits for the dead letter.
async fn cut_call_before(event: &str) -> CutCall {
    let place = Place::new();
    let crm = crm(|_| ()).await;
    let pbx = FakePbx::ami().await;
    let mut flags = place.flags(&crm.url());
    flags.push(format!("--source=ami://bridge@{}", pbx.addr()));
    flags.push("--max-call=2s".to_owned());
    let daemon = place.run(&flags).await;
    pbx.logged_in(1).await;
    let call = Call {
        begins: now(),
        ..Call::new(1, 4001)
    };
    let events = call.ami();
    let cut = events.find(&format!("Event: {event}\r\n"));
    pbx.say(&events.as_bytes()[..cut.expect("the event")]).await;
    place.reaches("/books/dead", 1).await;
    CutCall {
        place,
        crm,
        call,
        daemon,
        flags,
        _pbx: pbx,
    }
}

async fn run_again(place: &Place, crm: &Server) {
    place
        .run_until_idle(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
}

fn message(letter: &Value) -> &str {
    letter["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_lead_waits_until_the_list_has_its_number() {
    let (place, crm, call) = (Place::new(), crm(|_| ()).await, Call::without_lead(1));
    let leads = place.write("leads.csv", "phone,leadId\n");
    let list = format!(
        "--trunk=city=PJSIP/city,country=UZ,lead=csv:{}",
        leads.display()
    );
    place.write("calls.ami", call.ami());
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.retain(|flag| !flag.starts_with("--trunk="));
    flags.push(list);
    let daemon = place.run(&flags).await;
    place.reaches("/books/waiting", 1).await;
    let letter = only_letter(&place, Reason::NoLead).await;
    assert_eq!(letter["call"]["clientPhone"], json!(call.phone()));
    place.write(
        "leads.csv",
        format!("phone,leadId\n{},4005\n", call.phone()),
    );
    place.reaches("/books/journaled", 1).await;
    daemon.stop().await;
    assert_eq!(crm.journal()[0].call.lead_id, 4005);
}

/// Promise: If a number has two leads, callbridge chooses none of them.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_lead_call_is_sent_only_with_chosen_lead() {
    let (place, crm, call) = (Place::new(), crm(|_| ()).await, Call::without_lead(1));
    let rows = format!("phone,leadId\n{0},4001\n{0},4002\n", call.phone());
    let leads = place.write("leads.csv", rows);
    place.write("calls.ami", call.ami());
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.retain(|flag| !flag.starts_with("--trunk="));
    flags.push(format!(
        "--trunk=city=PJSIP/city,country=UZ,lead=csv:{}",
        leads.display()
    ));
    place.run_until_idle(&flags).await;
    let letter = only_letter(&place, Reason::AmbiguousLead).await;
    assert!(
        message(&letter).contains("4001") && message(&letter).contains("4002"),
        "{letter}"
    );
    let refused = place.ask("dead retry --all").await;
    assert_eq!(refused.code, 65, "{refused:?}");
    place.ask("dead retry --all --lead 4002").await.well();
    place.run_until_idle(&flags).await;
    assert_eq!(crm.journal()[0].call.lead_id, 4002);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_keeps_the_services_words_and_errors() {
    let strict = Rule::next(Endpoint::CallHistory, 1, Action::Status(400));
    let crm = crm(|config| config.rules = vec![strict]).await;
    let place = Place::new();
    run_calls(&place, &crm, &[Call::new(1, 4001)], &[]).await;
    let letter = only_letter(&place, Reason::Rejected).await;
    assert!(message(&letter).starts_with("400: "), "{letter}");
    assert_eq!(
        letter["attempts"].as_array().map(Vec::len),
        Some(1),
        "never repeated unchanged"
    );
    place.ask("dead retry --all --lead 4002").await.well();
    run_again(&place, &crm).await;
    assert_eq!(crm.journal()[0].call.lead_id, 4002);
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_is_a_letter_and_can_be_given_up() {
    let taken = Rule::next(Endpoint::CallHistory, 1, Action::Status(409));
    let crm = crm(|config| config.rules = vec![taken]).await;
    let place = Place::new();
    run_calls(&place, &crm, &[Call::new(1, 4001)], &[]).await;
    let letter = only_letter(&place, Reason::Conflict).await;
    assert!(message(&letter).starts_with("409: "), "{letter}");
    place.ask("dead discard --all").await.well();
    run_again(&place, &crm).await;
    assert_eq!(
        (crm.journal().len(), place.number("/books/discarded").await),
        (0, Some(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn second_call_with_same_uuid_is_refused_by_every_retry() {
    let (place, crm, first) = (Place::new(), crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&first), &[]).await;
    seed::twin(&place, &first).await;
    let letter = only_letter(&place, Reason::UuidConflict).await;
    assert_eq!(letter["uuid"], json!(first.uuid(PBX)));
    assert_eq!(letter["call"]["startedAt"], json!(first.begins + 60));
    for more in ["--dry-run", "", "--lead 4003"] {
        let said = place.ask(&format!("dead retry --all {more}")).await;
        assert_eq!(said.code, 65, "{more}: {said:?}");
        assert!(
            said.out.contains("another call has the uuid"),
            "{more}: {said:?}"
        );
    }
    place.ask("dead discard --all").await.well();
    run_again(&place, &crm).await;
    assert_eq!(crm.journal().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_error_retry_uses_new_lead_if_journal_lacks_call() {
    let (place, crm, call) = (Place::new(), crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    let id = seed::server_error(&place, &call).await;
    let letter = only_letter(&place, Reason::ServerError).await;
    assert_eq!(letter["id"], json!(id));
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let daemon = place.run(&flags).await;
    let said = place
        .ask("dead retry --all --lead 4002 --json")
        .await
        .well();
    assert!(
        said.contains("it may be in the journal with lead 4001"),
        "{said}"
    );
    place.reaches("/books/journaled", 2).await;
    daemon.stop().await;
    let sent = crm.journal();
    assert_eq!(json!(sent[1].call.uuid), letter["uuid"]);
    assert_eq!(sent[1].call.lead_id, 4002);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_with_another_lead_conflicts_with_a_journaled_call() {
    let (place, crm, call) = (Place::new(), crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    seed::unconfirmed(&place, &call).await;
    only_letter(&place, Reason::Unconfirmed).await;
    place.ask("dead retry --all --lead 4002").await.well();
    run_again(&place, &crm).await;
    let letter = only_letter(&place, Reason::Conflict).await;
    assert!(message(&letter).contains("lead 4001"), "{letter}");
    assert_eq!(crm.journal().len(), 1, "its uuid made no second record");
    place.ask("dead retry --all").await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_is_sent_again_under_its_uuid() {
    let (place, crm, call) = (Place::new(), crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    seed::unconfirmed(&place, &call).await;
    only_letter(&place, Reason::Unconfirmed).await;
    place.ask("dead retry --all --lead 4001").await.well();
    run_again(&place, &crm).await;
    assert_eq!(place.number("/books/journaled").await, Some(1));
    assert_eq!(crm.journal().len(), 1, "its uuid made no second record");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_hangup_is_incomplete_and_can_be_retried() {
    let CutCall {
        place,
        crm,
        call,
        daemon,
        flags: _,
        _pbx,
    } = cut_call_before("Hangup").await;
    let letter = only_letter(&place, Reason::Incomplete).await;
    assert_eq!(letter["call"]["incomplete"], json!(true));
    assert_eq!(
        letter["call"]["leadId"],
        json!(4001),
        "its best values are kept"
    );
    place.ask("dead retry --all").await.well();
    place.reaches("/books/journaled", 1).await;
    daemon.stop().await;
    assert_eq!(crm.journal()[0].call.uuid, call.uuid(PBX));
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_call_is_sent_with_values_given_by_hand() {
    let CutCall {
        place,
        crm,
        call,
        daemon,
        flags: _,
        _pbx,
    } = cut_call_before("BridgeEnter").await;
    let letter = only_letter(&place, Reason::Incomplete).await;
    assert_eq!(letter["call"]["answered"], json!(false), "{letter}");
    let fix = letter["fix"].as_str().unwrap_or_default();
    assert!(fix.contains("--answered yes|no"), "{fix}");
    let long = place.ask("dead retry --all --talk 2h").await;
    assert_eq!(long.code, 65, "{long:?}");
    assert!(long.out.contains("7200 s of talk in a call of"), "{long:?}");
    let said = place.ask("dead retry --all --answered yes --talk 1s").await;
    let said = said.well();
    assert!(said.contains("1 s of talk, by hand"), "{said}");
    place.reaches("/books/journaled", 1).await;
    let sent = crm.journal()[0].call.clone();
    assert_eq!((sent.answered, sent.talk_time_sec), (true, Some(1)));
    let words = "answered, 1 s of talk; the PBX reported: not answered";
    let story = place
        .ask(&format!("explain --call {}", call.uuid(PBX)))
        .await;
    let story = story.well();
    assert!(
        story.contains("by hand") && story.contains(words),
        "{story}"
    );
    let line = place.ask("calls").await.well();
    assert!(line.contains("talked 1 s, by hand"), "{line}");
    let kept = place.ask("calls --json").await.lines();
    assert_eq!(
        kept[0]["byHand"]["reportedAnswered"],
        json!(false),
        "{kept:?}"
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_direction_is_shown_and_sent_only_once_it_is_given() {
    let CutCall {
        place,
        crm,
        call: _,
        daemon,
        flags,
        _pbx,
    } = cut_call_before("Hangup").await;
    daemon.stop().await;
    // This is the record of a FreeSWITCH leg whose first channel was not received.
    let file = place.path("state").join("spool.db");
    let state = rusqlite::Connection::open(file).expect("a state");
    let change = "UPDATE calls SET record = json_set(record, '$.direction', 'UNKNOWN')";
    assert_eq!(state.execute(change, []), Ok(1));
    drop(state);
    let daemon = place.run(&flags).await;
    let letter = only_letter(&place, Reason::Incomplete).await;
    assert_eq!(letter["call"]["direction"], json!("UNKNOWN"), "{letter}");
    let shown = place.ask("dead show --all").await.well();
    assert!(shown.contains("UNKNOWN"), "{shown}");
    for words in ["dead retry --all", "dead retry --all --answered yes"] {
        let refused = place.ask(words).await;
        assert_eq!(refused.code, 65, "{refused:?}");
        assert!(
            refused.out.contains("its direction is unknown"),
            "{refused:?}"
        );
    }
    let sent = place
        .ask("dead retry --all --direction inbound")
        .await
        .well();
    assert!(sent.contains("direction INBOUND"), "{sent}");
    place.reaches("/books/journaled", 1).await;
    assert_eq!(crm.journal()[0].call.direction, "INBOUND");
    let kept = place.ask("calls --json").await.lines();
    assert_eq!(kept[0]["direction"], json!("INBOUND"), "{kept:?}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_call_shows_employee_and_refuses_answered_flag() {
    let rules = callbridge_sandbox::faults::parse("call-history times 1 status 400");
    let rules = rules.expect("rules").0;
    let (place, crm) = (Place::new(), crm(|config| config.rules = rules).await);
    let employees = ["--employees=101:777".to_owned()];
    run_calls(&place, &crm, &[Call::new(1, 4001)], &employees).await;
    let letter = only_letter(&place, Reason::Rejected).await;
    let show = place.ask("dead show --all").await.well();
    for words in [
        "101, in the CRM 777",
        "callbridge dead retry 1",
        "employee 777",
    ] {
        assert!(
            show.replace("\n               ", " ").contains(words),
            "{words}: {show}"
        );
    }
    let refused = place.ask("dead retry --all --answered yes").await;
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.out.contains("this one is rejected"), "{refused:?}");
    assert_eq!(place.letters("").await, [letter]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_start_time_gets_a_new_proposal_and_is_sent() {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    let call = Call {
        begins: now() + 7_200,
        ..Call::new(1, 4001)
    };
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    let letter = only_letter(&place, Reason::InvalidEpoch).await;
    let proposed = letter["call"]["startedAt"].as_i64().expect("a proposal");
    assert!((now() - proposed).abs() < 120, "{letter}");
    assert!(
        message(&letter).contains("ahead of this machine's clock"),
        "{letter}"
    );
    place.ask("dead retry --all").await.well();
    run_again(&place, &crm).await;
    assert_eq!(crm.journal()[0].call.started_at, proposed);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_a_required_employee_waits_for_one() {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    let required = "--require-employee".to_owned();
    let listed = "--employees=102:502".to_owned();
    let call = Call::new(1, 4001);
    run_calls(
        &place,
        &crm,
        std::slice::from_ref(&call),
        &[required.clone(), listed],
    )
    .await;
    let letter = only_letter(&place, Reason::NoEmployee).await;
    assert!(message(&letter).contains("101"), "{letter}");
    assert_eq!(place.number("/books/waiting").await, Some(1));
    // The next start has a list with the extension.
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.extend([required, "--employees=101:501".to_owned()]);
    let daemon = place.run(&flags).await;
    place.reaches("/books/journaled", 1).await;
    daemon.stop().await;
    assert_eq!(crm.journal()[0].call.employee_id, Some(501));
}
