//! Values shared by several modules' tests.

use callbridge_call::EventTime;
use callbridge_crm::TokenInfo;
use callbridge_model::{CallUuid, Grant, LeadId, Now, TokenFingerprint};
use callbridge_spool::{FIRST_POLL, IfAbsent, Parties, Progress, Row, RowId, State, Unconfirmed};
use callbridge_testkit::sample;
use std::time::Duration;

/// When second 0 of a test is.
pub(crate) const T0: EventTime = EventTime::from_seconds(1_795_151_000);

/// Returns the time this many seconds after [`T0`].
pub(crate) fn now_at(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now {
        wall: T0.plus(since),
        boot: Duration::from_secs(1000) + since,
    }
}

/// Returns the token that most tests use.
pub(crate) fn fingerprint() -> TokenFingerprint {
    TokenFingerprint::of("svc_pat_one")
}

pub(crate) fn uuid(id: i64) -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::from(id.unsigned_abs())))
}

/// Creates a call that was accepted at this moment with the token [`fingerprint`].
pub(crate) fn submitted_call(id: i64, accepted: Now) -> Unconfirmed {
    Unconfirmed {
        row: RowId(id),
        uuid: uuid(id),
        linkedid: id.to_string(),
        trunk: None,
        turn: String::new(),
        parties: Parties {
            lead: LeadId::new(4001),
            employee: None,
        },
        started: accepted.wall.floor_seconds(),
        request_id: Some(format!("r{id}")),
        token: fingerprint(),
        submitted_at: accepted.wall,
        first_sent: accepted.wall,
        polls: 0,
        next_poll: accepted.wall.plus(FIRST_POLL),
        absent: 0,
        absent_at: None,
        resubmits: 0,
        if_absent: IfAbsent::Resubmit,
        message: String::new(),
    }
}

/// Returns the record of the token [`fingerprint`].
pub(crate) fn info() -> TokenInfo {
    let granted = [Grant::CallSave, Grant::LeadRead, Grant::LeadSave];
    TokenInfo {
        company: 12,
        company_name: "Uy".to_owned(),
        application: Some(7),
        application_name: String::new(),
        kind: "PAT".to_owned(),
        expires_at: None,
        expires_in_days: None,
        grants: Some(granted.map(|grant| grant.to_string()).to_vec()),
    }
}

/// Creates a row that can be sent, with this many counted failures.
pub(crate) fn row(id: RowId, failures: u32) -> Row {
    Row {
        id,
        uuid: uuid(id.0),
        turn: "pbx1".to_owned(),
        record: sample::record(),
        call: sample::call(),
        progress: Progress {
            state: State::Ready,
            since: T0,
            started: T0.floor_seconds(),
            live: true,
            not_before: 0,
            settled_externally: false,
            retried: false,
            request_id: None,
            token: None,
            submitted_at: None,
            first_sent: None,
            next_poll: None,
            polls: 0,
            absent: 0,
            absent_at: None,
            resubmits: 0,
            failures,
            if_absent: None,
            reroute_history: None,
            sent_again: false,
            reason: None,
            message: String::new(),
            errors: None,
            finding: None,
            attempts: Vec::new(),
            times_dead: 0,
        },
    }
}
