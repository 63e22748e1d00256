//! A day of calls from a CEL file, and the memory of an open call.
//!
//! Run it with `cargo bench --bench day`, or without the whole program's libraries with
//! `cargo bench -p callbridge-formats --bench day`. The file has 100,000 answered calls of fourteen
//! rows each, as `cel_custom` writes them. About thirty calls are open at any time. Numbers after
//! `--` choose the rows with these numbers of open calls, and leave out the day.

#[path = "support/core_time.rs"]
mod core_time;
#[path = "day/crowd.rs"]
mod crowd;
#[path = "support/table.rs"]
mod table;

use callbridge_call::{
    Assembler, ChannelEvent, ChannelRef, ChannelState, Endpoints, EventTime, Kind, Origin,
    PbxEvent, Settings, TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Framer, Frames};
use core_time::thread_cpu_time;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CALLS: u32 = 100_000;
const OPEN: u32 = 50_000;
const MIDNIGHT: u32 = 1_795_132_800;

/// Runs the bench that the module describes.
pub fn main() {
    if std::env::args().any(|word| word.parse::<u32>().is_ok()) {
        return crowd::rows(assembler);
    }
    day();
    crowd::rows(assembler);
    measure_open_calls();
}

fn day() {
    let folder = std::env::temp_dir().join(format!("callbridge-day-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the day");
    let file = folder.join("Master.csv");
    let (rows, bytes) = write_day(&file);
    let mb = bytes as f64 / 1e6;
    println!(
        "a day: {CALLS} calls, {rows} CEL rows, {mb:.0} MB; rows a second of one core; memory is \
         how far the peak grew"
    );
    println!(
        "{:<34} {:>8} {:>8} {:>14} {:>10}  to reach",
        "", "seconds", "of core", "rows/s", "memory"
    );
    let bytes = measure_reading(&file, rows, "the bytes alone (read)", "", sum_bytes);
    let lines = measure_reading(
        &file,
        rows,
        "lines, as a plain script reads",
        "",
        count_lines,
    );
    let name = "rows → events (Decoder)";
    let received = measure_reading(&file, rows, name, "1 M/s", count_events);
    let name = "rows → finished calls";
    let whole = measure_reading(&file, rows, name, "10 s, flat", finish_calls);
    let plain = format!("lines alone: {:.2} M/s", lines.1);
    let rate = format!("{:.2} M/s", received.1);
    table::row("day", "CEL rows → events", &rate, "1 M/s", &plain);
    let plain = format!(
        "the bytes alone: {:.2} s, {} KB; lines alone: {:.2} s",
        bytes.0, bytes.2, lines.0
    );
    let took = format!("{:.2} s, {} KB more", whole.0, whole.2);
    table::row(
        "day",
        "100,000 calls → finished",
        &took,
        "10 s, flat",
        &plain,
    );
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// Measures one reading of the file, and prints a row. Returns the seconds of the core, the
/// millions of rows per second, and the kilobytes by which the peak of the memory grew.
fn measure_reading(
    file: &Path,
    rows: u64,
    name: &str,
    goal: &str,
    read: fn(&Path) -> u64,
) -> (f64, f64, u64) {
    let (before, start, core) = (peak_kb(), Instant::now(), thread_cpu_time());
    let what = read(file);
    let (seconds, core) = (start.elapsed(), (thread_cpu_time() - core).as_secs_f64());
    let (seconds, grown) = (seconds.as_secs_f64(), peak_kb() - before);
    let rate = rows as f64 / core / 1e6;
    println!("{name:<34} {seconds:>8.2} {core:>8.2} {rate:>12.2} M {grown:>7} KB  {goal}");
    black_box(what);
    (core, rate, grown)
}

/// Writes a row of `cel_custom`, as deploy/asterisk/cel_custom.conf maps it.
fn row(out: &mut String, event: &str, at: f64, channel: &str, more: [&str; 5]) {
    let [number, exten, application, data, extra] = more;
    let ids = channel.split_once('|').unwrap_or((channel, ""));
    let (name, ids) = ids;
    let (own, root) = ids.split_once('|').unwrap_or((ids, ids));
    let _ = writeln!(
        out,
        "\"{event}\",\"{at:.6}\",\"\",\"{number}\",\"\",\"\",\"\",\"{exten}\",\"in\",\"{name}\",\
         \"{application}\",\"{data}\",\"3\",\"\",\"{own}\",\"{root}\",\"\",\"\",\"\",\"{extra}\""
    );
}

/// Returns the rows of one call, each with its time.
fn call(number: u32) -> Vec<(f64, String)> {
    let begins = f64::from(MIDNIGHT) + f64::from(number) * 86_400.0 / f64::from(CALLS);
    let epoch = begins as u32;
    let root = format!("{epoch}.{}", 2 * number);
    let city = format!("PJSIP/city-{:08x}|{root}|{root}", 2 * number);
    let phone = format!(
        "PJSIP/101-{:08x}|{epoch}.{}|{root}",
        2 * number + 1,
        2 * number + 1
    );
    let bridge: &str = &format!(
        "{{\"\"bridge_id\"\":\"\"b-{number}\"\",\"\"bridge_technology\"\":\"\"simple_bridge\"\"}}"
    );
    let caller = format!("+9989{:08}", number);
    let dial = "PJSIP/101,15,tT";
    let events = [
        (0.0, "CHAN_START", true, ""),
        (0.001, "APP_START", true, ""),
        (0.002, "CHAN_START", false, ""),
        (5.0, "ANSWER", false, ""),
        (5.001, "ANSWER", true, ""),
        (5.002, "BRIDGE_ENTER", false, bridge),
        (5.003, "BRIDGE_ENTER", true, bridge),
        (26.0, "BRIDGE_EXIT", true, bridge),
        (26.001, "BRIDGE_EXIT", false, bridge),
        (26.002, "HANGUP", false, ""),
        (26.002, "CHAN_END", false, ""),
        (26.002, "HANGUP", true, ""),
        (26.002, "CHAN_END", true, ""),
        (26.003, "LINKEDID_END", true, ""),
    ];
    let mut rows = Vec::new();
    for (after, event, of_city, extra) in events {
        let mut line = String::new();
        let channel = if of_city { &city } else { &phone };
        let more = if of_city {
            [caller.as_str(), "7001", "Dial", dial, extra]
        } else {
            ["101", "s", "AppDial", "(Outgoing Line)", extra]
        };
        row(&mut line, event, begins + after, channel, more);
        rows.push((begins + after, line));
    }
    rows
}

/// Writes the day in the order of its rows. Returns the numbers of rows and bytes.
fn write_day(file: &Path) -> (u64, u64) {
    let mut out = std::io::BufWriter::new(File::create(file).expect("the day's file"));
    let (mut rows, mut bytes) = (0, 0);
    let mut waiting: Vec<(f64, String)> = Vec::new();
    for number in 0..CALLS + 40 {
        if number < CALLS {
            waiting.extend(call(number));
        }
        let now = f64::from(MIDNIGHT) + f64::from(number) * 86_400.0 / f64::from(CALLS);
        waiting.sort_by(|a, b| a.0.total_cmp(&b.0));
        let due = waiting.iter().take_while(|(at, _)| *at < now).count();
        let due = if number >= CALLS + 39 {
            waiting.len()
        } else {
            due
        };
        for (_, line) in waiting.drain(..due) {
            rows += 1;
            bytes += line.len() as u64;
            out.write_all(line.as_bytes()).expect("written");
        }
    }
    out.flush().expect("written");
    (rows, bytes)
}

/// Reads the file in pieces.
fn read_pieces(file: &Path, mut each: impl FnMut(&[u8])) {
    let mut file = File::open(file).expect("the day");
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = file.read(&mut piece).expect("readable");
        if read == 0 {
            return;
        }
        each(&piece[..read]);
    }
}

fn sum_bytes(file: &Path) -> u64 {
    let mut sum = 0;
    read_pieces(file, |piece| sum += u64::from(piece[0]));
    sum
}

fn count_lines(file: &Path) -> u64 {
    let mut lines = 0;
    read_pieces(file, |piece| {
        lines += Frames::new(Format::AmiJson, piece).count() as u64
    });
    lines
}

fn read_events(file: &Path, mut each: impl FnMut(&PbxEvent<'_>)) {
    let mut framer = Framer::new(Format::CelCsv);
    let mut decoder = Decoder::new(Format::CelCsv, DecoderSettings::default());
    read_pieces(file, |piece| {
        framer.push(piece);
        while let Some(frame) = framer.next() {
            let Frame::Message(message) = frame else {
                continue;
            };
            if let Decoded::Event { received, .. } = decoder.decode(message) {
                each(&received.event);
            }
        }
    });
}

fn count_events(file: &Path) -> u64 {
    let mut count = 0;
    read_events(file, |event| {
        black_box(event);
        count += 1;
    });
    count
}

fn assembler(max_open_calls: usize) -> Assembler {
    let trunk = TrunkEndpoint::new("city", "PJSIP/city");
    Assembler::new(Settings {
        max_open_calls,
        ..Settings::new(Endpoints::new(vec![trunk]).expect("no conflict"))
    })
}

fn finish_calls(file: &Path) -> u64 {
    let mut assembler = assembler(10_000);
    let now = EventTime::from_seconds(i64::from(MIDNIGHT) + 30 * 86_400);
    let (mut finished, mut most_open) = (0, 0);
    read_events(file, |event| {
        assembler.on_event(event, now);
        most_open = most_open.max(assembler.open_calls());
        finished += assembler.take_finished().len();
    });
    assembler.finish_all(now);
    finished += assembler.take_finished().len();
    assert_eq!(finished, CALLS as usize, "every call of the day");
    assert!(most_open < 100, "{most_open} calls open at once");
    finished as u64
}

/// Measures the memory of open calls, with two channels in a bridge each.
fn measure_open_calls() {
    let mut assembler = assembler(OPEN as usize + 1);
    let before = resident_kb();
    let start = Instant::now();
    let now = EventTime::from_seconds(i64::from(MIDNIGHT));
    for number in 0..OPEN {
        let root = format!("{MIDNIGHT}.{}", 2 * number);
        for (name, uniqueid) in [
            (format!("PJSIP/city-{:08x}", 2 * number), root.clone()),
            (
                format!("PJSIP/101-{:08x}", 2 * number + 1),
                format!("{MIDNIGHT}.{}", 2 * number + 1),
            ),
        ] {
            for kind in kinds(number) {
                let channel = ChannelRef {
                    name: Cow::Borrowed(&name),
                    uniqueid: Cow::Borrowed(&uniqueid),
                    linkedid: Cow::Borrowed(&root),
                    caller_number: Cow::Borrowed("+998901110001"),
                    exten: Cow::Borrowed("7001"),
                    ..ChannelRef::default()
                };
                let (at, origin) = (Some(now), Origin::Channel);
                let event = ChannelEvent {
                    at,
                    origin,
                    channel,
                    kind,
                };
                assembler.on_event(&PbxEvent::Channel(event), now);
            }
        }
    }
    let took: Duration = start.elapsed();
    let bytes = (resident_kb() - before) * 1024 / u64::from(OPEN);
    println!("\n{OPEN} open calls of two channels: {bytes} bytes each, made in {took:.2?}");
    assert_eq!(assembler.open_calls(), OPEN as usize);
    let plain = format!(
        "its channels' fields in a BTreeMap: {}",
        measure_plain_open_calls()
    );
    table::row(
        "day",
        "an open call of two channels",
        &format!("{bytes} bytes"),
        "",
        &plain,
    );
}

/// Measures the reference: each channel with its fields as texts by name.
fn measure_plain_open_calls() -> String {
    let before = resident_kb();
    let open: BTreeMap<_, _> = (0..2 * OPEN).map(plain_channel).collect();
    let bytes = (resident_kb() - before) * 1024 / u64::from(OPEN);
    black_box(&open);
    format!("{bytes} bytes")
}

/// Returns the unique id of a channel, and all fields of the channel.
fn plain_channel(number: u32) -> (String, BTreeMap<String, String>) {
    let uniqueid = format!("{MIDNIGHT}.{number}");
    let fields = [
        field("Channel", &format!("PJSIP/city-{number:08x}")),
        field("Uniqueid", &uniqueid),
        field("Linkedid", &format!("{MIDNIGHT}.{}", number / 2 * 2)),
        field("CallerIDNum", "+998901110001"),
        field("Exten", "7001"),
        field("ChannelState", "6"),
        field("BridgeUniqueid", &format!("bridge-{}", number / 2)),
        field("BridgeTechnology", "simple_bridge"),
    ];
    (uniqueid, fields.into())
}

fn field(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn kinds(number: u32) -> [Kind<'static>; 3] {
    [
        Kind::Born {
            state: ChannelState::Ring,
        },
        Kind::State {
            state: ChannelState::Up,
        },
        Kind::BridgeEnter {
            bridge: Cow::Owned(format!("bridge-{number}")),
            technology: Cow::Borrowed("simple_bridge"),
        },
    ]
}

fn status_kb(key: &str) -> u64 {
    let path = PathBuf::from("/proc/self/status");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().nth(1));
    number.and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

fn peak_kb() -> u64 {
    status_kb("VmHWM")
}

fn resident_kb() -> u64 {
    status_kb("VmRSS")
}
