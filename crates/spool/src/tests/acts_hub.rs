//! A hub's and a collector's operations and queries, for `plans.rs`.

use super::acts::Act;
use super::call::time_at;
use crate::{
    BranchChange, BranchRequest, Done, HubPosition, NewBranch, Offer, Op, Silence, SilenceReason,
    Store, TokenRotation, tables,
};
use callbridge_call::EpochSeconds;
use std::time::Duration;

pub const HUB: &[Act] = &[
    ("a collector's offers", |store, _| {
        for offer in [Offer::Unconfirmed, Offer::Forwarded] {
            write(
                store,
                Op::Offer {
                    offer,
                    at: time_at(1),
                },
            );
        }
    }),
    ("the calls to forward", |store, _| {
        tables::forward::next_calls(store, 5).expect("readable");
        tables::forward::oldest_ready(store).expect("readable");
    }),
    ("a hub begins", |store, _| {
        let incarnation = "first".to_owned();
        write(
            store,
            Op::BeginHub {
                incarnation,
                at: time_at(1),
            },
        );
    }),
    ("a branch and its requests", |store, _| {
        let branch = NewBranch {
            name: "samarkand".to_owned(),
            token: "00".to_owned(),
            pbxs: vec!["samarkand".to_owned()],
            at: EpochSeconds::new(1),
        };
        write(store, Op::AddBranch(branch));
        write(store, request("script", None));
        write(store, request("collector", Some(("another", 7))));
        write(store, request("collector", Some(("a second database", 8))));
        write(store, request("collector", Some(("a second database", 9))));
        assert_eq!(write(store, Op::ResumeSending), Done::Resumed(true));
        for n in 0..9 {
            write(store, request(&format!("sender {n}"), None));
        }
        tables::branches::branches(store).expect("readable");
        tables::unreadable::are_new(store, "branch samarkand", &[b"garbage"]).expect("readable");
        let rotation = TokenRotation {
            branch: "samarkand".to_owned(),
            token: "01".to_owned(),
            previous_until: Some(EpochSeconds::new(9)),
        };
        write(store, Op::RotateToken(rotation));
        let removed = write(store, Op::RemoveBranch("samarkand".to_owned()));
        assert_eq!(removed, Done::Branch(BranchChange::Removed));
    }),
];

fn write(store: &mut Store, op: Op) -> Done {
    store.write(vec![op]).expect("stored").remove(0)
}

fn request(sender: &str, seen: Option<(&str, u64)>) -> Op {
    let seen = seen.map(|(incarnation, seq)| HubPosition {
        incarnation: incarnation.to_owned(),
        seq,
    });
    Op::BranchRequest(Box::new(BranchRequest {
        branch: "samarkand".to_owned(),
        sender: Some(sender.to_owned()),
        seen,
        next_incarnation: "next".to_owned(),
        silence: Silence {
            boot_id: "boot".to_owned(),
            until: Duration::from_secs(105),
            why: SilenceReason::LostCommits,
        },
        calls: 0,
        refused: 1,
        refusal: Some("phone: it is missing".to_owned()),
        report: Some("{}".to_owned()),
        at: time_at(2),
    }))
}
