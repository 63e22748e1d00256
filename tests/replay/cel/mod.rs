//! Tests that CEL results in the same calls as channel events, from every CEL source and with
//! missing fields.

mod carriers;

use crate::replay::recorded::{
    Arrival, EventKinds, check_each, delay_from, delay_randomly, keep_arrivals,
};
use callbridge_call::Origin;
use callbridge_formats::Format;
use callbridge_testbed::cel_rows::COLUMNS;
use carriers::{Message, ami, as_ami, as_amqp, as_csv, as_wazo, cel, set, value};
use std::path::Path;
use std::time::Duration;

const CEL: EventKinds = EventKinds::Only(Origin::Cel);

/// Checks all recordings' CEL events after applying `change`.
fn check_changed(change: impl Fn(&mut Vec<Message>)) {
    check_each(
        Format::Ami,
        |folder| {
            let mut rows = cel(folder);
            change(&mut rows);
            as_ami(&rows)
        },
        CEL,
        keep_arrivals,
    );
}

/// Returns all of a recording's events as on Wazo's bus.
fn wazo_messages(folder: &Path) -> Vec<u8> {
    as_wazo(&ami(folder))
}

/// Returns a recording's CEL with times in microseconds.
fn amqp_messages(folder: &Path) -> Vec<u8> {
    as_amqp(&cel(folder), "%Y-%m-%dT%H:%M:%S.%6f%z")
}

/// Returns a recording's CEL with times in milliseconds. Since these can't show that two channels
/// were joined for less than a millisecond, one recording has microseconds.
fn amqp_messages_in_milliseconds(folder: &Path) -> Vec<u8> {
    if folder.ends_with("missed_by_a_hair") {
        amqp_messages(folder)
    } else {
        as_amqp(&cel(folder), "%Y-%m-%dT%H:%M:%S.%3f%z")
    }
}

fn csv_with_sample_columns(folder: &Path) -> Vec<u8> {
    as_csv(&cel(folder), &COLUMNS)
}

/// Makes all messages arrive in a single batch, with the last event first.
fn reverse_in_batch(arrivals: &mut Vec<Arrival<'_>>) {
    let last = arrivals.last().map(|&(at, _)| at);
    arrivals.reverse();
    for (at, _) in arrivals {
        *at = last.unwrap_or(*at);
    }
}

#[test]
fn wazo_bus_events_yield_expected_calls_in_either_order() {
    let both = EventKinds::Both;
    check_each(Format::Wazo, wazo_messages, both, keep_arrivals);
    check_each(Format::Wazo, wazo_messages, both, delay_randomly);
    check_each(Format::Wazo, wazo_messages, both, reverse_in_batch);
    check_each(Format::Wazo, wazo_messages, CEL, keep_arrivals);
    check_each(Format::Wazo, wazo_messages, CEL, reverse_in_batch);
}

#[test]
fn cel_over_amqp_yields_expected_calls_in_either_order() {
    let read = amqp_messages_in_milliseconds;
    check_each(Format::CelAmqp, read, CEL, keep_arrivals);
    check_each(Format::CelAmqp, read, CEL, delay_randomly);
    check_each(Format::CelAmqp, read, CEL, reverse_in_batch);
}

#[test]
fn late_broker_messages_yield_the_same_calls() {
    for (quarter, seconds) in [(1, 7), (2, 60), (3, 3600), (1, 60), (3, 7)] {
        let later = Duration::from_secs(seconds);
        check_each(
            Format::Wazo,
            wazo_messages,
            EventKinds::Both,
            delay_from(quarter, later),
        );
        check_each(
            Format::CelAmqp,
            amqp_messages,
            CEL,
            delay_from(quarter, later),
        );
    }
}

#[test]
fn csv_with_sample_columns_yields_expected_calls() {
    let read = csv_with_sample_columns;
    check_each(Format::CelCsv, read, CEL, keep_arrivals);
    check_each(Format::CelCsv, read, CEL, reverse_in_batch);
}

#[test]
fn calls_are_unchanged_without_one_kind_of_end_event() {
    for gone in ["HANGUP", "CHAN_END", "LINKEDID_END"] {
        check_changed(|rows| rows.retain(|row| value(row, "EventName") != gone));
    }
}

#[test]
fn chan_end_may_precede_hangup() {
    check_changed(|rows| {
        for at in 1..rows.len() {
            if value(&rows[at], "EventName") == "CHAN_END"
                && value(&rows[at - 1], "EventName") == "HANGUP"
            {
                rows.swap(at - 1, at);
            }
        }
    });
}

#[test]
fn early_linkedid_end_changes_no_call() {
    check_changed(|rows| {
        let (mut first, rest): (Vec<_>, Vec<_>) = rows
            .drain(..)
            .partition(|row| value(row, "EventName") == "LINKEDID_END");
        first.iter_mut().for_each(|row| {
            let begun = rest.first().map_or("", |row| value(row, "Timestamp"));
            set(row, "Timestamp", begun);
        });
        *rows = first.into_iter().chain(rest).collect();
    });
}

fn is_bridge_row(row: &Message) -> bool {
    value(row, "EventName").starts_with("BRIDGE_")
}

#[test]
fn bridges_without_ids_are_identified_by_their_members() {
    check_changed(|rows| {
        let bridges = rows.iter_mut().filter(|row| is_bridge_row(row));
        bridges.for_each(|row| set(row, "Extra", ""));
    });
}

#[test]
fn bridges_without_ids_and_peers_are_identified_by_entry_time() {
    check_changed(|rows| {
        for row in rows.iter_mut().filter(|row| is_bridge_row(row)) {
            set(row, "Extra", "");
            set(row, "Peer", "");
        }
    });
}

/// Asterisk 11 and older, without `Peer`, for calls that consist of a single dialing operation and
/// a single bridge.
#[test]
fn cel_bridge_rows_of_dialing_side_only_give_same_calls() {
    check_changed(|rows| {
        let simple = ["Dial", ""];
        let entered = rows
            .iter()
            .filter(|row| value(row, "EventName") == "BRIDGE_ENTER");
        let plain = rows
            .iter()
            .filter(|row| value(row, "EventName") == "APP_START")
            .all(|row| simple.contains(&value(row, "Application")));
        if entered.count() != 2 || !plain {
            return;
        }
        rows.retain(|row| !is_bridge_row(row) || value(row, "Application") == "Dial");
        for row in rows.iter_mut().filter(|row| is_bridge_row(row)) {
            let old = value(row, "EventName")
                .replace("ENTER", "START")
                .replace("EXIT", "END");
            for (key, new) in [("EventName", old.as_str()), ("Extra", ""), ("Peer", "")] {
                set(row, key, new);
            }
        }
    });
}
