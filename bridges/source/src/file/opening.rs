//! Opens a path only if it's a regular file. Opening a FIFO would hang, and its data can only be
//! read once, whereas a device has no end.

use crate::url::{Format, From};
use callbridge_formats::{Frame, Frames, is_header};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Number of bytes in a file that are read to check its format.
const SAMPLE_BYTES: u64 = 256 << 10;
/// Number of bytes at the start of a file in which to look for a header.
const HEADER_BYTES_MAX: u64 = 16 << 10;
/// Number of records in which to look for a header, which may come after a line drawn by a database
/// client.
const HEADER_RECORDS_MAX: usize = 2;
/// Number of files in a directory that are read to check their format.
const SAMPLE_FILES: usize = 16;

/// Opens the file, and returns it along with its metadata.
///
/// # Errors
/// Returns an error if the path doesn't exist, can't be read, or isn't a regular file.
pub(super) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // This has to be checked first, because opening a FIFO would release a writer that's waiting
    // for a reader.
    only_files(&std::fs::metadata(path)?)?;
    open_with(path, OFlags::NONBLOCK)
}

/// Opens an entry in a directory that other users may write to. Symbolic links aren't followed.
///
/// # Errors
/// Returns the same errors as [`open`].
pub(super) fn open_entry(path: &Path) -> io::Result<(File, Metadata)> {
    open_with(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

/// Opens the path without waiting for a writer, and then checks the opened file, because the path
/// may refer to something else by then.
fn open_with(path: &Path, flags: OFlags) -> io::Result<(File, Metadata)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    only_files(&metadata)?;
    Ok((file, metadata))
}

fn only_files(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(io::Error::other(
            "this is not a regular file; give the path of a file that the PBX appends to",
        ))
    }
}

/// Reads complete records at the start or end of a file, depending on `from`. For a CSV file, its
/// header comes first, because the records can't be read without it. For a directory, a few of its
/// records are read.
///
/// # Errors
/// Returns an error if the file or directory can't be opened or read.
pub fn sample(path: &Path, format: Format, from: &From) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.is_dir() {
        return records(path);
    }
    let (mut file, metadata) = open(path)?;
    let nuls = leading_nuls(&file, metadata.len())?;
    let is_cut = metadata.len() - nuls > SAMPLE_BYTES;
    let mut bytes = Vec::new();
    if *from == From::End && is_cut {
        if let Some(header) = header(&file, format, nuls)? {
            bytes.extend(header);
            bytes.push(b'\n');
        }
        file.seek(SeekFrom::End(-i64::try_from(SAMPLE_BYTES).unwrap_or(0)))?;
        let mut end = Vec::new();
        file.take(SAMPLE_BYTES).read_to_end(&mut end)?;
        // The first line is probably incomplete.
        let begin = end.iter().position(|byte| *byte == b'\n');
        bytes.extend_from_slice(&end[begin.map_or(0, |at| at + 1)..]);
        return Ok(bytes);
    }
    file.seek(SeekFrom::Start(nuls))?;
    file.take(SAMPLE_BYTES).read_to_end(&mut bytes)?;
    if is_cut {
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(end.map_or(bytes.len(), |at| at + 1));
    }
    Ok(bytes)
}

/// Counts the NUL bytes at the start of a file, stopping at `most`.
pub(super) fn leading_nuls(mut file: &File, most: u64) -> io::Result<u64> {
    let mut piece = vec![0; 128 << 10];
    let mut nuls = 0;
    file.seek(SeekFrom::Start(0))?;
    while nuls < most {
        let read = file.read(&mut piece)?;
        let found = piece[..read].iter().take_while(|byte| **byte == 0).count();
        nuls += found as u64;
        if read == 0 || found < read {
            break;
        }
    }
    Ok(nuls.min(most))
}

/// Reads the header of a CSV file at the offset `from`, or returns `None` if there's no header.
pub(super) fn header(mut file: &File, format: Format, from: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(HEADER_BYTES_MAX).read_to_end(&mut bytes)?;
    let mut records = Frames::new(format, &bytes).take(HEADER_RECORDS_MAX);
    Ok(records.find_map(|frame| match frame {
        Frame::Message(record) if is_header(format, record) => Some(record.to_vec()),
        Frame::Message(_) | Frame::TooLong { .. } => None,
    }))
}

/// Reads a few records in a directory with one file per record, and returns one line per record.
fn records(path: &Path) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    let entries = std::fs::read_dir(path)?.filter_map(Result::ok);
    let files = entries.filter(|entry| entry.metadata().is_ok_and(|about| about.is_file()));
    for entry in files.take(SAMPLE_FILES) {
        let mut bytes = Vec::new();
        let Ok((file, _)) = open_entry(&entry.path()) else {
            continue;
        };
        file.take(SAMPLE_BYTES).read_to_end(&mut bytes)?;
        for byte in bytes {
            lines.push(if byte == b'\n' { b' ' } else { byte });
        }
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Describes why a file couldn't be opened, including the fix.
pub(super) fn message(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            "no such file; check the path, and that the PBX writes this file".to_owned()
        }
        ErrorKind::PermissionDenied => {
            format!("{error}; let the user of callbridge read the file")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_has_whole_records_from_the_end_or_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows");
        let rows: String = (0..40_000).map(|n| format!("row {n}\n")).collect();
        std::fs::write(&path, &rows).expect("written");
        for (from, first, last) in [
            (From::End, "row ", "row 39999\n"),
            (From::Start, "row 0\n", "\n"),
        ] {
            let bytes = sample(&path, Format::CelCsv, &from).expect("a sample");
            let text = String::from_utf8(bytes).expect("text");
            assert!(text.starts_with(first) && text.ends_with(last), "{from:?}");
            assert!(rows.contains(&text) && text.len() < rows.len());
        }
        std::fs::write(&path, "one\ntwo").expect("written");
        assert_eq!(
            sample(&path, Format::CelCsv, &From::End).expect("a sample"),
            b"one\ntwo"
        );
    }

    #[test]
    fn sample_begins_after_a_hole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows");
        std::fs::write(&path, format!("{}one\ntwo\n", "\0".repeat(300_000))).expect("written");
        for from in [From::Start, From::End] {
            let bytes = sample(&path, Format::CelCsv, &from).expect("a sample");
            assert_eq!(bytes, b"one\ntwo\n", "{from:?}");
        }
    }

    #[test]
    fn sample_of_a_files_end_begins_with_its_header() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows");
        let header = "calldate|channel|dstchannel|disposition|duration|billsec\n";
        let rows: String = (0..40_000).map(|n| format!("row {n}\n")).collect();
        std::fs::write(&path, format!("{header}{rows}")).expect("written");
        let bytes = sample(&path, Format::CdrCsv, &From::End).expect("a sample");
        let text = String::from_utf8(bytes).expect("text");
        assert!(
            text.starts_with(&format!("{header}row ")),
            "{}",
            &text[..80]
        );
        assert!(text.ends_with("row 39999\n"));
    }

    #[test]
    fn path_that_is_not_a_regular_file_is_not_opened() {
        let error = open(Path::new("/dev/zero")).expect_err("a device");
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        assert!(open(folder.path()).is_err());
    }
}
