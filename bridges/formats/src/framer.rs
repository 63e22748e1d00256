//! Splits streams and files into messages.

use crate::format::{Format, Framing};
use callbridge_call::framing::{FrameStep, MESSAGE_BYTES_MAX, ReadBuffer, bytes_before_message};
use memchr::{memchr, memchr2, memmem};

/// What a [`Framer`] or [`Frames`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message, without the empty line or newline that ended it. Never empty.
    Message(&'a [u8]),
    /// A message longer than [`callbridge_call::framing::MESSAGE_BYTES_MAX`], which is discarded.
    TooLong {
        /// Length of the message in bytes.
        bytes: u64,
        /// Offset of the message's first byte in the stream. A file can be reread from there.
        start: u64,
    },
}

/// Splits a stream that arrives in pieces into messages.
///
/// It makes no difference where the pieces end. Bytes are read directly into the
/// [`buffer`](Self::buffer), and messages borrow from it. It never holds more than one message and
/// one piece.
///
/// Byte-order marks, empty lines, spaces, and NUL bytes before a message are skipped. After
/// `copytruncate`, a writer that kept its offset leaves behind a hole of NUL bytes, which can be
/// gigabytes long.
#[derive(Debug)]
pub struct Framer {
    splitter: FormatSplitter,
    buffer: ReadBuffer,
    position: u64,
}

impl Framer {
    /// Creates a framer for the start of a stream in this format.
    pub fn new(format: Format) -> Self {
        Self::from_position(format, 0)
    }

    /// Creates a framer for a file that's read from the offset `position`, in bytes.
    pub fn from_position(format: Format, position: u64) -> Self {
        let splitter = FormatSplitter::new(format.framing());
        Self {
            splitter,
            buffer: ReadBuffer::default(),
            position,
        }
    }

    /// Returns the buffer to read the stream into.
    pub const fn buffer(&mut self) -> &mut ReadBuffer {
        &mut self.buffer
    }

    /// Copies a piece of the stream into the buffer.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.push(piece);
    }

    /// Returns the next complete message, or `None` if more bytes are needed.
    #[allow(clippy::should_implement_trait, reason = "lends from its own buffer")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        self.advance(false)
    }

    /// Returns the next message when no more bytes will follow, including a final message that
    /// isn't terminated. Call this until it returns `None`.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        self.advance(true)
    }

    /// Returns the offset in bytes up to which messages have been returned or skipped. Continue
    /// reading a file from here later.
    pub const fn position(&self) -> u64 {
        self.position
    }

    fn advance(&mut self, at_end: bool) -> Option<Frame<'_>> {
        let step = self.splitter.step(self.buffer.waiting(), at_end);
        let used = step.used();
        let from = self.position;
        self.position += used as u64;
        frame_of(step, self.buffer.take(used), from)
    }
}

/// An iterator over the messages in a byte slice, which borrow from the slice.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    splitter: FormatSplitter,
    rest: &'a [u8],
    position: u64,
}

impl<'a> Frames<'a> {
    /// Iterates over the messages in `bytes`, the last of which may be incomplete.
    pub fn new(format: Format, bytes: &'a [u8]) -> Self {
        Self {
            splitter: FormatSplitter::new(format.framing()),
            rest: bytes,
            position: 0,
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        let bytes = self.rest;
        let step = self.splitter.step(bytes, true);
        self.rest = &bytes[step.used()..];
        let from = self.position;
        self.position += step.used() as u64;
        frame_of(step, bytes, from)
    }
}

/// Returns the frame that a step found in `bytes`, if any. `position` is the offset of `bytes` in
/// the stream.
#[inline]
fn frame_of(step: FrameStep, bytes: &[u8], position: u64) -> Option<Frame<'_>> {
    match step {
        FrameStep::Message { from, to, .. } => Some(Frame::Message(&bytes[from..to])),
        FrameStep::TooLong { bytes, to, .. } => {
            let start = (position + to as u64).saturating_sub(bytes);
            Some(Frame::TooLong { bytes, start })
        }
        FrameStep::More { .. } => None,
    }
}

