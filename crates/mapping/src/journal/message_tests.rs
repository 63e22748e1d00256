//! Calls that arrive whole, as messages: the trunk that they belong to, and their errors, with the
//! name of the field.

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

/// Makes the sample call as a message that gives a lead and an employee.
fn told() -> FinishedCall {
    let mut call = sample::call();
    call.given = Some(GivenIds {
        lead: Some(7),
        employee: Some(8),
    });
    call
}

#[test]
fn lists_of_all_trunks_are_read_where_no_flag_names_a_trunk() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    };
    let leads = file("leads.csv", "phone,leadId\n+998901110001,4001\n");
    let employees = file("employees.csv", "extension,employeeId\n101,501\n");
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
    assert_eq!(record.lead_id.map(|it| it.get()), Some(4001));
    assert_eq!(record.employee_id.map(|it| it.get()), Some(501));
}

fn judged(call: &FinishedCall, flags: &[&str]) -> Judged {
    judge(call, "pbx1", &rules(flags), &People::default(), call.ended)
}

const CITY: &str = "city=,lead=var:LEAD_ID,employees=101:501";

#[test]
fn lead_and_employee_of_message_override_rules() {
    let all = judged(&told(), &[CITY]);
    assert_eq!(all.outcome, Outcome::Journal);
    assert_eq!(all.record.lead_id, LeadId::new(7));
    assert_eq!(all.record.employee_id, EmployeeId::new(8));
    let mut nothing = told();
    nothing.given = Some(GivenIds::default());
    let ruled = judged(&nothing, &[CITY]);
    assert_eq!(ruled.outcome, Outcome::Journal);
    assert_eq!(ruled.record.lead_id, LeadId::new(4001));
    assert_eq!(ruled.record.employee_id, EmployeeId::new(501));
    let wish = RetryValues {
        lead: LeadId::new(9),
        ..RetryValues::default()
    };
    let (now, people) = (told().ended, People::default());
    let again = |wish| remap(&all.record, &told(), wish, &rules(&[CITY]), &people, now);
    assert_eq!(again(None).record, all.record, "as it was");
    assert_eq!(
        again(Some(wish)).record.lead_id,
        LeadId::new(9),
        "a person's word"
    );
}

#[test]
fn unknown_trunk_is_reported_only_if_pbx_has_trunks() {
    let mut elsewhere = told();
    elsewhere.trunk = Some("nowhere".to_owned());
    let wrong = judged(&elsewhere, &[CITY]);
    assert_eq!(wrong.reason, Some(Reason::NoLead));
    assert_eq!(
        wrong.message,
        "trunk: no --trunk of PBX pbx1 is called nowhere; it must be the name of a \
         --trunk, or left out"
    );
    assert_eq!(judged(&elsewhere, &[]).outcome, Outcome::Journal);
    assert_eq!(
        judged(&elsewhere, &["city=,pbx=other"]).outcome,
        Outcome::Journal
    );
    // After the flag is set, the dead letter leaves.
    let (now, people) = (elsewhere.ended, People::default());
    let rules = rules(&["nowhere="]);
    let mended = remap(&wrong.record, &elsewhere, None, &rules, &people, now);
    assert_eq!(mended.outcome, Outcome::Journal);
    assert_eq!(mended.record.lead_id, LeadId::new(7));
}

#[test]
fn without_a_trunk_the_flags_of_all_trunks_hold() {
    let mut bare = told();
    bare.trunk = None;
    bare.number = Some(RawNumber {
        text: "901110001".to_owned(),
        from_dial_string: true,
    });
    let record = judged(&bare, &[CITY]).record;
    let phone = record.client_phone.expect("by --country");
    assert_eq!((phone.as_str(), record.trunk), ("+998901110001", None));
}

#[test]
fn impossible_times_are_reported_by_field() {
    let words = |change: fn(&mut FinishedCall)| {
        let (mut call, now) = (told(), told().ended);
        change(&mut call);
        let judged = judge(&call, "pbx1", &rules(&[CITY]), &People::default(), now);
        let reason = judged.reason.map(Reason::word).unwrap_or_default();
        format!("{reason}: {}", judged.message)
    };
    assert_eq!(
        words(|it| it.started = EventTime::from_seconds(5)),
        "invalid_epoch: startedAt: the call began at 1970-01-01T00:00:05Z, before the year \
         2000; it must be from the year 2000 to five minutes ahead of this machine's clock, in \
         seconds"
    );
    let ahead = words(|it| {
        it.started = it.started.plus(Duration::from_secs(900));
        it.ended = it.started;
    });
    assert_eq!(
        ahead,
        "invalid_epoch: startedAt: the call began at 2026-11-20T05:23:37Z, 894 s ahead of this \
         machine's clock; it must be from the year 2000 to five minutes ahead of this machine's \
         clock, in seconds"
    );
    assert_eq!(
        words(|it| it.ended = it.started.plus(Duration::from_secs(3_600))),
        "invalid_epoch: durationSec: the call would end 3594 s ahead of this machine's clock; it \
         must be the time since startedAt"
    );
    assert_eq!(
        words(|it| it.talk = Duration::from_secs(60)),
        "talk_exceeds_duration: talkSec: 60.000 s of talk in a call of 5.020 s; it \
         must be at most durationSec"
    );
}

#[test]
fn invalid_number_without_lead_is_reported_by_phone_field() {
    let words = |number: Option<&str>| {
        let mut call = told();
        call.given = Some(GivenIds::default());
        call.variables.clear();
        call.number = number.map(|text| RawNumber {
            text: text.to_owned(),
            from_dial_string: true,
        });
        judged(&call, &[CITY]).message
    };
    assert_eq!(
        words(Some("12")),
        "phone: it is not a valid number (UZ or international); it must be like +998901110001, or \
         you can give a leadId. variable LEAD_ID holds no lead"
    );
    assert_eq!(
        words(None),
        "phone: it is null; it must be like +998901110001, or you can give a leadId. variable \
         LEAD_ID holds no lead"
    );
    assert_eq!(words(Some("901110001")), "variable LEAD_ID holds no lead");
}
