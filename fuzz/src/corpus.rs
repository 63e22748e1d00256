//! Writes the seeds: every recording, whole and message by message, into `FOLDER/TARGET/`. Seeds
//! that are in no recording are in `seeds/TARGET/`.
//!
//! `corpus RECORDINGS FOLDER`

use callbridge_formats::{Format, Frame, Frames};
use std::fs;
use std::path::{Path, PathBuf};

/// Longer seeds make every execution slow and find nothing new.
const SEED_BYTES_MAX: usize = 64 << 10;

/// Messages of a manager up to the login.
const LOGGED_IN: &[u8] = b"Asterisk Call Manager/9.0.0\r\n\
    Response: Success\r\nActionID: callbridge-1\r\nChallenge: 123456\r\n\r\n\
    Response: Success\r\nActionID: callbridge-2\r\nMessage: Authentication accepted\r\n\r\n";

const TARGETS: [(Format, &str, &str); 10] = [
    (Format::Ami, "ami", "ami.raw"),
    (Format::AmiJson, "ami_json", "amiws.jsonl"),
    (Format::CelCsv, "cel_csv", ".csv"),
    (Format::CelAmqp, "cel_amqp", "cel.jsonl"),
    (Format::CdrAmqp, "cdr_amqp", "cdr.jsonl"),
    (Format::CdrCsv, "cdr_csv", "cdr.csv"),
    (Format::Wazo, "wazo", "wazo.jsonl"),
    (Format::Freeswitch, "freeswitch", "esl.txt"),
    (Format::Freeswitch, "freeswitch", "esl.jsonl"),
    (Format::FreeswitchCdr, "freeswitch_cdr", "json_cdr.jsonl"),
];

/// Recordings of live connections, which get a first byte: the size of the pieces.
const LIVE: [(&str, &str, bool); 2] = [
    ("manager", "ami.raw", false),
    ("event_socket", "esl.txt", true),
];

fn find_files(folder: &Path, all: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder of recordings");
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find_files(&path, all);
        } else {
            all.push(path);
        }
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    if bytes.len() <= SEED_BYTES_MAX {
        fs::write(folder.join(name), bytes).expect("a seed is written");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recordings, out] = arguments.as_slice() else {
        panic!("corpus RECORDINGS FOLDER");
    };
    let mut all = Vec::new();
    find_files(Path::new(recordings), &mut all);
    all.sort();
    for (format, target, ending) in TARGETS {
        let folder = Path::new(out).join(target);
        let framer = Path::new(out).join("framer");
        for folder in [&folder, &framer] {
            fs::create_dir_all(folder).expect("a folder for the seeds");
        }
        let place = Format::ALL.iter().position(|known| *known == format);
        let place = u8::try_from(place.unwrap_or(0)).expect("a few formats");
        let mut seeds = 0;
        for (i, path) in all.iter().enumerate() {
            if !path.to_string_lossy().ends_with(ending) {
                continue;
            }
            let bytes = fs::read(path).expect("a recording");
            write(&folder, &format!("whole-{i}"), &bytes);
            let start = &bytes[..bytes.len().min(4096)];
            let framed = [[place, 7].as_slice(), start].concat();
            write(&framer, &format!("{target}-{i}"), &framed);
            // One message of each length, because messages of one length are mostly of one kind.
            for frame in Frames::new(format, &bytes) {
                if let Frame::Message(message) = frame {
                    write(&folder, &format!("length-{}", message.len()), message);
                    seeds += 1;
                }
            }
        }
        println!("{target}: {seeds} messages");
    }
    let likeness = Path::new(out).join("likeness");
    fs::create_dir_all(&likeness).expect("a folder for the seeds");
    for (target, ending, cut) in LIVE {
        let folder = Path::new(out).join(target);
        fs::create_dir_all(&folder).expect("a folder for the seeds");
        for (i, path) in all.iter().enumerate() {
            if !path.to_string_lossy().ends_with(ending) {
                continue;
            }
            let bytes = fs::read(path).expect("a recording");
            let start = &bytes[..bytes.len().min(16 << 10)];
            let seed = if cut {
                [&[200], start].concat()
            } else {
                [LOGGED_IN, start].concat()
            };
            write(&folder, &format!("live-{i}"), &seed);
            write(
                &likeness,
                &format!("{target}-{i}"),
                &start[..start.len().min(4096)],
            );
        }
    }
}
