//! What of calls that another sender may have settled?

use super::call::{ask, at, finished, journal};
use super::waiting::completed;
use crate::{
    IfAbsent, Op, OutcomeSource, PeerOutcome, PossiblySentCalls, RowId, Segment, Settings,
    Settlement, State, Step, Store, tables,
};
use callbridge_call::EpochSeconds;
use callbridge_crm::ShownCall;
use callbridge_formats::message::Outcomes;
use callbridge_model::{CallRecord, CallUuid, LeadId, Outcome, Reason, TokenFingerprint};
use std::collections::BTreeMap;

fn uuid(n: u32) -> CallUuid {
    journal(n).judged.record.uuid.expect("a uuid")
}

fn write(store: &mut Store, ops: Vec<Op>) {
    store.write(ops).expect("stored");
}

fn comes(n: u32) -> Op {
    Op::Finish(Box::new(journal(n)))
}

fn told(told: PeerOutcome) -> Op {
    Op::PeerOutcome(told)
}

fn possibly_sent(n: u32) -> Op {
    told(PeerOutcome::PossiblySent(uuid(n)))
}

fn settled(journaled: &[u32], discarded: &[u32], source: OutcomeSource) -> Op {
    told(PeerOutcome::Settled(Settlement {
        outcomes: Outcomes {
            journaled: journaled.iter().map(|n| uuid(*n).0).collect(),
            discarded: discarded.iter().map(|n| uuid(*n).0).collect(),
            ..Outcomes::default()
        },
        source,
        at: at(1_000),
    }))
}

/// A stream of which everything from 1 to `n` was told before this state began.
fn store(n: u32) -> Store {
    let settings = Settings {
        outcomes: true,
        ..Settings::default()
    };
    let mut store = Store::in_memory(settings).expect("memory");
    let ops = (1..=n).flat_map(|n| [comes(n), possibly_sent(n)]);
    write(&mut store, ops.collect());
    store
}

fn calls(store: &Store) -> PossiblySentCalls {
    tables::peer_outcomes::possibly_sent_calls(store).expect("readable")
}

fn state(store: &Store, n: u32) -> State {
    let id = tables::calls::row_of(store, uuid(n)).expect("readable");
    let row = tables::calls::row(store, id.expect("known"));
    row.expect("readable").expect("a row").state
}

fn words(store: &Store, n: u32) -> String {
    let id = tables::calls::row_of(store, uuid(n)).expect("readable");
    let row = tables::calls::row(store, id.expect("known"));
    let row = row.expect("readable").expect("a row");
    let attempts = &row.attempts;
    attempts
        .last()
        .map(|it| it.words.clone())
        .unwrap_or_default()
}

fn outcomes(store: &Store) -> Vec<(CallUuid, bool)> {
    let due = tables::outbox::outcomes(store, 10).expect("readable");
    let (due, _) = due.unwrap_or_default();
    assert!(due.again.is_empty() && due.generations.is_empty());
    let of = |all: Vec<uuid::Uuid>, is_journaled| {
        let all = all.into_iter();
        all.map(move |it| (CallUuid(it), is_journaled))
    };
    of(due.journaled, true)
        .chain(of(due.discarded, false))
        .collect()
}

#[test]
fn a_remade_call_is_not_sent_until_it_was_looked_for_and_then_the_newest_goes_first() {
    let mut store = store(5);
    write(&mut store, vec![comes(9)]);
    let head = tables::work_queue::head(&store, &ask(at(100))).expect("a head");
    assert_eq!(head.live.map(|it| it.uuid), Some(uuid(9)), "as ever");
    assert_eq!(head.backlog, None);
    assert_eq!(
        (head.possibly_sent.waiting, head.possibly_sent.is_searching),
        (5, true)
    );
    let newest = tables::peer_outcomes::segment(&store, 2).expect("readable");
    let since = EpochSeconds::new(at(4).floor_seconds().get());
    let expected = Segment {
        calls: 2,
        since,
        more: true,
    };
    assert_eq!(newest, Some(expected));
    let since = Some(since);
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    let head = tables::work_queue::head(&store, &ask(at(100))).expect("a head");
    assert_eq!(head.backlog.map(|it| it.uuid), Some(uuid(5)));
    assert!(head.possibly_sent.is_searching);
    let rest = tables::peer_outcomes::segment(&store, 9).expect("readable");
    assert_eq!(rest.map(|it| (it.calls, it.more)), Some((3, false)));
    let since = None;
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    let mut sent = Vec::new();
    while let Some(due) = tables::work_queue::head(&store, &ask(at(100)))
        .expect("a head")
        .backlog
    {
        let (row, step, at) = (due.row, Step::Send, at(100));
        write(&mut store, vec![Op::Step { row, step, at }]);
        sent.push(due.uuid);
    }
    assert_eq!(sent, [5, 4, 3, 2, 1].map(uuid));
    assert_eq!(calls(&store).waiting, 0);
    assert_eq!(tables::peer_outcomes::segment(&store, 9), Ok(None));
}

