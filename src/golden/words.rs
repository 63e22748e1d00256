//! The words that are stored, compared with `tests/golden/words.json`.

use callbridge_call::Direction;
use callbridge_leads::lead_field::Name;
use callbridge_leads::lead_field::shows::{NextAction, WriteState};
use callbridge_leads::lead_request::Finding;
use callbridge_model::{Outcome, Reason};
use callbridge_sandbox::ViolationKind;
use callbridge_spool::{IfAbsent, Left, State};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// All variants of an enum. One that is left out does not compile: name it here, and its word in
/// `tests/golden/words.json`.
macro_rules! every {
    ($kind:ident: $($variant:ident),+) => {{
        let _ = |one: &$kind| match one {
            $($kind::$variant => {})+
        };
        [$($kind::$variant),+]
    }};
}

/// The words of variants, and each read back as what it was.
fn words<T: Copy + PartialEq>(
    all: &[T],
    word: impl Fn(T) -> &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<String> {
    let one = |one: &T| {
        let word = word(*one);
        assert!(
            read(word) == Some(*one),
            "`{word}` is not read as it was written"
        );
        word.to_owned()
    };
    all.iter().map(one).collect()
}

/// The same of an enum that is stored as it serializes.
fn serialized<T: Serialize>(all: &[T]) -> Vec<String> {
    let word = |one: &T| match serde_json::to_value(one) {
        Ok(Value::String(word)) => word,
        other => panic!("no word: {other:?}"),
    };
    all.iter().map(word).collect()
}

fn written_now() -> BTreeMap<&'static str, Vec<String>> {
    let state = every!(
        State: Ready, Sending, Submitted, Journaled, Dead, Waiting, Discarded, Forwarded
    );
    let fate = every!(IfAbsent: Resubmit, Interrupted, ServerError, Changed);
    let reason = every!(Reason: NoLead, AmbiguousLead, Failed, Rejected, Conflict, UuidConflict,
        ServerError, Unconfirmed, Incomplete, TalkExceedsDuration, InvalidEpoch, Unreadable,
        NoEmployee);
    let finding = every!(Finding: LeadExists, LeadMissing, Unclear);
    let asks = every!(NextAction: Write, Poll);
    let left = every!(Left: Retried, Released, Journaled, Discarded);
    let name = every!(Name: LastCall, LastMissed, LastEmployee, Trunk, Did, Direction, AnsweredBy,
        MissedCount);
    let direction = every!(Direction: Inbound, Outbound, Internal, Unknown);
    let outcome = every!(Outcome: Journal, DeadLetter, Internal, Skipped);
    let stands = every!(WriteState: Waits, Sent, Written, GivenUp);
    let breach = every!(ViolationKind: WindowExceeded, RepeatAfter200, FreshBudget, UuidReused,
        DerivedField, Invalid, RepeatAfter400, SoonAfter5xx, RepeatAfter5xx, RepeatAfter403,
        RepeatAfter401, SkippedField, UnknownPoll, ForeignPoll, WrongHeader, ContentType,
        WrongMethod, UnknownPath, RedirectFollowed, SecretMisplaced, RefreshReused, CodeReused,
        WrongHost);
    let is = |word: &str, of: fn(Left) -> &'static str| {
        Left::ALL.iter().copied().find(|left| of(*left) == word)
    };
    let asked = |word: &str| asks.into_iter().find(|one| one.word() == word);
    BTreeMap::from([
        (
            "states of a call",
            words(&state, State::word, State::from_word),
        ),
        (
            "what is done with an absent call",
            words(&fate, IfAbsent::word, |word| {
                serde_json::from_value(word.into()).ok()
            }),
        ),
        ("reasons", words(&reason, Reason::word, Reason::from_word)),
        ("reasons in JSON", serialized(&reason)),
        (
            "results of a lookup",
            words(&finding, Finding::word, Finding::from_word),
        ),
        (
            "next actions of lead fields",
            words(&asks, NextAction::word, asked),
        ),
        (
            "ways to settle a dead letter",
            words(&left, Left::word, |word| is(word, Left::word)),
        ),
        (
            "values of lead fields",
            words(&name, Name::word, Name::from_word),
        ),
        ("values of lead fields in JSON", serialized(&name)),
        ("directions", serialized(&direction)),
        ("outcomes", serialized(&outcome)),
        ("write states of a lead field", serialized(&stands)),
        ("violations in the sandbox's state", serialized(&breach)),
        ("books", callbridge_spool::book_words()),
    ])
}

#[test]
fn every_word_that_is_stored_is_its_golden_one() {
    let golden: BTreeMap<&str, Vec<String>> =
        serde_json::from_str(include_str!("../../tests/golden/words.json"))
            .expect("lists of words");
    let now = written_now();
    for (what, golden) in &golden {
        let now = now
            .get(what)
            .unwrap_or_else(|| panic!("nobody knows of {what} any more"));
        for word in golden {
            assert!(
                now.contains(word),
                "{what}: `{word}` is not written any more. States hold it: add a migration, and \
                 remove it from tests/golden/words.json"
            );
        }
    }
    for (what, now) in &now {
        let known = golden.get(what).cloned().unwrap_or_default();
        for word in now {
            assert!(
                known.contains(word),
                "{what}: `{word}` is new and will be stored: add it to tests/golden/words.json"
            );
        }
    }
}
