//! Tests that a hub notices another database in use, and that a restore doesn't look like one.

use super::call::time_at;
use crate::{
    BranchRequest, Done, HubAnswer, HubPosition, NewBranch, Op, Settings, Sighting, Silence,
    SilenceReason, Store,
};
use callbridge_call::EpochSeconds;
use std::time::Duration;

/// A hub's state, and the incarnation that it begins next.
struct Hub {
    store: Store,
    name: &'static str,
    next: u32,
}

impl Hub {
    /// Creates a state with these branches and their collectors, each of which the state has
    /// answered several times in the incarnation `first`. Two such states are copies.
    fn new<const N: usize>(name: &'static str, branches: [&str; N]) -> (Self, [Collector; N]) {
        let mut store = super::store(Settings::default());
        let begin = Op::BeginHub {
            incarnation: "first".to_owned(),
            at: time_at(0),
        };
        store.write(vec![begin]).expect("stored");
        for branch in branches {
            let new = NewBranch {
                name: branch.to_owned(),
                token: format!("hash of {branch}"),
                pbxs: vec![branch.to_owned()],
                at: EpochSeconds::new(0),
            };
            store.write(vec![Op::AddBranch(new)]).expect("stored");
        }
        let next = 0;
        let mut hub = Self { store, name, next };
        let collectors = branches.map(|branch| {
            let mut collector = Collector {
                branch: branch.to_owned(),
                seen: None,
            };
            for _ in 0..3 {
                collector.send(&mut hub, 1);
            }
            collector
        });
        (hub, collectors)
    }

    fn request(&mut self, branch: &str, seen: Option<HubPosition>, seconds: i64) -> Op {
        self.next += 1;
        Op::BranchRequest(Box::new(BranchRequest {
            branch: branch.to_owned(),
            sender: Some(format!("collector of {branch}")),
            seen,
            next_incarnation: format!("{} {}", self.name, self.next),
            silence: Silence {
                boot_id: "boot".to_owned(),
                until: Duration::from_secs(105),
                why: SilenceReason::LostCommits,
            },
            calls: 0,
            refused: 0,
            refusal: None,
            report: None,
            at: time_at(seconds),
        }))
    }

    fn split_by(&self) -> Option<&str> {
        self.store.hub().expect("a hub").split_by.as_deref()
    }
}

/// A collector, with the position that it has seen last.
struct Collector {
    branch: String,
    seen: Option<HubPosition>,
}

impl Collector {
    fn send(&mut self, hub: &mut Hub, seconds: i64) -> HubAnswer {
        let answer = self.send_in_vain(hub, seconds);
        self.seen = Some(answer.position.clone());
        answer
    }