#[test]
fn what_a_page_shows_is_journaled_and_what_it_does_not_know_changes_nothing() {
    let mut store = store(3);
    let parked = finished(7, Outcome::DeadLetter, Some(Reason::NoLead));
    write(
        &mut store,
        vec![Op::Finish(Box::new(parked)), possibly_sent(7)],
    );
    assert_eq!(
        calls(&store).waiting,
        4,
        "a letter may have been mended and sent"
    );
    write(
        &mut store,
        vec![settled(&[1, 3, 7, 88], &[], OutcomeSource::Journal)],
    );
    let states = [1, 2, 3, 7].map(|n| state(&store, n));
    let (ready, journaled) = (State::Ready, State::Journaled);
    assert_eq!(states, [journaled, ready, journaled, journaled]);
    assert_eq!((calls(&store).waiting, calls(&store).found), (1, 3));
    let found = "found in the CRM's journal, sent before this state began";
    assert_eq!(words(&store, 1), found);
    assert!(store.books().balance(), "{:?}", store.books());
    assert_eq!(tables::books::recount(&store).expect("counted"), []);
    // The next state shall have it cheaper.
    let told = [1, 3, 7].map(|n| (uuid(n), true));
    assert_eq!(outcomes(&store), told);
}

/// With no call beside them: they stay as they are, and are looked for once.
#[test]
fn letters_and_parked_calls_are_looked_for_alone_and_never_sent_for_it() {
    let mut store = store(0);
    for (n, reason) in [
        (1, Reason::NoLead),
        (2, Reason::AmbiguousLead),
        (3, Reason::NoLead),
    ] {
        let letter = finished(n, Outcome::DeadLetter, Some(reason));
        write(
            &mut store,
            vec![Op::Finish(Box::new(letter)), possibly_sent(n)],
        );
    }
    let head = tables::work_queue::head(&store, &ask(at(100))).expect("a head");
    assert_eq!((head.ready, head.backlog), (0, None));
    assert_eq!(
        (head.possibly_sent.waiting, head.possibly_sent.is_searching),
        (3, true)
    );
    let segment = tables::peer_outcomes::segment(&store, 2).expect("readable");
    let segment = segment.expect("a segment");
    assert_eq!((segment.calls, segment.more), (2, true));
    write(&mut store, vec![settled(&[3], &[], OutcomeSource::Journal)]);
    assert_eq!(state(&store, 3), State::Journaled);
    assert_eq!(calls(&store).waiting, 2);
    let since = Some(segment.since);
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    let left = calls(&store);
    assert_eq!(
        (left.waiting, left.is_searching, left.released),
        (1, true, None)
    );
    // The round ends: they are letters as before, and nothing is looked for any more.
    write(&mut store, vec![told(PeerOutcome::SearchedFor(None))]);
    let left = calls(&store);
    assert_eq!(
        (left.waiting, left.is_searching, left.released),
        (0, false, None)
    );
    let states = [1, 2].map(|n| state(&store, n));
    assert_eq!(states, [State::Parked, State::Dead]);
    assert!(store.books().balance(), "{:?}", store.books());
}

/// Its lead has become known before the journal was looked through.
#[test]
fn a_parked_call_that_is_released_is_ready_and_looked_for_no_more() {
    let mut store = store(0);
    let parked = finished(1, Outcome::DeadLetter, Some(Reason::NoLead));
    write(
        &mut store,
        vec![Op::Finish(Box::new(parked)), possibly_sent(1)],
    );
    let record = journal(1).judged.record;
    let (row, step, at) = (
        RowId(1),
        Step::Retry {
            by_itself: true,
            record,
        },
        at(50),
    );
    write(&mut store, vec![Op::Step { row, step, at }]);
    assert_eq!(state(&store, 1), State::Ready);
    assert_eq!(
        (calls(&store).waiting, calls(&store).is_searching),
        (0, false)
    );
    let head = tables::work_queue::head(&store, &ask(at)).expect("a head");
    assert_eq!(head.backlog.or(head.live).map(|it| it.row), Some(row));
}

