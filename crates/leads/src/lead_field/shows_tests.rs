//! Tests that a lead's fields show the newest call, regardless of the order in which calls are
//! journaled.

use super::*;
use crate::lead_field::{CrmField, FieldId, Refusal};
use proptest::prelude::*;

fn time_at(seconds: i64) -> EventTime {
    EventTime::from_seconds(1_795_151_317 + seconds)
}

/// Returns the position in the order of calls of one that started at this second.
fn order_of(started: i64) -> Order {
    Order {
        started: EpochSeconds::new(started),
        row: started,
    }
}

/// Returns a catalog of fields. `kinds` has each field's ID and `infoType`.
fn catalog(kinds: &[(i64, &str)]) -> Catalog {
    let fields = kinds.iter().map(|(id, kind)| CrmField {
        id: FieldId::new(*id).expect("positive"),
        info_type: Some((*kind).to_owned()),
        name: None,
    });
    Catalog::read(fields.collect(), true, time_at(0))
}

fn settings(fields: &str) -> Settings {
    Settings {
        fields: super::super::parse(fields).expect("fields"),
        zone: jiff::tz::TimeZone::UTC,
        wrapper: None,
    }
}

fn write(shows: &LeadFieldState, catalog: &Catalog) -> FieldWrite {
    let fields = settings("last_call=11,last_missed=12,last_employee=13");
    shows.write(&fields, catalog, &RefusedFields::default(), time_at(0))
}

fn items(shows: &LeadFieldState, catalog: &Catalog) -> Vec<Item> {
    write(shows, catalog).items
}

/// Sends the waiting values.
fn send(shows: &mut LeadFieldState, catalog: &Catalog) {
    let write = write(shows, catalog);
    shows.note_sent(&write, time_at(0));
}

/// Sends the waiting values to a CRM that only has the field 11. Returns how many values are given
/// up.
fn send_field_11(shows: &mut LeadFieldState, now: EventTime) -> u64 {
    let write = write(shows, &catalog(&[(11, "LED")]));
    shows.note_sent(&write, now)
}

fn token() -> TokenFingerprint {
    TokenFingerprint::of("token")
}

#[test]
fn newest_value_of_three_calls_is_written_once() {
    let mut shows = LeadFieldState::default();
    assert!(shows.learn(Name::LastCall, Some("2".into()), order_of(2)));
    assert!(shows.learn(Name::LastCall, Some("3".into()), order_of(3)));
    assert!(!shows.learn(Name::LastCall, Some("1".into()), order_of(1)));
    let all = catalog(&[(11, "LED"), (12, "LED"), (13, "LED")]);
    let items = items(&shows, &all);
    assert_eq!(
        items,
        [Item::text(FieldId::new(11).expect("id"), "3".into())]
    );
    send_field_11(&mut shows, time_at(1));
    shows.note_accepted("r".into(), token(), time_at(2));
    assert_eq!(shows.next_action(), Some(NextAction::Poll));
    assert_eq!(shows.note_written(time_at(3)).0, 1);
    assert_eq!(shows.next_action(), None);
    assert!(
        !shows.learn(Name::LastCall, Some("2".into()), order_of(2)),
        "written"
    );
    assert_eq!(shows.next_action(), None);
}

#[test]
fn new_value_during_a_request_is_written_after_its_end() {
    let mut shows = LeadFieldState::default();
    shows.learn(Name::LastCall, Some("1".into()), order_of(1));
    send_field_11(&mut shows, time_at(0));
    shows.learn(Name::LastCall, Some("2".into()), order_of(2));
    assert_eq!(
        shows.due,
        time_at(0).plus(LOST).micros(),
        "not a second one"
    );
    shows.note_accepted("r".into(), token(), time_at(1));
    assert_eq!(shows.next_action(), Some(NextAction::Poll));
    assert_eq!(
        shows.note_written(time_at(3)).0,
        0,
        "what was written is told no more"
    );
    assert_eq!(
        (shows.next_action(), shows.due),
        (Some(NextAction::Write), time_at(3).micros())
    );
}

