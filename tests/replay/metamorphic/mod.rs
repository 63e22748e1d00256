//! Tests changes to a recording that mustn't change its calls. Every recording in
//! `tests/recordings` is used, as AMI text, as AMI in JSON, and as CEL rows, with channel events,
//! with CEL, or with both.
//!
//! | module | what it does |
//! |---|---|
//! | `recording` | the recordings as messages, each with its time |
//! | `answer` | the calls that result from a sequence of messages, as text |
//! | `change` | the changes, and how they affect the expected text |
//! | `explained` | runs changed recordings through `callbridge explain` |

mod answer;
mod change;
mod explained;
mod recording;

use answer::{Answer, EventKinds, PlayOptions};
use change::{Chance, Rename};
use recording::{Message, Recording};
use std::collections::BTreeSet;
use std::time::Duration;

/// CEL may report a new channel or a hangup up to this many microseconds before the channel event.
const NEAR: i64 = 20_000;

/// Checks that `change` doesn't change any call, reporting all recordings' differences together.
/// `what` describes the change.
fn check_unchanged(
    what: &str,
    options: &PlayOptions,
    change: impl Fn(&Recording, &mut Vec<Message>),
) {
    let mut wrong = String::new();
    for recording in recording::all() {
        for kinds in recording.event_kinds() {
            let before = options.unchanged_calls(recording, kinds);
            let mut messages = recording.messages.clone();
            change(recording, &mut messages);
            let after = options.calls_of(recording, kinds, &messages);
            wrong += &answer::difference(&recording.name(kinds), &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{wrong}");
}

/// Checks that a renaming only changes the calls as expected.
fn check_renamed(what: &str, rename: &Rename, options: &PlayOptions) {
    let mut wrong = String::new();
    for recording in recording::all() {
        if recording.is_local_time() && rename.has_time_shift() {
            continue;
        }
        for kinds in recording.event_kinds() {
            let before = PlayOptions::default().unchanged_calls(recording, kinds);
            let before: Vec<Answer> = before.iter().map(|call| rename.answer(call)).collect();
            let messages: Vec<Message> = recording
                .messages
                .iter()
                .map(|message| rename.message(message))
                .collect();
            let after = options.calls_of(recording, kinds, &messages);
            wrong += &answer::difference(&recording.name(kinds), &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{wrong}");
}

#[test]
fn duplicated_messages_change_no_call() {
    check_unchanged("twice each", &PlayOptions::default(), |_, messages| {
        *messages = messages
            .iter()
            .flat_map(|message| [message.clone(), message.clone()])
            .collect();
    });
}

#[test]
fn recording_repeated_at_its_end_changes_no_call() {
    check_unchanged("all again", &PlayOptions::default(), |_, messages| {
        let again = messages.clone();
        messages.extend(again);
    });
}

/// Promise: Duplicate, late, and reordered events change nothing.
#[test]
fn events_up_to_400_ms_out_of_order_change_no_call() {
    for (seed, late) in [(1, false), (2, true)] {
        let options = PlayOptions {
            late,
            ..PlayOptions::default()
        };
        check_unchanged("shuffled", &options, |_, messages| {
            Chance::new(seed).shuffle(messages);
        });
    }
}

/// Returns the calls with customers. Internal calls are only counted.
fn customers_calls(calls: &[Answer]) -> Vec<Answer> {
    let with_customers = calls.iter().filter(|call| !call.text.contains("Internal"));
    with_customers.cloned().collect()
}

/// Promise: Duplicate, late, and reordered events change nothing.
///
/// A call may be considered over during the pause, after which its remaining events mustn't start
/// another call. Variables aren't compared, because they may only be in these events.
#[test]
fn pause_before_any_hangup_changes_no_call() {
    let options = PlayOptions {
        variables: false,
        ..PlayOptions::default()
    };
    let pause = Duration::from_secs(1);
    let mut wrong = String::new();
    for recording in recording::all() {
        for kinds in recording.event_kinds() {
            let before = options.unchanged_calls(recording, kinds);
            for at in 0..recording.messages.len() {
                let text = String::from_utf8_lossy(&recording.messages[at].bytes).to_lowercase();
                if !text.contains("hangup") {
                    continue;
                }
                let mut messages = recording.messages.clone();
                let resumed = messages[at].at.plus(pause);
                for message in &mut messages[at..] {
                    message.at = message.at.max(resumed);
                }
                let after = options.calls_of(recording, kinds, &messages);
                let name = format!("{}, paused before message {at}", recording.name(kinds));
                if after.len() != before.len() {
                    wrong += &format!("{name}: {} calls, not {}\n", after.len(), before.len());
                }
                let (before, after) = (customers_calls(&before), customers_calls(&after));
                wrong += &answer::difference(&name, &before, &after, NEAR);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn renumbered_channels_yield_the_same_calls() {
    check_renamed("suffixes", &Rename::suffixes(), &PlayOptions::default());
}

#[test]
fn renamed_telephone_yields_the_same_calls() {
    for name in ["anna-maria", "b1a5e1ab-7d5f-4d4e-9d0e-2b6d5d1f5a11"] {
        check_renamed(
            name,
            &Rename::telephone("101", name),
            &PlayOptions::default(),
        );
    }
}

#[test]
fn renamed_trunk_yields_the_same_calls() {
    for name in ["998712000000", "b1a5e1ab-7d5f-4d4e-9d0e-2b6d5d1f5a11"] {
        let options = PlayOptions {
            city: format!("PJSIP/{name}"),
            ..PlayOptions::default()
        };
        check_renamed(name, &Rename::trunk("city", name), &options);
    }
}

#[test]
fn recording_moved_by_100_days_yields_the_same_calls() {
    check_renamed("later", &Rename::times(8_640_000), &PlayOptions::default());
}

#[test]
fn events_spread_over_two_connections_yield_the_same_calls() {
    let options = PlayOptions {
        connections: 2,
        ..PlayOptions::default()
    };
    check_unchanged("two connections", &options, |_, messages| {
        Chance::new(1).spread(messages);
    });
}

#[test]
fn two_interleaved_recordings_yield_the_calls_of_both() {
    let all = recording::all();
    let mut wrong = String::new();
    for pair in all
        .windows(2)
        .filter(|pair| pair[0].format == pair[1].format)
    {
        if pair.iter().any(Recording::is_local_time) {
            continue;
        }
        let by = pair[0].first_second() - pair[1].first_second();
        let apart = Rename::times_and_ids(by);
        let second = pair[1].messages.iter().filter(|m| !m.is_mark());
        let second: Vec<Message> = second.map(|m| apart.message(m)).collect();
        for kinds in pair[0]
            .event_kinds()
            .into_iter()
            .filter(|h| pair[1].event_kinds().contains(h))
        {
            let options = PlayOptions::default();
            let mut before = options.unchanged_calls(&pair[0], kinds);
            let calls = options.unchanged_calls(&pair[1], kinds);
            before.extend(calls.iter().map(|call| apart.answer(call)));
            before.sort();
            let mut both = [pair[0].messages.clone(), second.clone()].concat();
            both.retain(|message| !message.is_mark());
            both.sort_by_key(|message| message.at);
            let after = options.calls_of(&pair[0], kinds, &both);
            let name = format!("{} with {}", pair[0].name(kinds), pair[1].folder);
            wrong += &answer::difference(&name, &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn unrelated_calls_in_any_order_give_same_result() {
    let all = recording::all();
    let options = PlayOptions {
        late: true,
        in_order: false,
        ..PlayOptions::default()
    };
    let mut wrong = String::new();
    for pair in all
        .windows(2)
        .filter(|pair| pair[0].format == pair[1].format)
    {
        for kinds in pair[0]
            .event_kinds()
            .into_iter()
            .filter(|h| pair[1].event_kinds().contains(h))
        {
            let apart = Rename::times_and_ids(0);
            let second: Vec<Message> = pair[1].messages.iter().map(|m| apart.message(m)).collect();
            let first = &pair[0].messages;
            let one_way = [first.clone(), second.clone()].concat();
            let other_way = [second, first.clone()].concat();
            let before = options.calls_of(&pair[0], kinds, &one_way);
            let after = options.calls_of(&pair[0], kinds, &other_way);
            wrong += &answer::difference(&pair[0].name(kinds), &before, &after, 0);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn recording_without_linkedid_end_yields_the_same_calls() {
    check_unchanged("no LINKEDID_END", &PlayOptions::default(), |_, messages| {
        messages.retain(|message| message.event() != "CEL LINKEDID_END");
    });
}

#[test]
fn recording_without_cel_yields_the_same_calls() {
    let mut wrong = String::new();
    for recording in recording::all()
        .iter()
        .filter(|r| r.event_kinds().contains(&EventKinds::Both))
    {
        let mut messages = recording.messages.clone();
        messages.retain(|message| !message.event().starts_with("CEL"));
        let both = PlayOptions::default().unchanged_calls(recording, EventKinds::Both);
        let after = PlayOptions::default().calls_of(recording, EventKinds::Both, &messages);
        wrong += &answer::difference(&recording.name(EventKinds::Both), &both, &after, NEAR);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn recording_without_dial_events_changes_at_most_the_number() {
    let options = PlayOptions {
        numbers: false,
        ..PlayOptions::default()
    };
    check_unchanged("no Dial events", &options, |recording, messages| {
        // Without any numbers, his two customers form a single call with two leads, which becomes a
        // dead letter.
        if recording.folder != "outbound_two_customers" {
            messages.retain(|message| !message.event().starts_with("Dial"));
        }
    });
}

#[test]
fn broken_caller_names_change_no_call() {
    let names: BTreeSet<&[u8]> = [b"\xff\xfe\xd0".as_slice(), b"\\v\\x0b", b"Event: Hangup"].into();
    for name in names {
        check_unchanged("broken names", &PlayOptions::default(), |_, messages| {
            for message in messages {
                message.set_caller_name(name);
            }
        });
    }
}

#[test]
fn frames_cut_in_the_callers_name_lose_no_call() {
    let options = PlayOptions {
        numbers: false,
        variables: false,
        ..PlayOptions::default()
    };
    check_unchanged("cut", &options, |recording, messages| {
        if recording.is_json() && !recording.is_cut() {
            for message in messages.iter_mut().step_by(3) {
                message.cut();
            }
        }
    });
}
