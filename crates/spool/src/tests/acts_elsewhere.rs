//! The acts about calls that another sender may have settled.

use super::acts::{Act, write};
use super::call::{at, finished, journal};
use crate::{Elsewhere, Op, Settlement, Store, Witness, tables};
use callbridge_model::{CallUuid, Outcome, Reason};

const FIRST: u32 = 900_000;

fn uuid(n: u32) -> CallUuid {
    journal(n).judged.record.uuid.expect("a uuid")
}

fn told(store: &mut Store, told: Elsewhere) {
    write(store, vec![Op::Elsewhere(told)]);
}

/// Everything, after [`super::acts::ACTS`].
pub const ELSEWHERE: &[Act] = &[
    ("remade calls", |store, _| {
        for n in FIRST..FIRST + 20 {
            let come = Op::Finish(Box::new(journal(n)));
            let remade = Op::Elsewhere(Elsewhere::Remade { uuid: uuid(n) });
            write(store, vec![come, remade]);
        }
        let parked = finished(FIRST + 20, Outcome::DeadLetter, Some(Reason::NoLead));
        let uuid = uuid(FIRST + 20);
        let remade = Op::Elsewhere(Elsewhere::Remade { uuid });
        write(store, vec![Op::Finish(Box::new(parked)), remade]);
        let segment = tables::elsewhere::segment(store, 5).expect("readable");
        let since = segment.map(|it| it.since);
        told(store, Elsewhere::LookedFor { since });
        tables::elsewhere::remade_calls(store).expect("readable");
    }),
    ("calls settled elsewhere", |store, _| {
        let settlement = Settlement {
            journaled: (FIRST..FIRST + 9).map(uuid).collect(),
            discarded: vec![uuid(FIRST + 9)],
            witness: Witness::Journal,
            at: at(9_000),
        };
        told(store, Elsewhere::Settled(settlement));
        let rows = tables::elsewhere::outcomes(store, 5).expect("readable");
        let through = rows.last().expect("an outcome").id;
        told(store, Elsewhere::Told { through });
    }),
    ("all that is ready is looked for", |store, _| {
        told(store, Elsewhere::AllRemade);
    }),
];
