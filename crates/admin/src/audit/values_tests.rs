//! The differences between a file and the stored call that are reported, and those that are
//! accepted.

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

fn from_cdr(duration_sec: u32, talk_time_sec: u32) -> AuditedValues {
    AuditedValues {
        estimate: true,
        ..values(100, duration_sec, talk_time_sec)
    }
}

/// Returns the names of the fields that differ, for a file of Asterisk.
fn fields(stored: &AuditedValues, file: &AuditedValues) -> Vec<String> {
    names(differences(stored, file, true))
}

fn names(found: Vec<ValueDifference>) -> Vec<String> {
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
fn differing_values_are_named() {
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
fn longer_call_is_accepted_only_from_a_file_of_asterisk() {
    let stored = values(100, 17, 16);
    let longer = values(100, 60, 16);
    assert_eq!(fields(&stored, &longer), [""; 0]);
    let elsewhere = differences(&stored, &longer, false);
    assert_eq!(names(elsewhere), ["durationSec"]);
    // CDRs never have an earlier end than their own file.
    assert_eq!(
        fields(&from_cdr(17, 16), &from_cdr(60, 16)),
        ["durationSec"]
    );
}

#[test]
fn more_talk_is_accepted_from_the_side_of_the_cdrs() {
    let missed = values(100, 40, 0);
    let answered = values(100, 40, 16);
    let longer = from_cdr(40, 39);
    for stored in [&missed, &answered] {
        assert_eq!(fields(stored, &longer), [""; 0]);
        assert_eq!(fields(&longer, stored), [""; 0]);
    }
    let shorter = from_cdr(40, 0);
    for (stored, file) in [(&answered, &shorter), (&shorter, &answered)] {
        assert_eq!(fields(stored, file), ["talkTimeSec", "answered"]);
    }
    assert_eq!(fields(&from_cdr(40, 16), &longer), ["talkTimeSec"]);
}

#[test]
fn cdr_with_another_direction_shows_another_number() {
    let stored = AuditedValues {
        direction: Direction::Outbound,
        ..values(100, 17, 16)
    };
    let placed_by_the_pbx = AuditedValues {
        phone: Some("+998712000000".to_owned()),
        ..from_cdr(17, 16)
    };
    assert_eq!(fields(&stored, &placed_by_the_pbx), [""; 0]);
    let same_direction = AuditedValues {
        direction: Direction::Outbound,
        ..placed_by_the_pbx
    };
    assert_eq!(fields(&stored, &same_direction), ["clientPhone"]);
}

#[test]
fn incomplete_side_is_not_compared() {
    let incomplete = AuditedValues {
        incomplete: true,
        ..values(500, 1, 0)
    };
    let whole = values(100, 17, 16);
    assert_eq!(fields(&incomplete, &whole), [""; 0]);
    assert_eq!(fields(&whole, &incomplete), [""; 0]);
}
