//! Tests of the intake with recorded frames, without a clock, socket, or file.

use super::{Batch, Intake, Memory, Settings, SourceSettings};
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_formats::Format;
use callbridge_mapping::{People, Rules, Trunks, trunk};
use callbridge_model::{Outcome, status};
use callbridge_source::{Frame, FrameVerdict, Outage, SourceId};
use callbridge_spool as spool;
use callbridge_spool::{Done, Finished, Known, Op, Store};
use std::time::Duration;

const TRUNK: &str = "city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";
pub(super) const FRAMES: &str =
    include_str!("../../../tests/recordings/inbound_answered/amiws.jsonl");
pub(super) const SOURCE: SourceId = SourceId(0);

pub(crate) fn settings() -> Settings {
    let trunk = trunk::parse(TRUNK, &trunk::Trunk::default()).expect("a trunk");
    let trunks = Trunks::new(vec![trunk]).expect("trunks");
    Settings {
        calls: callbridge_call::Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            max_call: Duration::from_secs(3600),
            max_open_calls: 1_000,
            ..callbridge_call::Settings::new(Default::default())
        },
        zone: None,
        columns: None,
        clock_right_from: EventTime::from_seconds(0),
        rules: Rules {
            trunks,
            ..Rules::default()
        },
    }
}

pub(super) fn intake() -> Intake {
    let source = SourceSettings {
        shown: "ws://pbx/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::AmiJson,
        file: true,
        forgets: false,
        catch_up: false,
    };
    Intake::new(settings(), vec![source], Memory::default()).expect("an intake")
}

fn broker_source(shown: &str, forgets: bool) -> SourceSettings {
    SourceSettings {
        shown: shown.to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::CelAmqp,
        file: false,
        forgets,
        catch_up: false,
    }
}

#[test]
fn storage_pause_shows_queue_down_and_ami_source_connected() {
    let sources = vec![
        broker_source("amqp://broker/", false),
        broker_source("ami://pbx/", true),
    ];
    let mut intake = Intake::new(settings(), sources, Memory::default()).expect("an intake");
    intake.up(SourceId(0), recorded_time(""));
    intake.up(SourceId(1), recorded_time(""));
    for source in intake.statuses() {
        assert_eq!(
            (source.state, source.reason),
            (status::SourceState::Connected, None)
        );
    }
    let [held, live] = &intake.statuses_while_held()[..] else {
        panic!("two sources");
    };
    let why = "paused: there is no room to store more events";
    assert_eq!(held.state, status::SourceState::Down);
    assert_eq!(held.reason.as_deref(), Some(why));
    assert_eq!(live.state, status::SourceState::Connected);
    assert_eq!(live.reason, None);
}

/// Returns the time this many seconds after the first recorded event.
fn time_at(seconds: i64) -> EventTime {
    EventTime::from_seconds(1_795_151_317 + seconds)
}

/// Returns the gaps that the intake stores at this second, or `None` if they haven't changed.
fn take_stored_gaps(intake: &mut Intake, seconds: i64) -> Option<String> {
    intake.tick(time_at(seconds));
    intake.reconcile(time_at(seconds), &mut |_, _| None);
    let ops = intake.take(&People::default(), time_at(seconds)).ops;
    ops.into_iter().find_map(|op| match op {
        Op::Meta { key, value } if key == super::gap_log::KEY => Some(value),
        _ => None,
    })
}

/// Returns the stored form of a gap from second 0 to second 65.
fn gap_json(filled: bool) -> String {
    format!(
        "[{{\"source\":\"ami://pbx/\",\"from\":1795151317,\"to\":1795151382,\
         \"filled\":{filled},\"awaited\":{}}}]",
        !filled
    )
}

#[test]
fn gap_is_listed_then_marked_filled_by_catch_up_file() {
    let line = SourceSettings {
        shown: "ami://pbx/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::Ami,
        file: false,
        forgets: true,
        catch_up: false,
    };
    let file = SourceSettings {
        shown: "file:///cel.csv".to_owned(),
        format: Format::CelCsv,
        file: true,
        forgets: false,
        catch_up: true,
        ..line.clone()
    };
    let mut intake =
        Intake::new(settings(), vec![line, file], Memory::default()).expect("an intake");
    let (line, file) = (SourceId(0), SourceId(1));
    intake.up(line, time_at(0));
    intake.at_end(file, time_at(0));
    assert_eq!(take_stored_gaps(&mut intake, 0), None, "nothing was missed");
    intake.down(
        line,
        Outage {
            why: "cut".to_owned(),
            since: time_at(5),
            is_ours: false,
            is_absent: false,
        },
    );
    intake.up(line, time_at(65));
    assert_eq!(take_stored_gaps(&mut intake, 66), Some(gap_json(false)));
    assert_eq!(
        take_stored_gaps(&mut intake, 75),
        None,
        "its rows may still come"
    );
    assert_eq!(take_stored_gaps(&mut intake, 90), Some(gap_json(true)));
}