#[test]
fn unwritable_fields_are_left_out_and_cause_no_retry() {
    let mut shows = LeadFieldState::default();
    for (name, text) in [
        (Name::LastCall, "t"),
        (Name::LastMissed, "t"),
        (Name::LastEmployee, "501"),
    ] {
        shows.learn(name, Some(text.into()), order_of(1));
    }
    let kinds = catalog(&[(11, "LED"), (12, "CONTACT")]);
    let items = items(&shows, &kinds);
    assert_eq!(items.len(), 1);
    assert_eq!(send_field_11(&mut shows, time_at(0)), 2);
    shows.note_accepted("r".into(), token(), time_at(1));
    shows.note_written(time_at(2));
    assert_eq!(shows.next_action(), None);
    let mut none = LeadFieldState::default();
    none.learn(Name::LastMissed, Some("t".into()), order_of(1));
    assert_eq!(send_field_11(&mut none, time_at(0)), 1);
    assert_eq!(none.next_action(), None);
}

#[test]
fn lost_answer_is_retried_and_given_up_after_the_last_try() {
    let mut shows = LeadFieldState::default();
    shows.learn(Name::LastCall, Some("1".into()), order_of(1));
    let mut now = time_at(0);
    let mut given_up = 0;
    let mut tries = 0;
    while shows.next_action() == Some(NextAction::Write) {
        assert!(shows.due <= now.micros());
        send_field_11(&mut shows, now);
        given_up += shows.again(now);
        now = EventTime::from_micros(shows.due.max(now.micros()));
        tries += 1;
        assert!(tries < 100, "no end");
    }
    assert_eq!((tries, given_up), (TRIES_MAX, 1));
    // A newer call starts over with its attempts.
    assert!(shows.learn(Name::LastCall, Some("2".into()), order_of(2)));
    assert_eq!(shows.next_action(), Some(NextAction::Write));
}

#[test]
fn request_unanswered_at_a_kill_is_written_again_later() {
    let mut shows = LeadFieldState::default();
    shows.learn(Name::LastCall, Some("1".into()), order_of(1));
    send_field_11(&mut shows, time_at(0));
    let text = serde_json::to_string(&shows).expect("storable");
    let mut shows: LeadFieldState = serde_json::from_str(&text).expect("readable");
    assert_eq!(shows.next_action(), Some(NextAction::Write));
    assert_eq!(shows.due, time_at(120).micros());
    assert_eq!(items(&shows, &catalog(&[(11, "LED")])).len(), 1);
    send_field_11(&mut shows, time_at(120));
    shows.note_accepted("r2".into(), token(), time_at(121));
    assert_eq!(shows.note_written(time_at(123)).0, 1);
}

#[test]
fn unfinished_request_is_rewritten_before_its_id_expires() {
    let mut shows = LeadFieldState::default();
    shows.learn(Name::LastCall, Some("1".into()), order_of(1));
    send_field_11(&mut shows, time_at(0));
    shows.note_accepted("r".into(), token(), time_at(1));
    let mut polls = 0;
    while shows.next_action() == Some(NextAction::Poll) {
        let now = EventTime::from_micros(shows.due);
        assert!(now.since(time_at(0)) < Duration::from_secs(24 * 3600));
        shows.note_unfinished(now);
        polls += 1;
        assert!(polls < 2_000, "no end");
    }
    assert!(polls > 1_000);
    assert_eq!(shows.next_action(), Some(NextAction::Write));
}

/// A step in the life of a lead's fields.
#[derive(Clone, Debug)]
enum Act {
    Journaled(i64),
    Send,
    Accepted,
    NotYet,
    Written,
    Refused,
    Again,
    Back,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..20_i64).prop_map(Act::Journaled),
        2 => Just(Act::Send),
        2 => Just(Act::Accepted),
        1 => Just(Act::NotYet),
        2 => Just(Act::Written),
        1 => Just(Act::Refused),
        1 => Just(Act::Again),
        1 => Just(Act::Back),
    ]
}