#[test]
fn what_the_stream_says_is_believed_and_not_said_again() {
    let mut store = store(4);
    let letter = finished(7, Outcome::DeadLetter, Some(Reason::AmbiguousLead));
    write(&mut store, vec![Op::Finish(Box::new(letter))]);
    let once = settled(&[1, 2], &[3, 7, 88], OutcomeSource::Stream);
    write(&mut store, vec![once.clone(), once]);
    let states = [1, 2, 3, 4, 7].map(|n| state(&store, n));
    let (journaled, discarded) = (State::Journaled, State::Discarded);
    let expected = [journaled, journaled, discarded, State::Ready, discarded];
    assert_eq!(states, expected);
    assert!(words(&store, 3).starts_with("discarded before"));
    assert_eq!((calls(&store).waiting, calls(&store).settled), (1, 4));
    assert!(store.books().balance(), "{:?}", store.books());
    assert_eq!(tables::books::recount(&store).expect("counted"), []);
    assert_eq!(outcomes(&store), []);
}

#[test]
fn what_is_under_way_from_here_is_left_to_its_own_answer() {
    let mut store = store(0);
    write(&mut store, vec![comes(1)]);
    let (row, step, at) = (RowId(1), Step::Send, at(10));
    write(&mut store, vec![Op::Step { row, step, at }]);
    for witness in [OutcomeSource::Journal, OutcomeSource::Stream] {
        write(&mut store, vec![settled(&[1], &[1], witness)]);
        assert_eq!(state(&store, 1), State::Sending);
    }
    // And what is known is not marked once it was sent.
    write(&mut store, vec![comes(1), possibly_sent(1)]);
    assert_eq!(calls(&store), PossiblySentCalls::default());
}

#[test]
fn what_comes_while_others_are_looked_for_is_looked_for_after_them() {
    let mut store = store(2);
    let newest = tables::peer_outcomes::segment(&store, 1).expect("readable");
    let since = newest.map(|it| it.since);
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    // It is the newest, and no page was read for it.
    write(&mut store, vec![comes(3), possibly_sent(3)]);
    assert_eq!(calls(&store).released.map(|it| it.uuid), Some(uuid(2)));
    let since = None;
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    assert!(calls(&store).is_searching, "the third is of the next round");
    assert_eq!(calls(&store).released.map(|it| it.uuid), Some(uuid(2)));
    let next = tables::peer_outcomes::segment(&store, 9).expect("readable");
    assert_eq!(next.map(|it| (it.calls, it.more)), Some((1, false)));
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    assert!(!calls(&store).is_searching);
    assert_eq!(calls(&store).released.map(|it| it.uuid), Some(uuid(3)));
}

#[test]
fn a_state_that_followed_another_sender_looks_for_all_that_is_ready() {
    let mut store = store(1);
    let since = None;
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    write(&mut store, vec![comes(2), comes(3)]);
    write(&mut store, vec![settled(&[3], &[], OutcomeSource::Stream)]);
    write(&mut store, vec![told(PeerOutcome::AllPossiblySent)]);
    let head = tables::work_queue::head(&store, &ask(at(100))).expect("a head");
    assert_eq!((head.live, head.backlog), (None, None));
    assert_eq!(
        (head.possibly_sent.waiting, head.possibly_sent.is_searching),
        (2, true)
    );
}

/// The same by the stream, of calls that were taken in again.
fn settled_again(journaled: &[u32], again: &[u32], generation: u32) -> Op {
    let numbered = |all: &[u32]| all.iter().map(|n| (uuid(*n).0, generation)).collect();
    told(PeerOutcome::Settled(Settlement {
        outcomes: Outcomes {
            journaled: journaled.iter().map(|n| uuid(*n).0).collect(),
            discarded: Vec::new(),
            generations: numbered(journaled),
            again: numbered(again),
        },
        source: OutcomeSource::Stream,
        at: at(1_000),
    }))
}

fn step(store: &mut Store, n: u32, step: Step) {
    let row = tables::calls::row_of(store, uuid(n)).expect("readable");
    let (row, at) = (row.expect("known"), at(500));
    write(store, vec![Op::Step { row, step, at }]);
}

fn sent_again() -> Step {
    Step::SendAgain {
        why: "the journal does not have it".to_owned(),
        generation: None,
    }
}

fn company(store: &mut Store) {
    let (address, rebind) = ("https://crm".to_owned(), true);
    let company = Op::BindCompany {
        company: "77".into(),
        application: "a".into(),
    };
    write(store, vec![Op::BindAddress { address, rebind }, company]);
}

