use super::*;
use crate::people::files::Watched;
use crate::trunk::Trunk;
use callbridge_call::{EpochSeconds, Extension, RawNumber};
use callbridge_model::CallUuid;
use callbridge_testkit::sample::call;
use std::time::Duration;

fn rules(flag: &str) -> Rules {
    let defaults = Trunk {
        country: Country::parse("UZ"),
        ..Trunk::default()
    };
    let trunk = crate::trunk::parse(flag, &defaults).expect("a good flag");
    Rules {
        trunks: Trunks::new(vec![trunk]).expect("one trunk"),
        ..Rules::default()
    }
}

const CITY: &str = "city=PJSIP/city,strip=9,lead=var:LEAD_ID,employees=101:501";

fn judge_with_rules(rules: &Rules, call: &FinishedCall) -> Judged {
    judge(call, "pbx1", rules, &People::default(), call.ended)
}

fn judge_call(call: &FinishedCall) -> Judged {
    judge_with_rules(&rules(CITY), call)
}

fn dead_letter_reason(call: &FinishedCall) -> (Option<Reason>, String) {
    let judged = judge_call(call);
    assert_eq!(judged.outcome, Outcome::DeadLetter);
    (judged.reason, judged.message)
}

#[test]
fn answered_call_becomes_a_record_with_every_value() {
    let call = FinishedCall {
        did: Some("998712001122".to_owned()),
        ..call()
    };
    let judged = judge_call(&call);
    assert_eq!((judged.outcome, judged.reason), (Outcome::Journal, None));
    assert_eq!(
        judged.record,
        CallRecord {
            uuid: Some(CallUuid(uuid::uuid!(
                "0ceb32a8-260a-5ba6-b8f1-30205fcc212d"
            ))),
            linkedid: "1795151317.146".to_owned(),
            pbx: "pbx1".to_owned(),
            direction: Direction::Inbound,
            answered: true,
            lead_id: LeadId::new(4001),
            lead_from: Some("variable LEAD_ID".to_owned()),
            trunk: Some("city".to_owned()),
            client_phone: Phone::from_e164("+998901110001"),
            employee: Some("101".to_owned()),
            employee_id: EmployeeId::new(501),
            employees_in_order: vec!["101".to_owned()],
            started_at: EpochSeconds::new(1_795_151_317),
            duration_sec: 5,
            talk_time_sec: 4,
            incomplete: false,
            estimate: false,
            by_hand: None,
            did: Some("998712001122".to_owned()),
        }
    );
    assert_eq!(
        judged,
        judge_call(&call),
        "the same call is judged the same"
    );
}

/// Returns rules that skip calls on this PBX that start less than a second after the sample call.
fn rules_since(pbx: &str) -> Rules {
    Rules {
        since: [(pbx.to_owned(), call().started.plus(Duration::from_secs(1)))].into(),
        ..rules(CITY)
    }
}

#[test]
fn since_date_applies_to_its_pbx_and_its_branches_only() {
    let rules = rules_since("pbx1");
    let people = People::default();
    let call = call();
    let branch_outcome = judge(&call, "pbx1/branch", &rules, &people, call.ended).outcome;
    assert_eq!(branch_outcome, Outcome::Skipped);
    let other_outcome = judge(&call, "pbx2", &rules, &people, call.ended).outcome;
    assert_ne!(other_outcome, Outcome::Skipped);
}

#[test]
fn internal_and_skipped_calls_have_no_uuid_and_no_reason() {
    let mut internal = call();
    (internal.direction, internal.trunk) = (Direction::Internal, None);
    let mut unanswered = call();
    unanswered.answered = false;
    let early = Rules {
        not_before: Some(call().started.plus(Duration::from_secs(1))),
        ..rules(CITY)
    };
    let quiet = rules("city=PJSIP/city,unanswered=no");
    let off = rules("city=PJSIP/city,journal=no");
    for (judged, outcome) in [
        (judge_call(&internal), Outcome::Internal),
        (judge_with_rules(&quiet, &unanswered), Outcome::Skipped),
        (judge_with_rules(&off, &call()), Outcome::Skipped),
        (judge_with_rules(&early, &call()), Outcome::Skipped),
        (
            judge_with_rules(&rules_since("pbx1"), &call()),
            Outcome::Skipped,
        ),
    ] {
        assert_eq!((judged.outcome, judged.reason), (outcome, None));
        assert_eq!(judged.record.uuid, None);
    }
    assert_eq!(
        judge_call(&unanswered).outcome,
        Outcome::Journal,
        "unanswered=yes is the default"
    );
}