/// Maximum number of lines in a CSV record. If there seem to be more, its first line was truncated,
/// and the quote there is never closed.
const RECORD_LINES_MAX: usize = 16;

/// The end of a message, given by the index just past its last byte and the index where the next
/// message starts.
type MessageEnd = (usize, usize);

/// Finds the messages of one format.
#[derive(Clone, Debug)]
enum FormatSplitter {
    Text(Box<Splitter>),
    Events(callbridge_freeswitch::Splitter),
}

impl FormatSplitter {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::EmptyLine | Framing::Line | Framing::CsvRecord => {
                Self::Text(Box::new(Splitter {
                    framing,
                    crlf: memmem::Finder::new(b"\n\r\n"),
                    bare: memmem::Finder::new(b"\n\n"),
                    doubled: memmem::Finder::new(b"\n\r\r\n"),
                    searched: 0,
                    dropped: 0,
                }))
            }
            Framing::Event => Self::Events(callbridge_freeswitch::Splitter::default()),
        }
    }

    /// Searches for the next message in `bytes`, which continue where the last step's `used` left
    /// off. `at_end` means that no more bytes will follow.
    #[inline]
    fn step(&mut self, bytes: &[u8], at_end: bool) -> FrameStep {
        match self {
            Self::Text(splitter) => splitter.step(bytes, at_end),
            Self::Events(splitter) => splitter.step(bytes, at_end),
        }
    }
}

/// Finds messages that end at an empty line, at a newline, or at the end of a CSV record.
#[derive(Clone, Debug)]
struct Splitter {
    framing: Framing,
    /// Searchers for an empty line, which are built only once.
    crlf: memmem::Finder<'static>,
    bare: memmem::Finder<'static>,
    /// In text mode, Windows writes two carriage returns at the end of each line.
    doubled: memmem::Finder<'static>,
    /// Number of bytes already searched without finding the end of the message.
    searched: usize,
    /// Number of bytes already discarded from a message that's too long.
    dropped: u64,
}

impl Splitter {
    /// Searches for the next message in `bytes`, which continue where the last step's `used` left
    /// off. `at_end` means that no more bytes will follow.
    #[inline]
    fn step(&mut self, bytes: &[u8], at_end: bool) -> FrameStep {
        let from = match self.dropped {
            0 => self.lead(bytes),
            _ => 0,
        };
        let body = &bytes[from..];
        let searched = self.searched.saturating_sub(from);
        let end = match self.framing {
            Framing::EmptyLine => self.empty_line(body, searched, at_end),
            Framing::Line | Framing::Event => line(body, searched, at_end),
            Framing::CsvRecord => record(body, searched, self.dropped > 0, at_end),
        };
        let Some((to, next)) = end else {
            return self.not_found(from, body.len());
        };
        self.searched = 0;
        let used = from + next;
        if self.dropped == 0 && to <= MESSAGE_BYTES_MAX {
            let to = from + to;
            return FrameStep::Message { from, to, used };
        }
        FrameStep::TooLong {
            bytes: std::mem::take(&mut self.dropped) + to as u64,
            to: from + to,
            used,
        }
    }

    fn not_found(&mut self, from: usize, length: usize) -> FrameStep {
        if length <= MESSAGE_BYTES_MAX + TAIL && self.dropped == 0 {
            self.searched = length;
            return FrameStep::More { used: from };
        }
        // The message is too long. Discard everything but the last few bytes, which may be the
        // start of the message's terminator.
        let forgotten = length.saturating_sub(TAIL);
        self.dropped += forgotten as u64;
        self.searched = 0;
        FrameStep::More {
            used: from + forgotten,
        }
    }

