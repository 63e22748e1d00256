//! Tests that a hub notices when it has lost commits, and that a collector keeps its calls.

use super::call::{journal, time_at};
use crate::{
    BRANCH_SOURCE, BranchChange, BranchRequest, BranchSender, Done, Error, FORWARDED_KEPT,
    Finished, HubAnswer, HubPosition, NewBranch, Offer, Op, RowId, Settings, Silence,
    SilenceReason, State, Step, Store, TokenRotation, UnreadableBytes, tables,
};
use callbridge_call::EpochSeconds;
use callbridge_model::Reason;
use std::time::Duration;

fn finish(call: Finished) -> Op {
    Op::Finish(Box::new(call))
}

fn store() -> Store {
    super::store(Settings::default())
}

fn hub(branches: &[&str]) -> Store {
    let mut store = store();
    let incarnation = "first".to_owned();
    let begin = Op::BeginHub {
        incarnation,
        at: time_at(1),
    };
    store.write(vec![begin]).expect("stored");
    for name in branches {
        assert_eq!(add(&mut store, name, name), BranchChange::NewToken);
    }
    store
}

fn new_branch(name: &str, token: &str, pbx: &str) -> Op {
    Op::AddBranch(NewBranch {
        name: name.to_owned(),
        token: token.to_owned(),
        pbxs: vec![pbx.to_owned()],
        at: EpochSeconds::new(1),
    })
}

fn add(store: &mut Store, name: &str, pbx: &str) -> BranchChange {
    change(store, new_branch(name, &format!("hash of {name}"), pbx))
}

fn change(store: &mut Store, op: Op) -> BranchChange {
    match store.write(vec![op]).expect("stored").remove(0) {
        Done::Branch(change) => change,
        other => panic!("{other:?}"),
    }
}

fn request(branch: &str, seen: Option<&HubPosition>, next: &str, seconds: i64) -> Op {
    request_of(Some("collector"), branch, seen, next, seconds)
}

fn request_of(
    sender: Option<&str>,
    branch: &str,
    seen: Option<&HubPosition>,
    next: &str,
    seconds: i64,
) -> Op {
    Op::BranchRequest(Box::new(BranchRequest {
        branch: branch.to_owned(),
        sender: sender.map(str::to_owned),
        seen: seen.cloned(),
        next_incarnation: next.to_owned(),
        silence: Silence {
            boot_id: "boot".to_owned(),
            until: Duration::from_secs(105),
            why: SilenceReason::LostCommits,
        },
        calls: 1,
        refused: 0,
        refusal: None,
        report: None,
        at: time_at(seconds),
    }))
}

fn send_request(
    store: &mut Store,
    branch: &str,
    seen: Option<&HubPosition>,
    next: &str,
) -> HubAnswer {
    write_request(store, request(branch, seen, next, 5))
}