#[test]
fn call_without_a_lead_waits_and_reports_the_reason() {
    let mut call = call();
    call.variables.clear();
    let (reason, message) = dead_letter_reason(&call);
    assert_eq!(reason, Some(Reason::NoLead));
    assert_eq!(message, "variable LEAD_ID holds no lead");
    assert!(judge_call(&call).record.uuid.is_some());
    let unruled = judge_with_rules(&rules("city=PJSIP/city"), &call);
    assert_eq!(
        unruled.message,
        "trunk city has no lead rule: set `lead=` or --lead"
    );
    call.trunk = Some("gone".to_owned());
    let (reason, message) = dead_letter_reason(&call);
    assert_eq!(reason, Some(Reason::NoLead));
    assert_eq!(
        message,
        "no --trunk is called gone any more, so no rule gives a lead"
    );
}

#[test]
fn two_leads_in_a_variable_are_ambiguous_and_junk_is_ignored() {
    let mut call = call();
    call.variables[0].values = vec!["4001".to_owned(), "junk".to_owned()];
    assert_eq!(judge_call(&call).record.lead_id, LeadId::new(4001));
    call.variables[0].values = vec!["4002".to_owned(), "4001".to_owned()];
    let (reason, message) = dead_letter_reason(&call);
    assert_eq!(reason, Some(Reason::AmbiguousLead));
    assert_eq!(
        message,
        "variable LEAD_ID has leads 4001 and 4002 in one call"
    );
    call.variables[0].values = vec!["L-17".to_owned()];
    assert_eq!(
        dead_letter_reason(&call).1,
        "variable LEAD_ID is `L-17`, which is not a lead id"
    );
}

/// Promise: No value is guessed.
#[test]
fn call_with_unsendable_facts_is_dead_with_best_values() {
    let mut incomplete = call();
    incomplete.incomplete = Some("the hang-up of PJSIP/city-0000004f was missed".to_owned());
    let (reason, message) = dead_letter_reason(&incomplete);
    assert_eq!(reason, Some(Reason::Incomplete));
    assert_eq!(message, "the hang-up of PJSIP/city-0000004f was missed");
    let record = judge_call(&incomplete).record;
    assert!(record.incomplete);
    assert_eq!(
        (record.lead_id, record.duration_sec),
        (LeadId::new(4001), 5)
    );

    let mut torn = call();
    torn.talk = Duration::from_secs(9);
    assert_eq!(
        dead_letter_reason(&torn),
        (
            Some(Reason::TalkExceedsDuration),
            "9.000 s of talk in a call of 5.020 s".to_owned()
        )
    );

    let mut ancient = call();
    ancient.started = EventTime::from_seconds(17);
    ancient.ended = EventTime::from_seconds(27);
    let arrival = EventTime::from_seconds(1_795_151_317);
    let limited = Rules {
        not_before: Some(arrival),
        ..rules(CITY)
    };
    let judged = judge(&ancient, "pbx1", &limited, &People::default(), arrival);
    assert_eq!(
        judged.reason,
        Some(Reason::InvalidEpoch),
        "a wrong clock is no reason to skip"
    );
    assert_eq!(judged.record.started_at, EpochSeconds::new(1_795_151_307));
}

#[test]
fn call_of_unlisted_extension_is_sent_without_employee_or_waits() {
    let mut call = call();
    call.employee = Some(Extension::new("103"));
    let sent = judge_call(&call);
    assert_eq!(
        (sent.outcome, sent.record.employee_id),
        (Outcome::Journal, None)
    );
    assert_eq!(
        sent.remarks,
        ["extension 103 is not among the employees of city"]
    );
    let strict = Rules {
        require_employee: true,
        ..rules(CITY)
    };
    let waiting = judge_with_rules(&strict, &call);
    assert_eq!(
        (waiting.outcome, waiting.reason),
        (Outcome::DeadLetter, Some(Reason::NoEmployee))
    );
    call.employee = None;
    let unstaffed = judge_with_rules(&strict, &call);
    assert_eq!(
        unstaffed.outcome,
        Outcome::Journal,
        "no employee took part, so none is required"
    );
}

