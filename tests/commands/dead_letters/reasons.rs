//! Tests that each reason of dead letters occurs, that its fix is shown, and that the fix works.

use super::seed;
use crate::commands::sidecar::{PBX, Place, RunningCommand, start_crm};
use callbridge_model::Reason;
use callbridge_sandbox::{Action, Endpoint, Rule, Server};
use callbridge_spool::fix;
use callbridge_testbed::calls::{Call, now, recording};
use callbridge_testbed::pbx::FakePbx;
use serde_json::{Value, json};

/// Returns the only dead letter. Asserts its reason, its fix, and that it has a message.
async fn only_dead_letter(place: &Place, reason: Reason) -> Value {
    let mut letters = place.dead_letters("").await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = letters.remove(0);
    assert_eq!(letter["reason"], json!(reason.word()), "{letter}");
    let expected_fix = fix(reason).replace(" ID", &format!(" {}", letter["id"]));
    let shown_fix = letter["fix"].as_str().unwrap_or_default();
    assert!(shown_fix.starts_with(&expected_fix), "{letter}");
    let message = letter["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{letter}");
    letter
}

/// Runs `run --until-idle` on a recording of these calls, with the flags `more`.
async fn run_calls(place: &Place, crm: &Server, calls: &[Call], more: &[String]) {
    place.write("calls.ami", recording(calls));
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.extend_from_slice(more);
    place.run_until_idle(&flags).await;
}

/// A running daemon that ended an inbound call after `--max-call`, with the PBX and the CRM.
struct CutCall {
    place: Place,
    crm: Server,
    call: Call,
    daemon: RunningCommand,
    flags: Vec<String>,
    _pbx: FakePbx,
}