fn write_request(store: &mut Store, request: Op) -> HubAnswer {
    let done = store.write(vec![request]);
    match done.expect("stored").remove(0) {
        Done::Hub(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hub_store_numbers_each_commit_and_other_stores_have_none() {
    let mut plain = store();
    plain.write(vec![finish(journal(1))]).expect("stored");
    assert_eq!(plain.hub(), None);
    let mut store = hub(&["a"]);
    let first = send_request(&mut store, "a", None, "x").position;
    store.write(vec![finish(journal(1))]).expect("stored");
    let second = send_request(&mut store, "a", Some(&first), "x");
    assert_eq!(second.position.seq, first.seq + 2);
    assert!(!second.lost_commits);
    let refused = store.write(vec![request("b", None, "x", 5)]);
    assert_eq!(refused, Err(Error::NoBranch("b".to_owned())));
    let now = store.hub().expect("a hub").position.clone();
    assert_eq!(now, second.position, "a refused request is no commit");
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}

#[test]
fn restored_hub_state_is_detected_by_a_later_branch_position() {
    let mut store = hub(&["a", "b"]);
    send_request(&mut store, "b", None, "x");
    // The branch has seen commits that this state no longer contains.
    let lost = HubPosition {
        incarnation: "first".to_owned(),
        seq: 50,
    };
    // In the meantime, other commits have moved past the lost sequence number.
    for n in 1..60 {
        store.write(vec![finish(journal(n))]).expect("stored");
    }
    let answer = send_request(&mut store, "a", Some(&lost), "second");
    assert!(answer.lost_commits);
    assert_eq!(answer.position.incarnation, "second");
    let row = store.hub().expect("a hub").clone();
    assert_eq!(row.revealed_by.as_deref(), Some("a"));
    let silence = store.silence().cloned().expect("a silence");
    assert_eq!(
        (silence.boot_id.as_str(), silence.until.as_secs()),
        ("boot", 105)
    );
    let head = tables::work_queue::head(&store, &super::call::ask(time_at(9))).expect("a head");
    assert_eq!(head.silence, Some(silence));
    // The other branch has seen this incarnation before, so it hasn't lost anything new.
    let answer = send_request(&mut store, "b", Some(&lost), "third");
    assert!(!answer.lost_commits);
    assert_eq!(answer.position.incarnation, "second");
}

/// Returns branch `a`'s senders.
fn senders(store: &Store) -> Vec<BranchSender> {
    let mut branches = tables::branches::branches(store).expect("readable");
    let branch = branches.drain(..).find(|branch| branch.name == "a");
    branch.expect("a branch").senders
}

#[test]
fn script_with_the_same_token_hides_no_lost_commits() {
    let mut store = hub(&["a"]);
    let first = send_request(&mut store, "a", None, "x").position;
    // The state is restored to this point, although the collector has seen more.
    let lost = HubPosition {
        seq: first.seq + 3,
        ..first
    };
    for _ in 0..9 {
        let script = request_of(None, "a", None, "x", 5);
        assert!(!write_request(&mut store, script).lost_commits);
    }
    assert!(send_request(&mut store, "a", Some(&lost), "second").lost_commits);
}

#[test]
fn sender_unknown_to_a_restored_state_reveals_lost_commits() {
    let mut store = hub(&[]);
    let known = store.hub().expect("a hub").position.clone();
    // When this branch was added, the state knew all responses to a removed branch of the same
    // name.
    add(&mut store, "a", "a");
    assert!(!send_request(&mut store, "a", Some(&known), "x").lost_commits);
    let lost = HubPosition {
        seq: known.seq + 9,
        ..known
    };
    let other = request_of(Some("other collector"), "a", Some(&lost), "second", 5);
    assert!(write_request(&mut store, other).lost_commits);
}

#[test]
fn second_sender_of_a_branch_is_noted_once_both_send() {
    let mut store = hub(&["a"]);
    for seconds in [5, 6] {
        write_request(&mut store, request_of(None, "a", None, "x", seconds));
    }
    // A new collector takes the script's place.
    for seconds in [7, 8] {
        write_request(&mut store, request("a", None, "x", seconds));
    }
    let both = senders(&store);
    let known: Vec<_> = both
        .iter()
        .map(|one| (&*one.sender, one.requests))
        .collect();
    assert_eq!(known, [("", 2), ("collector", 2)]);
    assert!(both.iter().all(|sender| sender.alternated.is_none()));
    write_request(&mut store, request_of(None, "a", None, "x", 9));
    let at = time_at(9).floor_seconds();
    assert_eq!(senders(&store)[0].alternated, Some(at));
    assert_eq!(senders(&store)[0].last_at, at);
    change(&mut store, Op::RemoveBranch("a".to_owned()));
    add(&mut store, "a", "a");
    assert_eq!(senders(&store), []);
}

#[test]
fn copied_collector_is_noted_when_its_position_goes_back() {
    let mut store = hub(&["a"]);
    let first = send_request(&mut store, "a", None, "x").position;
    let second = send_request(&mut store, "a", Some(&first), "x").position;
    // The response was lost, so the collector doesn't know any more than before.
    send_request(&mut store, "a", Some(&first), "x");
    send_request(&mut store, "a", Some(&second), "x");
    assert_eq!(senders(&store)[0].went_back, None);
    // A script may send any position.
    for seen in [None, Some(&second), Some(&first)] {
        write_request(&mut store, request_of(None, "a", seen, "x", 5));
    }
    assert_eq!(senders(&store)[0].went_back, None);
    send_request(&mut store, "a", Some(&first), "x");
    let at = time_at(5).floor_seconds();
    assert_eq!(senders(&store)[1].went_back, Some(at));
}

#[test]
fn new_incarnation_does_not_make_a_collector_look_copied() {
    let mut store = hub(&["a"]);
    let first = send_request(&mut store, "a", None, "x").position;
    let lost = HubPosition {
        seq: first.seq + 50,
        ..first
    };
    let new = send_request(&mut store, "a", Some(&lost), "second").position;
    assert!(new.seq < lost.seq);
    let new = send_request(&mut store, "a", Some(&new), "x").position;
    send_request(&mut store, "a", Some(&new), "x");
    assert_eq!(senders(&store)[0].went_back, None);
}

#[test]
fn branch_keeps_eight_senders_and_forgotten_ones_lose_nothing() {
    let mut store = hub(&["a"]);
    let first = send_request(&mut store, "a", None, "x").position;
    for n in 0..8 {
        let sender = format!("sender {n}");
        let request = request_of(Some(&sender), "a", None, "x", 5);
        write_request(&mut store, request);
    }
    let known = senders(&store);
    assert_eq!(known.len(), 8);
    assert!(known.iter().all(|sender| sender.sender != "collector"));
    assert!(!send_request(&mut store, "a", Some(&first), "x").lost_commits);
    let lost = HubPosition {
        seq: first.seq + 50,
        ..first.clone()
    };
    let other = request_of(Some("new collector"), "a", Some(&lost), "second", 5);
    assert!(write_request(&mut store, other).lost_commits);
}

#[test]
fn new_hub_state_is_detected_by_an_unknown_incarnation() {
    let mut store = hub(&["a"]);
    let other = HubPosition {
        incarnation: "of the deleted state".to_owned(),
        seq: 1,
    };
    assert!(send_request(&mut store, "a", Some(&other), "second").lost_commits);
    assert!(!send_request(&mut store, "a", Some(&other), "third").lost_commits);
    let text = store.hub().expect("a hub").position.incarnation.clone();
    assert_eq!(text, "second");
}

fn invented_position(seq: u64) -> HubPosition {
    HubPosition {
        incarnation: format!("invented {seq}"),
        seq,
    }
}

#[test]
fn lost_commits_count_once_an_hour_whichever_branch_shows_them() {
    let mut store = hub(&["a", "b"]);
    assert!(send_request(&mut store, "a", Some(&invented_position(1)), "second").lost_commits);
    assert!(!send_request(&mut store, "a", Some(&invented_position(2)), "third").lost_commits);
    assert!(!send_request(&mut store, "b", Some(&invented_position(3)), "fourth").lost_commits);
    let later = request("b", Some(&invented_position(4)), "fifth", 3_605);
    let done = store.write(vec![later]).expect("stored").remove(0);
    assert!(matches!(
        done,
        Done::Hub(HubAnswer {
            lost_commits: true,
            ..
        })
    ));
}

fn rotation(branch: &str) -> Op {
    Op::RotateToken(TokenRotation {
        branch: branch.to_owned(),
        token: "new".to_owned(),
        previous_until: Some(EpochSeconds::new(3_600)),
    })
}

#[test]
fn pbx_belongs_to_one_branch_and_a_removed_branch_frees_it() {
    let mut store = hub(&["a"]);
    let taken = BranchChange::PbxOf {
        pbx: "a".to_owned(),
        branch: "a".to_owned(),
    };
    assert_eq!(add(&mut store, "b", "a"), taken);
    assert_eq!(add(&mut store, "a", "a2"), BranchChange::PbxsAdded);
    let branches = tables::branches::branches(&store).expect("readable");
    assert_eq!(branches.len(), 1);
    assert_eq!(branches[0].pbxs, ["a", "a2"]);
    assert_eq!(change(&mut store, rotation("a")), BranchChange::NewToken);
    assert_eq!(change(&mut store, rotation("b")), BranchChange::Unknown);
    let branches = tables::branches::branches(&store).expect("readable");
    let previous = Some(("hash of a".to_owned(), EpochSeconds::new(3_600)));
    assert_eq!(
        (branches[0].token.as_str(), &branches[0].previous),
        ("new", &previous)
    );
    let remove = Op::RemoveBranch("a".to_owned());
    assert_eq!(change(&mut store, remove.clone()), BranchChange::Removed);
    assert_eq!(change(&mut store, remove), BranchChange::Unknown);
    assert_eq!(add(&mut store, "b", "a"), BranchChange::NewToken);
}

#[test]
fn token_belongs_to_one_branch_even_after_its_rotation() {
    let mut store = hub(&["a", "b"]);
    let owned = BranchChange::TokenOf {
        branch: "a".to_owned(),
    };
    assert_eq!(change(&mut store, new_branch("c", "hash of a", "c")), owned);
    assert_eq!(change(&mut store, rotation("a")), BranchChange::NewToken);
    assert_eq!(change(&mut store, new_branch("c", "hash of a", "c")), owned);
    assert_eq!(change(&mut store, new_branch("c", "new", "c")), owned);
    let again = change(&mut store, new_branch("a", "new", "a"));
    assert_eq!(again, BranchChange::PbxsAdded, "its own token");
    assert_eq!(
        change(&mut store, new_branch("c", "other", "c")),
        BranchChange::NewToken
    );
}

#[test]
fn token_rotated_at_once_has_no_previous_one() {
    let mut store = hub(&["a"]);
    let rotation = Op::RotateToken(TokenRotation {
        branch: "a".to_owned(),
        token: "new".to_owned(),
        previous_until: None,
    });
    assert_eq!(change(&mut store, rotation), BranchChange::NewToken);
    let branches = tables::branches::branches(&store).expect("readable");
    assert_eq!(
        (branches[0].token.as_str(), &branches[0].previous),
        ("new", &None)
    );
}

#[test]
fn forwarded_calls_are_offered_again_newest_first() {
    let mut store = store();
    store
        .write((1..=4).map(|n| finish(journal(n))).collect())
        .expect("stored");
    for n in [1, 2] {
        let forwarded = Op::step(RowId(n), Step::Forwarded, time_at(10));
        store.write(vec![forwarded]).expect("stored");
    }
    let died = Step::Died {
        reason: Reason::Rejected,
        message: "the hub refused the call".to_owned(),
        errors: serde_json::Value::Null,
    };
    store
        .write(vec![Op::step(RowId(3), died, time_at(10))])
        .expect("stored");
    let books = store.books();
    assert_eq!((books.forwarded, books.ready, books.dead), (2, 1, 1));
    let offer = Offer::Forwarded;
    store
        .write(vec![Op::Offer {
            offer,
            at: time_at(20),
        }])
        .expect("stored");
    let next = tables::forward::next_calls(&store, 10).expect("readable");
    let ids: Vec<i64> = next.iter().map(|row| row.id.0).collect();
    assert_eq!(ids, [4, 2, 1]);
    assert_eq!(store.books().forwarded, 0);
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}

#[test]
fn forwarded_calls_are_kept_31_days_and_counted_after_that() {
    let settings = Settings {
        retention: Duration::from_secs(3_600),
        ..Settings::default()
    };
    let mut store = super::store(settings);
    store.write(vec![finish(journal(1))]).expect("stored");
    store
        .write(vec![Op::step(RowId(1), Step::Forwarded, time_at(0))])
        .expect("stored");
    let until = time_at(0).plus(FORWARDED_KEPT);
    store.write(vec![Op::Purge(until)]).expect("stored");
    let kept = tables::calls::row(&store, RowId(1)).expect("readable");
    assert_eq!(kept.expect("a row").state, State::Forwarded);
    let later = until.plus(Duration::from_secs(1));
    store.write(vec![Op::Purge(later)]).expect("stored");
    assert_eq!(
        tables::calls::row(&store, RowId(1)).expect("readable"),
        None
    );
    assert_eq!(store.books().forwarded, 1);
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}

#[test]
fn branch_gets_one_turn_however_many_pbxs_it_has() {
    let mut store = store();
    let mut ops = Vec::new();
    for (n, branch, pbx) in [
        (1, "big", "big-1"),
        (2, "big", "big-2"),
        (3, "big", "big-3"),
        (4, "small", "small"),
        (5, "small", "small"),
    ] {
        let mut call = journal(n);
        call.judged.record.pbx = pbx.to_owned();
        call.judged.live = false;
        call.branch = Some(branch.to_owned());
        ops.push(finish(call));
    }
    store.write(ops).expect("stored");
    let mut sent = Vec::new();
    for _ in 0..4 {
        let head = tables::work_queue::head(&store, &super::call::ask(time_at(2_000)));
        let due = head.expect("a head").backlog.expect("a call");
        let send = Op::step(due.row, Step::Send, time_at(2_000));
        store.write(vec![send]).expect("sent");
        sent.push(due.row.0);
    }
    assert_eq!(sent, [3, 5, 2, 4]);
}

/// Returns the operation that keeps a branch's refused line.
fn refused_line(branch: &str, bytes: &[u8]) -> Op {
    Op::Unreadable(UnreadableBytes {
        source: format!("{BRANCH_SOURCE}{branch}"),
        pbx: branch.to_owned(),
        bytes: bytes.to_vec(),
        cut_from: None,
        file: None,
        why: "no JSON".to_owned(),
        at: time_at(9),
        content_type: None,
    })
}

#[test]
fn identical_refused_lines_of_a_branch_are_kept_once() {
    let mut store = hub(&["west", "east"]);
    let lines: [&[u8]; 3] = [b"one", b"two", b"one"];
    let west = format!("{BRANCH_SOURCE}west");
    let new = tables::unreadable::are_new(&store, &west, &lines);
    assert_eq!(new.expect("readable"), [true, true, false]);
    let kept = vec![refused_line("west", b"one"), refused_line("east", b"two")];
    store.write(kept).expect("stored");
    let new = tables::unreadable::are_new(&store, &west, &lines);
    assert_eq!(new.expect("readable"), [false, true, false]);
}

#[test]
fn refused_lines_of_a_branch_are_kept_up_to_a_limit() {
    let mut store = hub(&["west", "east"]);
    let lines: Vec<String> = (0..201).map(|n| format!("line {n}")).collect();
    let bytes: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
    let west = format!("{BRANCH_SOURCE}west");
    let new = tables::unreadable::are_new(&store, &west, &bytes).expect("readable");
    assert_eq!(new.iter().filter(|is_new| **is_new).count(), 200);
    assert!(!new[200]);
    let kept = bytes[..200].iter().map(|line| refused_line("west", line));
    store.write(kept.collect()).expect("stored");
    for (branch, is_new) in [("west", false), ("east", true)] {
        let source = format!("{BRANCH_SOURCE}{branch}");
        let new = tables::unreadable::are_new(&store, &source, &[b"another"]);
        assert_eq!(new.expect("readable"), [is_new], "{branch}");
    }
}

#[test]
fn refused_lines_are_counted_with_the_last_error() {
    let mut store = hub(&["west"]);
    for (lines, error) in [(2, Some("7: no phone")), (0, None), (3, Some("no JSON"))] {
        let Op::BranchRequest(mut op) = request("west", None, "next", 5) else {
            panic!("a request");
        };
        (op.refused, op.refusal) = (lines, error.map(str::to_owned));
        store.write(vec![Op::BranchRequest(op)]).expect("stored");
    }
    let branches = tables::branches::branches(&store).expect("readable");
    let at = time_at(5).floor_seconds();
    let last = Some((at, "no JSON".to_owned()));
    assert_eq!((branches[0].refused, &branches[0].refusal), (5, &last));
}
