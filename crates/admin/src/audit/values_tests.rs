//! Tests which differences between a call of a file and the stored call are reported, and which
//! differences are accepted.

use super::*;

fn values(started: i64, duration_sec: u32, talk_time_sec: u32) -> AuditedValues {
    AuditedValues {
        started: EpochSeconds::new(started),
        duration_sec,
        talk_time_sec,
        answered: talk_time_sec > 0,
        direction: Direction::Inbound,
        phone: Some("+998901110001".to_owned()),
        incomplete: false,
        estimate: false,
    }
}

fn cdr_values(duration_sec: u32, talk_time_sec: u32) -> AuditedValues {
    AuditedValues {
        estimate: true,
        ..values(100, duration_sec, talk_time_sec)
    }
}

/// Returns the names of the fields that differ, for a file that Asterisk wrote.
fn fields(stored: &AuditedValues, file: &AuditedValues) -> Vec<String> {
    field_names(differences(stored, file, true))
}

fn field_names(found: Vec<ValueDifference>) -> Vec<String> {
    let mut names = Vec::new();
    for difference in found {
        let json = serde_json::to_value(difference).expect("JSON");
        names.push(json["field"].as_str().expect("a field").to_owned());
    }
    names
}

#[test]
fn equal_and_rounded_values_are_not_differences() {
    let stored = values(100, 17, 16);
    assert_eq!(fields(&stored, &stored), [""; 0]);
    assert_eq!(fields(&stored, &values(101, 16, 15)), [""; 0]);
    assert_eq!(fields(&stored, &values(99, 18, 17)), [""; 0]);
    let barely_answered = values(100, 5, 1);
    assert_eq!(fields(&barely_answered, &values(100, 5, 0)), [""; 0]);
}

#[test]
fn call_of_nobody_outside_is_not_compared_with_a_customers() {
    let customers = values(100, 60, 48);
    let eavesdroppers = AuditedValues {
        direction: Direction::Internal,
        phone: None,
        ..values(130, 20, 0)
    };
    assert_eq!(fields(&customers, &eavesdroppers), [""; 0]);
    assert_eq!(fields(&eavesdroppers, &customers), [""; 0]);
}

#[test]
fn differing_values_are_reported_by_field() {
    let stored = values(100, 17, 16);
    assert_eq!(fields(&stored, &values(108, 17, 16)), ["startedAt"]);
    assert_eq!(fields(&stored, &values(100, 15, 16)), ["durationSec"]);
    assert_eq!(fields(&stored, &values(100, 17, 13)), ["talkTimeSec"]);
    assert_eq!(fields(&stored, &values(100, 17, 18)), ["talkTimeSec"]);
    let unanswered = AuditedValues {
        answered: false,
        ..stored.clone()
    };
    assert_eq!(fields(&stored, &unanswered), ["answered"]);
    assert_eq!(fields(&unanswered, &stored), ["answered"]);
    let outbound = AuditedValues {
        direction: Direction::Outbound,
        ..stored.clone()
    };
    assert_eq!(fields(&stored, &outbound), ["direction"]);
    let other_number = AuditedValues {
        phone: Some("+998901110002".to_owned()),
        ..stored.clone()
    };
    assert_eq!(fields(&stored, &other_number), ["clientPhone"]);
    let missed = values(100, 17, 0);
    assert_eq!(fields(&missed, &stored), ["talkTimeSec", "answered"]);
}

#[test]
fn number_on_one_side_only_is_not_a_difference() {
    let stored = values(100, 17, 16);
    let without_number = AuditedValues {
        phone: None,
        ..stored.clone()
    };
    assert_eq!(fields(&stored, &without_number), [""; 0]);
    assert_eq!(fields(&without_number, &stored), [""; 0]);
}

#[test]
fn longer_call_is_accepted_only_from_an_asterisk_file() {
    let stored = values(100, 17, 16);
    let longer = values(100, 60, 16);
    assert_eq!(fields(&stored, &longer), [""; 0]);
    let elsewhere = differences(&stored, &longer, false);
    assert_eq!(field_names(elsewhere), ["durationSec"]);
    // Both calls come from CDRs, so their durations must be the same.
    assert_eq!(
        fields(&cdr_values(17, 16), &cdr_values(60, 16)),
        ["durationSec"]
    );
}

#[test]
fn longer_talk_is_accepted_only_from_the_cdr_side() {
    let missed = values(100, 40, 0);
    let answered = values(100, 40, 16);
    let longer = cdr_values(40, 39);
    for stored in [&missed, &answered] {
        assert_eq!(fields(stored, &longer), [""; 0]);
        assert_eq!(fields(&longer, stored), [""; 0]);
    }
    let shorter = cdr_values(40, 0);
    for (stored, file) in [(&answered, &shorter), (&shorter, &answered)] {
        assert_eq!(fields(stored, file), ["talkTimeSec", "answered"]);
    }
    assert_eq!(fields(&cdr_values(40, 16), &longer), ["talkTimeSec"]);
}

#[test]
fn number_is_not_compared_if_the_cdr_direction_differs() {
    let stored = AuditedValues {
        direction: Direction::Outbound,
        ..values(100, 17, 16)
    };
    let placed_by_the_pbx = AuditedValues {
        phone: Some("+998712000000".to_owned()),
        ..cdr_values(17, 16)
    };
    assert_eq!(fields(&stored, &placed_by_the_pbx), [""; 0]);
    let same_direction = AuditedValues {
        direction: Direction::Outbound,
        ..placed_by_the_pbx
    };
    assert_eq!(fields(&stored, &same_direction), ["clientPhone"]);
}

#[test]
fn incomplete_call_is_not_compared() {
    let incomplete = AuditedValues {
        incomplete: true,
        ..values(500, 1, 0)
    };
    let whole = values(100, 17, 16);
    assert_eq!(fields(&incomplete, &whole), [""; 0]);
    assert_eq!(fields(&whole, &incomplete), [""; 0]);
}
