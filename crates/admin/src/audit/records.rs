//! Reads the input of `--cdr` as one stream. A file is read as it is. A folder with one file per
//! record (FreeSWITCH's `mod_json_cdr`) is read as one line per record, in the order in which the
//! calls ended.
//!
//! This is the only module of this crate that reads files.

use callbridge_call::EventTime;
use callbridge_formats::likeness::{Likeness, SAMPLE_BYTES_MAX};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, MESSAGE_BYTES_MAX};
use callbridge_model::plain_file;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum depth of nested folders. `mod_json_cdr` creates a subfolder when it rotates.
const DEPTH_MAX: usize = 3;
/// Bytes per read.
const PIECE_BYTES: usize = 64 << 10;
/// The field of a record with the end of its channel.
const ENDED: &[u8] = b"\"end_uepoch\":\"";
/// Maximum time from the end of a channel to the writing of its record, even if clocks differ.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2 * 86_400);

/// A reader of the records in a folder, or of the only record in a file. Returns one line per
/// record.
#[derive(Debug)]
pub struct RecordLines {
    left: VecDeque<PathBuf>,
    line: Cursor<Vec<u8>>,
    decoder: Decoder,
    unread: Vec<UnreadRecord>,
}

/// A file whose record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadRecord {
    pub file: PathBuf,
    /// Time at which the file was written.
    pub written: EventTime,
    /// Why the file's record cannot be read.
    pub reason: String,
}

/// The beginning of a record, up to the maximum that is read.
struct Record {
    bytes: Vec<u8>,
    /// Length of the whole file in bytes.
    length: u64,
    is_cut: bool,
    written: EventTime,
}

/// Opens the records under `path` that ended at `since` or later, or that may have. Returns `None`
/// for a file whose records are lines or rows, because such a file is read directly.
///
/// # Errors
/// The errors of the system, with the path that cannot be read.
pub fn open(path: &Path, since: Option<EventTime>) -> io::Result<Option<RecordLines>> {
    let Ok(about) = std::fs::metadata(path) else {
        return Ok(None); // opening it reports the error
    };
    let mut left = Vec::new();
    if about.is_dir() {
        gather(path, DEPTH_MAX, since, &mut left)?;
    } else if about.is_file() && is_one_record(path)? {
        left.push((0, path.to_owned()));
    } else {
        return Ok(None);
    }
    left.sort_unstable();
    Ok(Some(RecordLines {
        left: left.into_iter().map(|(_, path)| path).collect(),
        line: Cursor::default(),
        decoder: Decoder::new(Format::FreeswitchCdr, DecoderSettings::default()),
        unread: Vec::new(),
    }))
}

/// Returns the format of a file of `--cdr`: detected from its first bytes if they are CDRs,
/// otherwise `usual`.
pub fn format_of(path: &Path, usual: Format) -> Format {
    let is_file = std::fs::metadata(path).is_ok_and(|about| about.is_file());
    if !is_file {
        return usual;
    }
    let Ok(bytes) = beginning(path) else {
        return usual;
    };
    match detected_format(&bytes) {
        Some(format) if format.only_cdrs() => format,
        _ => usual,
    }
}

fn detected_format(bytes: &[u8]) -> Option<Format> {
    Likeness::recognize(bytes)?.format
}

fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let file = plain_file::open_named(path)?;
    after_nuls(file, SAMPLE_BYTES_MAX)
}

/// Skips the NUL bytes at the beginning of the file, and reads at most `most` bytes after them.
fn after_nuls(mut file: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        let start = piece[..read].iter().position(|byte| *byte != 0);
        if let Some(start) = start {
            let mut bytes = piece[start..read].to_vec();
            let rest = most.saturating_sub(bytes.len()) as u64;
            file.take(rest).read_to_end(&mut bytes)?;
            bytes.truncate(most);
            return Ok(bytes);
        }
        if read == 0 {
            return Ok(Vec::new());
        }
    }
}

/// Returns `true` if the file holds one record on several lines.
fn is_one_record(path: &Path) -> io::Result<bool> {
    let bytes = beginning(path).map_err(|error| error_with_path(path, &error))?;
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    if !is_object || detected_format(&bytes).is_some() {
        return Ok(false);
    }
    Ok(detected_format(&to_single_line(bytes)) == Some(Format::FreeswitchCdr))
}

/// Adds the plain files of a folder to `found`, each with the microsecond at which its record
/// ended. Omits hidden files, links, and files that were changed too long before `since`.
fn gather(
    folder: &Path,
    depth: usize,
    since: Option<EventTime>,
    found: &mut Vec<(i64, PathBuf)>,
) -> io::Result<()> {
    for entry in std::fs::read_dir(folder).map_err(|error| error_with_path(folder, &error))? {
        let entry = entry.map_err(|error| error_with_path(folder, &error))?;
        let path = entry.path();
        // The file may have been deleted.
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let changed = EventTime::from_seconds(about.mtime());
        let is_old = since.is_some_and(|since| changed.plus(WRITTEN_WITHIN) < since);
        if about.is_dir() && depth > 1 {
            gather(&path, depth - 1, since, found)?;
        } else if about.is_file() && !is_old {
            // In a copied folder, all files have the time of the copy, so the time in the record is
            // preferred.
            let record = record(&path)?;
            found.push((
                end_of_record(&record.bytes).unwrap_or(changed.micros()),
                path,
            ));
        }
    }
    Ok(())
}

fn record(path: &Path) -> io::Result<Record> {
    read_record(path).map_err(|error| error_with_path(path, &error))
}

