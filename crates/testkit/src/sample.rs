//! Made-up calls.

use callbridge_call::{
    Direction, EpochSeconds, EventTime, Extension, FinishedCall, Linkedid, RawNumber, Variable,
};
use callbridge_model::{CallRecord, CallUuid, LeadId, Phone};
use std::time::Duration;

/// Returns a customer's call to 101 that was answered: 5.02 s, of which 4 s are talk.
pub fn call() -> FinishedCall {
    let started = EventTime::from_micros(1_795_151_317_833_600);
    let number = RawNumber {
        text: "998901110001".to_owned(),
        from_dial_string: false,
    };
    FinishedCall {
        linkedid: Linkedid::new("1795151317.146").expect("not empty"),
        also_known_as: Vec::new(),
        direction: Direction::Inbound,
        answered: true,
        trunk: Some("city".to_owned()),
        number: Some(number),
        more_numbers: Vec::new(),
        shown_number: None,
        did: None,
        employee: Some(Extension::new("101")),
        employees_in_order: vec![Extension::new("101")],
        started,
        ended: started.plus(Duration::from_millis(5_020)),
        talk: Duration::from_millis(4_000),
        variables: vec![Variable {
            name: "LEAD_ID".to_owned(),
            values: vec!["4001".to_owned()],
        }],
        userfields: Vec::new(),
        incomplete: None,
        estimate: false,
        by_arrival: false,
        live: true,
        remarks: Vec::new(),
        decided_by: Vec::new(),
        timeline: None,
        unmatched: Vec::new(),
        unknown_channels: Vec::new(),
        given: None,
    }
}

/// Returns the record of [`call`], as the journal has it, of lead 4001.
pub fn record() -> CallRecord {
    CallRecord {
        uuid: Some(CallUuid(uuid::Uuid::from_u128(2))),
        linkedid: "1795151317.2".to_owned(),
        pbx: "pbx1".to_owned(),
        direction: Direction::Inbound,
        answered: true,
        lead_id: LeadId::new(4001),
        lead_from: None,
        trunk: Some("city".to_owned()),
        client_phone: Phone::from_e164("+998900000001"),
        employee: Some("101".to_owned()),
        employee_id: None,
        employees_in_order: vec!["101".to_owned()],
        started_at: EpochSeconds::new(1_795_151_318),
        duration_sec: 5,
        talk_time_sec: 4,
        incomplete: false,
        estimate: false,
        by_hand: None,
        did: None,
    }
}
