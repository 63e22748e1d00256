//! Tests with a FreeSWITCH system whose connection is lost during a call. The directory with its
//! CDRs is the catch-up source.

use super::{Intake, Memory, Settings, SourceSettings};
use crate::tests::settings;
use callbridge_call::{Direction, EventTime, FinishedCall, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format};
use callbridge_mapping::{People, Rules, Trunks, trunk};
use callbridge_source::{Frame, Outage, SourceId};
use callbridge_spool::Op;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LINE: SourceId = SourceId(0);

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings/freeswitch");
    let entries = std::fs::read_dir(folder).expect("the recordings");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.retain(|folder| folder.join("json_cdr.jsonl").exists());
    all.sort();
    assert!(all.len() >= 20, "only {} recordings", all.len());
    all
}

/// Returns the body of a recorded message, or `None` if the line doesn't have one.
fn message_body(line: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).expect("JSON");
    message["body"].as_str().map(str::to_owned)
}

/// Returns the lines of a file, reduced to the message body for AMQP.
fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(file)).expect("a recording");
    let lines = text.lines();
    lines
        .map(|line| message_body(line).unwrap_or_else(|| line.to_owned()))
        .collect()
}

fn time_of(decoder: &mut Decoder, message: &str) -> Option<EventTime> {
    match decoder.decode(message.as_bytes()) {
        Decoded::Event { received, .. } => match received.event {
            PbxEvent::Channel(event) => event.at,
            PbxEvent::Cdr(_) | PbxEvent::Mark(_) => None,
        },
        Decoded::Call(_) | Decoded::Skipped | Decoded::Unreadable(_) => None,
    }
}

/// Creates an intake for the CDR directory, which also reads the connection if `line` is `true`.
fn intake(line: bool) -> Intake {
    let rules = [
        "city=gateway/city|address/127.0.0.1:16000,country=UZ",
        "gsm=gateway/gsm|address/127.0.0.1:16001,country=UZ",
    ];
    let mut trunks = Vec::new();
    for rule in rules {
        trunks.push(trunk::parse(rule, &trunk::Trunk::default()).expect("a trunk"));
    }
    let trunks = Trunks::new(trunks).expect("trunks");
    let settings = Settings {
        rules: Rules {
            trunks,
            ..Rules::default()
        },
        ..settings()
    };
    let folder = SourceSettings {
        shown: "file:///cdr".to_owned(),
        url: "of the folder".to_owned(),
        label: "the folder".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::FreeswitchCdr,
        file: true,
        forgets: false,
        catch_up: line,
    };
    let socket = SourceSettings {
        shown: "esl://pbx/".to_owned(),
        format: Format::Freeswitch,
        file: false,
        forgets: true,
        catch_up: false,
        ..folder.clone()
    };
    let sources = if line {
        vec![socket, folder]
    } else {
        vec![folder]
    };
    Intake::new(settings, sources, Memory::default()).expect("an intake")
}

fn send_frame(intake: &mut Intake, source: SourceId, seq: usize, arrived: EventTime, body: &str) {
    let frame = Frame {
        seq: u64::try_from(seq).expect("few"),
        arrived,
        bytes: body.as_bytes().to_vec().into(),
        position: None,
        content_type: None,
        details: None,
    };
    let taken = intake.frame(source, &frame, &mut |_, _| None);
    taken.expect("taken");
}

/// Returns the customers' calls once the records have been read to their end at `end`.
fn read_records(
    mut intake: Intake,
    records: &[String],
    source: SourceId,
    end: EventTime,
) -> Vec<FinishedCall> {
    for (seq, record) in records.iter().enumerate() {
        send_frame(&mut intake, source, seq, end, record);
    }
    intake.at_end(source, end);
    let mut calls = Vec::new();
    for seconds in [1, 70, 400, 800] {
        let now = end.plus(Duration::from_secs(seconds));
        intake.tick(now);
        intake.fold(now, &mut |_, _| None);
        intake.reconcile(now, &mut |_, _| None);
        let ops = intake.take(&People::default(), now).ops;
        calls.extend(ops.into_iter().filter_map(|op| match op {
            Op::Finish(finished) => Some(finished.call),
            _ => None,
        }));
        intake.note_commit();
    }
    calls.retain(|call| call.direction != Direction::Internal);
    calls.sort_by_key(|call| call.started);
    calls
}

/// Returns the calls if the connection is lost for a tenth of a second after message `cut`.
fn calls_after_short_outage(folder: &Path, cut: usize) -> Vec<FinishedCall> {
    let messages = lines(folder, "amqp.jsonl");
    let records = lines(folder, "json_cdr.jsonl");
    calls_after_outage(
        &messages,
        &records,
        cut,
        Gap::Lasts(Duration::from_millis(100)),
    )
}

/// When an outage ends.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Lasts(Duration),
    /// The connection is back when the message with this index arrives.
    Until(usize),
}

