//! A source's output, which consists of framed raw messages and changes of its connection.

use bytes::Bytes;
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_call::{EventTime, Mark};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// The position of a `--source` flag on the command line, counting from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One report from a source. Items arrive in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The source is connected and logged in, or its file is open.
    Up,
    /// The connection was lost or couldn't be opened. The source will try again automatically. This
    /// is reported whenever the reason changes, not for each attempt.
    Down(Outage),
    /// One message, framed but not decoded.
    Frame(Frame),
    /// A point in the stream, such as the end of a list, that the source knows from its dialogue
    /// with the PBX and that isn't part of any message for the decoder.
    Mark {
        /// What kind of point it is, along with the facts from the dialogue.
        mark: Mark,
        /// When the mark was received, by our own clock.
        arrived: EventTime,
    },
    /// Events may be missing before the next item, because the connection was lost and
    /// reestablished, the ring overflowed, or a file was replaced while it wasn't being read.
    Gap {
        /// What caused the gap.
        why: String,
    },
    /// The account lacks a permission. This is reported once per connection.
    MissingRight(MissingRight),
    /// The PBX responded to a ping, so everything it sent before that has arrived.
    Pong {
        /// The PBX's time in the response, if it has one.
        at: Option<EventTime>,
        /// When we sent the ping, by our boot clock.
        asked: EventTime,
        /// When the response arrived, by our boot clock.
        answered: EventTime,
    },
    /// Whether the connection is stalled, either because a ping has gone unanswered for too long or
    /// because the connection wasn't read. Until the stall is over, any events that arrive may have
    /// happened earlier.
    Stalled(bool),
    /// Events are known to arrive even though there are no calls, e.g., because an event that
    /// callbridge sent to itself came back.
    EventsFlow,
    /// A file has been read to its current end and hasn't grown for a second. It's still being
    /// followed. This is reported at the start, and then once each time something has been read.
    Idle {
        /// The position at which reading continues. It's reported even if the file hasn't had any
        /// frames yet, because records written while callbridge is stopped would otherwise be
        /// considered old and be skipped.
        position: FilePosition,
    },
    /// The source was asked to stop, and won't report any more items.
    Done,
}

/// A period during which a source is down, as far as it's known when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The problem and its fix. Never contains a secret.
    pub why: String,
    /// The time up to which no event was lost. That's the time of the report if the end of the
    /// connection was noticed immediately, or the time of its last byte if the connection went
    /// silent.
    pub since: EventTime,
    /// Whether our secret or one of our settings is wrong, so that the outage lasts until someone
    /// fixes it.
    pub is_ours: bool,
    /// Whether the source is a file that doesn't exist (and so has no pending events).
    pub is_absent: bool,
}

/// One message as written by the PBX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The frame's number. Each source's frames are numbered starting from 1, across all of its
    /// connections. A [`FrameVerdict`](crate::FrameVerdict) refers to this number.
    pub seq: u64,
    /// When the message was read, by our boot clock.
    pub arrived: EventTime,
    /// The message for the decoder, at most 1 MiB long, without the empty line or newline that
    /// terminated it.
    pub bytes: Bytes,
    /// The position at which reading continues after this frame, or `None` if the source isn't a
    /// file.
    pub position: Option<FilePosition>,
    /// The AMQP `content_type` property, for a message that contains a whole call.
    pub content_type: Option<SmolStr>,
    /// Details about the record in addition to its bytes, if any.
    pub details: Option<Box<RecordDetails>>,
}

/// Text between the path and the byte offset in [`Frame::file`], for a file with many records.
pub const RECORD_IN_FILE: &str = ", record that ends at byte ";

/// Details about a record that a source knows in addition to its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordDetails {
    /// Path of the file that contains this record and no others, or `None` for any other record.
    pub file: Option<SmolStr>,
    /// Length of the whole record in bytes, if the frame only contains its first 64 KiB.
    pub cut_from: Option<u64>,
    /// Why the source can't read the record, and what to do.
    pub fault: Option<String>,
}

/// Number of bytes to keep if a record is longer than the limit.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

impl Frame {
    /// Returns the path of the file that contains this record, followed by the offset of the
    /// record's end if the file has many records, or `None` if the source isn't a file.
    pub fn file(&self) -> Option<String> {
        let details = self.details.as_ref();
        let own = details.and_then(|details| details.file.as_ref());
        match (own, &self.position) {
            (Some(file), _) => Some(file.to_string()),
            (None, Some(place)) => Some(format!("{}{RECORD_IN_FILE}{}", place.path, place.offset)),
            (None, None) => None,
        }
    }

    /// Returns the length of the whole record if the frame only contains its start.
    pub fn cut_from(&self) -> Option<u64> {
        self.details.as_ref()?.cut_from
    }
}

/// Returns the 64-bit FNV-1a hash. Since hashes are stored, every version must compute the same
/// one.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The end of the last frame taken from a file. A file is recognized by its inode and its first
/// bytes. An inode isn't enough, because it's soon reused for another file, and neither is a name,
/// because files are rotated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// The path in the source's URL. The file itself may have been renamed since.
    pub path: SmolStr,
    /// The file's inode. For a directory, this is a time in microseconds since the epoch, and files
    /// written before it aren't read.
    pub inode: u64,
    /// Number of NUL bytes at the start of the file, which come from a hole left behind by
    /// `copytruncate`. The head comes after them.
    pub head_at: u64,
    /// Number of bytes after `head_at` covered by `head_hash`, which is at most 1024 and never goes
    /// beyond `offset`.
    pub head_len: u32,
    /// 64-bit FNV-1a hash of the `head_len` bytes after `head_at`.
    pub head_hash: u64,
    /// Number of bytes from the start of the file to the end of the last frame. For a directory,
    /// this is the time in microseconds up to which every change to its files (`ctime`) has been
    /// read.
    pub offset: u64,
    /// When the file was last written to, as of the last check. If the file is gone, this shows
    /// which files were rotated after it. For a directory, it's 0.
    pub written: EventTime,
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn file_position_keeps_its_stored_form() {
        callbridge_testkit::golden::keeps::<FilePosition>("file-position");
    }
}