proptest! {
    #[test]
    fn any_order_of_events_never_writes_an_older_call(
        acts in prop::collection::vec(act(), 1..60)
    ) {
        let all = catalog(&[(11, "LED")]);
        let mut shows = LeadFieldState::default();
        let (mut newest, mut last, mut state) = (-1, -1, -1);
        for (n, act) in acts.into_iter().enumerate() {
            let now = time_at(n as i64);
            match act {
                Act::Journaled(started) => {
                    newest = newest.max(started);
                    shows.learn(Name::LastCall, Some(started.to_string()), order_of(started));
                }
                Act::Send if shows.next_action() == Some(NextAction::Write) => {
                    let items = items(&shows, &all);
                    let text = match &items[..] {
                        [Item { given: item::Given::Text(text), .. }] => text.parse().expect("n"),
                        other => panic!("{other:?}"),
                    };
                    send_field_11(&mut shows, now);
                    // The value isn't older than the one sent before.
                    prop_assert!(text >= last && text >= state);
                    prop_assert_eq!(text, newest);
                    last = text;
                }
                Act::Accepted if shows.next_action() == Some(NextAction::Write) => {
                    shows.note_accepted("r".into(), token(), now);
                }
                Act::Written if shows.request.is_some() => {
                    state = last;
                    shows.note_written(now);
                }
                Act::NotYet => shows.note_unfinished(now),
                Act::Refused if shows.request.is_some() => {
                    shows.note_refused(&RefusedPart::ItemOrLead, now);
                }
                Act::Again if shows.request.is_some() => {
                    shows.again(now);
                }
                Act::Back if shows.request.is_some() => shows.back(now),
                Act::Send
                | Act::Accepted
                | Act::Written
                | Act::Refused
                | Act::Again
                | Act::Back => {}
            }
        }
    }
}

/// Returns the waiting values in JSON, as written by a daemon with this `--lead-field` flag.
fn written_values(shows: &LeadFieldState, flag: &str) -> String {
    let all = catalog(&[(11, "LED"), (12, "LED"), (13, "LED"), (14, "LED")]);
    let (none, now) = (RefusedFields::default(), EventTime::from_seconds(0));
    let items = shows.write(&settings(flag), &all, &none, now).items;
    let values = items.iter().map(|item| item.to_json()["value"].to_string());
    values.collect::<Vec<_>>().join(" ")
}