#[test]
fn dead_call_retried_with_another_lead_keeps_its_uuid() {
    let mut call = call();
    call.incomplete = Some("the end was missed".to_owned());
    let old = judge_call(&call).record;
    let choice = RetryValues {
        lead: LeadId::new(7),
        employee: Some(EmployeeChoice::None),
        ..RetryValues::default()
    };
    let people = People::default();
    let now = call.ended;
    let retried = remap(&old, &call, Some(choice), &rules(CITY), &people, now);
    assert_eq!((retried.outcome, retried.reason), (Outcome::Journal, None));
    let expected = CallRecord {
        lead_id: LeadId::new(7),
        lead_from: Some(BY_HAND.to_owned()),
        employee_id: None,
        ..old.clone()
    };
    assert_eq!(retried.record, expected);

    let strict = Rules {
        require_employee: true,
        ..rules("city=PJSIP/city,lead=var:LEAD_ID")
    };
    let plain = remap(
        &old,
        &call,
        Some(RetryValues::default()),
        &strict,
        &people,
        now,
    );
    assert_eq!(plain.reason, Some(Reason::NoEmployee));
    let without_employee = remap(&old, &call, Some(choice), &strict, &people, now);
    assert_eq!(
        without_employee.outcome,
        Outcome::Journal,
        "a person said: none"
    );
}

#[test]
fn waiting_call_is_released_when_a_list_has_its_number() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("leads.csv");
    std::fs::write(&file, "phone,leadId\n").expect("written");
    let rules = rules(&format!("city=PJSIP/city,lead=csv:{}", file.display()));
    let call = call();
    let (mut lists, _) = Watched::load(rules.every_trunk(), call.ended).expect("good");
    let waiting = judge(&call, "pbx1", &rules, lists.people(), call.ended);
    assert_eq!(waiting.reason, Some(Reason::NoLead));
    let still = remap(
        &waiting.record,
        &call,
        None,
        &rules,
        lists.people(),
        call.ended,
    );
    assert_eq!(
        (still.outcome, still.reason),
        (Outcome::DeadLetter, Some(Reason::NoLead))
    );

    std::fs::write(&file, "phone,leadId\n901110001,4001\n").expect("written");
    // The file is read on the second check that finds it unchanged.
    let looks = [lists.reload(call.ended), lists.reload(call.ended)];
    assert_eq!(looks.map(|news| news.len()), [0, 1]);
    let released = remap(
        &waiting.record,
        &call,
        None,
        &rules,
        lists.people(),
        call.ended,
    );
    assert_eq!(released.outcome, Outcome::Journal);
    assert_eq!(released.record.lead_id, LeadId::new(4001));
    assert_eq!(released.record.uuid, waiting.record.uuid);
}

/// Judges an outbound call for which the PBX reports this dialed number.
fn judge_shown(rules: &Rules, shown: &str) -> Judged {
    let number = RawNumber {
        text: shown.to_owned(),
        from_dial_string: false,
    };
    let call = FinishedCall {
        direction: Direction::Outbound,
        number: None,
        shown_number: Some(number),
        ..call()
    };
    let (lists, _) = Watched::load(rules.every_trunk(), call.ended).expect("good");
    judge(&call, "pbx1", rules, lists.people(), call.ended)
}

/// A campaign's outbound call shows the company's number, whereas a callback shows the customer's.
/// Only the customer's number has a lead.
#[test]
fn shown_number_is_customer_number_only_with_a_lead() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("leads.csv");
    std::fs::write(&file, "phone,leadId\n998901110005,4005\n").expect("written");
    let rules = rules(&format!("city=PJSIP/city,lead=csv:{}", file.display()));
    let customers = judge_shown(&rules, "998901110005");
    assert_eq!(customers.record.lead_id, LeadId::new(4005));
    let phone = customers.record.client_phone.expect("a number");
    assert_eq!(phone.as_str(), "+998901110005");
    let own = judge_shown(&rules, "712000000");
    assert_eq!(
        (own.reason, own.record.client_phone),
        (Some(Reason::NoLead), None)
    );
}
