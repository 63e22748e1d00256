//! Tests that a call arriving as a single message belongs to the right trunk, and that errors in it
//! refer to the field.

use super::*;
use crate::people::files::Watched;
use crate::people::rule::{EmployeeRule, LeadRule};
use crate::trunk::parse;
use callbridge_call::GivenIds;
use callbridge_testkit::sample;
use std::time::Duration;

fn rules(flags: &[&str]) -> Rules {
    let defaults = Trunk {
        country: Country::parse("UZ"),
        ..Trunk::default()
    };
    let trunks = flags
        .iter()
        .map(|flag| parse(flag, &defaults).expect("good"));
    Rules {
        trunks: Trunks::new(trunks.collect()).expect("trunks"),
        without_trunk: Some(defaults),
        ..Rules::default()
    }
}

/// Creates the sample call as a message that specifies a lead and an employee.
fn message_call() -> FinishedCall {
    let mut call = sample::call();
    call.given = Some(GivenIds {
        lead: Some(7),
        employee: Some(8),
    });
    call
}

#[test]
fn default_lists_are_used_if_no_trunk_flag_is_given() {
    let dir = tempfile::tempdir().expect("a folder");
    let leads = dir.path().join("leads.csv");
    std::fs::write(&leads, "phone,leadId\n+998901110001,4001\n").expect("written");
    let employees = dir.path().join("employees.csv");
    std::fs::write(&employees, "extension,employeeId\n101,501\n").expect("written");
    let defaults = Trunk {
        country: Country::parse("UZ"),
        leads: vec![LeadRule::Csv(leads)],
        employees: Some(EmployeeRule::File(employees)),
        ..Trunk::default()
    };
    let rules = Rules {
        without_trunk: Some(defaults),
        ..Rules::default()
    };
    let mut call = sample::call();
    (call.given, call.trunk) = (Some(GivenIds::default()), None);
    let lists = Watched::load(rules.every_trunk(), call.ended);
    let (lists, _) = lists.expect("good");
    let record = judge(&call, "pbx1", &rules, lists.people(), call.ended).record;
    assert_eq!(record.lead_id.map(|lead| lead.get()), Some(4001));
    assert_eq!(record.employee_id.map(|employee| employee.get()), Some(501));
}

fn judge_with_flags(call: &FinishedCall, flags: &[&str]) -> Judged {
    judge(call, "pbx1", &rules(flags), &People::default(), call.ended)
}

const CITY: &str = "city=,lead=var:LEAD_ID,employees=101:501";

/// Judges the message call again, using the values of a retry.
fn remap_with(record: &CallRecord, choice: Option<RetryValues>) -> Judged {
    let call = message_call();
    let rules = rules(&[CITY]);
    remap(
        record,
        &call,
        choice,
        &rules,
        &People::default(),
        call.ended,
    )
}

#[test]
fn lead_and_employee_of_message_override_rules() {
    let with_ids = judge_with_flags(&message_call(), &[CITY]);
    assert_eq!(with_ids.outcome, Outcome::Journal);
    assert_eq!(with_ids.record.lead_id, LeadId::new(7));
    assert_eq!(with_ids.record.employee_id, EmployeeId::new(8));
    let mut without_ids = message_call();
    without_ids.given = Some(GivenIds::default());
    let ruled = judge_with_flags(&without_ids, &[CITY]);
    assert_eq!(ruled.outcome, Outcome::Journal);
    assert_eq!(ruled.record.lead_id, LeadId::new(4001));
    assert_eq!(ruled.record.employee_id, EmployeeId::new(501));
    let choice = RetryValues {
        lead: LeadId::new(9),
        ..RetryValues::default()
    };
    assert_eq!(
        remap_with(&with_ids.record, None).record,
        with_ids.record,
        "as it was"
    );
    assert_eq!(
        remap_with(&with_ids.record, Some(choice)).record.lead_id,
        LeadId::new(9),
        "the lead that a person entered"
    );
}

#[test]
fn unknown_trunk_is_reported_only_if_pbx_has_trunks() {
    let mut elsewhere = message_call();
    elsewhere.trunk = Some("nowhere".to_owned());
    let wrong = judge_with_flags(&elsewhere, &[CITY]);
    assert_eq!(wrong.reason, Some(Reason::NoLead));
    assert_eq!(
        wrong.message,
        "trunk: no --trunk of PBX pbx1 is called nowhere; it must be the name of a \
         --trunk, or left out"
    );
    assert_eq!(judge_with_flags(&elsewhere, &[]).outcome, Outcome::Journal);
    assert_eq!(
        judge_with_flags(&elsewhere, &["city=,pbx=other"]).outcome,
        Outcome::Journal
    );
    // Once the trunk has been added with a --trunk flag, the dead letter can be sent.
    let (now, people) = (elsewhere.ended, People::default());
    let rules = rules(&["nowhere="]);
    let mended = remap(&wrong.record, &elsewhere, None, &rules, &people, now);
    assert_eq!(mended.outcome, Outcome::Journal);
    assert_eq!(mended.record.lead_id, LeadId::new(7));
}

