//! Tests changes to a recording that must not change its calls. Uses every recording under
//! `tests/recordings`, as AMI text, as AMI in JSON, and as CEL rows, with channel events, with CEL,
//! or with both.
//!
//! | module | what it does |
//! |---|---|
//! | `recording` | the recordings as messages, each with its time |
//! | `answer` | the calls of a sequence of messages, as text |
//! | `change` | the changes, and their effect on the expected text |
//! | `explained` | runs changed recordings through `callbridge explain` |

mod answer;
mod change;
mod explained;
mod recording;

use answer::{Answer, Hear, Hearing};
use change::{Chance, Rename};
use recording::{Message, Recording};
use std::collections::BTreeSet;

/// CEL reports a new channel or a hangup up to this many microseconds before the channel event
/// does.
const NEAR: i64 = 20_000;

/// Checks that a change changes no call, and reports the differences of all recordings at once.
fn unchanged(what: &str, hearing: &Hearing, change: impl Fn(&Recording, &mut Vec<Message>)) {
    let mut wrong = String::new();
    for recording in recording::all() {
        for hear in recording.heard() {
            let before = hearing.untouched(recording, hear);
            let mut messages = recording.messages.clone();
            change(recording, &mut messages);
            let after = hearing.of(recording, hear, &messages);
            wrong += &answer::difference(&recording.name(hear), &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{wrong}");
}

/// Checks that a renaming changes the calls only as expected.
fn renamed(what: &str, rename: &Rename, hearing: &Hearing) {
    let mut wrong = String::new();
    for recording in recording::all() {
        if recording.is_local_time() && rename.moves_time() {
            continue;
        }
        for hear in recording.heard() {
            let before = Hearing::default().untouched(recording, hear);
            let before: Vec<Answer> = before.iter().map(|call| rename.answer(call)).collect();
            let messages: Vec<Message> = recording
                .messages
                .iter()
                .map(|message| rename.message(message))
                .collect();
            let after = hearing.of(recording, hear, &messages);
            wrong += &answer::difference(&recording.name(hear), &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{wrong}");
}

#[test]
fn duplicated_messages_change_no_call() {
    unchanged("twice each", &Hearing::default(), |_, messages| {
        *messages = messages
            .iter()
            .flat_map(|message| [message.clone(), message.clone()])
            .collect();
    });
}

#[test]
fn recording_repeated_at_its_end_changes_no_call() {
    unchanged("all again", &Hearing::default(), |_, messages| {
        let again = messages.clone();
        messages.extend(again);
    });
}

/// Promise: Duplicate, late, and reordered events change nothing.
#[test]
fn arriving_up_to_400_ms_out_of_order_changes_nothing() {
    for (seed, late) in [(1, false), (2, true)] {
        let hearing = Hearing {
            late,
            ..Hearing::default()
        };
        unchanged("shuffled", &hearing, |_, messages| {
            Chance::new(seed).shuffle(messages);
        });
    }
}

#[test]
fn channels_of_other_numbers_make_the_same_calls() {
    renamed("suffixes", &Rename::suffixes(), &Hearing::default());
}

#[test]
fn telephone_of_another_name_makes_the_same_calls() {
    for name in ["anna-maria", "b1a5e1ab-7d5f-4d4e-9d0e-2b6d5d1f5a11"] {
        renamed(name, &Rename::telephone("101", name), &Hearing::default());
    }
}

#[test]
fn trunk_of_another_name_makes_the_same_calls() {
    for name in ["998712000000", "b1a5e1ab-7d5f-4d4e-9d0e-2b6d5d1f5a11"] {
        let hearing = Hearing {
            city: format!("PJSIP/{name}"),
            ..Hearing::default()
        };
        renamed(name, &Rename::trunk("city", name), &hearing);
    }
}

#[test]
fn hundred_days_later_the_calls_are_the_same() {
    renamed("later", &Rename::later(8_640_000), &Hearing::default());
}

#[test]
fn events_spread_over_two_connections_make_the_same_calls() {
    let hearing = Hearing {
        connections: 2,
        ..Hearing::default()
    };
    unchanged("two connections", &hearing, |_, messages| {
        Chance::new(1).spread(messages);
    });
}

#[test]
fn two_recordings_at_once_are_the_calls_of_both() {
    let all = recording::all();
    let mut wrong = String::new();
    for pair in all
        .windows(2)
        .filter(|pair| pair[0].format == pair[1].format)
    {
        if pair.iter().any(Recording::is_local_time) {
            continue;
        }
        let by = pair[0].begins() - pair[1].begins();
        let apart = Rename::apart(by);
        let second = pair[1].messages.iter().filter(|m| !m.is_mark());
        let second: Vec<Message> = second.map(|m| apart.message(m)).collect();
        for hear in pair[0]
            .heard()
            .into_iter()
            .filter(|h| pair[1].heard().contains(h))
        {
            let hearing = Hearing::default();
            let mut before = hearing.untouched(&pair[0], hear);
            let calls = hearing.untouched(&pair[1], hear);
            before.extend(calls.iter().map(|call| apart.answer(call)));
            before.sort();
            let mut both = [pair[0].messages.clone(), second.clone()].concat();
            both.retain(|message| !message.is_mark());
            both.sort_by_key(|message| message.at);
            let after = hearing.of(&pair[0], hear, &both);
            let name = format!("{} with {}", pair[0].name(hear), pair[1].folder);
            wrong += &answer::difference(&name, &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn unrelated_calls_in_any_order_give_same_result() {
    let all = recording::all();
    let hearing = Hearing {
        late: true,
        in_order: false,
        ..Hearing::default()
    };
    let mut wrong = String::new();
    for pair in all
        .windows(2)
        .filter(|pair| pair[0].format == pair[1].format)
    {
        for hear in pair[0]
            .heard()
            .into_iter()
            .filter(|h| pair[1].heard().contains(h))
        {
            let apart = Rename::apart(0);
            let second: Vec<Message> = pair[1].messages.iter().map(|m| apart.message(m)).collect();
            let first = &pair[0].messages;
            let one_way = [first.clone(), second.clone()].concat();
            let other_way = [second, first.clone()].concat();
            let before = hearing.of(&pair[0], hear, &one_way);
            let after = hearing.of(&pair[0], hear, &other_way);
            wrong += &answer::difference(&pair[0].name(hear), &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn without_linkedid_end_the_calls_are_the_same() {
    unchanged("no LINKEDID_END", &Hearing::default(), |_, messages| {
        messages.retain(|message| message.event() != "CEL LINKEDID_END");
    });
}

#[test]
fn without_cel_the_calls_are_the_same() {
    let mut wrong = String::new();
    for recording in recording::all()
        .iter()
        .filter(|r| r.heard().contains(&Hear::Both))
    {
        let mut messages = recording.messages.clone();
        messages.retain(|message| !message.event().starts_with("CEL"));
        let both = Hearing::default().untouched(recording, Hear::Both);
        let after = Hearing::default().of(recording, Hear::Both, &messages);
        wrong += &answer::difference(&recording.name(Hear::Both), &both, &after, NEAR);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn without_dial_events_only_the_number_may_be_read_elsewhere() {
    let hearing = Hearing {
        numbers: false,
        ..Hearing::default()
    };
    unchanged("no Dial events", &hearing, |recording, messages| {
        // Without any number, his two customers form one call with two leads: a dead letter.
        if recording.folder != "outbound_two_customers" {
            messages.retain(|message| !message.event().starts_with("Dial"));
        }
    });
}

#[test]
fn broken_names_change_nothing() {
    let names: BTreeSet<&[u8]> = [b"\xff\xfe\xd0".as_slice(), b"\\v\\x0b", b"Event: Hangup"].into();
    for name in names {
        unchanged("broken names", &Hearing::default(), |_, messages| {
            for message in messages {
                message.callers_name(name);
            }
        });
    }
}

#[test]
fn frames_cut_in_the_callers_name_lose_no_call() {
    let hearing = Hearing {
        numbers: false,
        variables: false,
        ..Hearing::default()
    };
    unchanged("cut", &hearing, |recording, messages| {
        if recording.is_json() && !recording.is_cut() {
            for message in messages.iter_mut().step_by(3) {
                message.cut();
            }
        }
    });
}
