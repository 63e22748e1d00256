//! Tests that a written message reads back as the same call.

use callbridge_call::{
    Direction, EventTime, Extension, FinishedCall, GivenIds, Linkedid, RawNumber, Variable,
};
use callbridge_formats::message::{ResolvedIds, read, write};
use proptest::prelude::*;
use std::time::Duration;

fn call() -> FinishedCall {
    let started = EventTime::from_micros(1_795_151_317_833_600);
    FinishedCall {
        linkedid: Linkedid::new("1795151317.146").expect("not empty"),
        also_known_as: Vec::new(),
        direction: Direction::Inbound,
        answered: true,
        trunk: Some("city".to_owned()),
        number: Some(RawNumber {
            text: "+998901110001".to_owned(),
            from_dial_string: true,
        }),
        more_numbers: Vec::new(),
        shown_number: None,
        did: Some("+998712001122".to_owned()),
        employee: Some(Extension::new("101")),
        employees_in_order: vec![Extension::new("102"), Extension::new("101")],
        started,
        ended: started.plus(Duration::from_millis(5_020)),
        talk: Duration::from_millis(4_000),
        variables: vec![
            Variable {
                name: "CITY".to_owned(),
                values: vec!["a".to_owned(), "b".to_owned()],
            },
            Variable {
                name: "LEAD_ID".to_owned(),
                values: vec!["4001".to_owned()],
            },
        ],
        userfields: vec!["lead=4001".to_owned()],
        incomplete: None,
        estimate: true,
        by_arrival: false,
        live: false,
        remarks: Vec::new(),
        decided_by: Vec::new(),
        timeline: None,
        unmatched: Vec::new(),
        unknown_channels: Vec::new(),
        given: Some(GivenIds {
            lead: Some(4001),
            employee: None,
        }),
    }
}

fn read_back(pbx: &str, call: &FinishedCall, settled: ResolvedIds<'_>) -> FinishedCall {
    let message = write(pbx, call, settled);
    assert!(!message.contains('\n'), "{message}");
    let reread = read(message.as_bytes(), None).expect(&message);
    assert_eq!(reread.pbx, pbx);
    reread.call
}

#[test]
fn message_is_written_as_documented() {
    let settled = ResolvedIds {
        employee: Some(501),
        ..ResolvedIds::default()
    };
    let written = write("tashkent-1", &call(), settled);
    insta::assert_snapshot!(written.replace(",\"", "\n,\""), @r#"
    {"answered":true
    ,"did":"+998712001122"
    ,"direction":"INBOUND"
    ,"durationSec":5.02
    ,"employeeId":501
    ,"estimate":true
    ,"extension":"101"
    ,"extensions":["102"
    ,"101"]
    ,"id":"1795151317.146"
    ,"incomplete":false
    ,"leadId":4001
    ,"pbx":"tashkent-1"
    ,"phone":"+998901110001"
    ,"startedAt":1795151317.8336
    ,"talkSec":4
    ,"trunk":"city"
    ,"userFields":["lead=4001"]
    ,"variables":{"CITY":["a"
    ,"b"]
    ,"LEAD_ID":"4001"}}
    "#);
}

#[test]
fn resolved_values_take_precedence_over_received_ones() {
    let mut heard = call();
    heard.given = None;
    heard.number.as_mut().expect("a number").text = "901110001".to_owned();
    let settled = ResolvedIds {
        phone: Some("+998901110001"),
        lead: Some(7),
        employee: Some(501),
    };
    let back = read_back("a", &heard, settled);
    assert_eq!(back.number, call().number);
    let given = back.given.expect("given");
    assert_eq!((given.lead, given.employee), (Some(7), Some(501)));
}

#[test]
fn did_is_written_if_known_and_read_only_if_inbound() {
    let mut call = call();
    let settled = ResolvedIds::default();
    assert_eq!(read_back("a", &call, settled).did, call.did);
    call.direction = Direction::Outbound;
    assert_eq!(read_back("a", &call, settled).did, None);
    call.did = None;
    assert!(!write("a", &call, settled).contains("did"));
}

#[test]
fn hidden_and_invalid_numbers_are_written_as_null() {
    let mut hidden = call();
    hidden.given = Some(GivenIds::default());
    for text in [None, Some("*8"), Some("anonymous")] {
        hidden.number = text.map(|text| RawNumber {
            text: text.to_owned(),
            from_dial_string: false,
        });
        let back = read_back("a", &hidden, ResolvedIds::default());
        assert_eq!(back.number, None, "{text:?}");
    }
}

#[test]
fn values_a_reader_would_refuse_are_omitted_from_the_call() {
    let mut crowded = call();
    crowded.userfields = vec!["x".repeat(5_000), "lead=4001".to_owned()];
    crowded.userfields.extend((0..40).map(|n| n.to_string()));
    crowded.variables = (0..200)
        .map(|n| Variable {
            name: format!("V{n}"),
            values: vec!["x".repeat(n * 20)],
        })
        .collect();
    crowded.employees_in_order = vec![Extension::new("y".repeat(200)), Extension::new("101")];
    crowded.employee = Some(Extension::new(" "));
    let back = read_back("a", &crowded, ResolvedIds::default());
    assert_eq!(back.userfields[0], "lead=4001");
    assert_eq!(back.employees_in_order, [Extension::new("101")]);
    assert_eq!(back.employee, None);
    assert_eq!(back.variables[0].name, "V0");
}

proptest! {
    #[test]
    fn written_call_reads_back_unchanged(
        micros in 946_684_800_000_000_i64..4_102_444_800_000_000,
        length in 0_u64..604_800_000_000,
        talk in 1_u64..604_800_000_000,
        answered: bool,
        incomplete: bool,
        estimate: bool,
        lead in proptest::option::of(1_i64..i64::MAX),
    ) {
        let mut original = call();
        original.started = EventTime::from_micros(micros);
        original.ended = original.started.plus(Duration::from_micros(length));
        original.answered = answered;
        original.talk = Duration::from_micros(if answered { talk } else { 0 });
        original.estimate = estimate;
        original.given = Some(GivenIds { lead, employee: Some(501) });
        original.incomplete = incomplete.then(|| {
            "incomplete: the message says that facts of the call are missing".to_owned()
        });
        prop_assert_eq!(&read_back("a/b", &original, ResolvedIds::default()), &original);
    }

    #[test]
    fn message_reader_never_panics_on_any_bytes(bytes: Vec<u8>) {
        let _ = read(&bytes, None);
    }

    #[test]
    fn message_reader_never_panics_on_any_json(
        field in proptest::sample::select(callbridge_formats::message::MessageField::ALL),
        value in any_json(),
    ) {
        let mut message: serde_json::Value =
            serde_json::from_str(&write("a", &call(), ResolvedIds::default())).expect("JSON");
        message[field.name()] = value;
        if let Err(wrong) = read(message.to_string().as_bytes(), None) {
            prop_assert!(wrong.message.contains(field.name()), "{}", wrong);
        }
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
