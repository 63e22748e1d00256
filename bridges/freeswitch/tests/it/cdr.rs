//! Tests that use only files from `mod_json_cdr`. Calls from such files are marked as estimates.

use crate::expected::{faults, fold_with_wait, folded_calls, recordings, special_recording};
use crate::switch::line;
use callbridge_call::{Decoded, Direction, Unreadable};
use callbridge_freeswitch::Decoder;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum time difference in seconds. A feature-code consultation starts when the switch plays
/// music.
const SLACK: f64 = 0.6;

fn files(lines: &[u8]) -> Vec<&[u8]> {
    let lines = lines.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty()).collect()
}

/// Checks the calls of all recordings after `change` has been applied to each recording's CDR
/// files.
fn check_recordings(change: impl Fn(&mut Vec<&[u8]>)) {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let lines = recording.read("json_cdr.jsonl");
        let mut files = files(&lines);
        change(&mut files);
        let calls = folded_calls(files.into_iter());
        assert!(calls.iter().all(|call| call.estimate));
        let faults = faults(&calls, &recording.expected(), SLACK);
        let name = &recording.name;
        wrong.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn recordings_are_reproduced_from_cdr_files_only() {
    check_recordings(|_| {});
}

#[test]
fn cdr_file_order_and_duplicates_make_no_difference() {
    check_recordings(|files| files.reverse());
    check_recordings(|files| {
        let twice = files.clone();
        files.extend(twice);
    });
}

#[test]
fn cdr_values_without_an_encoding_are_read() {
    let lines = special_recording("json_cdr_unencoded/json_cdr.jsonl");
    let calls: Vec<String> = folded_calls(files(&lines).into_iter())
        .iter()
        .map(line)
        .collect();
    let wanted = [
        "in city 998901110001 [101] 101 talk 2.0 of 3.1, whole",
        "out city 998901110003 [101] 101 talk 3.0 of 5.0, whole",
    ];
    let without_ids: Vec<&str> = calls
        .iter()
        .map(|text| text.split_once(' ').map_or("", |(_, rest)| rest))
        .collect();
    assert_eq!(without_ids, wanted);
}

fn is_inbound_leg(file: &[u8]) -> bool {
    let leg: Value = serde_json::from_slice(file).expect("a leg");
    leg["variables"]["direction"] == "inbound"
}

#[test]
fn customer_leg_cdr_suffices_for_talk_and_other_party() {
    let recordings = recordings();
    for name in ["inbound_answered", "blind_transfer", "queue_second_agent"] {
        let recording = recordings.iter().find(|recording| recording.name == name);
        let recording = recording.expect("a recording");
        let lines = recording.read("json_cdr.jsonl");
        let mut files = files(&lines);
        files.retain(|file| String::from_utf8_lossy(file).contains("sofia/external/"));
        files.retain(|file| is_inbound_leg(file));
        assert_eq!(files.len(), 1, "{name}");
        let calls = folded_calls(files.into_iter());
        let faults = faults(&calls, &recording.expected(), SLACK);
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
}

#[test]
fn unreadable_cdr_file_is_refused_with_its_reason() {
    let mut decoder = Decoder::new(None);
    for (text, why) in [
        ("", Unreadable::NotJson),
        ("{\"variables\":{", Unreadable::NotJson),
        ("{}", Unreadable::NoLeg),
        ("{\"variables\":{\"uuid\":\"a\"}}", Unreadable::NoLeg),
        ("{\"variables\":{},\"callflow\":[{}]}", Unreadable::NoLeg),
        (
            "{\"variables\":{\"uuid\":\"a\\u0007\",\"start_uepoch\":\"1\",\"channel_name\":\"x\"},\
             \"callflow\":[{}]}",
            Unreadable::NoId,
        ),
    ] {
        let decoded = decoder.decode_cdr(text.as_bytes());
        assert_eq!(decoded, Decoded::Unreadable(why), "{text}");
    }
}

/// `log-b-leg` is off, so there are no files for the legs that the switch dialed.
#[test]
fn outbound_call_is_recognized_without_b_leg_cdr() {
    let mut checked = 0;
    for recording in recordings() {
        let mut expected = recording.expected();
        let mut directions = expected.calls.iter().map(|call| call.direction);
        if directions.any(|direction| direction != Direction::Outbound) {
            continue;
        }
        let lines = recording.read("json_cdr.jsonl");
        let mut own = files(&lines);
        own.retain(|file| is_inbound_leg(file));
        if own.is_empty() {
            continue;
        }
        let Some(call) = expected.calls.first_mut() else {
            continue;
        };
        let calls = folded_calls(own.into_iter());
        // The call's lead may only be in the other leg's file.
        call.lead_id = None;
        let plain = calls.iter().cloned().map(|mut call| {
            call.variables.clear();
            call
        });
        let plain: Vec<_> = plain.collect();
        let faults = faults(&plain, &expected, SLACK);
        assert!(faults.is_empty(), "{}: {faults:?}", recording.name);
        checked += 1;
    }
    assert!(checked >= 4, "only {checked}");
}

/// Returns the calls of `attended_transfer` after `change` has modified the legs' files, which are
/// those of 102, 101, and the customer, in this order.
fn calls_of_changed_transfer(change: impl Fn(&mut [Value; 3])) -> Vec<String> {
    let recordings = recordings();
    let recording = recordings
        .iter()
        .find(|recording| recording.name == "attended_transfer");
    let lines = recording.expect("a recording").read("json_cdr.jsonl");
    let mut legs = ["102@", "101@", "998901110002@"].map(|name| {
        let mut files = files(&lines).into_iter();
        let file =
            files.find(|file| String::from_utf8_lossy(file).contains(&channel_name_field(name)));
        serde_json::from_slice::<Value>(file.expect("a file")).expect("a file")
    });
    change(&mut legs);
    let files = legs.map(|leg| leg.to_string());
    let calls = folded_calls(files.iter().map(String::as_bytes));
    calls.iter().map(line).collect()
}

/// Returns the start of a file's `channel_name` field, whose value is percent-encoded.
fn channel_name_field(user: &str) -> String {
    let user = user.replace('@', "%40");
    format!(
        "\"channel_name\":\"sofia/{}/{user}",
        if user.len() > 8 {
            "external"
        } else {
            "internal"
        }
    )
}

/// Reduces the leg to its first profile, which is answered at `answered` and ends at `end` (in
/// microseconds).
fn set_talk_times(leg: &mut Value, answered: &str, end: &str) {
    let mut first = leg["callflow"]
        .as_array()
        .expect("profiles")
        .last()
        .cloned()
        .expect("one");
    first["times"]["transfer_time"] = "0".into();
    first["times"]["hangup_time"] = end.into();
    for time in ["answered_time", "bridged_time"] {
        first["times"][time] = answered.into();
    }
    leg["callflow"] = Value::Array(vec![first]);
    leg["variables"]["end_uepoch"] = end.into();
    leg["variables"]["answer_uepoch"] = answered.into();
}

/// 102 is dialed at …63.2 and declines at …64.2. Since the switch's clock advances in steps, 102's
/// leg was created before the consultation started.
#[test]
fn talk_continues_after_a_refused_consultation() {
    const END: &str = "1795211869253321";
    const TALKS: &str = "1795211859693323";
    let calls = calls_of_changed_transfer(|[phone, employee, customer]| {
        set_talk_times(phone, "0", "1795211864254142");
        set_talk_times(employee, TALKS, END);
        set_talk_times(customer, TALKS, END);
    });
    let wanted = "4cc4f176-d4e6-4a50-a66b-620302e25a5e in city 998901110002 [101] 101 \
                  talk 8.6 of 10.6, whole";
    assert_eq!(calls, [wanted]);
}

/// 102 answers, 101 returns with `#`, and the switch bridges 101 and the customer again.
#[test]
fn talk_continues_after_a_canceled_consultation() {
    const BACK: &str = "1795211866273312";
    const END: &str = "1795211869253321";
    let calls = calls_of_changed_transfer(|[phone, employee, customer]| {
        set_talk_times(phone, "1795211864254142", BACK);
        let mut again = customer["callflow"][0].clone();
        let uuid = employee["variables"]["uuid"].clone();
        again["caller_profile"]["originator"] = json!({ "originator_caller_profiles": [
            {"uuid": uuid, "chan_name": "sofia/internal/101@127.0.0.1:16101"}
        ]});
        customer["callflow"][0] = again;
        customer["variables"]["bridge_uuid"] = uuid;
        employee["callflow"][0]["times"]["transfer_time"] = BACK.into();
        employee["callflow"][0]["times"]["hangup_time"] = "0".into();
        employee["variables"]["end_uepoch"] = END.into();
    });
    let wanted = "4cc4f176-d4e6-4a50-a66b-620302e25a5e in city 998901110002 [101] 101 \
                  talk 6.5 of 10.6, whole";
    assert_eq!(calls, [wanted]);
}

/// None of 102's phones is registered, so the switch doesn't dial anyone.
#[test]
fn talk_continues_after_a_consultation_that_reached_no_one() {
    const END: &str = "1795211869253321";
    const TALKS: &str = "1795211859693323";
    let calls = calls_of_changed_transfer(|[phone, employee, customer]| {
        set_talk_times(employee, TALKS, END);
        set_talk_times(customer, TALKS, END);
        let variables = employee["variables"].as_object_mut().expect("variables");
        variables.remove("originated_legs");
        *phone = customer.clone();
    });
    let wanted = "4cc4f176-d4e6-4a50-a66b-620302e25a5e in city 998901110002 [101] 101 \
                  talk 9.6 of 10.6, whole";
    assert_eq!(calls, [wanted]);
}

/// The members join with different flags and profiles, as a moderator would.
#[test]
fn room_members_with_different_flags_are_in_one_call() {
    let recordings = recordings();
    let recording = recordings
        .iter()
        .find(|recording| recording.name == "conference");
    let recording = recording.expect("a recording");
    let text = String::from_utf8(recording.read("json_cdr.jsonl")).expect("text");
    let mut changed = String::new();
    for (place, line) in text.lines().enumerate() {
        let arguments = [
            "600@default+flags{endconf}",
            "600@wide+1234+flags{mute}",
            "600",
        ];
        changed += &line.replace("600@default", arguments[place % 3]);
        changed += "\n";
    }
    assert_ne!(changed, text);
    let calls = folded_calls(files(changed.as_bytes()).into_iter());
    let faults = faults(&calls, &recording.expected(), SLACK);
    assert!(faults.is_empty(), "{faults:?}");
}

/// Returns the file of an unanswered leg over a gateway, with these times in milliseconds.
pub fn file_of_unanswered(
    id: &str,
    (gateway, number): (&str, &str),
    (from, to): (u64, u64),
    variables: &[(&str, &str)],
) -> Vec<u8> {
    let [from, to] = [from, to].map(|millis| (1_795_000_000_000 + millis) * 1000);
    let times = json!({"created_time": from.to_string(), "hangup_time": to.to_string()});
    let mut file = json!({
        "core-uuid": "core",
        "switchname": "pbx",
        "callflow": [{
            "caller_profile": {"uuid": id, "destination_number": number},
            "times": times,
        }],
        "variables": {
            "uuid": id,
            "direction": "outbound",
            "channel_name": format!("sofia/external/{number}"),
            "sip_gateway_name": gateway,
            "start_uepoch": from.to_string(),
            "end_uepoch": to.to_string(),
            "hangup_cause_q850": "17",
        },
    });
    for &(name, value) in variables {
        file["variables"][name] = value.into();
    }
    file.to_string().into_bytes()
}

#[test]
fn files_of_two_gateways_tried_by_an_api_are_one_call() {
    const CUSTOMER: &str = "998901110001";
    for (second, from, wanted) in [
        (("gsm", CUSTOMER), 4030, 1),
        (("city", "998901110002"), 4030, 2),
        (("gsm", CUSTOMER), 5000, 2),
    ] {
        let one = file_of_unanswered("one", ("city", CUSTOMER), (0, 4000), &[]);
        let two = file_of_unanswered("two", second, (from, from + 3000), &[]);
        let calls = folded_calls([one.as_slice(), two.as_slice()].into_iter());
        assert_eq!(calls.len(), wanted, "{second:?} {from} {calls:#?}");
    }
}

#[test]
fn files_of_a_number_dialed_again_by_one_command_are_one_call() {
    let by = ("originator", "4cc4f176-d4e6-4a50-a66b-620302e25a5e");
    let retries = ("originate_retries", "3");
    let sleep = ("originate_retry_sleep_ms", "20000");
    for (variables, wanted) in [
        (&[by, retries, sleep] as &[_], 1),
        (&[retries, sleep], 1),
        (&[retries], 2),
        (&[by], 2),
    ] {
        let target = ("city", "998901110001");
        let one = file_of_unanswered("one", target, (0, 4000), variables);
        let two = file_of_unanswered("two", target, (24_000, 25_000), variables);
        let files = [one.as_slice(), two.as_slice()].into_iter();
        let calls = fold_with_wait(files, Duration::from_secs(10));
        assert_eq!(calls.len(), wanted, "{variables:?} {calls:#?}");
    }
}

#[test]
fn call_with_more_files_than_are_kept_is_incomplete() {
    for (count, is_incomplete) in [(10, false), (1026, true)] {
        let mut files = Vec::new();
        for n in 0..count {
            let times = (n * 20, n * 20 + 10);
            let id = format!("leg{n}");
            files.push(file_of_unanswered(
                &id,
                ("city", "998901110001"),
                times,
                &[],
            ));
        }
        let calls = folded_calls(files.iter().map(Vec::as_slice));
        let incomplete: Vec<bool> = calls.iter().map(|call| call.incomplete.is_some()).collect();
        assert_eq!(incomplete, [is_incomplete], "{count} files");
    }
}
