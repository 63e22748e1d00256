//! Tests each format's file with every other format's flag. callbridge must say which format it
//! really is and which flag to use, and mustn't produce any calls from the file. Also tests
//! messages on a source with the wrong format.

use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames, Likeness};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file in each format, and callbridge's description of it.
const FILES: [(&str, &str, &str); 8] = [
    (
        "recordings/inbound_answered/ami.raw",
        "ami",
        "AMI 11.0.0 of Asterisk 22",
    ),
    ("matrix/ami-1.1.raw", "ami", "AMI 1.1 of Asterisk 1.8"),
    (
        "recordings/inbound_answered/amiws.jsonl",
        "ami-json",
        "AMI as JSON",
    ),
    (
        "recordings/cel-custom/epoch.csv",
        "cel-csv",
        "CEL rows of cel_custom",
    ),
    (
        "matrix/asterisk-cel.jsonl",
        "asterisk-cel",
        "messages of asterisk-cel-amqp",
    ),
    (
        "matrix/asterisk-cdr.jsonl",
        "asterisk-cdr",
        "messages of asterisk-cdr-amqp",
    ),
    (
        "recordings/inbound_answered/cdr.csv",
        "cdr-csv",
        "CDR rows of cdr_csv",
    ),
    ("matrix/wazo.jsonl", "wazo", "messages of Wazo's bus"),
];

fn test_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn explain(format: &str, file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args([
            "explain",
            "--json",
            "--format",
            format,
            "--trunk",
            "city=PJSIP/city",
        ])
        .arg(file)
        .env_clear()
        .output()
        .expect("callbridge runs")
}

#[test]
fn file_is_read_or_its_format_named_under_every_format_flag() {
    for (name, written, looks) in FILES {
        for format in Format::ALL {
            let output = explain(format.name(), &test_file(name));
            let stderr = String::from_utf8_lossy(&output.stderr);
            let shown = format!("{name} under {format}: {stderr}");
            if format.name() == written {
                assert_eq!(output.status.code(), Some(0), "{shown}");
                assert!(!output.stdout.is_empty(), "{shown}");
                continue;
            }
            assert_eq!(output.status.code(), Some(65), "{shown}");
            assert!(output.stdout.is_empty(), "{shown}");
            assert!(stderr.contains(&format!("looks like {looks}")), "{shown}");
            assert!(
                stderr.contains(&format!("use --format {written}\n")),
                "{shown}"
            );
        }
    }
}

#[test]
fn unsupported_input_is_reported_under_every_format_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue_log = "1795151318|1795151318.1|sales|NONE|ENTERQUEUE||998901110001|1\n";
    for (bytes, words) in [
        (
            "<html><body>403 Forbidden</body></html>\n",
            "or in another format that callbridge reads",
        ),
        (
            "{\"type\":\"StasisStart\",\"channel\":{\"name\":\"PJSIP/city-1\"}}\n",
            "(ARI)",
        ),
        (
            "{\"variable_uuid\":\"b1\",\"variable_direction\":\"inbound\"}\n",
            "FreeSWITCH",
        ),
        (queue_log, "a queue_log"),
    ] {
        let file = folder.path().join("file");
        std::fs::write(&file, bytes).expect("written");
        for format in Format::ALL {
            let output = explain(format.name(), &file);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(65), "{bytes}{format}: {stderr}");
            assert!(stderr.contains(words), "{bytes}{format}: {stderr}");
        }
    }
}

#[test]
fn message_of_wrong_format_is_refused_and_format_is_named() {
    for (name, written, looks) in FILES {
        let bytes = std::fs::read(test_file(name)).expect("a file");
        let file_format = written.parse::<Format>().expect("a format");
        for &format in Format::ALL.iter().filter(|format| **format != file_format) {
            // Wazo's messages have AMI's keys and values, so a single one can't be told apart.
            if file_format == Format::Wazo && format == Format::AmiJson {
                continue;
            }
            let mut decoder = Decoder::new(format, DecoderSettings::default());
            let mut named = 0;
            for frame in Frames::new(file_format, &bytes) {
                let Frame::Message(message) = frame else {
                    continue;
                };
                let decoded = decoder.decode(message);
                assert!(
                    !matches!(decoded, Decoded::Event { .. }),
                    "{name} {format}: {decoded:?}"
                );
                let like = Likeness::recognize(message);
                named += usize::from(like.is_some_and(|like| like.format == Some(file_format)));
            }
            assert!(named > 0, "{name} {format} {looks}");
        }
    }
}
