//! Tests that every stored word is in `tests/golden/words.json`, and that no word has changed.

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

/// Returns all variants of an enum. If a variant is missing, the macro does not compile: add the
/// variant to the list, and add its word to `tests/golden/words.json`.
macro_rules! every {
    ($kind:ident: $($variant:ident),+) => {{
        const _: fn(&$kind) = |variant| match variant {
            $($kind::$variant => {})+
        };
        [$($kind::$variant),+]
    }};
}

/// Returns the words of variants. Asserts that `read` returns the same variant for each word.
fn words<T: Copy + PartialEq>(
    all: &[T],
    word_of: impl Fn(T) -> &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<String> {
    let mut words = Vec::new();
    for variant in all {
        let word = word_of(*variant);
        assert!(
            read(word) == Some(*variant),
            "`{word}` is not read as it was written"
        );
        words.push(word.to_owned());
    }
    words
}

/// Returns the words of variants of an enum that is stored in its serialized form.
fn serialized<T: Serialize>(all: &[T]) -> Vec<String> {
    let mut words = Vec::new();
    for variant in all {
        match serde_json::to_value(variant) {
            Ok(Value::String(word)) => words.push(word),
            other => panic!("no word: {other:?}"),
        }
    }
    words
}

fn read_left(word: &str) -> Option<Left> {
    Left::ALL.iter().copied().find(|left| left.word() == word)
}

/// Returns the words that this version stores, by the name of their list in the golden file.
fn stored_words() -> BTreeMap<&'static str, Vec<String>> {
    let state = every!(
        State: Ready, Sending, Submitted, Journaled, Dead, Waiting, Discarded, Forwarded
    );
    let if_absent = every!(IfAbsent: Resubmit, Interrupted, ServerError, Changed);
    let reason = every!(Reason: NoLead, AmbiguousLead, Failed, Rejected, Conflict, UuidConflict,
        ServerError, Unconfirmed, Incomplete, TalkExceedsDuration, InvalidEpoch, Unreadable,
        NoEmployee);
    let finding = every!(Finding: LeadExists, LeadMissing, Unclear);
    let next_action = every!(NextAction: Write, Poll);
    let left = every!(Left: Retried, Released, Journaled, Discarded);
    let name = every!(Name: LastCall, LastMissed, LastEmployee, Trunk, Did, Direction, AnsweredBy,
        MissedCount);
    let direction = every!(Direction: Inbound, Outbound, Internal, Unknown);
    let outcome = every!(Outcome: Journal, DeadLetter, Internal, Skipped);
    let write_state = every!(WriteState: Waits, Sent, Written, GivenUp);
    let violation = every!(ViolationKind: WindowExceeded, RepeatAfter200, FreshBudget, UuidReused,
        DerivedField, Invalid, RepeatAfter400, SoonAfter5xx, RepeatAfter5xx, RepeatAfter403,
        RepeatAfter401, SkippedField, UnknownPoll, ForeignPoll, WrongHeader, ContentType,
        WrongMethod, UnknownPath, RedirectFollowed, SecretMisplaced, RefreshReused, CodeReused,
        WrongHost);
    BTreeMap::from([
        (
            "states of a call",
            words(&state, State::word, State::from_word),
        ),
        (
            "what is done with an absent call",
            words(&if_absent, IfAbsent::word, |word| {
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
            words(&next_action, NextAction::word, |word| {
                next_action.into_iter().find(|action| action.word() == word)
            }),
        ),
        (
            "ways to settle a dead letter",
            words(&left, Left::word, read_left),
        ),
        (
            "values of lead fields",
            words(&name, Name::word, Name::from_word),
        ),
        ("values of lead fields in JSON", serialized(&name)),
        ("directions", serialized(&direction)),
        ("outcomes", serialized(&outcome)),
        ("write states of a lead field", serialized(&write_state)),
        ("violations in the sandbox's state", serialized(&violation)),
        ("books", callbridge_spool::book_words()),
    ])
}

#[test]
fn stored_words_match_the_golden_list() {
    let golden: BTreeMap<&str, Vec<String>> =
        serde_json::from_str(include_str!("../../tests/golden/words.json"))
            .expect("lists of words");
    let now = stored_words();
    for (list, golden_words) in &golden {
        let now_words = now
            .get(list)
            .unwrap_or_else(|| panic!("no list of this version is called {list}"));
        for word in golden_words {
            assert!(
                now_words.contains(word),
                "{list}: `{word}` is not written any more. States hold it: add a migration, and \
                 remove it from tests/golden/words.json"
            );
        }
    }
    for (list, now_words) in &now {
        let known = golden.get(list).cloned().unwrap_or_default();
        for word in now_words {
            assert!(
                known.contains(word),
                "{list}: `{word}` is new and will be stored: add it to tests/golden/words.json"
            );
        }
    }
}
