//! Reads one open file, turning its bytes into frames with positions and checking that it still has
//! the same content.

use super::opening;
use crate::item::{KEPT_BYTES, hash};
use crate::{EventTime, FilePosition, FrameContent, RecordDetails, url::Format};
use bytes::Bytes;
use callbridge_formats::{Frame, Framer, Framing};
use smol_str::SmolStr;
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::{os::unix::fs::MetadataExt, path::Path, time::Duration};

/// Length in bytes of the head, which is the start of a file by which it's recognized.
const HEAD_BYTES_MAX: usize = 1_024;
const CHUNK_BYTES: usize = 128 << 10;

/// Returns the hash of a head that has its full length, or `None` if it may still grow.
fn hash_of_whole(head: &[u8]) -> Option<u64> {
    (head.len() >= HEAD_BYTES_MAX).then(|| hash(head))
}

fn head_len(offset: u64) -> usize {
    usize::try_from(offset).map_or(HEAD_BYTES_MAX, |offset| offset.min(HEAD_BYTES_MAX))
}

/// Reads this many bytes from `offset` on, or fewer at the end of the file.
fn read_at(mut file: &File, bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::with_capacity(bytes);
    file.seek(SeekFrom::Start(offset))?;
    file.take(bytes as u64).read_to_end(&mut read)?;
    Ok(read)
}

/// Returns the offset after the last complete record in `bytes`, for a reader that starts at the
/// end, or `None` if no record ends there.
fn last_end(format: Format, bytes: &[u8]) -> Option<usize> {
    let mut ends = memchr::memrchr_iter(b'\n', bytes);
    let end = match format.framing() {
        Framing::Line | Framing::CsvRecord | Framing::Event => ends.next(),
        Framing::EmptyLine => ends.find(|end| {
            let start = memchr::memrchr(b'\n', &bytes[..*end]).map_or(0, |at| at + 1);
            matches!(&bytes[start..*end], b"" | b"\r")
        }),
    };
    // A record may also start after a hole of NUL bytes left behind by `copytruncate`.
    let end = end.or_else(|| memchr::memrchr(0, bytes));
    end.map(|at| at + 1)
}

/// A record in a file, along with the position after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(super) bytes: Bytes,
    pub(super) position: FilePosition,
    pub(super) details: Option<Box<RecordDetails>>,
}

impl From<FileRecord> for FrameContent {
    fn from(record: FileRecord) -> Self {
        Self {
            bytes: record.bytes,
            position: Some(record.position),
            content_type: None,
            details: record.details,
        }
    }
}

/// A copy of the framer's message.
enum Cut {
    Whole(Bytes),
    /// The location of a message that's longer than the limit.
    TooLong {
        bytes: u64,
        start: u64,
    },
}

impl From<Frame<'_>> for Cut {
    fn from(frame: Frame<'_>) -> Self {
        match frame {
            Frame::Message(bytes) => Self::Whole(Bytes::copy_from_slice(bytes)),
            Frame::TooLong { bytes, start } => Self::TooLong { bytes, start },
        }
    }
}

/// Returns when a file was last written to.
pub(super) fn write_time(metadata: &Metadata) -> EventTime {
    let nanos = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
    EventTime::from_seconds(metadata.mtime()).plus(Duration::from_nanos(nanos))
}

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) inode: u64,
    /// The configured path, to be used in positions.
    path: SmolStr,
    /// Number of NUL bytes before the head. They're the same in every file with such a hole, so
    /// they don't identify a file.
    head_at: u64,
    head: Vec<u8>,
    /// The head's hash, once it has its full length.
    head_hash: Option<u64>,
    /// Number of bytes read since the start of the file.
    read: u64,
    framer: Framer,
    /// The header of a file that isn't read from its start. It's passed on before the first record,
    /// because a new decoder doesn't know the delimiter or the columns.
    header: Option<Bytes>,
    /// Time of the last write, as of the last poll.
    pub(super) written: EventTime,
    /// Length and change time, as of the last poll.
    seen: Option<(u64, i64, i64)>,
}

/// The result of polling an open file.
pub(super) enum ReadOutcome {
    /// New bytes were read, which completed these records, if any.
    More(Vec<FileRecord>),
    /// The whole file has been read.
    End,
    /// The file has different content, because it was truncated or rewritten.
    Replaced,
}

/// Returns the metadata of the file at `path` if its length and first bytes show that it's the file
/// of `position`.
pub(super) fn is_same(path: &Path, position: &FilePosition) -> io::Result<Option<Metadata>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let (file, metadata) = opening::open(path)?;
    if metadata.len() < position.offset {
        return Ok(None);
    }
    let length = position.head_len as usize;
    let head = read_at(&file, length, position.head_at)?;
    if head.len() == length && hash(&head) == position.head_hash {
        Ok(Some(metadata))
    } else {
        Ok(None)
    }
}

impl Opened {
    /// Opens the file at `path` to continue at `offset`. Positions will contain the path
    /// `configured`.
    pub(super) fn open_at(
        path: &Path,
        configured: &Path,
        format: Format,
        offset: u64,
    ) -> io::Result<Self> {
        let (file, metadata) = opening::open(path)?;
        let head_at = opening::leading_nuls(&file, offset)?;
        let head = read_at(&file, head_len(offset - head_at), head_at)?;
        let header = if offset > 0 {
            opening::header(&file, format, head_at)?
        } else {
            None
        };
        Ok(Self {
            file,
            inode: metadata.ino(),
            path: configured.to_string_lossy().into(),
            head_hash: hash_of_whole(&head),
            head_at,
            head,
            read: offset,
            framer: Framer::from_position(format, offset),
            header: header.map(Bytes::from),
            written: write_time(&metadata),
            seen: None,
        })
    }

