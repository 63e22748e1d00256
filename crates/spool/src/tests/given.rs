//! Tests that leads assigned by a user and actions on dead letters are kept unchanged.

use super::call::{finished_call, time_at};
use crate::{ACTIONS_MAX, Action, LeadByHand, Op, RowId, Settings, tables};
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Outcome, Phone, Reason};
use callbridge_testkit::Wait as _;

fn lead_by_hand(digits: i64, lead: i64, who: &str) -> LeadByHand {
    LeadByHand {
        phone: Phone::from_digits(998_901_110_000 + digits).expect("a number"),
        lead_id: LeadId::new(lead).expect("positive"),
        at: EpochSeconds::new(1_795_151_317),
        who: who.to_owned(),
    }
}

#[test]
fn assigned_lead_survives_restart_and_is_replaced_or_removed() {
    let place = super::place();
    let (first, second) = (lead_by_hand(1, 4_001, "ana"), lead_by_hand(2, 4_002, "bek"));
    let replacement = lead_by_hand(1, 4_003, "bek");
    {
        let (handle, guard) = place.open(Settings::default());
        let ops = [first.clone(), second.clone(), replacement.clone()].map(Op::Give);
        handle.write(ops.to_vec()).wait().expect("stored");
        guard.close();
    }
    let (handle, _guard) = place.open(Settings::default());
    let (phone, after) = (first.phone.clone(), first.phone.clone());
    let read = handle
        .read(move |store| {
            Ok((
                tables::given::assigned_lead(store, &phone)?,
                tables::given::given_leads(store, None, 1)?,
                tables::given::given_leads(store, Some(&after), 10)?,
            ))
        })
        .wait();
    let (one, page, rest) = read.expect("readable");
    assert_eq!((one, page), (Some(replacement.clone()), vec![replacement]));
    assert_eq!(rest, [second]);
    let (phone, gone) = (first.phone.clone(), first.phone);
    handle.write(vec![Op::Take(phone)]).wait().expect("taken");
    let left = handle
        .read(move |store| tables::given::assigned_lead(store, &gone))
        .wait();
    assert_eq!(left.expect("readable"), None);
}

#[test]
fn dead_letter_actions_keep_the_first_and_the_newest() {
    let place = super::place();
    let (handle, _guard) = place.open(Settings::default());
    let letter = finished_call(1, Outcome::DeadLetter, Some(Reason::NoLead));
    let finish = Op::Finish(Box::new(letter));
    handle.write(vec![finish]).wait().expect("stored");
    let actions = (0..60).map(|n| Action {
        at: time_at(n),
        who: "ana".to_owned(),
        action: format!("retry {n}"),
    });
    let ops = actions.map(|action| Op::Action {
        row: RowId(1),
        action,
    });
    handle.write(ops.collect()).wait().expect("stored");
    let read = handle
        .read(|store| tables::letters::letter(store, RowId(1)))
        .wait();
    let actions = read.expect("readable").expect("a letter").actions;
    assert_eq!(actions.len(), ACTIONS_MAX);
    assert_eq!(
        (actions[0].action.as_str(), actions[1].action.as_str()),
        ("retry 0", "retry 11")
    );
    assert_eq!(actions[ACTIONS_MAX - 1].action, "retry 59");
}
