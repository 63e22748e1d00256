//! Tests with calls recorded on Asterisk 1.8 to 16 with chan_sip (`tests/recordings/asterisk-old`).
//! The assembler is restarted, loses its connection, or receives modified messages.

mod recording;

use callbridge_call::{Assembler, Direction, EventTime, FinishedCall};
use recording::{Message, assembler};
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages arrive up to this many microseconds late.
const LATE_MICROS: u64 = 400_000;

/// Returns a new assembler that only knows the stored open calls of `ended`. `kept` holds the
/// snapshots between restarts.
fn restart_from_snapshots(mut ended: Assembler, kept: &mut BTreeMap<u64, Vec<u8>>) -> Assembler {
    for change in ended.take_changes() {
        match change.snapshot {
            Some(snapshot) => kept.insert(change.key, snapshot),
            None => kept.remove(&change.key),
        };
    }
    let mut next = assembler();
    for (key, snapshot) in kept {
        next.restore(*key, snapshot).expect("a snapshot");
    }
    next
}

/// Returns the first difference between two versions of the same calls.
fn difference(name: &str, before: &[FinishedCall], after: &[FinishedCall]) -> String {
    if before == after {
        return String::new();
    }
    let (a, b) = (format!("{before:#?}"), format!("{after:#?}"));
    let differ = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    format!("{name}: {differ:?}\n")
}