#[test]
fn what_was_told_before_a_call_was_taken_in_again_does_not_undo_that() {
    let mut store = store(2);
    company(&mut store);
    write(
        &mut store,
        vec![settled(&[1, 2], &[], OutcomeSource::Journal)],
    );
    step(&mut store, 1, sent_again());
    // An outbox that a broker's outage had held back, and an event of the CRM that comes once more.
    write(&mut store, vec![settled(&[1], &[], OutcomeSource::Stream)]);
    assert_eq!(state(&store, 1), State::Ready);
    let repeated = Op::Delivery(Box::new(completed("repeated", 1)));
    write(&mut store, vec![repeated]);
    assert_eq!(state(&store, 1), State::Ready);
    let due = tables::outbox::outcomes(&store, 10).expect("readable");
    let told = Outcomes {
        journaled: vec![uuid(1).0, uuid(2).0],
        again: BTreeMap::from([(uuid(1).0, 1)]),
        ..Outcomes::default()
    };
    assert_eq!(due.expect("outcomes").0, told);
    // What is told of it since then counts, and a page shows what is.
    write(&mut store, vec![settled_again(&[1], &[], 1)]);
    assert_eq!(state(&store, 1), State::Journaled);
    step(&mut store, 2, sent_again());
    write(&mut store, vec![settled(&[2], &[], OutcomeSource::Journal)]);
    assert_eq!(state(&store, 2), State::Journaled);
    let due = tables::outbox::outcomes(&store, 10).expect("readable");
    let told = Outcomes {
        journaled: vec![uuid(1).0, uuid(2).0, uuid(2).0],
        discarded: Vec::new(),
        generations: BTreeMap::from([(uuid(2).0, 1)]),
        again: BTreeMap::from([(uuid(1).0, 1), (uuid(2).0, 1)]),
    };
    assert_eq!(due.expect("outcomes").0, told);
}

#[test]
fn a_call_that_another_took_in_again_waits_here_to_be_looked_for() {
    let mut store = store(2);
    let (all, since) = ([1, 2], None);
    write(&mut store, vec![settled(&all, &[], OutcomeSource::Stream)]);
    write(&mut store, vec![told(PeerOutcome::SearchedFor(since))]);
    write(&mut store, vec![settled_again(&[], &all, 1)]);
    assert_eq!(
        (state(&store, 1), state(&store, 2)),
        (State::Ready, State::Ready)
    );
    let head = tables::work_queue::head(&store, &ask(at(2_000))).expect("a head");
    assert_eq!((head.live, head.backlog), (None, None));
    assert_eq!(
        (head.possibly_sent.waiting, head.possibly_sent.is_searching),
        (2, true)
    );
    // Once more says the same; an older outcome is late; that of its sender settles it.
    write(&mut store, vec![settled_again(&[], &all, 1)]);
    write(&mut store, vec![settled(&all, &[], OutcomeSource::Stream)]);
    assert_eq!(state(&store, 1), State::Ready);
    write(&mut store, vec![settled_again(&[1], &[], 1)]);
    assert_eq!(
        (state(&store, 1), state(&store, 2)),
        (State::Journaled, State::Ready)
    );
    assert_eq!(outcomes(&store), [], "the stream has told all of it");
    assert!(store.books().balance());
}

#[test]
fn what_was_submitted_here_follows_the_machine_that_sends_now() {
    let mut store = store(0);
    write(&mut store, vec![comes(1), comes(2), comes(3)]);
    for n in [1, 2, 3] {
        step(&mut store, n, Step::Send);
        let (request_id, token) = (format!("r{n}"), TokenFingerprint::of("token"));
        step(&mut store, n, Step::Accepted { request_id, token });
    }
    // A page that was read here, for others, is no answer to what was sent from here.
    write(&mut store, vec![settled(&[3], &[], OutcomeSource::Journal)]);
    assert_eq!(state(&store, 3), State::Submitted);
    write(&mut store, vec![settled(&[1], &[2], OutcomeSource::Stream)]);
    assert_eq!(
        (state(&store, 1), state(&store, 2)),
        (State::Journaled, State::Discarded)
    );
    assert!(store.books().balance());
    // What was asked for meanwhile is answered late.
    for n in [1, 2] {
        step(
            &mut store,
            n,
            Step::Journaled(crate::OutcomeSource::Confirmation),
        );
        let next_poll = at(600);
        step(
            &mut store,
            n,
            Step::NotYet {
                next_check: next_poll,
                absent: None,
            },
        );
    }
    assert_eq!(
        (state(&store, 1), state(&store, 2)),
        (State::Journaled, State::Discarded)
    );
}