/// Returns the time of a recorded line, or 1795151317 if it has none. Frames arrive at their own
/// times, so their calls are live.
pub(crate) fn recorded_time(line: &str) -> EventTime {
    let (_, after) = line
        .split_once("\"Timestamp\": \"")
        .unwrap_or(("", "1795151317."));
    let seconds = after
        .split('.')
        .next()
        .and_then(|seconds| seconds.parse().ok());
    EventTime::from_seconds(seconds.expect("a time"))
}

pub(super) fn send_line(intake: &mut Intake, seq: u64, line: &str) {
    send_line_with_known(intake, seq, line, |_| None);
}

fn send_line_with_known(
    intake: &mut Intake,
    seq: u64,
    line: &str,
    known: impl Fn(&str) -> Option<Known>,
) {
    let bytes = line.as_bytes().to_vec().into();
    let frame = Frame {
        seq,
        arrived: recorded_time(line),
        bytes,
        position: None,
        content_type: None,
        details: None,
    };
    intake
        .frame(SOURCE, &frame, &mut |_, id| known(id))
        .expect("taken");
}

pub(super) fn finished_calls(batch: &Batch) -> Vec<&Finished> {
    let finished = batch.ops.iter().filter_map(|op| match op {
        Op::Finish(finished) => Some(&**finished),
        _ => None,
    });
    finished.collect()
}

pub(super) fn take_to_end(intake: &mut Intake) -> Batch {
    let after = EventTime::from_seconds(1_795_151_400);
    intake.at_end(SOURCE, after);
    intake.take(&People::default(), after)
}

#[test]
fn recorded_frames_become_one_call_and_are_committed() {
    let mut intake = intake();
    let lines: Vec<&str> = FRAMES.lines().collect();
    for (seq, line) in (1..).zip(&lines) {
        send_line(&mut intake, seq, line);
    }
    let batch = take_to_end(&mut intake);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].judged.outcome, Outcome::Journal);
    assert_eq!(
        calls[0].judged.record.lead_id.map(|lead| lead.get()),
        Some(4001)
    );
    let through = lines.len() as u64;
    assert_eq!(
        batch.verdicts,
        [(SOURCE, FrameVerdict::Committed { through })]
    );
    assert_eq!(intake.open_calls(), 0);
}

#[test]
fn call_without_event_times_starts_at_time_of_unique_id() {
    let mut intake = intake();
    for (seq, line) in (1..).zip(FRAMES.lines()) {
        let timeless = line.replace("\"Timestamp\"", "\"NoTime\"");
        let timeless = timeless.replace("\"EventTime\"", "\"NoEventTime\"");
        let frame = Frame {
            seq,
            arrived: EventTime::from_seconds(1_800_000_000),
            bytes: timeless.into_bytes().into(),
            position: None,
            content_type: None,
            details: None,
        };
        intake
            .frame(SOURCE, &frame, &mut |_, _| None)
            .expect("taken");
    }
    let after = EventTime::from_seconds(1_800_000_100);
    intake.at_end(SOURCE, after);
    let batch = intake.take(&People::default(), after);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    let call = &calls[0].judged;
    assert_eq!(call.outcome, Outcome::DeadLetter);
    let second = call.record.started_at.get();
    assert_eq!(second, 1_795_151_317, "that of the unique id");
    assert!(call.record.answered, "who talked is known");
}

#[test]
fn same_ids_of_two_pbxs_on_one_stream_are_two_calls() {
    let mut intake = intake();
    for (seq, line) in (1..).step_by(2).zip(FRAMES.lines()) {
        send_line(&mut intake, seq, line);
        send_line(&mut intake, seq + 1, &line.replace("pbx1.lab", "pbx2.lab"));
    }
    let batch = take_to_end(&mut intake);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 2);
    let pbxs: Vec<&str> = calls
        .iter()
        .map(|call| call.judged.record.pbx.as_str())
        .collect();
    assert_eq!(pbxs, ["hq", "hq/pbx2.lab"]);
    assert_ne!(calls[0].judged.record.uuid, calls[1].judged.record.uuid);
    let first = Op::Meta {
        key: crate::pbx::server_key("hq"),
        value: "pbx1.lab".to_owned(),
    };
    assert!(batch.ops.contains(&first), "the first one's name is kept");
}

/// Promise: An unreadable message is kept and hides no other call.
#[test]
fn unreadable_frame_is_kept_refused_and_hides_no_call() {
    let mut intake = intake();
    send_line(&mut intake, 1, "{ neither JSON nor an event");
    for (seq, line) in (2..).zip(FRAMES.lines()) {
        send_line(&mut intake, seq, line);
    }
    let batch = take_to_end(&mut intake);
    assert_eq!(finished_calls(&batch).len(), 1);
    assert!(batch.ops.iter().any(|op| matches!(op, Op::Unreadable(_))));
    assert_eq!(
        batch.verdicts[0],
        (SOURCE, FrameVerdict::Refused { seq: 1 })
    );
    assert_eq!(intake.statuses()[0].unreadable, 1);
}

