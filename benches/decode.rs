//! The speed of decoding messages, compared with simpler parsers in the same run.
//!
//! Run it with `cargo bench --bench decode`, or without the whole program's libraries with
//! `cargo bench -p callbridge-formats --bench decode`. The messages are those of all recordings in
//! `tests/recordings`, including skipped ones. They are read repeatedly from memory on one core.
//! Words after `--` choose rows by their names.

#[path = "support/core_time.rs"]
mod core_time;
#[path = "support/table.rs"]
mod table;

use callbridge_asterisk::Pairs;
use callbridge_call::{Assembler, Endpoints, EventTime, PbxEvent, Settings};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use core_time::thread_cpu_time;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which each row is measured, after a warm-up.
const MEASURED: Duration = Duration::from_millis(1500);

/// Runs the bench that the module describes.
pub fn main() {
    let text = join_recordings("ami.raw");
    let json = join_recordings("amiws.jsonl");
    println!("AMI text: {}", mix(Format::Ami, &text));
    let alone = row("memchr line search alone", &text, "", lines);
    row("messages (Frames)", &text, "", |bytes| {
        count(Frames::new(Format::Ami, bytes))
    });
    let mapped = row("messages → BTreeMap<String, String>", &text, "", maps);
    row("messages → borrowed pairs (Pairs)", &text, "", pairs);
    let decoded = row("messages → events (Decoder)", &text, "2.5 M", |bytes| {
        decode_messages(Format::Ami, bytes)
    });
    let finished = row(
        "messages → finished calls (Assembler)",
        &text,
        "1 M",
        |bytes| calls(Format::Ami, bytes),
    );
    println!("\nAMI JSON: {}", mix(Format::AmiJson, &json));
    let valued = row("frames → serde_json::Value", &json, "", |bytes| {
        values(Format::AmiJson, bytes)
    });
    let read = row("frames → events (Decoder)", &json, "1.0 M", |bytes| {
        decode_messages(Format::AmiJson, bytes)
    });
    let plain = format!("as a BTreeMap: {mapped}; lines alone: {alone}");
    table::row("decode", "AMI text → events", &decoded, "2.5 M/s", &plain);
    table::row(
        "decode",
        "AMI text → finished calls",
        &finished,
        "1 M/s",
        &plain,
    );
    let plain = format!("as a serde_json::Value: {valued}");
    table::row("decode", "AMI JSON → events", &read, "1 M/s", &plain);
    freeswitch();
}

/// Measures the events of a FreeSWITCH, which are five times as long.
fn freeswitch() {
    let (socket, json) = (join_recordings("esl.txt"), join_recordings("esl.jsonl"));
    println!("\nFreeSWITCH: {}", mix(Format::Freeswitch, &json));
    let valued = row("bodies → serde_json::Value", &json, "", |bytes| {
        values(Format::Freeswitch, bytes)
    });
    let read = row("bodies → events (Decoder)", &json, "", |bytes| {
        decode_messages(Format::Freeswitch, bytes)
    });
    let framed = row("socket, plain → events (Decoder)", &socket, "", |bytes| {
        decode_messages(Format::Freeswitch, bytes)
    });
    let finished = row("bodies → finished calls (Assembler)", &json, "", |bytes| {
        calls(Format::Freeswitch, bytes)
    });
    let plain = format!("as a serde_json::Value: {valued}");
    table::row("decode", "FreeSWITCH JSON → events", &read, "", &plain);
    table::row("decode", "FreeSWITCH socket → events", &framed, "", &plain);
    table::row(
        "decode",
        "FreeSWITCH → finished calls",
        &finished,
        "",
        &plain,
    );
}

/// Returns the recordings' files with this name, joined.
fn join_recordings(name: &str) -> Vec<u8> {
    let root = recordings();
    let mut files = files_below(&root, name);
    files.extend(files_below(&root.join("freeswitch"), name));
    files.sort();
    let mut all = Vec::new();
    for path in files {
        all.extend(std::fs::read(path).expect("a recording"));
        all.extend(b"\n");
    }
    all
}

/// Returns the files with this name in the folders of this folder.
fn files_below(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("tests/recordings");
    let paths = entries.map(|entry| entry.expect("an entry").path().join(name));
    paths.filter(|path| path.is_file()).collect()
}

/// Finds the recordings, from the root package and from `bridges/asterisk`.
fn recordings() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package
        .ancestors()
        .find(|folder| folder.join("tests/recordings").is_dir());
    root.expect("a folder with tests/recordings")
        .join("tests/recordings")
}