    /// Returns the number of bytes to skip before a message.
    #[inline]
    fn lead(&mut self, bytes: &[u8]) -> usize {
        let lead = bytes_before_message(bytes);
        if lead > 0 {
            self.searched = 0;
        }
        lead
    }

    /// Finds the end of a message at an empty line. If the first line has no colon, it's a banner,
    /// which is a message of its own without an empty line after it.
    #[inline]
    fn empty_line(&self, body: &[u8], searched: usize, at_end: bool) -> Option<MessageEnd> {
        if self.dropped == 0
            && let Some(end) = memchr2(b':', b'\n', body)
            && body[end] == b'\n'
        {
            return Some((before_cr(body, end), end + 1));
        }
        let from = searched.saturating_sub(TAIL);
        let first = memchr(b'\n', body);
        if first.is_some_and(|first| body[..first].ends_with(b"\r\r")) {
            let end = self.doubled.find(&body[from..]).map(|at| from + at);
            return match end {
                Some(at) => Some((before_cr(body, at), at + 4)),
                None => rest(body, at_end),
            };
        }
        let crlf = self.crlf.find(&body[from..]).map(|at| from + at);
        // `\n\n` may start before `\n\r\n` and end with its first byte, so search one byte further.
        let until = crlf.map_or(body.len(), |at| at + 1);
        let bare = self.bare.find(&body[from..until]).map(|at| from + at);
        match (bare, crlf) {
            (Some(at), _) => Some((before_cr(body, at), at + 2)),
            (None, Some(at)) => Some((before_cr(body, at), at + 3)),
            (None, None) => rest(body, at_end),
        }
    }
}

/// Number of bytes to search again when more arrive. The longest terminator is `\n\r\r\n`, and its
/// last byte may be missing.
const TAIL: usize = 3;

fn line(body: &[u8], searched: usize, at_end: bool) -> Option<MessageEnd> {
    match memchr(b'\n', &body[searched..]) {
        Some(at) => Some((before_cr(body, searched + at), searched + at + 1)),
        None => rest(body, at_end),
    }
}

/// Returns all bytes as the last message if no more bytes will follow.
fn rest(body: &[u8], at_end: bool) -> Option<MessageEnd> {
    (at_end && !body.is_empty()).then(|| (body.trim_ascii_end().len().max(1), body.len()))
}

/// Returns `end`, or `end - 1` if the byte before it is a carriage return.
#[inline]
fn before_cr(body: &[u8], end: usize) -> usize {
    end - usize::from(end > 0 && body[end - 1] == b'\r')
}

/// Returns `true` if the byte may be the delimiter of a CSV file. Which one a file uses is
/// determined later, when its records are decoded.
const fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b',' | b';' | b'\t' | b'|')
}

/// Returns `true` if no quote is open at the end of the line, which makes the line a complete
/// record, as nearly every line is. This check is faster than [`quoted_record`], because it only
/// looks at the quotes.
fn is_whole(line: &[u8]) -> bool {
    let mut quoted = false;
    let mut from = 0;
    while let Some(at) = memchr(b'"', &line[from..]).map(|at| from + at) {
        from = at + 1;
        if !quoted {
            quoted = starts_field(&line[..at]);
        } else if line.get(from) == Some(&b'"') {
            from += 1;
        } else {
            quoted = false;
        }
    }
    !quoted || is_whole_with_backslashes(line)
}

/// Returns `true` if a new field starts after these bytes of a line, since only there can a quote
/// be an opening one.
fn starts_field(before: &[u8]) -> bool {
    let last = before.iter().rfind(|byte| **byte != b' ');
    last.is_none_or(|byte| is_delimiter(*byte))
}

/// Returns `true` if the line is a complete record with `\"` in its quoted fields, each of which
/// ends at a delimiter.
fn is_whole_with_backslashes(line: &[u8]) -> bool {
    if memmem::find(line, br#"\""#).is_none() {
        return false;
    }
    let mut quoted = false;
    let mut from = 0;
    while let Some(at) = memchr(b'"', &line[from..]).map(|at| from + at) {
        from = at + 1;
        if !quoted {
            quoted = starts_field(&line[..at]);
        } else if line[at - 1] != b'\\' {
            if !ends_field(&line[from..]) {
                return false;
            }
            quoted = false;
        }
    }
    !quoted
}

