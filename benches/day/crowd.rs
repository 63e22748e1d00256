//! The cost of an event while many calls are open. The calls copy the recording of an answered
//! call. The time between their starts sets how many calls are open at once.

use super::core_time::thread_cpu_time;
use super::table;
use callbridge_call::{Assembler, EventTime, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Framer};
use std::hint::black_box;
use std::time::Duration;

/// Numbers of open calls, each with the target cost of an event.
const OPEN: [(u32, &str); 5] = [
    (1, ""),
    (25, "1.3 × of one"),
    (250, "1.3 × of one, 1 M/s"),
    (1_250, "1.3 × of one"),
    (10_000, "1.3 × of one"),
];
/// Calls of one row, and how often each row is measured. The best time counts.
const CALLS: u32 = 20_000;
const PASSES: usize = 3;
const PIECE_BYTES: usize = 64 << 10;
/// The recorded call, with its start, its duration, and its bridge.
const RECORDING: &str = include_str!("../../tests/recordings/inbound_answered/ami.raw");
const BEGINS: i64 = 1_795_151_317_831_530;
const LASTS_MICROS: i64 = 5_300_000;
const BRIDGE: &str = "aabc1d53-a423-40a8-be7b-714f98ccf095";

/// One message of the recording, as a template for all calls.
struct RecordedMessage {
    /// Time since the start of the call.
    after_micros: i64,
    /// Pieces of text, each followed by a part that differs between calls.
    parts: Vec<(&'static str, Differs)>,
}

/// A part that differs between calls.
#[derive(Clone, Copy)]
enum Differs {
    Time,
    Uniqueid { second: bool },
    Suffix { second: bool },
    Bridge,
    Nothing,
}

const MARKS: [(&str, Differs); 5] = [
    ("1795151317.146", Differs::Uniqueid { second: false }),
    ("1795151317.147", Differs::Uniqueid { second: true }),
    ("-0000004f", Differs::Suffix { second: false }),
    ("-00000050", Differs::Suffix { second: true }),
    (BRIDGE, Differs::Bridge),
];

fn recorded_messages() -> Vec<RecordedMessage> {
    let messages = RECORDING
        .split("\r\n\r\n")
        .flat_map(|part| part.split("\n\n"));
    messages.filter_map(parse_message).collect()
}

/// Parses a message. `None` if the message is not an event of the call.
fn parse_message(text: &'static str) -> Option<RecordedMessage> {
    const KEY: &str = "Timestamp: ";
    let at = text.find(KEY)? + KEY.len();
    let end = at + text[at..].find(['\r', '\n'])?;
    let (seconds, micros) = text[at..end].split_once('.')?;
    let micros: i64 = seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?;
    let mut parts = vec![(&text[..at], Differs::Time)];
    let mut rest = &text[end..];
    loop {
        let next = MARKS
            .iter()
            .filter_map(|(mark, differs)| Some((rest.find(mark)?, mark, differs)));
        let Some((place, mark, differs)) = next.min_by_key(|(place, ..)| *place) else {
            parts.push((rest, Differs::Nothing));
            let after_micros = micros - BEGINS;
            return Some(RecordedMessage {
                after_micros,
                parts,
            });
        };
        parts.push((&rest[..place], *differs));
        rest = &rest[place + mark.len()..];
    }
}

/// Returns the number at the end of the ids of the call's first or second channel.
fn suffix(call: u32, second: bool) -> u32 {
    2 * call + u32::from(second)
}

fn write(out: &mut Vec<u8>, message: &RecordedMessage, call: u32, begins: i64) {
    use std::io::Write as _;
    let at = begins + message.after_micros;
    for (text, differs) in &message.parts {
        out.extend(text.as_bytes());
        let written = match differs {
            Differs::Time => write!(out, "{}.{:06}", at / 1_000_000, at % 1_000_000),
            Differs::Uniqueid { second } => {
                write!(out, "{}.{}", begins / 1_000_000, suffix(call, *second))
            }
            Differs::Suffix { second } => write!(out, "-{:08x}", suffix(call, *second)),
            Differs::Bridge => write!(out, "{call:08x}{}", &BRIDGE[8..]),
            Differs::Nothing => Ok(()),
        };
        written.expect("memory takes all");
    }
    out.extend(b"\r\n\r\n");
}

fn start_of_call(call: u32, apart: i64) -> i64 {
    BEGINS + i64::from(call) * apart
}

/// Returns the text of all calls in the order of time, with `open` of them at once, and the number
/// of messages.
fn crowd(messages: &[RecordedMessage], open: u32) -> (Vec<u8>, usize) {
    let apart = LASTS_MICROS / i64::from(open);
    let mut order: Vec<(i64, u32, usize)> = (0..CALLS)
        .flat_map(|call| {
            let times = messages.iter().enumerate();
            times.map(move |(at, message)| {
                (start_of_call(call, apart) + message.after_micros, call, at)
            })
        })
        .collect();
    order.sort_unstable();
    let mut text = Vec::new();
    for (_, call, at) in &order {
        write(
            &mut text,
            &messages[*at],
            *call,
            start_of_call(*call, apart),
        );
    }
    (text, order.len())
}

fn read_events(text: &[u8], mut each: impl FnMut(&PbxEvent<'_>)) {
    let mut framer = Framer::new(Format::Ami);
    let mut decoder = Decoder::new(Format::Ami, DecoderSettings::default());
    for piece in text.chunks(PIECE_BYTES) {
        framer.push(piece);
        while let Some(frame) = framer.next() {
            let Frame::Message(message) = frame else {
                continue;
            };
            if let Decoded::Event { received, .. } = decoder.decode(message) {
                each(&received.event);
            }
        }
    }
}

fn decode_events(text: &[u8]) {
    read_events(text, |event| {
        black_box(event);
    });
}

/// Passes the text through the assembler. Returns the largest number of open calls.
fn assemble(text: &[u8], mut assembler: Assembler) -> usize {
    let now = EventTime::from_micros(BEGINS + 30 * 86_400 * 1_000_000);
    let (mut finished, mut most_open) = (0, 0);
    read_events(text, |event| {
        assembler.on_event(event, now);
        most_open = most_open.max(assembler.open_calls());
        finished += assembler.take_finished().len();
    });
    assembler.finish_all(now);
    finished += assembler.take_finished().len();
    assert_eq!(finished, CALLS as usize, "every call of the crowd");
    most_open
}

fn best_time(mut pass: impl FnMut()) -> Duration {
    let passes = (0..PASSES).map(|_| {
        let before = thread_cpu_time();
        pass();
        thread_cpu_time() - before
    });
    passes.min().expect("a pass")
}

fn ns_per_event(took: Duration, events: usize) -> f64 {
    took.as_secs_f64() * 1e9 / events as f64
}

/// Measures a row for each number of open calls. The reference is the same text without the
/// assembler.
pub fn rows(assembler: fn(usize) -> Assembler) {
    let messages = recorded_messages();
    println!(
        "\n{CALLS} answered calls of {} AMI messages; text to finished calls, and the text alone \
         (rows → PbxEvent)",
        messages.len()
    );
    println!(
        "{:>10} {:>12} {:>12} {:>10} {:>12}  to reach",
        "open", "ns/event", "events/s", "of one", "text alone"
    );
    let mut one = None;
    let chosen: Vec<u32> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    for (open, goal) in OPEN {
        if !chosen.is_empty() && !chosen.contains(&open) {
            continue;
        }
        let (text, events) = crowd(&messages, open);
        let mut most_open = 0;
        let alone = ns_per_event(best_time(|| decode_events(&text)), events);
        let took = best_time(|| {
            most_open = assemble(&text, assembler(100_000));
        });
        let whole = ns_per_event(took, events);
        let one = *one.get_or_insert(whole);
        let (rate, times) = (1e3 / whole, whole / one);
        println!(
            "{most_open:>10} {whole:>12.0} {rate:>10.2} M {times:>9.2}× {alone:>9.0} ns  {goal}"
        );
        let what = format!("AMI text → finished, {open} open");
        let reached = format!("{whole:.0} ns, {times:.2} × of one");
        table::row(
            "day",
            &what,
            &reached,
            goal,
            &format!("text alone: {alone:.0} ns"),
        );
    }
}
