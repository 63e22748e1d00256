//! Tests that an error in a message identifies the field and lists its allowed values.

use callbridge_call::ReportedCall;
use callbridge_formats::message::read;
use serde_json::{Value, json};

/// Returns a valid message.
fn correct_message() -> Value {
    json!({
        "pbx": "tashkent-1", "id": "1795151317.208", "direction": "INBOUND", "trunk": "city",
        "phone": "+998901110001", "startedAt": 1_795_151_317.52, "durationSec": 5.2,
        "answered": true, "talkSec": 4.1, "extension": "101", "extensions": ["101"],
        "leadId": 4001, "employeeId": 501, "variables": {"LEAD_ID": "4001"},
        "incomplete": false, "estimate": false
    })
}

/// Returns the error for a message that can't be read.
fn read_error(message: &str) -> String {
    let refused = read(message.as_bytes(), None);
    refused.expect_err(message).message
}

/// Returns the error for the valid message after setting `field` to `value`.
fn error_with_field(field: &str, value: Value) -> String {
    let mut message = correct_message();
    message[field] = value;
    read_error(&message.to_string())
}

/// Returns the error for the valid message without these fields.
fn error_without_fields(fields: &[&str]) -> String {
    let mut message = correct_message();
    let object = message.as_object_mut().expect("an object");
    for field in fields {
        assert!(object.remove(*field).is_some(), "{field}");
    }
    read_error(&message.to_string())
}

#[test]
fn correct_message_is_read() {
    read(correct_message().to_string().as_bytes(), None).expect("a good message");
}

/// Returns invalid values for the fields that identify the call, its customer, and its start.
fn wrong_names() -> Vec<(&'static str, Value)> {
    let long = "x".repeat(2_000);
    vec![
        ("pbx", json!(7)),
        ("pbx", json!("")),
        ("pbx", json!(null)),
        ("pbx", json!("two words")),
        ("pbx", json!("a\u{0}b")),
        ("pbx", json!(long)),
        ("id", json!(1_795_151_317.208)),
        ("id", json!("")),
        ("id", json!(" 1")),
        ("id", json!("1\n2")),
        ("id", json!(long)),
        ("direction", json!("inbound")),
        ("direction", json!("IN")),
        ("direction", json!(1)),
        ("trunk", json!(["city"])),
        ("trunk", json!("city,country=UZ")),
        ("phone", json!(998_901_110_001_i64)),
        ("phone", json!("")),
        ("phone", json!("anonymous")),
        ("phone", json!("+0")),
        ("phone", json!("+1234567890123456")),
        ("phone", json!("1".repeat(50))),
        ("did", json!(998_712_001_122_i64)),
        ("did", json!("")),
        ("did", json!("s")),
        ("did", json!("7")),
        ("did", json!("998 71 200 11 22")),
        ("did", json!("1".repeat(25))),
        ("startedAt", json!("yesterday")),
        ("startedAt", json!("1795151317")),
        ("startedAt", json!("2026-11-20T08:28:37")),
        ("startedAt", json!("2026-13-40T08:28:37Z")),
        ("startedAt", json!(1e18)),
        ("startedAt", json!(true)),
    ]
}

/// Returns invalid values for the call's numeric fields and employees.
fn wrong_figures() -> Vec<(&'static str, Value)> {
    let long = "x".repeat(2_000);
    vec![
        ("durationSec", json!("5.2")),
        ("durationSec", json!(-1)),
        ("durationSec", json!(5_200_000)),
        ("durationSec", json!(null)),
        ("answered", json!("true")),
        ("answered", json!(1)),
        ("talkSec", json!(-4.1)),
        ("talkSec", json!("NaN")),
        ("talkSec", json!(0)),
        ("talkSec", json!(null)),
        ("extension", json!(101)),
        ("extension", json!("")),
        ("extensions", json!("101")),
        ("extensions", json!(["101", 102])),
        ("extensions", json!(vec!["1"; 300])),
        ("leadId", json!("4001")),
        ("leadId", json!(0)),
        ("leadId", json!(4001.5)),
        ("leadId", json!(u64::MAX)),
        ("employeeId", json!(-501)),
        ("employeeId", json!({})),
        ("variables", json!([["LEAD_ID", "4001"]])),
        ("variables", json!({"LEAD_ID": 4001})),
        ("variables", json!({"LEAD_ID": long})),
        ("variables", json!({"": "4001"})),
        ("userFields", json!("lead=4001")),
        ("incomplete", json!("no")),
        ("estimate", json!(0)),
        ("version", json!("1")),
    ]
}

#[test]
fn error_names_its_field_and_the_valid_values() {
    for (field, value) in wrong_names().into_iter().chain(wrong_figures()) {
        let words = error_with_field(field, value.clone());
        assert!(
            words.starts_with(&format!("{field}: ")),
            "{field} {value}: {words}"
        );
        assert!(words.contains("; it must be "), "{field} {value}: {words}");
        assert!(words.len() < 400, "{field}: {words}");
    }
    for field in [
        "pbx",
        "id",
        "direction",
        "startedAt",
        "durationSec",
        "answered",
        "talkSec",
    ] {
        let words = error_without_fields(&[field]);
        assert!(
            words.starts_with(&format!("{field}: it is missing")),
            "{words}"
        );
    }
}

#[test]
fn talk_of_an_unanswered_call_is_an_error() {
    let words = error_with_field("answered", json!(false));
    assert_eq!(
        words,
        "talkSec: it is 4.1, and answered is false; it must be seconds from 0 to \
         604800, at most durationSec; more than 0 if the call was answered, 0 \
         if not"
    );
}

