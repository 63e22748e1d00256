//! The data of the daemon in memory on an ordinary morning.

use crate::fake::Known;
use callbridge_call::{Direction, EpochSeconds, EventTime};
use callbridge_leads::directory::LeadProfile;
use callbridge_model::status::TrunkStatus;
use callbridge_model::status::{
    Backlog, Books, BudgetStatus, Employees, SourceGap, SourceState, SourceStatus, Token, Unlisted,
    Unmatched,
};
use callbridge_model::{CallRecord, CallUuid, EmployeeId, LeadId, Phone, Reason, Status};
use callbridge_page::backend::*;
use callbridge_spool::employee_work::EmployeeWork;
use callbridge_spool::{
    Action, Attempt, LeadByHand, Letter, Listed, MissedCustomer, RowId, State, WaitingPhone,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Returns the data of an ordinary morning, with everything that a view can show. `name` is used
/// for every text from a PBX or the CRM. `now` is the current time.
pub fn morning(name: &str, now: i64) -> Known {
    Known {
        status: status(name, now),
        figures: figures(now),
        open: vec![
            OpenCallView {
                since: now - 95,
                answered_at: Some(now - 80),
                trunk: Some(name.to_owned()),
                phone: Some("+998901110009".to_owned()),
                extensions: vec![name.to_owned()],
            },
            OpenCallView {
                since: now - 7,
                answered_at: None,
                trunk: Some("city".to_owned()),
                phone: None,
                extensions: vec!["101".to_owned(), "102".to_owned()],
            },
        ],
        calls: (0..120).map(|n| call(name, now, n)).collect(),
        letters: (1..=60)
            .map(|id| (RowId(id), letter(name, now, id)))
            .collect(),
        numbers: numbers(name, now),
        given: vec![LeadByHand {
            phone: Phone::from_e164("+998901234567").expect("a number"),
            lead_id: LeadId::new(4001).expect("an id"),
            at: EpochSeconds::new(now - 3600),
            who: name.to_owned(),
        }],
        profiles: Profiles::from([(
            LeadId::new(4001).expect("an id"),
            LeadProfile {
                name: Some(name.to_owned()),
                responsible: EmployeeId::new(501),
                responsible_name: Some(name.to_owned()),
                stage: Some(format!("{name}: offer")),
            },
        )]),
        missed: missed(name, now),
        employees: employees(name),
        trunks: trunks(name, now),
        findings: findings(name),
        attempts: vec![Attempt {
            at: EventTime::from_seconds(now - 90),
            message: format!("the CRM answered 503: {name}"),
        }],
        ..Known::default()
    }
}

fn source_status(label: &str, state: SourceState, last_event_at: i64, now: i64) -> SourceStatus {
    SourceStatus {
        url: "ami://callbridge@192.0.2.10:5038".to_owned(),
        label: label.to_owned(),
        pbx: "office".to_owned(),
        state,
        last_event_at: Some(last_event_at),
        read: 48_213,
        gaps: 2,
        connected_since: Some(now - 90_000),
        ..SourceStatus::default()
    }
}

fn status(name: &str, now: i64) -> Status {
    let mut down = source_status(name, SourceState::Down, now - 1500, now);
    down.reason = Some(format!("connection refused by {name}"));
    down.down_since = Some(now - 1500);
    Status {
        hub: Some(crate::branches::hub(name, now)),
        books: Books {
            finished: 12_540,
            journaled: 12_480,
            dead: 60,
            internal: 310,
            skipped: 25,
            ..Books::default()
        },
        budget: BudgetStatus {
            limit: 60,
            window_sec: 60,
            used: 23,
            next_free_in_ms: 0,
        },
        backlog: Backlog {
            calls: 3,
            drain_sec: 4,
        },
        sources: vec![
            source_status("office/ami", SourceState::Up, now - 4, now),
            down,
        ],
        token: Token {
            state: "ok".to_owned(),
            company: Some(name.to_owned()),
            application: Some("callbridge".to_owned()),
            expires_at: Some(now + 40 * 86_400),
            grants: vec!["calls:write:all".to_owned(), "leads:read:all".to_owned()],
            ..Token::default()
        },
        version: "0.1.0".to_owned(),
        at: now,
        state: "/var/lib/callbridge/office".to_owned(),
        last_call_at: Some(now - 64),
        dead_letters: BTreeMap::from([("failed".to_owned(), 40), ("rejected".to_owned(), 20)]),
        waiting: BTreeMap::from([("no_lead".to_owned(), 20)]),
        gaps: vec![SourceGap {
            source: "ami://callbridge@192.0.2.10:5038".to_owned(),
            from: now - 7200,
            to: now - 6900,
            filled: true,
        }],
        unmatched: ["PJSIP/citty", name]
            .map(|prefix| Unmatched {
                prefix: prefix.to_owned(),
                calls: 12,
                last_at: now - 600,
                pbx: "office".to_owned(),
                may_be_phones: false,
            })
            .into(),
        employees: Some(Employees {
            calls: 20,
            matched: 9,
            unlisted: [("117", 9), (name, 2)]
                .map(|(extension, calls)| Unlisted {
                    extension: extension.to_owned(),
                    calls,
                    last_at: now - 600,
                })
                .into(),
            ..Employees::default()
        }),
        ..Status::default()
    }
    .judged()
}

fn outcomes(n: u64) -> Outcomes {
    Outcomes {
        journaled: n,
        queued: n / 9,
        waiting: n / 10,
        letters: n / 12,
        discarded: n / 30,
        forwarded: 0,
    }
}

/// Returns the bar of the hour or day that began this many steps ago. `step` is in seconds.
fn bar(now: i64, steps_ago: usize, step: i64, calls: u64) -> Bar {
    Bar {
        from: now - now.rem_euclid(3600) - step * i64::try_from(steps_ago).expect("few"),
        outcomes: outcomes(calls),
    }
}

fn figures(now: i64) -> Figures {
    let hour = [
        0, 0, 0, 1, 0, 2, 5, 14, 32, 41, 38, 29, 18, 22, 36, 40, 31, 20, 9, 4, 2, 1, 0, 3,
    ];
    let day = [180, 231, 244, 219, 252, 61, 212];
    Figures {
        today: outcomes(212),
        hours: hour
            .iter()
            .enumerate()
            .map(|(at, n)| bar(now, hour.len() - 1 - at, 3600, *n))
            .collect(),
        days: day
            .iter()
            .enumerate()
            .map(|(at, n)| bar(now, day.len() - 1 - at, 86_400, *n))
            .collect(),
        confirmed_median_sec: Some(2.4),
        confirmed_p95_sec: Some(11.0),
    }
}

/// Makes a call with a customer, with lead 4001.
fn record(n: i64, started_at: i64, phone: Option<String>) -> CallRecord {
    CallRecord {
        uuid: Some(CallUuid(Uuid::from_u128(
            0x0190_b7c4_0000_7000_8000_u128 << 48 | decimal(n),
        ))),
        linkedid: format!("{started_at}.{n}"),
        pbx: "office".to_owned(),
        direction: Direction::Inbound,
        answered: true,
        lead_id: LeadId::new(4001),
        lead_from: None,
        trunk: Some("city".to_owned()),
        client_phone: phone.map(|number| Phone::from_e164(&number).expect("a number")),
        employee: None,
        employee_id: None,
        employees_in_order: Vec::new(),
        started_at: EpochSeconds::new(started_at),
        duration_sec: 2000,
        talk_time_sec: 0,
        incomplete: false,
        estimate: false,
        by_hand: None,
        did: None,
    }
}

/// Returns a number whose hex digits are the decimal digits of `n`, for the end of a uuid.
fn decimal(n: i64) -> u128 {
    u128::from_str_radix(&n.to_string(), 16).expect("digits")
}

fn call(name: &str, now: i64, n: u32) -> Listed {
    let states = [
        State::Submitted,
        State::Journaled,
        State::Journaled,
        State::Dead,
        State::Journaled,
        State::Waiting,
    ];
    let state = states[n as usize % states.len()];
    let phone = (n % 11 != 5).then(|| format!("+99890{:07}", 1_110_000 + n));
    let started = now - 64 - i64::from(n) * 733;
    Listed {
        id: RowId(i64::from(n) + 1),
        state: Some(state),
        reason: match state {
            State::Dead => Some(Reason::Failed),
            State::Waiting => Some(Reason::NoLead),
            _ => None,
        },
        record: CallRecord {
            direction: if n.is_multiple_of(3) {
                Direction::Outbound
            } else {
                Direction::Inbound
            },
            trunk: Some(if n == 0 { name } else { "city" }.to_owned()),
            employee: (!n.is_multiple_of(4)).then(|| (101 + n % 7).to_string()),
            answered: !n.is_multiple_of(4),
            talk_time_sec: 12 + n * 13,
            ..record(n.into(), started, phone)
        },
    }
}

pub fn letter(name: &str, now: i64, id: i64) -> Letter {
    let reason = match id % 3 {
        0 => Reason::Rejected,
        _ => Reason::Failed,
    };
    let phone = Some(format!("+99890{:07}", 2_220_000 + id));
    let call = CallRecord {
        employee: Some(name.to_owned()),
        ..record(id, now - 5200 - id * 60, phone)
    };
    Letter {
        id: RowId(id),
        uuid: call.uuid,
        reason,
        waiting: false,
        since: EventTime::from_seconds(now - 5000),
        message: format!("lead 4001 does not exist in the company: {name}"),
        finding: None,
        errors: serde_json::Value::Null,
        attempts: Vec::new(),
        actions: vec![Action {
            at: EventTime::from_seconds(now - 60),
            who: name.to_owned(),
            action: format!("retried: {name}"),
        }],
        times_dead: 1,
        call: Some(call),
        bytes: None,
    }
}

/// Makes a phone from any text, as another version could have stored it.
fn raw_phone(text: &str) -> Phone {
    serde_json::from_value(text.into()).expect("a text")
}

fn waiting_phone(now: i64, phone: &str, calls: u64) -> WaitingPhone {
    WaitingPhone {
        phone: raw_phone(phone),
        calls,
        first: EpochSeconds::new(now - 90_000),
        last: EpochSeconds::new(now - 1200),
        trunk: None,
        pbx: String::new(),
    }
}

fn numbers(name: &str, now: i64) -> Vec<WaitingPhone> {
    vec![
        waiting_phone(now, "+998935550101", 7),
        waiting_phone(now, "+998935550102", 1),
        waiting_phone(now, name, 2),
    ]
}

/// Returns a customer whose first missed call was `ago` seconds before `now`.
fn waiting_customer(now: i64, phone: &str, trunk: &str, ago: i64, tries: u64) -> WaitingCustomer {
    WaitingCustomer {
        customer: MissedCustomer {
            phone: raw_phone(phone),
            pbx: String::new(),
            lead_id: if tries > 1 { LeadId::new(4001) } else { None },
            trunk: trunk.to_owned(),
            first_at: EpochSeconds::new(now - ago),
            last_at: EpochSeconds::new(now - ago / 3),
            tries,
        },
        tried: u64::from(tries == 2),
        tried_at: (tries == 2).then_some(now - 600),
    }
}

fn missed(name: &str, now: i64) -> Vec<WaitingCustomer> {
    vec![
        waiting_customer(now, "+998971234567", "city", 100_000, 6),
        waiting_customer(now, "+998901110123", "mobile", 20_000, 2),
        waiting_customer(now, "+998339998877", "city", 1_260, 1),
        waiting_customer(now, name, name, 300, 1),
    ]
}

fn employee_row(
    extension: Option<&str>,
    answered: u64,
    missed: u64,
) -> (Option<String>, EmployeeWork) {
    let work = EmployeeWork {
        employee_id: (answered > 0).then_some(501),
        answered,
        missed,
        outbound: answered / 2,
        talk_sec: answered * 143,
        wait_sec: answered * 8,
        called_back: missed,
        call_back_sec: missed * 1260,
    };
    (extension.map(str::to_owned), work)
}

fn employees(name: &str) -> EmployeeTable {
    EmployeeTable::from([
        employee_row(Some("101"), 48, 3),
        employee_row(Some("102"), 39, 11),
        employee_row(Some("103"), 22, 0),
        employee_row(Some(name), 5, 2),
        employee_row(None, 0, 9),
    ])
}

fn trunk_status(name: &str, day_calls: u64, last_at: Option<i64>) -> TrunkStatus {
    TrunkStatus {
        name: name.to_owned(),
        day_calls,
        last_at,
        ..TrunkStatus::default()
    }
}

fn trunks(name: &str, now: i64) -> Vec<TrunkStatus> {
    vec![
        trunk_status("city", 188, Some(now - 64)),
        trunk_status("mobile", 24, Some(now - 800)),
        trunk_status(name, 0, None),
    ]
}

fn findings(name: &str) -> Vec<CheckFinding> {
    [
        ("PBX office/ami", true, ""),
        (
            "trunk city",
            true,
            "compare the name with `pjsip show endpoints`",
        ),
        (name, false, name),
    ]
    .map(|(subject, ok, fix)| CheckFinding {
        name: subject.to_owned(),
        ok,
        message: format!("it says: {name}"),
        fix: fix.to_owned(),
    })
    .into()
}