/// Checks that applying `change` to the messages doesn't affect any call in the recordings whose
/// names end with `files`.
fn check_unchanged(files: &str, change: impl Fn(&mut Vec<Message>)) {
    let mut wrong = String::new();
    let all = recording::all().into_iter();
    for recording in all.filter(|recording| recording.name.ends_with(files)) {
        let mut messages = recording.messages.clone();
        change(&mut messages);
        let before = recording.calls(&recording.messages);
        wrong += &difference(&recording.name, &before, &recording.calls(&messages));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn inbound_calls_of_old_releases_have_the_recorded_dids() {
    let mut known = 0;
    for recording in recording::all() {
        let calls = recording.calls(&recording.messages).into_iter();
        let inbound = calls.filter(|call| call.direction == Direction::Inbound);
        let mut dids: Vec<Option<String>> = inbound.map(|call| call.did).collect();
        dids.sort();
        assert_eq!(dids, recording.dids(), "{}", recording.name);
        known += dids.iter().flatten().count();
    }
    assert!(known > 150, "{known}");
}

#[test]
fn duplicate_messages_change_no_call() {
    check_unchanged("", |messages| {
        let twice = messages
            .iter()
            .flat_map(|message| [message.clone(), message.clone()]);
        *messages = twice.collect();
    });
}

#[test]
fn replayed_messages_change_no_call() {
    check_unchanged("", |messages| messages.extend(messages.clone()));
}

#[test]
fn cel_rows_out_of_order_change_no_call() {
    check_unchanged("cel.csv", |messages| {
        let mut chance = 7_u64;
        messages.sort_by_cached_key(|(at, _)| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            at.plus(Duration::from_micros((chance >> 33) % LATE_MICROS))
        });
    });
}

#[test]
fn restart_after_each_event_changes_no_call() {
    let mut wrong = String::new();
    for recording in recording::all() {
        let (messages, mut kept) = (&recording.messages, BTreeMap::new());
        let restarted = recording
            .calls_with_next_assembler(messages, |ended| restart_from_snapshots(ended, &mut kept));
        wrong += &difference(&recording.name, &recording.calls(messages), &restarted);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Returns the talk times, longest first.
fn longest_first(talk: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut sorted: Vec<Duration> = talk.collect();
    sorted.sort_by(|a, b| b.cmp(a));
    sorted
}

/// Returns `true` if the calls have the same talk times, to within 600 ms. A call without talk time
/// may be missing.
fn has_same_talk(received: &[Duration], reported: &[Duration]) -> bool {
    for i in 0..received.len().max(reported.len()) {
        let one = received.get(i).copied().unwrap_or_default();
        let other = reported.get(i).copied().unwrap_or_default();
        if one.abs_diff(other) > Duration::from_millis(600) {
            return false;
        }
    }
    true
}

#[test]
fn cut_off_call_reports_talk_received_until_cut() {
    let mut wrong = String::new();
    let mut cuts_with_talk = 0;
    for recording in recording::all() {
        let Some(calls) = recording.talks_of_calls() else {
            continue;
        };
        for last in recording.pauses() {
            let (cut, cut_calls) = recording.calls_until(last);
            let mut until_cut: Vec<Duration> = Vec::new();
            for talks in &calls {
                until_cut.push(talks.iter().map(|(a, b)| (*b).min(cut).since(*a)).sum());
            }
            let received = longest_first(until_cut.into_iter());
            let reported = longest_first(cut_calls.iter().map(|call| call.talk));
            if !has_same_talk(&received, &reported) {
                let name = &recording.name;
                wrong += &format!("{name} after {last}: {reported:?} of {received:?}\n");
            }
            cuts_with_talk += usize::from(received.iter().any(|talk| !talk.is_zero()));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(
        cuts_with_talk > 100,
        "only {cuts_with_talk} cuts after talk"
    );
}

/// In a REFER transfer, the masquerade may not happen until the ringing phone is answered. By the
/// time it's reported, the transferring channel has hung up.
#[test]
fn late_masquerade_of_refer_transfer_changes_no_talk() {
    let name = "1.8-cel-on-ami blonde_transfer_refer cel.csv";
    let mut all = recording::all().into_iter();
    let recording = all
        .find(|recording| recording.name == name)
        .expect("the recording");
    let calls = recording.calls(&recording.messages);
    let (transferred, answered) = ("1795212897.85", "1795212899.8586");
    let mut late = 0;
    let moved = recording.messages.iter().map(|(at, message)| {
        let row = std::str::from_utf8(message).expect("text");
        if !row.contains(transferred) || !is_of_masquerade(row) {
            return (*at, message.clone());
        }
        late += 1;
        let row = row.replacen(transferred, answered, 1);
        let at = EventTime::from_micros(at.micros() + 2_000_000);
        (at, row.into_bytes())
    });
    let mut moved: Vec<Message> = moved.collect();
    moved.sort_by_key(|(at, _)| *at);
    assert_eq!(late, 5);
    let late_calls = recording.calls(&moved);
    let (talk, late_talk) = (talk_millis(&calls), talk_millis(&late_calls));
    let near: Vec<bool> = talk
        .iter()
        .zip(&late_talk)
        .map(|(a, b)| a.abs_diff(*b) < 10)
        .collect();
    assert_eq!(near, [true], "{talk:?} {late_talk:?}");
    assert_eq!(late_calls[0].incomplete, None);
}

/// Returns `true` if the row's event was caused by a masquerade.
fn is_of_masquerade(row: &str) -> bool {
    let mut events = ["HANGUP", "CHAN_END", "APP_END"].iter();
    events.any(|event| row[1..].starts_with(event))
}

fn talk_millis(calls: &[FinishedCall]) -> Vec<u128> {
    calls.iter().map(|call| call.talk.as_millis()).collect()
}

/// Returns a CEL row without its peer, as if the mapping had no `${BRIDGEPEER}`.
fn remove_peer((at, message): &Message) -> Message {
    const FROM_THE_END: usize = 4;
    let row = String::from_utf8_lossy(message).into_owned();
    let mut cells: Vec<&str> = row.trim_end().split("\",\"").collect();
    let place = cells.len() - FROM_THE_END;
    cells[place] = "";
    (*at, cells.join("\",\"").into_bytes())
}

/// Returns a call's talk time, duration, direction, and employees.
fn describe(call: &FinishedCall) -> String {
    let (talk, whole) = (call.talk, call.ended.since(call.started));
    let seconds = [talk, whole].map(|time| format!("{:.1}", time.as_secs_f64()));
    format!(
        "{seconds:?} {:?} {:?}",
        call.direction, call.employees_in_order
    )
}

/// Returns `true` if the recording with this name is CEL from Asterisk 1.8 or 11.
fn has_old_cel(name: &str) -> bool {
    let is_old = name.starts_with("1.8") || name.starts_with("11 ");
    is_old && name.ends_with("cel.csv")
}

#[test]
fn old_cel_without_peers_yields_same_or_incomplete_calls() {
    let (mut wrong, mut whole) = (String::new(), 0);
    let all = recording::all().into_iter();
    for recording in all.filter(|recording| has_old_cel(&recording.name)) {
        let calls = recording.calls(&recording.messages);
        let messages: Vec<Message> = recording.messages.iter().map(remove_peer).collect();
        let without_peers = recording.calls(&messages);
        for call in &calls {
            let mut ids = without_peers.iter().map(|other| &other.linkedid);
            if !ids.any(|id| *id == call.linkedid) {
                wrong += &format!("{}: {} is lost\n", recording.name, call.linkedid);
            }
        }
        for call in without_peers {
            let mut same = calls.iter().filter(|other| other.linkedid == call.linkedid);
            let right = same.next().map(describe);
            if call.incomplete.is_none() && right.as_ref() != Some(&describe(&call)) {
                wrong += &format!("{}: {} not {right:?}\n", recording.name, describe(&call));
            }
            whole += usize::from(call.incomplete.is_none());
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(whole > 40, "only {whole} are whole");
}