#[test]
fn value_is_written_as_the_kind_configured_for_its_field() {
    let mut shows = LeadFieldState::default();
    let at = "2026-11-20T10:08:37+05:00";
    shows.learn(Name::LastCall, Some(at.into()), order_of(7));
    shows.learn(Name::LastMissed, Some(at.into()), order_of(7));
    shows.learn(Name::LastEmployee, Some("501".into()), order_of(7));
    shows.learn(Name::MissedCount, Some("0".into()), order_of(7));
    let flag = "last_call=11:date,last_missed=12:number,last_employee=13:number,missed_count=14";
    assert_eq!(written_values(&shows, flag), r#""2026-11-20" 7 501 "0""#);
    let flag =
        "last_call=11:number,last_missed=12:boolean,last_employee=13,missed_count=14:boolean";
    assert_eq!(written_values(&shows, flag), r#"7 true "501" false"#);
    let flag = "last_call=11,missed_count=14:number";
    assert_eq!(written_values(&shows, flag), format!(r#""{at}" 0"#));
}

#[test]
fn missed_call_field_is_cleared_only_by_a_newer_talk() {
    let all = catalog(&[(11, "LED"), (12, "LED"), (13, "LED")]);
    let mut shows = LeadFieldState::default();
    assert!(
        shows.learn(Name::LastMissed, None, order_of(5)),
        "remembered"
    );
    assert_eq!(items(&shows, &all), [], "and nothing is written for it");
    assert!(
        !shows.learn(Name::LastMissed, Some("old".into()), order_of(4)),
        "called back since"
    );
    assert!(shows.learn(Name::LastMissed, Some("new".into()), order_of(6)));
    assert!(
        !shows.learn(Name::LastMissed, None, order_of(5)),
        "before it"
    );
    assert!(shows.learn(Name::LastMissed, None, order_of(7)));
    let id = FieldId::new(12).expect("an id");
    let null = Item {
        id,
        given: Given::Null,
    };
    assert_eq!(items(&shows, &all), [null]);
}

/// Returns a state that has sent three values.
fn state_with_three_sent(all: &Catalog) -> LeadFieldState {
    let mut shows = LeadFieldState::default();
    for name in [Name::LastCall, Name::LastMissed, Name::LastEmployee] {
        shows.learn(name, Some("x".into()), order_of(1));
    }
    send(&mut shows, all);
    shows
}

/// Returns the field IDs of the waiting values.
fn ids(shows: &LeadFieldState, all: &Catalog) -> Vec<i64> {
    let items = items(shows, all).into_iter();
    items.map(|item| item.id.get()).collect()
}

#[test]
fn refused_item_is_dropped_and_other_items_are_written() {
    let all = catalog(&[(11, "LED"), (12, "LED"), (13, "LED")]);
    let mut named = state_with_three_sent(&all);
    let (given_up, blamed) = named.note_refused(&RefusedPart::Items(vec![1, 9]), time_at(1));
    assert_eq!((given_up, blamed[0].0), (1, Name::LastMissed));
    assert_eq!(ids(&named, &all), [11, 13], "together");
    let mut unnamed = state_with_three_sent(&all);
    assert_eq!(
        unnamed.note_refused(&RefusedPart::SomeItem, time_at(1)),
        (0, vec![])
    );
    for (alone, is_taken) in [(11, true), (12, false), (13, true)] {
        assert_eq!(ids(&unnamed, &all), [alone]);
        send(&mut unnamed, &all);
        let changed = if is_taken {
            unnamed.note_written(time_at(2))
        } else {
            unnamed.note_refused(&RefusedPart::SomeItem, time_at(2))
        };
        assert_eq!((changed.0, changed.1[0].1.id.get()), (1, alone));
    }
    assert_eq!(unnamed.next_action(), None);
    unnamed.learn(Name::LastCall, Some("y".into()), order_of(2));
    unnamed.learn(Name::LastEmployee, Some("y".into()), order_of(2));
    assert_eq!(ids(&unnamed, &all), [11, 13], "together again");
}

#[test]
fn refused_field_is_tried_separately_after_other_fields() {
    let all = catalog(&[(11, "LED"), (12, "LED")]);
    let settings = settings("last_call=11,last_missed=12");
    let mut shows = LeadFieldState::default();
    shows.learn(Name::LastCall, Some("x".into()), order_of(1));
    shows.learn(Name::LastMissed, Some("x".into()), order_of(1));
    // Both values are sent, and there's never a response.
    send(&mut shows, &all);
    let mut refused = RefusedFields::default();
    let item = items(&shows, &all).remove(1);
    let lead = callbridge_model::LeadId::new(4_002).expect("a lead");
    let why = Refusal::new(
        "400".into(),
        &serde_json::Value::Null,
        RefusedPart::SomeItem,
    );
    let name = (Name::LastMissed, settings.fields[&Name::LastMissed]);
    refused.note(name, (lead, item), &why, time_at(0));
    for (seconds, field) in [(3_600, 11), (3_601, 12)] {
        let write = shows.write(&settings, &all, &refused, time_at(seconds));
        shows.note_sent(&write, time_at(seconds));
        let (_, written) = shows.note_written(time_at(seconds));
        let fields: Vec<i64> = written.iter().map(|item| item.1.id.get()).collect();
        assert_eq!(fields, [field]);
    }
}
