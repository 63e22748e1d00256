//! Tests that every recorded call in `tests/recordings` matches `expected.json`, which was written
//! based on the story. The tests use AMI text and AMI as JSON, unchanged, duplicated, and shuffled,
//! and with only channel events or only CEL.

use crate::replay::recorded::{
    EventKinds, check_all, delay_randomly, duplicate_each, errors_as_text, expected,
    finished_calls, keep_arrivals, messages, repeat_all,
};
use callbridge_call::Origin;
use callbridge_formats::Format;
use std::fs;
use std::path::Path;

/// Promise: Every recorded call is logged as it happened, over every transport.
#[test]
fn ami_text_yields_the_expected_calls() {
    check_all(Format::Ami, "ami.raw", EventKinds::Both, keep_arrivals);
}

#[test]
fn ami_json_yields_the_expected_calls() {
    check_all(
        Format::AmiJson,
        "amiws.jsonl",
        EventKinds::Both,
        keep_arrivals,
    );
}

#[test]
fn channel_events_without_cel_yield_the_expected_calls() {
    check_all(
        Format::Ami,
        "ami.raw",
        EventKinds::Only(Origin::Channel),
        keep_arrivals,
    );
}

#[test]
fn cel_without_channel_events_yields_calls_but_no_variables() {
    check_all(
        Format::Ami,
        "ami.raw",
        EventKinds::Only(Origin::Cel),
        keep_arrivals,
    );
}

#[test]
fn doubled_events_change_no_call() {
    check_all(Format::Ami, "ami.raw", EventKinds::Both, duplicate_each);
    check_all(
        Format::AmiJson,
        "amiws.jsonl",
        EventKinds::Both,
        duplicate_each,
    );
    check_all(
        Format::Ami,
        "ami.raw",
        EventKinds::Only(Origin::Cel),
        duplicate_each,
    );
}

#[test]
fn repeated_recording_creates_no_additional_calls() {
    check_all(Format::Ami, "ami.raw", EventKinds::Both, repeat_all);
}

#[test]
fn events_out_of_order_within_the_settling_time_change_nothing() {
    check_all(Format::Ami, "ami.raw", EventKinds::Both, delay_randomly);
    check_all(
        Format::AmiJson,
        "amiws.jsonl",
        EventKinds::Both,
        delay_randomly,
    );
    check_all(
        Format::Ami,
        "ami.raw",
        EventKinds::Only(Origin::Channel),
        delay_randomly,
    );
    check_all(
        Format::Ami,
        "ami.raw",
        EventKinds::Only(Origin::Cel),
        delay_randomly,
    );
}

#[test]
fn cel_custom_rows_give_right_calls_with_epoch_or_local_time() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/cel-custom");
    let mut all_wrong = String::new();
    for name in ["epoch", "local-time"] {
        let expected = expected(&folder.join(format!("{name}.expected.json")));
        let bytes = fs::read(folder.join(format!("{name}.csv"))).expect("the rows");
        let arrivals = messages(&bytes, Format::CelCsv);
        let kinds = EventKinds::Only(Origin::Cel);
        let (calls, open) = finished_calls(&arrivals, Format::CelCsv, kinds);
        all_wrong += &errors_as_text(name, &expected, &calls, open, kinds);
    }
    assert!(all_wrong.is_empty(), "\n{all_wrong}");
}