fn read_record(path: &Path) -> io::Result<Record> {
    let file = plain_file::open(path, OpenOptions::new().read(true))?;
    let about = file.metadata()?;
    let mut bytes = after_nuls(file, MESSAGE_BYTES_MAX + 1)?;
    let is_cut = bytes.len() > MESSAGE_BYTES_MAX;
    bytes.truncate(MESSAGE_BYTES_MAX);
    Ok(Record {
        bytes,
        length: about.len(),
        is_cut,
        written: EventTime::from_seconds(about.mtime()),
    })
}

/// Returns the microsecond at which the channel of a record ended. `None` if the record has no end.
fn end_of_record(record: &[u8]) -> Option<i64> {
    let mut windows = record.windows(ENDED.len());
    let from = windows.position(|window| window == ENDED)? + ENDED.len();
    let digits = record[from..].split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Puts a JSON text on one line. JSON strings contain no line ends, so the values stay the same.
fn to_single_line(mut text: Vec<u8>) -> Vec<u8> {
    for byte in &mut text {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    text.push(b'\n');
    text
}

fn error_with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl RecordLines {
    /// Returns the files read so far whose records cannot be read.
    pub fn unread(&self) -> &[UnreadRecord] {
        &self.unread
    }

    fn note_unread(&mut self, file: PathBuf, record: &Record) {
        let reason = if record.is_cut {
            format!(
                "the record has {} bytes, more than the limit of {MESSAGE_BYTES_MAX}",
                record.length
            )
        } else if let Decoded::Unreadable(reason) = self.decoder.decode(&record.bytes) {
            reason.to_string()
        } else {
            return;
        };
        let written = record.written;
        self.unread.push(UnreadRecord {
            file,
            written,
            reason,
        });
    }
}

impl Read for RecordLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.line.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(next) = self.left.pop_front() else {
                return Ok(0);
            };
            match record(&next) {
                Ok(record) => {
                    self.note_unread(next, &record);
                    self.line = Cursor::new(to_single_line(record.bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn lines_since(path: &Path, since: Option<EventTime>) -> String {
        let mut text = String::new();
        let mut lines = open(path, since).expect("readable").expect("records");
        lines.read_to_string(&mut text).expect("text");
        text
    }

    fn leg(ended: u64) -> String {
        format!("{{\n\"variables\": {{\"end_uepoch\":\"{ended}\"}}}}")
    }

    #[test]
    fn records_of_folder_and_rotated_folder_are_sorted_by_end() {
        let place = tempfile::tempdir().expect("a folder");
        let rotated = place.path().join("json_cdr.2026-11-20");
        fs::create_dir(&rotated).expect("a folder");
        fs::write(place.path().join("a.cdr.json"), leg(30)).expect("written");
        fs::write(place.path().join("b.cdr.json"), leg(20)).expect("written");
        fs::write(place.path().join(".c.cdr.json"), leg(25)).expect("written");
        fs::write(rotated.join("z.cdr.json"), leg(10)).expect("written");
        std::os::unix::fs::symlink("/etc/passwd", place.path().join("link")).expect("a link");
        let text = lines_since(place.path(), None);
        let ends: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split('"').nth(5))
            .collect();
        assert_eq!(ends, ["10", "20", "30"], "{text}");
        // Files that were written long before the requested day are not read.
        let later = EventTime::from_seconds(i64::from(u32::MAX));
        assert_eq!(lines_since(place.path(), Some(later)), "");
    }

    #[test]
    fn unreadable_records_are_reported_with_file_and_reason() {
        let place = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings/freeswitch");
        let lines = fs::read_to_string(root.join("hold/json_cdr.jsonl")).expect("recorded");
        let leg = lines.lines().next().expect("a record");
        let hole = "\0".repeat(MESSAGE_BYTES_MAX + 10);
        fs::write(place.path().join("hole.json"), format!("{hole}{leg}")).expect("written");
        let long = leg.replacen('{', &format!("{{\"x\":\"{}\",", "x".repeat(1 << 20)), 1);
        fs::write(place.path().join("long.json"), &long).expect("written");
        fs::write(place.path().join("torn.json"), &leg[..leg.len() / 2]).expect("written");
        let mut lines = open(place.path(), None)
            .expect("readable")
            .expect("records");
        lines.read_to_string(&mut String::new()).expect("text");
        let unread = lines.unread().iter();
        let mut unread: Vec<_> = unread
            .map(|record| {
                (
                    record.file.file_name().expect("a name").to_owned(),
                    &*record.reason,
                )
            })
            .collect();
        unread.sort();
        let reason = format!(
            "the record has {} bytes, more than the limit of 1048576",
            long.len()
        );
        assert_eq!(unread[0], ("long.json".into(), reason.as_str()));
        assert_eq!((unread.len(), &unread[1].0), (2, &"torn.json".into()));
    }

    #[test]
    fn file_format_is_detected_from_its_content() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("cdr");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings/freeswitch");
        let lines = fs::read_to_string(root.join("hold/json_cdr.jsonl")).expect("recorded");
        fs::write(&path, &lines).expect("written");
        assert!(open(&path, None).expect("readable").is_none(), "as it is");
        assert_eq!(format_of(&path, Format::CdrCsv), Format::FreeswitchCdr);
        // One separate record, written on several lines.
        let first = lines.lines().next().expect("a record");
        fs::write(&path, first.replacen(',', ",\n  ", 9)).expect("written");
        assert_eq!(lines_since(&path, None).lines().count(), 1);
        fs::write(&path, "\"\",\"101\",\"102\"\n").expect("written");
        assert!(open(&path, None).expect("readable").is_none());
        assert_eq!(format_of(&path, Format::CdrCsv), Format::CdrCsv);
        let missing = place.path().join("missing");
        assert!(
            open(&missing, None)
                .expect("a missing file is reported later")
                .is_none()
        );
    }
}