/// Describes the messages of the input.
fn mix(format: Format, bytes: &[u8]) -> String {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let (mut events, mut repairs, mut skipped, mut unreadable) = (0, 0, 0, 0);
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            continue;
        };
        match decoder.decode(message) {
            Decoded::Event { repaired, .. } => {
                events += 1;
                repairs += usize::from(repaired);
            }
            Decoded::Skipped | Decoded::Call(_) => skipped += 1,
            Decoded::Unreadable(_) => unreadable += 1,
        }
    }
    let all = events + skipped + unreadable;
    format!(
        "{all} messages of {} bytes on average: {events} events ({repairs} repaired), \
         {skipped} skipped, {unreadable} unreadable",
        bytes.len() / all.max(1),
    )
}

/// Measures passes over `bytes`. `pass` returns the number of messages that it read. Returns the
/// rate as a text.
fn row(name: &str, bytes: &[u8], target: &str, mut pass: impl FnMut(&[u8]) -> usize) -> String {
    let mut wanted = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .peekable();
    if wanted.peek().is_some() && !wanted.any(|word| name.contains(&word)) {
        return "not measured".to_owned();
    }
    let mut best = Duration::MAX;
    let mut messages = pass(bytes);
    let start = Instant::now();
    while start.elapsed() < MEASURED {
        let before = thread_cpu_time();
        messages = black_box(pass(black_box(bytes)));
        best = best.min(thread_cpu_time() - before);
    }
    let seconds = best.as_secs_f64();
    let rate = messages as f64 / seconds / 1e6;
    let volume = bytes.len() as f64 / seconds / 1e9;
    let nanos = seconds * 1e9 / messages.max(1) as f64;
    let target = if target.is_empty() {
        String::new()
    } else {
        format!("  (to reach: {target}/s)")
    };
    println!("  {name:<40} {rate:>7.3} M/s {nanos:>7.0} ns {volume:>6.2} GB/s{target}");
    format!("{rate:.2} M/s")
}

fn count(frames: Frames<'_>) -> usize {
    frames.map(black_box).count()
}

/// Counts messages by their empty lines. Every parser must do at least this.
fn lines(bytes: &[u8]) -> usize {
    let (mut from, mut messages) = (0, 0);
    for end in memchr::memchr_iter(b'\n', bytes) {
        messages += usize::from(end - from <= 1);
        from = end + 1;
    }
    messages
}

fn messages(format: Format, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    Frames::new(format, bytes).filter_map(|frame| match frame {
        Frame::Message(message) => Some(message),
        Frame::TooLong { .. } => None,
    })
}

fn maps(bytes: &[u8]) -> usize {
    let mut read = 0;
    for message in messages(Format::Ami, bytes) {
        let text = String::from_utf8_lossy(message);
        let map: BTreeMap<String, String> = text
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        black_box(map);
        read += 1;
    }
    read
}

fn pairs(bytes: &[u8]) -> usize {
    let mut read = 0;
    for message in messages(Format::Ami, bytes) {
        for pair in Pairs::new(message) {
            black_box(pair);
        }
        read += 1;
    }
    read
}

fn decode_messages(format: Format, bytes: &[u8]) -> usize {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut read = 0;
    for message in messages(format, bytes) {
        black_box(decoder.decode(message));
        read += 1;
    }
    read
}

fn values(format: Format, bytes: &[u8]) -> usize {
    let mut read = 0;
    for message in messages(format, bytes) {
        let _ = black_box(serde_json::from_slice::<serde_json::Value>(message));
        read += 1;
    }
    read
}

/// Messages per commit. The changed calls are taken once for all of them.
const COMMITTED: usize = 256;

fn calls(format: Format, bytes: &[u8]) -> usize {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut assembler = Assembler::new(Settings::new(Endpoints::default()));
    let (mut read, mut now) = (0, EventTime::from_seconds(0));
    for message in messages(format, bytes) {
        if let Decoded::Event { received, .. } = decoder.decode(message) {
            if let PbxEvent::Channel(event) = &received.event {
                now = now.max(event.at.unwrap_or(now));
            }
            assembler.on_event(&received.event, now);
        }
        read += 1;
        if read % COMMITTED == 0 {
            assembler.tick(now);
            black_box(assembler.take_finished());
            black_box(assembler.take_changes());
        }
    }
    assembler.finish_all(now);
    black_box(assembler.take_finished());
    read
}