#[test]
fn message_without_a_trunk_uses_the_default_flags() {
    let mut bare = message_call();
    bare.trunk = None;
    bare.number = Some(RawNumber {
        text: "901110001".to_owned(),
        from_dial_string: true,
    });
    let record = judge_with_flags(&bare, &[CITY]).record;
    let phone = record.client_phone.expect("by --country");
    assert_eq!((phone.as_str(), record.trunk), ("+998901110001", None));
}

/// Judges the message call after applying `change`, and returns the reason and the message.
fn reason_text(change: impl Fn(&mut FinishedCall)) -> String {
    let (mut call, now) = (message_call(), message_call().ended);
    change(&mut call);
    let judged = judge(&call, "pbx1", &rules(&[CITY]), &People::default(), now);
    let reason = judged.reason.map(Reason::word).unwrap_or_default();
    format!("{reason}: {}", judged.message)
}

#[test]
fn impossible_times_are_reported_by_field() {
    assert_eq!(
        reason_text(|call| call.started = EventTime::from_seconds(5)),
        "invalid_epoch: startedAt: the call began at 1970-01-01T00:00:05Z, before the year \
         2000; it must be from the year 2000 to five minutes ahead of this machine's clock, in \
         seconds"
    );
    let ahead = reason_text(|call| {
        call.started = call.started.plus(Duration::from_secs(900));
        call.ended = call.started;
    });
    assert_eq!(
        ahead,
        "invalid_epoch: startedAt: the call began at 2026-11-20T05:23:37Z, 894 s ahead of this \
         machine's clock; it must be from the year 2000 to five minutes ahead of this machine's \
         clock, in seconds"
    );
    assert_eq!(
        reason_text(|call| call.ended = call.started.plus(Duration::from_secs(3_600))),
        "invalid_epoch: durationSec: the call would end 3594 s ahead of this machine's clock; it \
         must be the time since startedAt"
    );
    assert_eq!(
        reason_text(|call| call.talk = Duration::from_secs(60)),
        "talk_exceeds_duration: talkSec: 60.000 s of talk in a call of 5.020 s; it \
         must be at most durationSec"
    );
}

/// Judges a call with this number and no lead, and returns the message.
fn message_of_number(number: Option<&str>) -> String {
    let mut call = message_call();
    call.given = Some(GivenIds::default());
    call.variables.clear();
    call.number = number.map(|text| RawNumber {
        text: text.to_owned(),
        from_dial_string: true,
    });
    judge_with_flags(&call, &[CITY]).message
}

#[test]
fn invalid_number_without_lead_is_reported_by_phone_field() {
    assert_eq!(
        message_of_number(Some("12")),
        "phone: it is not a valid number (UZ or international); it must be like +998901110001, or \
         you can give a leadId. variable LEAD_ID holds no lead"
    );
    assert_eq!(
        message_of_number(None),
        "phone: it is null; it must be like +998901110001, or you can give a leadId. variable \
         LEAD_ID holds no lead"
    );
    assert_eq!(
        message_of_number(Some("901110001")),
        "variable LEAD_ID holds no lead"
    );
}

#[test]
fn number_is_looked_up_unless_the_message_gives_the_lead() {
    let rules = rules(&["city=PJSIP/city"]);
    let mut call = message_call();
    assert_eq!(phone_to_look_up(&call, "pbx1", &rules), None);
    call.given = None;
    let number = phone_to_look_up(&call, "pbx1", &rules);
    let judged = judge(&call, "pbx1", &rules, &People::default(), call.ended);
    assert!(number.is_some());
    assert_eq!(number, judged.record.client_phone);
    // A number that might be the company's is only used if a lead has it.
    call.shown_number = call.number.take();
    assert_eq!(phone_to_look_up(&call, "pbx1", &rules), number);
    call.direction = Direction::Internal;
    assert_eq!(phone_to_look_up(&call, "pbx1", &rules), number);
    call.number = call.shown_number.take();
    assert_eq!(phone_to_look_up(&call, "pbx1", &rules), None);
}