/// Returns the recording's call as known to the spool, if `id` is one of its channels' IDs.
fn known_call(id: &str) -> Option<Known> {
    id.starts_with("1795151317.").then(|| Known {
        own: id == "1795151317.146",
        started: EpochSeconds::new(1_795_151_317),
        caller: Some("998901110001".to_owned()),
        incomplete: false,
        letter: None,
    })
}

#[test]
fn different_call_with_ids_of_finished_call_reaches_spool() {
    let mut intake = intake();
    for (seq, line) in (1..).zip(FRAMES.lines()) {
        let other = line.replace("998901110001", "998935550000");
        send_line_with_known(&mut intake, seq, &other, known_call);
    }
    let batch = take_to_end(&mut intake);
    let calls = finished_calls(&batch);
    assert_eq!(
        calls.len(),
        1,
        "the spool makes a letter uuid_conflict of it"
    );
    let phone = calls[0]
        .judged
        .record
        .client_phone
        .as_ref()
        .map(|phone| phone.as_str());
    assert_eq!(phone, Some("+998935550000"));
    assert_eq!(calls[0].judged.record.talk_time_sec, 4);
}

#[test]
fn same_ids_twice_in_batch_store_one_call_and_one_conflict() {
    let mut intake = intake();
    let later = FRAMES.replace("998901110001", "998935550000");
    // The times are an hour later, but the IDs are the same.
    let later = later.replace("\"Timestamp\": \"17951513", "\"Timestamp\": \"17951549");
    for (seq, line) in (1..).zip(FRAMES.lines().chain(later.lines())) {
        send_line(&mut intake, seq, line);
    }
    let batch = take_to_end(&mut intake);
    let finishes = batch
        .ops
        .into_iter()
        .filter(|op| matches!(op, Op::Finish(_)));
    let mut store = Store::in_memory(spool::Settings::default()).expect("a store");
    let done = store.write(finishes.collect()).expect("stored");
    assert!(
        matches!(done[..], [Done::New(_), Done::Conflict(_)]),
        "{done:?}"
    );
    let books = store.books();
    assert_eq!((books.ready, books.dead), (1, 1));
}

fn is_late_event_count(op: &Op) -> bool {
    matches!(op, Op::Count { counter, .. } if counter == "late")
}

#[test]
fn late_events_of_a_finished_call_open_no_second_call() {
    let mut intake = intake();
    for (seq, line) in (1..).zip(FRAMES.lines()) {
        send_line_with_known(&mut intake, seq, line, known_call);
    }
    let batch = take_to_end(&mut intake);
    assert_eq!(finished_calls(&batch).len(), 0);
    assert_eq!(intake.open_calls(), 0);
    let late = batch.ops.iter().filter(|op| is_late_event_count(op));
    assert!(late.count() > 10);
}

/// Promise: Open calls survive a restart.
#[test]
fn open_call_restored_at_any_frame_is_one_whole_call() {
    let lines: Vec<&str> = FRAMES.lines().collect();
    for cut in 1..lines.len() - 1 {
        let mut before = intake();
        for (seq, line) in (1..).zip(&lines[..cut]) {
            send_line(&mut before, seq, line);
        }
        let batch = before.take(&People::default(), recorded_time(lines[cut]));
        let mut after = intake();
        for op in &batch.ops {
            if let Op::Open {
                pbx,
                key,
                snapshot: Some(bytes),
            } = op
            {
                after.restore(pbx, *key, bytes).expect("restored");
            }
        }
        for (seq, line) in (1..).zip(&lines[cut..]) {
            send_line(&mut after, seq, line);
        }
        let batch = take_to_end(&mut after);
        let calls = finished_calls(&batch);
        assert_eq!(calls.len(), 1, "cut after {cut} frames");
        let record = &calls[0].judged.record;
        assert_eq!(
            (record.duration_sec, record.talk_time_sec),
            (5, 4),
            "cut after {cut} frames"
        );
    }
}