/// Sends the events of a call up to the first event of this kind, and waits for the dead letter.
async fn cut_call_before(event: &str) -> CutCall {
    let place = Place::new();
    let crm = start_crm(|_| ()).await;
    let pbx = FakePbx::ami().await;
    let mut flags = place.flags(&crm.url());
    flags.push(format!("--source=ami://bridge@{}", pbx.addr()));
    flags.push("--max-call=2s".to_owned());
    let daemon = place.start_daemon(&flags).await;
    pbx.logged_in(1).await;
    let call = Call {
        begins: now(),
        ..Call::new(1, 4001)
    };
    let events = call.ami();
    let cut = events.find(&format!("Event: {event}\r\n"));
    pbx.say(&events.as_bytes()[..cut.expect("the event")]).await;
    place.wait_for_number("/books/dead", 1).await;
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

/// Returns how many submissions of calls the CRM accepted.
fn count_accepted_calls(crm: &Server) -> u64 {
    let key = (Endpoint::CallHistory, 200);
    crm.admin(|core, _| core.counts().get(&key).copied().unwrap_or_default())
}

fn message(letter: &Value) -> &str {
    letter["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_lead_waits_until_the_list_has_its_number() {
    let (place, crm, call) = (Place::new(), start_crm(|_| ()).await, Call::without_lead(1));
    let leads = place.write("leads.csv", "phone,leadId\n");
    let list = format!(
        "--trunk=city=PJSIP/city,country=UZ,lead=csv:{}",
        leads.display()
    );
    place.write("calls.ami", call.ami());
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.retain(|flag| !flag.starts_with("--trunk="));
    flags.push(list);
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/waiting", 1).await;
    let letter = only_dead_letter(&place, Reason::NoLead).await;
    assert_eq!(letter["call"]["clientPhone"], json!(call.phone()));
    place.write(
        "leads.csv",
        format!("phone,leadId\n{},4005\n", call.phone()),
    );
    place.wait_for_number("/books/journaled", 1).await;
    daemon.stop().await;
    assert_eq!(crm.journal()[0].call.lead_id, 4005);
}

/// Promise: If a number has two leads, callbridge chooses none of them.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_lead_call_is_sent_only_with_chosen_lead() {
    let (place, crm, call) = (Place::new(), start_crm(|_| ()).await, Call::without_lead(1));
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
    let letter = only_dead_letter(&place, Reason::AmbiguousLead).await;
    assert!(
        message(&letter).contains("4001") && message(&letter).contains("4002"),
        "{letter}"
    );
    let refused = place.run_on_state("dead retry --all").await;
    assert_eq!(refused.code, 65, "{refused:?}");
    place
        .run_on_state("dead retry --all --lead 4002")
        .await
        .expect_success();
    place.run_until_idle(&flags).await;
    assert_eq!(crm.journal()[0].call.lead_id, 4002);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_call_keeps_crm_errors_and_accepts_another_lead() {
    let place = Place::new();
    let crm = start_crm(|_| ()).await;
    // The CRM refuses the extension 101, because it is not a phone number.
    let wrong_field = ["--field=extension=clientPhone".to_owned()];
    run_calls(&place, &crm, &[Call::new(1, 4001)], &wrong_field).await;
    let letter = only_dead_letter(&place, Reason::Rejected).await;
    assert_eq!(
        message(&letter),
        "400: Maydonlar noto‘g‘ri to‘ldirilgan",
        "{letter}"
    );
    let errors = json!([{"field": "clientPhone", "reason": "VALID_PHONE"}]);
    assert_eq!(letter["errors"], errors, "{letter}");
    assert_eq!(
        letter["attempts"].as_array().map(Vec::len),
        Some(1),
        "never repeated unchanged"
    );
    place
        .run_on_state("dead retry --all --lead 4002")
        .await
        .expect_success();
    run_again(&place, &crm).await;
    assert_eq!(crm.journal()[0].call.lead_id, 4002);
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_becomes_dead_letter_that_can_be_discarded() {
    let conflict = Rule::next(Endpoint::CallHistory, 1, Action::Status(409));
    let crm = start_crm(|config| config.rules = vec![conflict]).await;
    let place = Place::new();
    run_calls(&place, &crm, &[Call::new(1, 4001)], &[]).await;
    let letter = only_dead_letter(&place, Reason::Conflict).await;
    assert!(message(&letter).starts_with("409: "), "{letter}");
    place
        .run_on_state("dead discard --all")
        .await
        .expect_success();
    run_again(&place, &crm).await;
    assert_eq!(
        (crm.journal().len(), place.number("/books/discarded").await),
        (0, Some(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn second_call_with_same_uuid_is_refused_by_every_retry() {
    let (place, crm, first) = (Place::new(), start_crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&first), &[]).await;
    seed::add_uuid_conflict(&place, &first).await;
    let letter = only_dead_letter(&place, Reason::UuidConflict).await;
    assert_eq!(letter["uuid"], json!(first.uuid(PBX)));
    assert_eq!(letter["call"]["startedAt"], json!(first.begins + 60));
    for more in ["--dry-run", "", "--lead 4003"] {
        let output = place
            .run_on_state(&format!("dead retry --all {more}"))
            .await;
        assert_eq!(output.code, 65, "{more}: {output:?}");
        assert!(
            output.out.contains("another call has the uuid"),
            "{more}: {output:?}"
        );
    }
    place
        .run_on_state("dead discard --all")
        .await
        .expect_success();
    run_again(&place, &crm).await;
    assert_eq!(crm.journal().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_error_retry_uses_new_lead_if_journal_lacks_call() {
    let (place, crm, call) = (Place::new(), start_crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    let id = seed::add_server_error(&place, &call).await;
    let letter = only_dead_letter(&place, Reason::ServerError).await;
    assert_eq!(letter["id"], json!(id));
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let daemon = place.start_daemon(&flags).await;
    let output = place
        .run_on_state("dead retry --all --lead 4002 --json")
        .await
        .expect_success();
    assert!(
        output.contains("it may be in the journal with lead 4001"),
        "{output}"
    );
    place.wait_for_number("/books/journaled", 2).await;
    daemon.stop().await;
    let sent = crm.journal();
    assert_eq!(json!(sent[1].call.uuid), letter["uuid"]);
    assert_eq!(sent[1].call.lead_id, 4002);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_with_another_lead_conflicts_with_a_journaled_call() {
    let (place, crm, call) = (Place::new(), start_crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    seed::add_unconfirmed(&place, &call).await;
    only_dead_letter(&place, Reason::Unconfirmed).await;
    place
        .run_on_state("dead retry --all --lead 4002")
        .await
        .expect_success();
    run_again(&place, &crm).await;
    let letter = only_dead_letter(&place, Reason::Conflict).await;
    assert!(message(&letter).contains("lead 4001"), "{letter}");
    assert_eq!(
        crm.journal().len(),
        1,
        "the same uuid made no second record"
    );
    place
        .run_on_state("dead retry --all")
        .await
        .expect_success();
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_call_is_sent_again_with_its_uuid() {
    let (place, crm, call) = (Place::new(), start_crm(|_| ()).await, Call::new(1, 4001));
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    seed::add_unconfirmed(&place, &call).await;
    only_dead_letter(&place, Reason::Unconfirmed).await;
    place
        .run_on_state("dead retry --all --lead 4001")
        .await
        .expect_success();
    assert_eq!(count_accepted_calls(&crm), 1);
    run_again(&place, &crm).await;
    assert_eq!(place.number("/books/journaled").await, Some(1));
    assert_eq!(count_accepted_calls(&crm), 2, "the call was sent again");
    assert_eq!(
        crm.journal().len(),
        1,
        "the same uuid made no second record"
    );
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
    } = cut_call_before("HangupRequest").await;
    let letter = only_dead_letter(&place, Reason::Incomplete).await;
    assert_eq!(letter["call"]["incomplete"], json!(true));
    assert_eq!(
        letter["call"]["leadId"],
        json!(4001),
        "the best known values are kept"
    );
    place
        .run_on_state("dead retry --all")
        .await
        .expect_success();
    place.wait_for_number("/books/journaled", 1).await;
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
    let letter = only_dead_letter(&place, Reason::Incomplete).await;
    assert_eq!(letter["call"]["answered"], json!(false), "{letter}");
    let fix = letter["fix"].as_str().unwrap_or_default();
    assert!(fix.contains("--answered yes|no"), "{fix}");
    let long = place.run_on_state("dead retry --all --talk 2h").await;
    assert_eq!(long.code, 65, "{long:?}");
    assert!(long.out.contains("7200 s of talk in a call of"), "{long:?}");
    let output = place
        .run_on_state("dead retry --all --answered yes --talk 1s")
        .await;
    let output = output.expect_success();
    assert!(output.contains("1 s of talk, by hand"), "{output}");
    place.wait_for_number("/books/journaled", 1).await;
    let sent = crm.journal()[0].call.clone();
    assert_eq!((sent.answered, sent.talk_time_sec), (true, Some(1)));
    let words = "answered, 1 s of talk; the PBX reported: not answered";
    let story = place
        .run_on_state(&format!("explain --call {}", call.uuid(PBX)))
        .await;
    let story = story.expect_success();
    assert!(
        story.contains("by hand") && story.contains(words),
        "{story}"
    );
    let line = place.run_on_state("calls").await.expect_success();
    assert!(line.contains("talked 1 s, by hand"), "{line}");
    let listed_calls = place.run_on_state("calls --json").await.lines();
    assert_eq!(
        listed_calls[0]["byHand"]["reportedAnswered"],
        json!(false),
        "{listed_calls:?}"
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_of_unknown_direction_is_sent_only_with_given_direction() {
    let CutCall {
        place,
        crm,
        call: _,
        daemon,
        flags,
        _pbx,
    } = cut_call_before("HangupRequest").await;
    daemon.stop().await;
    // This is the record of a FreeSWITCH leg whose first channel was not received.
    let file = place.path("state").join("spool.db");
    let state = rusqlite::Connection::open(file).expect("a state");
    let change = "UPDATE calls SET record = json_set(record, '$.direction', 'UNKNOWN')";
    assert_eq!(state.execute(change, []), Ok(1));
    drop(state);
    let daemon = place.start_daemon(&flags).await;
    let letter = only_dead_letter(&place, Reason::Incomplete).await;
    assert_eq!(letter["call"]["direction"], json!("UNKNOWN"), "{letter}");
    let shown = place.run_on_state("dead show --all").await.expect_success();
    assert!(shown.contains("UNKNOWN"), "{shown}");
    for words in ["dead retry --all", "dead retry --all --answered yes"] {
        let refused = place.run_on_state(words).await;
        assert_eq!(refused.code, 65, "{refused:?}");
        assert!(
            refused.out.contains("its direction is unknown"),
            "{refused:?}"
        );
    }
    let sent = place
        .run_on_state("dead retry --all --direction inbound")
        .await
        .expect_success();
    assert!(sent.contains("direction INBOUND"), "{sent}");
    place.wait_for_number("/books/journaled", 1).await;
    assert_eq!(crm.journal()[0].call.direction, "INBOUND");
    let listed_calls = place.run_on_state("calls --json").await.lines();
    assert_eq!(
        listed_calls[0]["direction"],
        json!("INBOUND"),
        "{listed_calls:?}"
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_call_shows_employee_and_refuses_answered_flag() {
    let rules = callbridge_sandbox::faults::parse("call-history times 1 status 400");
    let rules = rules.expect("rules").0;
    let (place, crm) = (Place::new(), start_crm(|config| config.rules = rules).await);
    let employees = ["--employees=101:777".to_owned()];
    run_calls(&place, &crm, &[Call::new(1, 4001)], &employees).await;
    let letter = only_dead_letter(&place, Reason::Rejected).await;
    let show = place.run_on_state("dead show --all").await.expect_success();
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
    let refused = place.run_on_state("dead retry --all --answered yes").await;
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.out.contains("this one is rejected"), "{refused:?}");
    assert_eq!(place.dead_letters("").await, [letter]);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_with_future_start_time_is_sent_with_proposed_time() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let call = Call {
        begins: now() + 7_200,
        ..Call::new(1, 4001)
    };
    run_calls(&place, &crm, std::slice::from_ref(&call), &[]).await;
    let letter = only_dead_letter(&place, Reason::InvalidEpoch).await;
    let proposed = letter["call"]["startedAt"].as_i64().expect("a proposal");
    assert!((now() - proposed).abs() < 120, "{letter}");
    assert!(
        message(&letter).contains("ahead of this machine's clock"),
        "{letter}"
    );
    place
        .run_on_state("dead retry --all")
        .await
        .expect_success();
    run_again(&place, &crm).await;
    assert_eq!(crm.journal()[0].call.started_at, proposed);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_a_required_employee_waits_for_one() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
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
    let letter = only_dead_letter(&place, Reason::NoEmployee).await;
    assert!(message(&letter).contains("101"), "{letter}");
    assert_eq!(place.number("/books/waiting").await, Some(1));
    // At the next start, the list of employees has the extension.
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.extend([required, "--employees=101:501".to_owned()]);
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/journaled", 1).await;
    daemon.stop().await;
    assert_eq!(crm.journal()[0].call.employee_id, Some(501));
}
