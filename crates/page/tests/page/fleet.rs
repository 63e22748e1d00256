//! A fleet: a collector that is silent, and a sender.

use callbridge_model::status::fleet::{
    FleetGaps, FleetMember, FleetRole, FleetStatus, FleetTable, FleetToken, FleetTotals, Liveness,
    StatusReport,
};
use callbridge_model::status::{Backlog, Books, OverallState};
use std::sync::Arc;

/// `name` stands wherever somebody else chose the word.
pub fn fleet(name: &str, now: i64) -> FleetStatus {
    let word = |role, instance: &str| StatusReport {
        role,
        instance: instance.to_owned(),
        pbx: vec!["branch7".to_owned()],
        hostname: name.to_owned(),
        state: String::new(),
        version: name.to_owned(),
        commit: name.to_owned(),
        books: Books::default(),
        sources: Vec::new(),
        gaps: FleetGaps::default(),
        backlog: Backlog::default(),
        rate: None,
        letters: 2,
        lease: None,
        token: None,
        pause: None,
        verdict: OverallState::Well,
        started_at: now - 900,
        at: now - 20,
        ends: false,
    };
    let member = |speech, trouble: Option<&str>, word| FleetMember {
        speech,
        trouble: trouble.map(|it| it.to_owned().into()),
        user: name.to_owned(),
        heard_at: now - 400,
        word,
    };
    let table = FleetTable {
        at: now,
        stream: "calls.words".to_owned(),
        troubles: vec![format!("token {name}: nobody holds the lease").into()],
        members: vec![
            member(
                Liveness::Silent,
                Some(name),
                word(FleetRole::Collector, "branch7"),
            ),
            member(Liveness::Speaking, None, word(FleetRole::Sender, name)),
        ],
        tokens: vec![FleetToken::default()],
        totals: FleetTotals {
            silent: 1,
            speaking: 1,
            ..FleetTotals::default()
        },
        ..FleetTable::default()
    };
    FleetStatus {
        stream: "calls.words".to_owned(),
        why: Some(name.to_owned()),
        unread: Some(name.to_owned()),
        table: Some(Arc::new(table)),
        ..FleetStatus::default()
    }
}