    /// Sends a request whose answer is lost.
    fn send_in_vain(&self, hub: &mut Hub, seconds: i64) -> HubAnswer {
        let request = hub.request(&self.branch, self.seen.clone(), seconds);
        match hub.store.write(vec![request]).expect("stored").remove(0) {
            Done::Hub(answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns two databases that were one until now, and their collectors.
fn split_database<const N: usize>(branches: [&str; N]) -> ([Hub; 2], [Collector; N]) {
    let (one, collectors) = Hub::new("one", branches);
    let (other, _) = Hub::new("other", branches);
    ([one, other], collectors)
}

#[test]
fn two_databases_in_use_are_noticed_by_both_hubs() {
    let ([mut one, mut other], [mut only]) = split_database(["a"]);
    for second in 0..4 {
        assert!(one.split_by().is_none() || second > 2, "too early");
        only.send(&mut one, second);
        only.send(&mut other, second);
    }
    assert_eq!((one.split_by(), other.split_by()), (Some("a"), Some("a")));
}

#[test]
fn one_of_several_branches_is_no_proof_of_two_databases() {
    let ([mut one, mut other], [mut a, mut b]) = split_database(["a", "b"]);
    for second in 0..9 {
        a.send(&mut one, second);
        a.send(&mut other, second);
    }
    assert_eq!((one.split_by(), other.split_by()), (None, None));
    for second in 10..13 {
        b.send(&mut one, second);
        b.send(&mut other, second);
    }
    assert_eq!(one.split_by(), Some("a, b"));
    assert_eq!(other.split_by(), Some("a, b"));
}

fn lost_position(seq: u64) -> Option<HubPosition> {
    Some(HubPosition {
        incarnation: "lost".to_owned(),
        seq,
    })
}

#[test]
fn restored_database_is_no_second_one() {
    let (mut restored, collectors) = Hub::new("restored", ["a", "b", "c"]);
    for (mut collector, seq) in collectors.into_iter().zip(40..) {
        // The collector has seen an incarnation that the backup doesn't know.
        collector.seen = lost_position(seq);
        // The first answers are lost on their way, so the collector repeats its position.
        for second in 10..13 {
            collector.send_in_vain(&mut restored, second);
        }
        for second in 13..16 {
            collector.send(&mut restored, second);
        }
    }
    assert_eq!(restored.split_by(), None);
    let hub = restored.store.hub().expect("a hub");
    assert_eq!(hub.revealed_by.as_deref(), Some("a"));
}

#[test]
fn branches_of_a_restored_database_are_answered_in_one_commit() {
    let (mut restored, _) = Hub::new("restored", ["a", "b"]);
    let requests = vec![
        vec![restored.request("a", lost_position(40), 10)],
        vec![restored.request("b", lost_position(41), 10)],
    ];
    let results = restored.store.write_group(&requests);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(restored.split_by(), None);
}

#[test]
fn second_database_is_forgotten_when_sending_resumes() {
    let ([mut one, mut other], [mut only]) = split_database(["a"]);
    for second in 0..4 {
        only.send(&mut one, second);
        only.send(&mut other, second);
    }
    assert_eq!(one.split_by(), Some("a"));
    let done = one.store.write(vec![Op::ResumeSending]);
    assert_eq!(done, Ok(vec![Done::Resumed(true)]));
    assert_eq!(one.split_by(), None);
    let silence = one.store.silence().expect("a silence");
    assert_eq!(
        *silence,
        Silence::to_begin(SilenceReason::SecondDatabase),
        "the other hub's requests can still count"
    );
    only.send(&mut one, 5);
    only.send(&mut one, 6);
    assert_eq!(one.split_by(), None, "the other hub was stopped");
    let done = one.store.write(vec![Op::ResumeSending]);
    assert_eq!(done, Ok(vec![Done::Resumed(false)]));
}

/// The collectors that the other hub answered last come back after it has been stopped.
#[test]
fn collectors_of_the_stopped_hub_do_not_pause_sending_again() {
    let ([mut one, mut other], mut collectors) = split_database(["a", "b"]);
    for second in 0..4 {
        for collector in &mut collectors {
            collector.send(&mut one, second);
            collector.send(&mut other, second);
        }
    }
    assert!(one.split_by().is_some());
    one.store.write(vec![Op::ResumeSending]).expect("stored");
    for second in 5..8 {
        for collector in &mut collectors {
            collector.send(&mut one, second);
        }
    }
    assert_eq!(one.split_by(), None);
}

/// After a restore, the machines of two collectors are set back to snapshots from before it.
#[test]
fn collectors_set_back_to_a_snapshot_are_no_second_database() {
    let (mut hub, collectors) = Hub::new("restored", ["a", "b"]);
    let snapshots = collectors
        .each_ref()
        .map(|collector| collector.seen.clone());
    let mut collectors = collectors;
    collectors[0].seen = lost_position(40);
    for second in 10..13 {
        for collector in &mut collectors {
            collector.send(&mut hub, second);
        }
    }
    let began = hub.store.hub().expect("a hub").revealed_by.clone();
    assert_eq!(began.as_deref(), Some("a"), "the restore");
    for (collector, snapshot) in collectors.iter_mut().zip(snapshots) {
        collector.seen = snapshot;
        collector.send(&mut hub, 20);
        collector.send(&mut hub, 21);
    }
    assert_eq!(hub.split_by(), None);
}

#[test]
fn proof_needs_two_signs_of_two_branches_or_the_only_one() {
    let sign = |branch: &str, seconds| Sighting {
        branch: branch.to_owned(),
        at: time_at(seconds),
    };
    let first = sign("a", 0);
    assert_eq!(first.proof(None, 1), None);
    assert_eq!(
        sign("a", 3_600).proof(Some(&first), 1).as_deref(),
        Some("a")
    );
    assert_eq!(sign("a", 3_601).proof(Some(&first), 1), None);
    assert_eq!(sign("a", 9).proof(Some(&first), 2), None);
    assert_eq!(sign("b", 9).proof(Some(&first), 2).as_deref(), Some("a, b"));
    // The clock was set back.
    assert_eq!(
        sign("b", -9).proof(Some(&first), 2).as_deref(),
        Some("a, b")
    );
}