/// Returns `true` if a field ends before these bytes, ignoring spaces.
fn ends_field(after: &[u8]) -> bool {
    let next = after.iter().find(|byte| **byte != b' ');
    next.is_none_or(|next| is_delimiter(*next) || matches!(next, b'\r' | b'\n'))
}

/// Finds the end of a CSV record, which is a newline outside of quotes. `dropping` is `true` while
/// a record that's too long is being discarded, in which case it ends with its line.
fn record(body: &[u8], searched: usize, dropping: bool, at_end: bool) -> Option<MessageEnd> {
    let fresh = memchr(b'\n', &body[searched..]).is_some();
    if !fresh && !at_end {
        return None;
    }
    if dropping {
        return line(body, 0, at_end);
    }
    let first = memchr(b'\n', body);
    match first.filter(|&first| is_whole(&body[..first])) {
        Some(first) => Some((before_cr(body, first), first + 1)),
        None => quoted_record(body, first, at_end),
    }
}

/// Finds the end of a record whose first line has an open quote. `first` is the index of the first
/// newline. If the record would be too long or malformed, the first line was truncated, so the
/// record consists of just that line.
fn quoted_record(body: &[u8], first: Option<usize>, at_end: bool) -> Option<MessageEnd> {
    let first_line = first.map(|first| (before_cr(body, first), first + 1));
    let mut at = 0;
    let mut lines = 0;
    let mut quoted = false;
    let mut field_starts = true;
    while at < body.len() {
        match (body[at], quoted) {
            (b'"', false) if field_starts => quoted = true,
            (b'"', true) if body.get(at + 1) == Some(&b'"') => at += 1,
            (b'"', true) => {
                let is_first_line = first.is_none_or(|first| at < first);
                if !is_first_line && !ends_field(&body[at + 1..]) {
                    return first_line;
                }
                quoted = false;
            }
            (b'\n', false) => return Some((before_cr(body, at), at + 1)),
            (b'\n', true) => {
                lines += 1;
                if lines >= RECORD_LINES_MAX {
                    return first_line;
                }
            }
            _ => {}
        }
        field_starts = !quoted && (is_delimiter(body[at]) || field_starts && body[at] == b' ');
        at += 1;
    }
    if quoted && at_end && first_line.is_some() {
        return first_line;
    }
    rest(body, at_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the end of the record using the general search, without the shortcut for complete
    /// lines.
    fn general_record_end(body: &[u8]) -> Option<MessageEnd> {
        quoted_record(body, memchr(b'\n', body), true)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn whole_line_shortcut_matches_the_general_search(text in "[\",;|a \r\n]{0,24}\n?") {
            let body = text.as_bytes();
            prop_assert_eq!(record(body, 0, false, true), general_record_end(body));
        }
    }

    #[test]
    fn quoted_line_end_stays_in_record_with_any_delimiter() {
        for delimiter in [",", ";", "\t", "|"] {
            let first = ["\"1\"", "two", "\"a\nb\"", "\"\""].join(delimiter);
            let body = format!("{first}\n\"2\"{delimiter}\n");
            let end = Some((first.len(), first.len() + 1));
            assert_eq!(record(body.as_bytes(), 0, false, false), end, "{body}");
        }
    }

    /// Returns the messages of a stream that arrives in pieces of `length` bytes, with a marker for
    /// each message that's too long.
    fn read_in_pieces(format: Format, stream: &[u8], length: usize) -> Vec<String> {
        let mut framer = Framer::new(format);
        let mut read = Vec::new();
        for piece in stream.chunks(length) {
            framer.push(piece);
            while let Some(frame) = framer.next() {
                read.push(match frame {
                    Frame::Message(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    Frame::TooLong { bytes, start } => format!("{bytes} bytes at {start}"),
                });
            }
            assert!(framer.buffer.len() <= 2 * MESSAGE_BYTES_MAX + length);
        }
        read
    }

    #[test]
    fn nul_bytes_before_a_message_are_skipped() {
        let hole = vec![0; MESSAGE_BYTES_MAX + 70_000];
        let messages: [(Format, &str); 4] = [
            (Format::CelCsv, "\"CHAN_START\",\"1\""),
            (Format::AmiJson, "{\"Event\":\"Hangup\"}"),
            (Format::Ami, "Event: Hangup\r\nUniqueid: 1.1\r\n"),
            (Format::Freeswitch, "{\"Event-Name\":\"CHANNEL_CREATE\"}"),
        ];
        for (format, message) in messages {
            let part = [&hole[..], message.as_bytes(), b"\r\n"].concat();
            let expected = [message.trim_end(), message.trim_end()];
            for length in [4_093, 65_536, 4 << 20] {
                let read = read_in_pieces(format, &part.repeat(2), length);
                assert_eq!(read, expected, "{format}, pieces of {length}");
            }
        }
    }

    #[test]
    fn byte_order_mark_before_a_message_is_skipped() {
        for format in Format::ALL {
            let (message, end) = match format.framing() {
                Framing::EmptyLine => ("Event: Hangup\r\nUniqueid: 1.1", "\r\n\r\n"),
                Framing::CsvRecord => ("\"two\nlines\",\"1\"", "\r\n"),
                Framing::Line | Framing::Event => ("{\"Event-Name\":\"X\"}", "\r\n"),
            };
            // The second mark is where files were concatenated.
            let part = format!("\u{feff}{message}{end}");
            for length in [1, 2, 3, 4, 1_000] {
                let read = read_in_pieces(*format, part.repeat(2).as_bytes(), length);
                assert_eq!(read, [message; 2], "{format}, pieces of {length}");
            }
        }
    }

    #[test]
    fn quote_after_blanks_or_escaped_by_backslash_ends_its_field() {
        for record in [
            "\"a\", \"two\nlines\" , \"b\"",
            "\"a\",\"say \\\"hi\\\"\"",
            "\"\\\"Bob, b\\\" <9>\",\"two\nlines\"",
            " 1 | \"\" <9> | ",
        ] {
            let stream = format!("{record}\nnext,1\n");
            let read = read_in_pieces(Format::CdrCsv, stream.as_bytes(), 1_000);
            assert_eq!(read, [record.trim_start(), "next,1"], "{record}");
        }
    }

    #[test]
    fn too_long_message_is_reported_with_size_and_offset() {
        let long = "x".repeat(MESSAGE_BYTES_MAX + 70_000);
        let csv = ("a,b\n".to_owned(), format!("{long}\r\n"), "c,d\n");
        let ami = (
            "A: b\r\n\r\n".to_owned(),
            format!("C: {long}\r\n\r\n"),
            "E: f\r\n\r\n",
        );
        let line = format!("{{\"x\":\"{long}\"}}\n");
        let json = (
            "{\"Event-Name\":1}\n".to_owned(),
            line,
            "{\"Event-Name\":2}\n",
        );
        for (format, (before, long, after)) in [
            (Format::CdrCsv, csv),
            (Format::Ami, ami),
            (Format::Freeswitch, json),
        ] {
            let stream = [before.as_str(), &long, after].concat();
            let bytes = long.trim_end().len();
            let expected = [
                before.trim_end(),
                &format!("{bytes} bytes at {}", before.len()),
                after.trim_end(),
            ];
            for length in [4_093, 65_536, 4 << 20] {
                let read = read_in_pieces(format, stream.as_bytes(), length);
                assert_eq!(read, expected, "{format}, pieces of {length}");
            }
        }
    }
}
