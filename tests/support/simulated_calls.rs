//! Simulated calls by number, and pseudo-random numbers.

use callbridge_call::{Direction, EventTime, FinishedCall, UniqueId};
use callbridge_model::{CallRecord, CallUuid, EmployeeId, Judged, LeadId, Outcome, Phone};
use callbridge_spool::Finished;
use std::time::Duration;

/// The start time of every run.
pub fn epoch() -> EventTime {
    EventTime::from_seconds(1_795_151_000)
}

fn uuid_of(linkedid: &str) -> uuid::Uuid {
    let name = format!("sim\0{linkedid}");
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes())
}

/// Returns call number `n`, finished at `now`. The CRM need not have the lead `lead`.
pub fn call(n: u32, now: EventTime, lead: i64, live: bool) -> Finished {
    let duration = 3 + n % 40;
    let answered = !n.is_multiple_of(3);
    let started = now.minus(Duration::from_secs(u64::from(duration)));
    let linkedid = format!("{}.{n}", started.floor_seconds());
    let uuid = uuid_of(&linkedid);
    let direction = if n.is_multiple_of(2) {
        Direction::Inbound
    } else {
        Direction::Outbound
    };
    let record = CallRecord {
        uuid: Some(CallUuid(uuid)),
        linkedid: linkedid.clone(),
        pbx: "sim".to_owned(),
        direction,
        answered,
        lead_id: LeadId::new(lead),
        lead_from: None,
        trunk: Some("city".to_owned()),
        client_phone: Phone::from_e164(&format!("+99890{n:07}")),
        employee: Some("101".to_owned()),
        employee_id: if n.is_multiple_of(5) {
            None
        } else {
            EmployeeId::new(501)
        },
        employees_in_order: vec!["101".to_owned()],
        started_at: started.floor_seconds(),
        duration_sec: duration,
        talk_time_sec: if answered { duration - 2 } else { 0 },
        incomplete: false,
        estimate: false,
        by_hand: None,
        did: None,
    };
    let id = UniqueId::new(linkedid).expect("not empty");
    let call = FinishedCall {
        linkedid: id.clone(),
        also_known_as: vec![id],
        direction,
        answered,
        trunk: Some("city".to_owned()),
        number: None,
        employee: None,
        employees_in_order: Vec::new(),
        started,
        ended: now,
        talk: Duration::from_secs(u64::from(record.talk_time_sec)),
        variables: Vec::new(),
        userfields: Vec::new(),
        incomplete: None,
        estimate: false,
        by_arrival: false,
        live,
        remarks: Vec::new(),
        decided_by: Vec::new(),
        timeline: None,
        unmatched: Vec::new(),
        unknown_channels: Vec::new(),
        more_numbers: Vec::new(),
        shown_number: None,
        did: None,
        given: None,
    };
    let judged = Judged {
        record,
        outcome: Outcome::Journal,
        reason: None,
        message: String::new(),
        live,
        remarks: Vec::new(),
        judged_at: now,
        kept_out_unanswered: false,
    };
    Finished::new(judged, call)
}

/// Pseudo-random numbers (splitmix64). The same seed gives the same numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound.max(1)
    }

    /// Returns `true` with a chance of `percent` in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let bound = u64::try_from(from.len()).expect("few");
        &from[usize::try_from(self.below(bound)).expect("few")]
    }
}
