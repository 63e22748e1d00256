//! What a source gives: framed raw messages, and everything that happens to its line.

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

/// One thing that a source tells, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Connected and logged in, or the file is open.
    Up,
    /// The line is lost, or could not be had; another try follows by itself. Said at each change
    /// of the reason, not at each try.
    Down(Outage),
    /// One message, framed but not decoded.
    Frame(Frame),
    /// A point in the stream that no message of the switch tells, but the dialogue with it.
    Mark {
        /// The point's kind, with the facts that the dialogue gave.
        mark: Mark,
        /// Time of the mark, by our own clock.
        arrived: EventTime,
    },
    /// Events may be missing before whatever follows: the line was lost and is back, the ring
    /// overflowed, or a file was replaced while nobody read it.
    Gap {
        /// The cause of the gap, in words.
        why: String,
    },
    /// The account of the line turns out to lack a right; told once each time the line is up.
    MissingRight(MissingRight),
    /// The PBX answered a ping, with its time.
    Pong {
        /// The PBX's time in the answer.
        at: EventTime,
        /// When we sent the ping, by our boot clock.
        asked: EventTime,
        /// When the answer arrived, by our boot clock.
        answered: EventTime,
    },
    /// Whether the line is stalled (`true`): a ping has waited for its answer for more than 5 s, or
    /// no one read the line for that long. Events that arrive until the line is no longer stalled
    /// happened earlier, no one knows when.
    Stalled(bool),
    /// An event of our own came back over the line, so events come, though nobody calls.
    EventsFlow,
    /// A file is read to its present end, and has not grown for a second; it is followed on. Told
    /// once for each time that there was something to read, and at the beginning.
    Idle {
        /// Position at which reading goes on: also for a file of which no frame was given yet, lest
        /// what is written while callbridge is stopped be taken for what was there before.
        position: FilePosition,
    },
    /// The source gives nothing more: it was told to stop.
    Done,
}

/// The time in which a source is down, as far as it is known at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The fault and its fix, in words; never a secret.
    pub why: String,
    /// Up to this moment nothing was lost with the line: now where its end was noticed at once,
    /// when the last byte came where it fell silent.
    pub since: EventTime,
    /// A secret or a setting of ours is wrong: it does not pass by itself.
    pub is_ours: bool,
    /// The file is not there: what the PBX tells meanwhile waits nowhere to be read.
    pub is_absent: bool,
}

/// One message as the PBX wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Counts the frames of one source from 1, over all its connections; what a
    /// [`FrameVerdict`](crate::FrameVerdict) refers to.
    pub seq: u64,
    /// Time at which the message was read here, by our boot clock.
    pub arrived: EventTime,
    /// The message, without the empty line or line end that closed it: what a decoder takes. At
    /// most 1 MiB.
    pub bytes: Bytes,
    /// Position at which reading goes on after this frame; `None` but for files.
    pub position: Option<FilePosition>,
    /// AMQP property `content_type` of a message that carries a whole call.
    pub content_type: Option<SmolStr>,
    /// What the source knows about the record besides its bytes. `None` if it knows nothing.
    pub details: Option<Box<RecordDetails>>,
}

/// Separates the path of a file with many records and the end of one of them.
pub const RECORD_IN_FILE: &str = ", record that ends at byte ";

/// What a source knows of a record besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordDetails {
    /// Path of the file that holds this record and no other; `None` elsewhere.
    pub file: Option<SmolStr>,
    /// Length of the whole record in bytes, where the frame holds only its first 64 KiB.
    pub cut_from: Option<u64>,
    /// Why the source cannot read the record, with what to do.
    pub fault: Option<String>,
}

/// Bytes that are kept of a record that is longer than any may be.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

impl Frame {
    /// Returns the file of this record, and the place in it where the file holds many.
    pub fn file(&self) -> Option<String> {
        let own = self.details.as_ref().and_then(|it| it.file.as_ref());
        match (own, &self.position) {
            (Some(file), _) => Some(file.to_string()),
            (None, Some(place)) => Some(format!("{}{RECORD_IN_FILE}{}", place.path, place.offset)),
            (None, None) => None,
        }
    }

    /// Returns the length of the whole record, where the frame holds only its beginning.
    pub fn cut_from(&self) -> Option<u64> {
        self.details.as_ref()?.cut_from
    }
}

/// FNV-1a, 64 bit. It is stored, so it must be the same in every version.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The end of the last frame taken from a file. A file is known by its inode and its first bytes,
/// for an inode alone is given to another file at once, and a name alone is rotated away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// The path as the source's URL gives it; the file itself may bear another name by now.
    pub path: SmolStr,
    /// The file's inode; of a folder the time, in microseconds, before which its files are not
    /// ours.
    pub inode: u64,
    /// Number of NUL bytes that the file begins with: a hole that `copytruncate` left. The head
    /// comes after them.
    pub head_at: u64,
    /// Number of bytes that `head_hash` is made of: at most 1024, never beyond `offset`.
    pub head_len: u32,
    /// FNV-1a (64 bit) of these bytes.
    pub head_hash: u64,
    /// Bytes from the file's start to the end of the last frame. Of a folder, the moment in
    /// microseconds up to which every change of its files (`ctime`) was read.
    pub offset: u64,
    /// The time at which the file had been written to when it was last checked. If the file
    /// is gone, this time tells which files were rotated after it. 0 for a folder.
    pub written: EventTime,
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<FilePosition>("file-position");
    }
}
