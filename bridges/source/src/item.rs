//! The output of a source: framed raw messages, and changes of its connection.

use bytes::Bytes;
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_call::{EventTime, Mark};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// Position of a `--source` flag on the command line, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One report of a source. Items arrive in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Connected and logged in, or the file is open.
    Up,
    /// The connection is lost, or could not be opened. The source tries again automatically. This
    /// is reported at each change of the reason, not at each try.
    Down(Outage),
    /// One message, framed but not decoded.
    Frame(Frame),
    /// A point in the stream, such as the end of a list, that the source knows from its dialogue
    /// with the PBX. No message for the decoder shows it.
    Mark {
        /// The point's kind, with the facts that the dialogue gave.
        mark: Mark,
        /// Time of the mark, by our own clock.
        arrived: EventTime,
    },
    /// Events may be missing before the next item. The connection was lost and is back, the ring
    /// overflowed, or a file was replaced while it was not read.
    Gap {
        /// The cause of the gap.
        why: String,
    },
    /// The account lacks a right. Reported once per connection.
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
    /// Events are known to arrive although there is no call. For example, an event that callbridge
    /// sent itself came back.
    EventsFlow,
    /// A file is read to its current end, and has not grown for a second. The file is still
    /// followed. Reported at the beginning, and once each time after something was read.
    Idle {
        /// Position at which reading continues. The position is also reported for a file without
        /// frames so far. Otherwise, records written while callbridge is stopped would count as
        /// old, and would be skipped.
        position: FilePosition,
    },
    /// The source was requested to stop, and gives no more items.
    Done,
}

/// A time in which a source is down, with the facts that are known at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The problem and its fix. It never contains a secret.
    pub why: String,
    /// Time up to which no event was lost. If the end of the connection was noticed at once, this
    /// is the time of the report. If the connection became silent, this is the time of its last
    /// byte.
    pub since: EventTime,
    /// Our secret or a setting is wrong, so the outage lasts until a person fixes it.
    pub is_ours: bool,
    /// The file does not exist, so no events of the PBX wait in it.
    pub is_absent: bool,
}

/// One message as the PBX wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the frame. The frames of one source are counted from 1, over all its connections.
    /// A [`FrameVerdict`](crate::FrameVerdict) refers to it.
    pub seq: u64,
    /// Time at which the message was read here, by our boot clock.
    pub arrived: EventTime,
    /// The message for the decoder, without the empty line or line end that closed it. At most 1
    /// MiB.
    pub bytes: Bytes,
    /// Position at which reading continues after this frame. `None` for other sources than files.
    pub position: Option<FilePosition>,
    /// AMQP property `content_type` of a message that carries a whole call.
    pub content_type: Option<SmolStr>,
    /// Details of the record, in addition to its bytes. `None` if there are none.
    pub details: Option<Box<RecordDetails>>,
}

/// Text between the path and the byte offset in [`Frame::file`], for a file with many records.
pub const RECORD_IN_FILE: &str = ", record that ends at byte ";

/// Details that a source knows of a record, in addition to its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordDetails {
    /// Path of the file that contains only this record. `None` for other records.
    pub file: Option<SmolStr>,
    /// Length of the whole record in bytes, if the frame contains only its first 64 KiB.
    pub cut_from: Option<u64>,
    /// Why the source cannot read the record, and what to do.
    pub fault: Option<String>,
}

/// Bytes that are kept of a record that is longer than the limit.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

impl Frame {
    /// Returns the path of the file with this record. For a file with many records, the offset of
    /// the record's end follows. `None` if the source is not a file.
    pub fn file(&self) -> Option<String> {
        let details = self.details.as_ref();
        let own = details.and_then(|details| details.file.as_ref());
        match (own, &self.position) {
            (Some(file), _) => Some(file.to_string()),
            (None, Some(place)) => Some(format!("{}{RECORD_IN_FILE}{}", place.path, place.offset)),
            (None, None) => None,
        }
    }

    /// Returns the length of the whole record, if the frame contains only its beginning.
    pub fn cut_from(&self) -> Option<u64> {
        self.details.as_ref()?.cut_from
    }
}

/// Returns the FNV-1a hash (64 bit). Hashes are stored, so every version must compute the same
/// hash.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The end of the last frame taken from a file. A file is recognized by its inode and its first
/// bytes. An inode is not enough, because it is soon used for another file. A name is not enough,
/// because files are rotated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// The path in the source's URL. The file itself can have another name by now.
    pub path: SmolStr,
    /// The file's inode. For a folder, a time in microseconds since the epoch. Files written before
    /// this time are not read.
    pub inode: u64,
    /// Number of NUL bytes that the file begins with: a hole that `copytruncate` left. The head
    /// comes after them.
    pub head_at: u64,
    /// Number of bytes after `head_at` that `head_hash` covers: at most 1024, and never beyond
    /// `offset`.
    pub head_len: u32,
    /// FNV-1a hash (64 bit) of the `head_len` bytes after `head_at`.
    pub head_hash: u64,
    /// Bytes from the file's start to the end of the last frame. For a folder, the time in
    /// microseconds up to which every change of its files (`ctime`) was read.
    pub offset: u64,
    /// Time of the last write to the file, when it was last checked. If the file is gone, this time
    /// shows which files were rotated after it. 0 for a folder.
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