#[test]
fn outcomes_stay_until_the_stream_has_them() {
    let mut store = store(3);
    write(
        &mut store,
        vec![settled(&[1, 2], &[], OutcomeSource::Journal)],
    );
    let due = tables::outbox::outcomes(&store, 1).expect("readable");
    let (due, through) = due.expect("one of them");
    assert_eq!(due.journaled, [uuid(1).0]);
    write(&mut store, vec![told(PeerOutcome::Published(through))]);
    assert_eq!(outcomes(&store), [(uuid(2), true)]);
    // Without a stream nobody is to be told.
    let mut silent = Store::in_memory(Settings::default()).expect("memory");
    write(
        &mut silent,
        vec![comes(1), settled(&[1], &[], OutcomeSource::Journal)],
    );
    assert_eq!(state(&silent, 1), State::Journaled);
    assert_eq!(outcomes(&silent), []);
}

/// A call of a lead is shown by a page whose row says so much of leads.
fn shown(store: &mut Store, n: u32, leads: &[i64]) {
    let call = ShownCall {
        uuid: uuid(n),
        leads: leads.to_vec(),
        duration_sec: None,
        answered: None,
        direction: None,
    };
    let (calls, at) = (vec![call], at(1_000));
    write(store, vec![told(PeerOutcome::Shown { calls, at })]);
}

/// The call comes, and takes these steps.
fn goes(store: &mut Store, n: u32, steps: Vec<Step>) {
    write(store, vec![comes(n)]);
    let row = tables::calls::row_of(store, uuid(n)).expect("readable");
    let row = row.expect("known");
    let at = at(100);
    let steps = steps.into_iter().map(|step| Op::Step { row, step, at });
    write(store, steps.collect());
}

fn unsure() -> Step {
    Step::Returned {
        not_before: at(200),
        why: "no answer in time".to_owned(),
        failures: 0,
    }
}

fn died(reason: Reason) -> Step {
    Step::Died {
        reason,
        message: "words".to_owned(),
        errors: serde_json::Value::Null,
    }
}

fn unresolved() -> Step {
    Step::Unresolved {
        next_check: at(200),
        fate: IfAbsent::Resubmit,
        why: "lost".to_owned(),
    }
}

#[test]
fn a_page_settles_what_was_sent_from_here_and_may_have_arrived() {
    let mut store = store(0);
    goes(&mut store, 1, vec![Step::Send, unsure()]);
    goes(&mut store, 2, vec![Step::Send]);
    goes(&mut store, 3, vec![Step::Send, died(Reason::ServerError)]);
    goes(&mut store, 4, vec![Step::Send, died(Reason::Unconfirmed)]);
    goes(&mut store, 5, vec![Step::Send, unresolved()]);
    goes(&mut store, 6, vec![]);
    goes(&mut store, 7, vec![Step::Send, died(Reason::Rejected)]);
    goes(
        &mut store,
        8,
        vec![
            Step::Send,
            died(Reason::ServerError),
            Step::Discard { by_peer: false },
        ],
    );
    for n in 1..=8 {
        shown(&mut store, n, &[]);
    }
    for n in 1..=5 {
        assert_eq!(state(&store, n), State::Journaled, "{n}");
    }
    let others = [6, 7, 8].map(|n| state(&store, n));
    let never_sent_refused_or_given_up = [State::Ready, State::Dead, State::Discarded];
    assert_eq!(others, never_sent_refused_or_given_up);
    // the answer that was under way is old news
    let row = tables::calls::row_of(&store, uuid(2)).expect("readable");
    let (row, step, at) = (row.expect("known"), unsure(), at(1_001));
    write(&mut store, vec![Op::Step { row, step, at }]);
    assert_eq!(state(&store, 2), State::Journaled);
    assert!(store.books().balance());
}

#[test]
fn a_retry_with_another_lead_is_not_what_an_earlier_request_wrote() {
    let mut store = store(0);
    let record = |n| CallRecord {
        lead_id: LeadId::new(4002),
        ..journal(n).judged.record
    };
    for n in [1, 2, 3] {
        let retried = vec![
            Step::Send,
            died(Reason::Unconfirmed),
            Step::Retry {
                by_itself: false,
                record: record(n),
            },
            Step::Send,
            unsure(),
        ];
        goes(&mut store, n, retried);
    }
    shown(&mut store, 1, &[]);
    shown(&mut store, 2, &[4001]);
    shown(&mut store, 3, &[4002]);
    let states = [1, 2, 3].map(|n| state(&store, n));
    assert_eq!(states, [State::Ready, State::Ready, State::Journaled]);
}
