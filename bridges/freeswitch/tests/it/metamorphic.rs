//! Tests with modified recordings, where the changes are ones that a socket, a broker, or a proxy
//! could make to a stream.

use crate::expected::{faults, finished_calls, recordings, split};
use crate::recordings::slack;

/// Maximum time between two events whose order is changed.
const SHUFFLED_MICROS: u64 = 400_000;
const SEEDS: u64 = 6;

/// Pseudo-random numbers, which are the same for the same seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `below`.
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (value ^ (value >> 31)) % below
    }
}

fn time(message: &[u8]) -> u64 {
    let event: serde_json::Value = serde_json::from_slice(message).expect("an event");
    let time = event["Event-Date-Timestamp"].as_str().expect("a time");
    time.parse().expect("microseconds")
}

/// Returns the messages in a different order, as if each took up to [`SHUFFLED_MICROS`] to arrive.
pub fn shuffle(messages: &[Vec<u8>], chance: &mut Chance) -> Vec<Vec<u8>> {
    let keyed = messages.iter().map(|message| {
        let key = time(message) + chance.next(SHUFFLED_MICROS);
        (key, message.clone())
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by_key(|&(key, _)| key);
    keyed.into_iter().map(|(_, message)| message).collect()
}

/// Checks the calls of all recordings once for each of `seeds` seeds, after `change` has been
/// applied to each recording's messages.
fn check_recordings(change: impl Fn(&[Vec<u8>], &mut Chance) -> Vec<Vec<u8>>, seeds: u64) {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let messages = split(&recording.read("esl.jsonl"));
        for seed in 0..seeds {
            let calls = finished_calls(&change(&messages, &mut Chance::new(seed)));
            let name = &recording.name;
            for fault in faults(&calls, &recording.expected(), slack(&recording)) {
                wrong.push(format!("{name}, seed {seed}: {fault}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn double(messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let twice = messages
        .iter()
        .flat_map(|message| [message.clone(), message.clone()]);
    twice.collect()
}

#[test]
fn duplicate_event_counts_once() {
    check_recordings(|messages, _| double(messages), 1);
}

#[test]
fn order_of_arrival_makes_no_difference() {
    check_recordings(shuffle, SEEDS);
}

#[test]
fn duplicate_and_reordered_events_make_no_difference() {
    check_recordings(
        |messages, chance| shuffle(&double(messages), chance),
        SEEDS / 4,
    );
}

/// Returns the messages without those that immediately follow an `event`.
fn drop_next(messages: &[Vec<u8>], event: &str) -> Vec<Vec<u8>> {
    let wanted = format!("\"Event-Name\":\"{event}\"");
    let mut dropped = false;
    let mut kept = Vec::new();
    for message in messages {
        if std::mem::take(&mut dropped) {
            continue;
        }
        let head = String::from_utf8_lossy(&message[..message.len().min(200)]).into_owned();
        dropped = head.contains(&wanted);
        kept.push(message.clone());
    }
    kept
}

#[test]
fn event_lost_after_a_hangup_changes_no_call() {
    check_recordings(|messages, _| drop_next(messages, "CHANNEL_HANGUP"), 1);
    check_recordings(
        |messages, chance| drop_next(&shuffle(messages, chance), "CHANNEL_HANGUP"),
        SEEDS / 2,
    );
}

/// Returns `true` if the character isn't part of a word, or if there is none.
fn is_word_end(character: Option<char>) -> bool {
    character.is_none_or(|c| !c.is_alphanumeric())
}

/// Replaces each occurrence of `word` in the text with `other`, unless it's part of a longer word.
fn replace_word(text: &str, word: &str, other: &str) -> String {
    let (mut made, mut rest) = (String::with_capacity(text.len()), text);
    let mut before = None;
    while let Some(at) = rest.find(word) {
        let end = at + word.len();
        let last = rest[..at].chars().next_back().or(before);
        let is_word = is_word_end(last) && is_word_end(rest[end..].chars().next());
        made.push_str(&rest[..at]);
        made.push_str(if is_word { other } else { word });
        before = word.chars().next_back();
        rest = &rest[end..];
    }
    made.push_str(rest);
    made
}

#[test]
fn renamed_profiles_gateways_and_extensions_give_same_calls() {
    // FusionPBX names gateways after UUIDs, and a profile may have the same name as a phone.
    let names = [
        ("external", "carriers"),
        ("internal", "103"),
        ("city", "8c5e6a70-9a5f-4be8"),
        ("16000", "17000"),
        ("101", "7101"),
        ("102", "x-102_b"),
    ];
    let mut wrong = Vec::new();
    for recording in recordings() {
        let mut renamed: Vec<Vec<u8>> = Vec::new();
        for message in split(&recording.read("esl.jsonl")) {
            let mut text = String::from_utf8_lossy(&message).into_owned();
            for (old, new) in names {
                text = replace_word(&text, old, new);
            }
            renamed.push(text.into_bytes());
        }
        let mut expected = recording.expected();
        for call in &mut expected.calls {
            let people = call.employee.iter_mut().chain(&mut call.employees_in_order);
            for person in people {
                *person = replace_word(&replace_word(person, "101", "7101"), "102", "x-102_b");
            }
        }
        let calls = finished_calls(&renamed);
        let faults = faults(&calls, &expected, slack(&recording));
        let name = &recording.name;
        wrong.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