/// Returns the calls if the connection is lost after message `cut`.
fn calls_after_outage(
    messages: &[String],
    records: &[String],
    cut: usize,
    gap: Gap,
) -> Vec<FinishedCall> {
    let mut intake = intake(true);
    let mut decoder = Decoder::new(Format::Freeswitch, DecoderSettings::default());
    let times = messages
        .iter()
        .map(|message| time_of(&mut decoder, message));
    let times: Vec<Option<EventTime>> = times.collect();
    let first = times.iter().flatten().min().copied().expect("a time");
    let mut now = first.minus(Duration::from_secs(10));
    intake.up(LINE, now);
    let mut back = None;
    for (seq, (message, at)) in messages.iter().zip(times).enumerate() {
        now = now.max(at.unwrap_or(now));
        if seq == cut {
            intake.down(
                LINE,
                Outage {
                    why: "cut".to_owned(),
                    since: now,
                    is_ours: false,
                    is_absent: false,
                },
            );
            back = Some(match gap {
                Gap::Lasts(lasts) => now.plus(lasts),
                Gap::Until(_) => EventTime::from_micros(i64::MAX),
            });
        }
        if matches!(gap, Gap::Until(message) if message == seq) && back.is_some() {
            back = Some(now);
        }
        if back.is_some_and(|back| now < back) {
            continue;
        }
        if let Some(back) = back.take() {
            intake.up(LINE, back);
        }
        send_frame(&mut intake, LINE, seq, now, message);
    }
    let end = now.plus(Duration::from_secs(5));
    read_records(intake, records, SourceId(1), end)
}

/// Returns whether the call was answered, by whom, and for how many milliseconds they talked.
fn talk(call: &FinishedCall) -> (bool, Option<String>, Vec<String>, u128) {
    let employees = call.employees_in_order.iter().map(ToString::to_string);
    let employee = call.employee.as_ref().map(ToString::to_string);
    (
        call.answered,
        employee,
        employees.collect(),
        call.talk.as_millis(),
    )
}

#[test]
fn call_filled_from_records_ignores_events_before_gap() {
    let mut filled = 0;
    for folder in recordings() {
        let end = EventTime::from_seconds(1_795_400_000);
        let records = lines(&folder, "json_cdr.jsonl");
        let by_records = read_records(intake(false), &records, SourceId(0), end);
        for at in 1..lines(&folder, "amqp.jsonl").len() {
            for call in calls_after_short_outage(&folder, at)
                .iter()
                .filter(|call| call.estimate)
            {
                let same = by_records
                    .iter()
                    .find(|whole| whole.linkedid == call.linkedid);
                let same = same.map(talk);
                assert_eq!(Some(talk(call)), same, "{} cut at {at}", folder.display());
                filled += 1;
            }
        }
    }
    assert!(filled > 50, "only {filled}");
}

/// Changes the channel IDs so that each call's first channel has the greatest one, because
/// FreeSWITCH IDs don't show which channel is older.
fn with_root_last(lines: Vec<String>, roots: &[String], channels: &[String]) -> Vec<String> {
    let renamed = lines.into_iter().map(|mut line| {
        for channel in channels {
            let first = if roots.contains(channel) { "f" } else { "0" };
            line = line.replace(channel.as_str(), &format!("{first}{}", &channel[1..]));
        }
        line
    });
    renamed.collect()
}

#[test]
fn filled_call_has_the_linkedid_of_the_whole_call() {
    let mut filled = 0;
    for folder in recordings() {
        let expected = std::fs::read_to_string(folder.join("expected.json")).expect("a file");
        let expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
        let calls = expected["calls"].as_array().expect("calls");
        let roots = calls.iter().filter_map(|call| call["linkedid"].as_str());
        let roots: Vec<String> = roots.map(str::to_owned).collect();
        let messages = lines(&folder, "amqp.jsonl");
        let ids = messages.iter().filter_map(|message| {
            let event: serde_json::Value = serde_json::from_str(message).ok()?;
            Some(event["Unique-ID"].as_str()?.to_owned())
        });
        let mut channels: Vec<String> = ids.collect();
        channels.sort();
        channels.dedup();
        let messages = with_root_last(messages, &roots, &channels);
        let records = with_root_last(lines(&folder, "json_cdr.jsonl"), &roots, &channels);
        let roots: Vec<String> = roots
            .iter()
            .map(|root| format!("f{}", &root[1..]))
            .collect();
        for from in (0..messages.len()).step_by(5) {
            for until in (from + 1..messages.len()).step_by(7) {
                for known_records in [&records[..], &[]] {
                    for call in
                        calls_after_outage(&messages, known_records, from, Gap::Until(until))
                    {
                        let (name, id) = (folder.display(), call.linkedid.to_string());
                        assert!(roots.contains(&id), "{name} without {from}..{until}: {id}");
                        filled += usize::from(call.estimate);
                    }
                }
            }
        }
    }
    assert!(filled > 50, "only {filled}");
}