    /// Opens the file at `path` to continue at its end, after the last complete frame.
    pub(super) fn open_at_end(path: &Path, format: Format) -> io::Result<Self> {
        let (file, metadata) = opening::open(path)?;
        let length = metadata.len();
        let from = length.saturating_sub(CHUNK_BYTES as u64);
        let tail = read_at(&file, CHUNK_BYTES, from)?;
        let complete = last_end(format, &tail).map_or_else(
            // No record ends in the bytes that were read. If the file is short, it's a single
            // record still being written. If it's long, the bytes are from the middle of a record
            // whose end is yet to come.
            || if from == 0 { 0 } else { length },
            |at| from + at as u64,
        );
        Self::open_at(path, path, format, complete)
    }

    /// Returns the position after the last frame.
    pub(super) fn position(&self) -> FilePosition {
        let offset = self.framer.position();
        let before = offset.saturating_sub(self.head_at);
        let length = head_len(before).min(self.head.len());
        let known_hash = if length == HEAD_BYTES_MAX {
            self.head_hash
        } else {
            None
        };
        FilePosition {
            path: self.path.clone(),
            inode: self.inode,
            head_at: self.head_at.min(offset),
            head_len: u32::try_from(length).unwrap_or(0),
            head_hash: known_hash.unwrap_or_else(|| hash(&self.head[..length])),
            offset,
            written: self.written,
        }
    }

    /// Reads the next piece of the file (up to 128 KiB), after checking that the file's first bytes
    /// haven't changed.
    pub(super) fn poll(&mut self) -> io::Result<ReadOutcome> {
        let metadata = self.file.metadata()?;
        let now = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        let shorter = metadata.len() < self.read;
        if self.seen != Some(now)
            && (shorter || read_at(&self.file, self.head.len(), self.head_at)? != self.head)
        {
            return Ok(ReadOutcome::Replaced);
        }
        self.written = write_time(&metadata);
        if metadata.len() == self.read {
            self.seen = Some(now);
            return Ok(ReadOutcome::End);
        }
        let chunk = read_at(&self.file, CHUNK_BYTES, self.read)?;
        if chunk.is_empty() {
            return Ok(ReadOutcome::End);
        }
        self.extend_head(&chunk);
        self.read += chunk.len() as u64;
        let mut records = Vec::new();
        if let Some(header) = self.header.take() {
            // The header's record has the current position, so it doesn't affect where reading
            // continues after a restart.
            records.push(self.record(Cut::Whole(header))?);
        }
        self.framer.push(&chunk);
        while let Some(cut) = self.framer.next().map(Cut::from) {
            records.push(self.record(cut)?);
        }
        Ok(ReadOutcome::More(records))
    }

    fn extend_head(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        if self.head.is_empty() && self.head_at == self.read {
            let nuls = chunk.iter().take_while(|byte| **byte == 0).count();
            self.head_at += nuls as u64;
            rest = &chunk[nuls..];
        }
        if self.head.len() < HEAD_BYTES_MAX {
            let missing = (HEAD_BYTES_MAX - self.head.len()).min(rest.len());
            self.head.extend_from_slice(&rest[..missing]);
            self.head_hash = hash_of_whole(&self.head);
        }
    }

    /// Returns the record along with the position after it. If the record is too long, its start is
    /// reread from the file.
    fn record(&self, cut: Cut) -> io::Result<FileRecord> {
        let (bytes, cut_from) = match cut {
            Cut::Whole(bytes) => (bytes, None),
            Cut::TooLong { bytes, start } => {
                let beginning = read_at(&self.file, KEPT_BYTES, start)?;
                (Bytes::from(beginning), Some(bytes))
            }
        };
        let details = cut_from.map(|length| {
            Box::new(RecordDetails {
                cut_from: Some(length),
                ..RecordDetails::default()
            })
        });
        Ok(FileRecord {
            bytes,
            position: self.position(),
            details,
        })
    }

    /// Returns a finished file's last record if it isn't terminated by a newline.
    pub(super) fn rest(&mut self) -> io::Result<Option<FileRecord>> {
        let cut = self.framer.finish().map(Cut::from);
        cut.map(|cut| self.record(cut)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_formats::Framer;

    #[test]
    fn reading_from_the_end_begins_after_the_last_complete_record() {
        assert_eq!(last_end(Format::CelCsv, b"a\nb\nhalf"), Some(4));
        assert_eq!(last_end(Format::AmiJson, b"half"), None);
        assert_eq!(last_end(Format::Ami, b"A: b\r\n\r\nC: d\r\n"), Some(8));
        assert_eq!(last_end(Format::Ami, b"A: b\r\n"), None);
    }

    #[test]
    fn framer_reports_where_each_record_ends() {
        let mut framer = Framer::from_position(Format::AmiJson, 100);
        framer.push(b"{1}\r\n\n{2");
        assert_eq!(framer.next(), Some(Frame::Message(b"{1}")));
        assert_eq!(framer.position(), 105);
        assert_eq!(framer.next(), None);
        framer.push(b"}");
        assert_eq!(framer.next(), None);
        assert_eq!(framer.finish(), Some(Frame::Message(b"{2}")));
        assert_eq!(framer.position(), 109);
    }
}
