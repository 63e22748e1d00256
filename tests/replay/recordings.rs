//! Tests that every recorded call under `tests/recordings` matches `expected.json`, which was
//! written from the story: from AMI text and AMI as JSON, unchanged, doubled, and shuffled, and
//! with only channel events or only CEL.

use crate::replay::recorded::{
    Hear, all_again, as_it_is, check_all, expected, finished, late_by_chance, messages, twice_each,
    wrong,
};
use callbridge_call::Origin;
use callbridge_formats::Format;
use std::fs;
use std::path::Path;

/// Promise: Every recorded call is logged as it happened, over every transport.
#[test]
fn ami_text_yields_the_expected_calls() {
    check_all(Format::Ami, "ami.raw", Hear::Both, as_it_is);
}

#[test]
fn ami_json_yields_the_expected_calls() {
    check_all(Format::AmiJson, "amiws.jsonl", Hear::Both, as_it_is);
}

#[test]
fn channel_events_without_cel_yield_the_expected_calls() {
    check_all(
        Format::Ami,
        "ami.raw",
        Hear::Only(Origin::Channel),
        as_it_is,
    );
}

#[test]
fn cel_without_channel_events_yields_calls_but_no_variables() {
    check_all(Format::Ami, "ami.raw", Hear::Only(Origin::Cel), as_it_is);
}

#[test]
fn doubled_events_change_nothing() {
    check_all(Format::Ami, "ami.raw", Hear::Both, twice_each);
    check_all(Format::AmiJson, "amiws.jsonl", Hear::Both, twice_each);
    check_all(Format::Ami, "ami.raw", Hear::Only(Origin::Cel), twice_each);
}

#[test]
fn repeated_recording_creates_no_additional_calls() {
    check_all(Format::Ami, "ami.raw", Hear::Both, all_again);
}

#[test]
fn events_out_of_order_within_the_settling_time_change_nothing() {
    check_all(Format::Ami, "ami.raw", Hear::Both, late_by_chance);
    check_all(Format::AmiJson, "amiws.jsonl", Hear::Both, late_by_chance);
    check_all(
        Format::Ami,
        "ami.raw",
        Hear::Only(Origin::Channel),
        late_by_chance,
    );
    check_all(
        Format::Ami,
        "ami.raw",
        Hear::Only(Origin::Cel),
        late_by_chance,
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
        let hear = Hear::Only(Origin::Cel);
        let (calls, open) = finished(&arrivals, Format::CelCsv, hear);
        all_wrong += &wrong(name, &expected, &calls, open, hear);
    }
    assert!(all_wrong.is_empty(), "\n{all_wrong}");
}