#[test]
fn missing_customer_phone_needs_lead_and_hidden_is_null() {
    assert_eq!(
        error_without_fields(&["phone", "leadId"]),
        "phone: it is missing, and no leadId is given; it must be the customer's \
         number in E.164 (\"+998901110001\") or as it is dialed in the trunk's \
         country; null if it is hidden"
    );
    let mut hidden = correct_message();
    (hidden["phone"], hidden["leadId"]) = (json!(null), json!(null));
    let reread = read(hidden.to_string().as_bytes(), None).expect("hidden");
    assert_eq!(reread.call.number, None);
    let mut inside = correct_message();
    inside["direction"] = json!("INTERNAL");
    let object = inside.as_object_mut().expect("an object");
    object.retain(|name, _| name != "phone" && name != "leadId");
    read(inside.to_string().as_bytes(), None).expect("between extensions");
}

#[test]
fn malformed_json_error_names_the_field_where_it_breaks() {
    for (text, wants) in [
        (
            correct_message().to_string().replace("5.2", "NaN"),
            "durationSec: ",
        ),
        (
            correct_message().to_string().replace("4.1", "Infinity"),
            "talkSec: ",
        ),
        (
            correct_message().to_string().replace("true", "True"),
            "answered: ",
        ),
        (
            correct_message().to_string().replace("\"101\",", "'101',"),
            "extension: ",
        ),
        (
            correct_message()
                .to_string()
                .replace("\"pbx\":", "\"id\":\"x\",\"pbx\":"),
            "id: it is in the message twice",
        ),
        ("[]".to_owned(), "the message is not a JSON object"),
        ("hello".to_owned(), "the message is not JSON"),
        (String::new(), "the message is not JSON"),
    ] {
        let words = read_error(&text);
        assert!(words.starts_with(wants), "{text}: {words}");
        assert!(words.contains("; it must be "), "{words}");
    }
    let whole = correct_message().to_string();
    for cut in 1..whole.len() {
        read_error(&whole[..cut]);
    }
}

#[test]
fn error_lists_all_invalid_fields_and_keeps_call_id() {
    let mut message = correct_message();
    (message["durationSec"], message["answered"]) = (json!(-1), json!("yes"));
    let wrong = read(message.to_string().as_bytes(), None).expect_err("wrong");
    assert_eq!(wrong.pbx.as_deref(), Some("tashkent-1"));
    assert_eq!(wrong.id.as_deref(), Some("1795151317.208"));
    assert_eq!(
        wrong.message,
        "durationSec: it is -1; it must be seconds from 0 to 604800 (a week), whole \
         or fractional. answered: it is a string; it must be true or false"
    );
    let many = read_error(r#"{"phone":1,"leadId":0,"trunk":1}"#);
    assert!(many.ends_with(". and 4 more"), "{many}");
}

#[test]
fn error_messages_contain_no_customer_data() {
    for (field, value) in [
        ("phone", json!("+88890111000199999")),
        ("phone", json!("Alisher Navoiy")),
        ("id", json!(" Alisher")),
        ("variables", json!({"NAME": ["Alisher", 7]})),
        ("direction", json!("Alisher")),
        ("startedAt", json!("Alisher")),
    ] {
        let words = error_with_field(field, value);
        assert!(
            !words.contains("Alisher") && !words.contains("88890"),
            "{words}"
        );
    }
}

/// Reads the valid message with this content type, returning the error message, if any.
fn read_with_content_type(content_type: &str) -> Result<ReportedCall, String> {
    let message = correct_message().to_string();
    read(message.as_bytes(), Some(content_type)).map_err(|wrong| wrong.message)
}

#[test]
fn newer_version_is_refused_with_its_number() {
    let words = error_with_field("version", json!(2));
    assert_eq!(
        words,
        "version: it is 2, and this callbridge reads version 1; install a newer \
         callbridge, or publish version 1"
    );
    for good in [
        "application/vnd.callbridge.call+json; version=1",
        "application/vnd.callbridge.call+json;version=\"1\"; charset=utf-8",
        "application/vnd.callbridge.call+json",
        "application/json",
        "text/plain; version=9",
        "",
    ] {
        read_with_content_type(good).expect(good);
    }
    for newer in [
        "application/vnd.callbridge.call+json; version=2",
        "Application/vnd.callbridge.CALL+json ;charset=utf-8; Version = 2",
    ] {
        let words = read_with_content_type(newer).expect_err(newer);
        assert!(words.starts_with("version: it is 2, and"), "{words}");
    }
    let not_a_number = "application/vnd.callbridge.call+json; version=new";
    let words = read_with_content_type(not_a_number).expect_err("none");
    assert!(words.starts_with("version: "), "{words}");
}

#[test]
fn start_is_read_in_seconds_and_in_milliseconds() {
    for (start, micros) in [
        (json!(1_795_151_317), 1_795_151_317_000_000),
        (json!(1_795_151_317.52), 1_795_151_317_520_000),
        (json!(1_795_151_317_520_i64), 1_795_151_317_520_000),
        (json!(1_795_151_317_520_000_i64), 1_795_151_317_520_000),
        (json!("2026-11-20T10:08:37.52+05:00"), 1_795_151_317_520_000),
        (json!(-1.5), -1_500_000),
    ] {
        let mut message = correct_message();
        message["startedAt"] = start.clone();
        let read = read(message.to_string().as_bytes(), None).expect("a call");
        assert_eq!(read.call.started.micros(), micros, "{start}");
    }
}