#[test]
fn open_call_is_shown_with_its_known_values() {
    let lines: Vec<&str> = FRAMES.lines().collect();
    let mut met = 0;
    let mut talking = 0;
    let mut growing = 0;
    for cut in 1..lines.len() {
        let mut intake = intake();
        for (seq, line) in (1..).zip(&lines[..cut]) {
            send_line(&mut intake, seq, line);
        }
        let batch = intake.take(&People::default(), recorded_time(lines[cut - 1]));
        let open = batch.ops.into_iter().filter_map(|op| match op {
            Op::Open {
                pbx,
                key,
                snapshot: Some(bytes),
            } => Some((pbx, key, bytes)),
            _ => None,
        });
        let open: Vec<(String, u64, Vec<u8>)> = open.collect();
        let again = [&open[..], &[("hq?held".to_owned(), 7, b"{}".to_vec())]].concat();
        let later = recorded_time(lines[cut - 1]).plus(Duration::from_secs(75));
        let shown = super::under_way::under_way(&settings(), &again, later);
        assert!(shown.len() <= 1, "after {cut} frames: {shown:?}");
        let Some((pbx, call)) = shown.first() else {
            continue;
        };
        met += 1;
        assert_eq!(pbx, "hq");
        assert_eq!(call.trunk.as_deref(), Some("city"));
        assert!(call.number.is_some(), "after {cut} frames");
        if call.answered {
            // The talk time grows until the customer or the employee hangs up.
            growing += usize::from(call.talk >= Duration::from_secs(74));
            talking += 1;
            assert!(call.employee.is_some(), "after {cut} frames");
        } else {
            let ended = call.ended.apart(later);
            assert!(
                ended <= Duration::from_secs(1),
                "after {cut} frames: {ended:?}"
            );
        }
    }
    assert!(met > talking && talking > 0, "{met} {talking}");
    assert!(growing > 0, "no talk goes on");
    assert!(met < lines.len() - 1, "a call that is hung up is shown");
}

#[test]
fn call_ended_during_downtime_has_talk_time_until_stop() {
    let line = SourceSettings {
        shown: "ws://pbx/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::AmiJson,
        file: false,
        forgets: true,
        catch_up: false,
    };
    let lines: Vec<&str> = FRAMES.lines().collect();
    let talk_end = lines.iter().position(|line| line.contains("HangupRequest"));
    let talks = talk_end.expect("the end of the talk");
    let before = Intake::new(settings(), vec![line.clone()], Memory::default());
    let mut before = before.expect("an intake");
    before.up(SOURCE, recorded_time(lines[0]));
    for (seq, line) in (1..).zip(&lines[..talks]) {
        send_line(&mut before, seq, line);
    }
    let stop = recorded_time(lines[talks - 1]).plus(Duration::from_secs(8));
    before.pong(SOURCE, None, stop, stop);
    let ops = before.take(&People::default(), stop).ops;
    let key = Intake::last_received_key("ws://pbx/");
    let received = ops.iter().find_map(|op| match op {
        Op::Meta { key: name, value } if *name == key => value.parse().ok(),
        _ => None,
    });
    let mut memory = Memory::default();
    let received = EventTime::from_micros(received.expect("stored"));
    memory
        .last_received
        .insert("ws://pbx/".to_owned(), received);
    let mut after = Intake::new(settings(), vec![line], memory).expect("an intake");
    for op in ops {
        if let Op::Open {
            pbx,
            key,
            snapshot: Some(bytes),
        } = op
        {
            after.restore(&pbx, key, &bytes).expect("restored");
        }
    }
    after.was_away();
    let back = stop.plus(Duration::from_secs(60));
    after.up(SOURCE, back);
    after.tick(back.plus(Duration::from_secs(3000)));
    let batch = after.take(&People::default(), back.plus(Duration::from_secs(3000)));
    let calls = finished_calls(&batch);
    let record = &calls[0].judged.record;
    // Frames arrive up to a second before their own times, and the stop is up to a second early.
    assert_eq!((record.answered, record.talk_time_sec), (true, 8));
    assert!(record.incomplete);
}

fn source_state(intake: &Intake) -> status::SourceState {
    intake.statuses()[0].state
}

#[test]
fn source_with_events_is_up_until_call_rights_are_missing() {
    let line = SourceSettings {
        shown: "ami://pbx/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::Ami,
        file: false,
        forgets: true,
        catch_up: false,
    };
    let intake = Intake::new(settings(), vec![line], Memory::default());
    let mut intake = intake.expect("an intake");
    intake.events_flow(SOURCE);
    assert_eq!(
        source_state(&intake),
        status::SourceState::Down,
        "the source is not allowed in"
    );
    intake.up(SOURCE, recorded_time(""));
    assert_eq!(source_state(&intake), status::SourceState::Connected);
    intake.events_flow(SOURCE);
    assert_eq!(source_state(&intake), status::SourceState::Up);
    intake.report_missing_right(SOURCE, MissingRight::System);
    assert_eq!(source_state(&intake), status::SourceState::Up);
    intake.report_missing_right(SOURCE, MissingRight::Calls(1));
    assert_eq!(source_state(&intake), status::SourceState::Connected);
    intake.events_flow(SOURCE);
    assert_eq!(
        source_state(&intake),
        status::SourceState::Connected,
        "rights are missing"
    );
}
