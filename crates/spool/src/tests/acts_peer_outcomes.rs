//! The acts about calls that another sender may have settled.

use super::acts::{Act, write};
use super::call::{at, finished, journal};
use super::waiting::completed;
use crate::{Fit, Op, OutcomeSource, PeerOutcome, RowId, Settlement, Step, Store, tables};
use callbridge_formats::message::Outcomes;
use callbridge_model::{CallUuid, Outcome, Reason};
use std::collections::BTreeMap;

const FIRST: u32 = 900_000;

fn uuid(n: u32) -> CallUuid {
    journal(n).judged.record.uuid.expect("a uuid")
}

fn told(store: &mut Store, told: PeerOutcome) {
    write(store, vec![Op::PeerOutcome(told)]);
}

/// Everything, after [`super::acts::ACTS`].
pub const ELSEWHERE: &[Act] = &[
    ("remade calls", |store, _| {
        for n in FIRST..FIRST + 20 {
            let come = Op::Finish(Box::new(journal(n)));
            let possibly_sent = Op::PeerOutcome(PeerOutcome::PossiblySent(uuid(n)));
            write(store, vec![come, possibly_sent]);
        }
        let parked = finished(FIRST + 20, Outcome::DeadLetter, Some(Reason::NoLead));
        let uuid = uuid(FIRST + 20);
        let possibly_sent = Op::PeerOutcome(PeerOutcome::PossiblySent(uuid));
        write(store, vec![Op::Finish(Box::new(parked)), possibly_sent]);
        let segment = tables::peer_outcomes::segment(store, 5).expect("readable");
        let since = segment.map(|it| it.since);
        told(store, PeerOutcome::SearchedFor(since));
        tables::peer_outcomes::possibly_sent_calls(store).expect("readable");
    }),
    ("calls settled elsewhere", |store, _| {
        let settlement = Settlement {
            outcomes: Outcomes {
                journaled: (FIRST..FIRST + 9).map(|n| uuid(n).0).collect(),
                discarded: vec![uuid(FIRST + 9).0],
                generations: BTreeMap::from([(uuid(FIRST).0, 1)]),
                again: BTreeMap::from([(uuid(FIRST + 1).0, 1), (uuid(FIRST + 30).0, 1)]),
            },
            source: OutcomeSource::Journal,
            at: at(9_000),
        };
        told(store, PeerOutcome::Settled(settlement));
        let page = callbridge_crm::ShownCall {
            uuid: uuid(FIRST + 10),
            leads: vec![4001],
            duration_sec: None,
            answered: None,
            direction: None,
        };
        let (calls, at) = (vec![page], at(9_000));
        told(store, PeerOutcome::Shown { calls, at });
        let due = tables::outbox::outcomes(store, 5).expect("readable");
        let (_, through) = due.expect("an outcome");
        told(store, PeerOutcome::Published(through));
    }),
    ("calls that are forwarded, and once more", |store, _| {
        let now = at(9_500);
        for n in FIRST + 40..FIRST + 49 {
            write(store, vec![Op::Finish(Box::new(journal(n)))]);
            let row = tables::calls::row_of(store, uuid(n)).expect("readable");
            let (row, step) = (row.expect("stored"), Step::Forwarded);
            write(store, vec![Op::Step { row, step, at: now }]);
        }
        let begin = (at(9_000), RowId(0));
        let all = tables::calls::forwarded(store, begin, now, 5).expect("readable");
        let last = all.last().expect("five");
        let behind = (last.since, last.id);
        let rest = tables::calls::forwarded(store, behind, now, 9).expect("readable");
        assert_eq!((all.len(), rest.len()), (5, 4));
        let none = tables::calls::forwarded(store, begin, at(9_400), 5);
        assert_eq!(none.map(|it| it.len()), Ok(0));
    }),
    ("all that is ready is looked for", |store, _| {
        told(store, PeerOutcome::AllPossiblySent);
    }),
    ("events that wait for their company", |store, _| {
        let (address, rebind) = ("https://crm".to_owned(), true);
        write(store, vec![Op::BindAddress { address, rebind }]);
        let waits = completed("waits", FIRST + 15);
        write(store, vec![Op::Delivery(Box::new(waits.clone()))]);
        assert_eq!(tables::deliveries::waiting(store), Ok(1));
        let known = tables::deliveries::foreknown(store, &waits).expect("readable");
        assert_eq!(known, (Fit::Unbound, true));
        let company = Op::BindCompany {
            company: "77".into(),
            application: "a".into(),
        };
        write(store, vec![company]);
        assert_eq!(tables::deliveries::waiting(store), Ok(0));
    }),
];
