//! Splits the bytes of a live event socket into frames.
//!
//! ```text
//! Content-Length: 814            a block of headers, each line ended by a line feed
//! Content-Type: text/event-json
//!                                an empty line
//! {"Event-Name":"HEARTBEAT",…    exactly Content-Length bytes, none without the header
//! ```
//! An empty line after a body is optional and skipped. Bytes that aren't a frame are an error that
//! ends the connection, because there's no way to find where the next frame starts.

use crate::block::{end_of_block, header};
use callbridge_call::framing::ReadBuffer;

/// Maximum length of a frame's headers in bytes. Normally, they're three or four short lines.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a body in bytes. Longer ones are skipped. A list of ten thousand channels
/// takes up about ten million bytes.
const BODY_BYTES_MAX: u64 = 32 << 20;

/// A frame from the event socket, borrowed from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFrame<'a> {
    head: &'a [u8],
    /// The bytes after the empty line.
    pub body: &'a [u8],
}

impl<'a> SocketFrame<'a> {
    /// Returns the value of one of the frame's headers, without decoding it.
    pub fn header(&self, key: &str) -> Option<&'a [u8]> {
        header(self.head, key)
    }
}

/// What a [`FrameReader`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRead<'a> {
    /// A complete frame, with its headers and body.
    Frame(SocketFrame<'a>),
    /// A frame whose body is longer than the limit and is therefore skipped.
    TooLong,
}

/// An error indicating that the bytes don't come from an event socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a frame of an event socket: {line:?}")]
pub struct NoFrame {
    /// The first line, truncated to 80 bytes.
    pub line: String,
}

/// Collects bytes in pieces of any size, and returns complete frames that borrow from the reader.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: ReadBuffer,
    /// How many bytes of a body that's too long are still to be skipped.
    skip: u64,
}

impl FrameReader {
    /// Returns the buffer to read the connection into.
    pub const fn buffer(&mut self) -> &mut ReadBuffer {
        &mut self.buffer
    }

    /// Returns the next complete frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes don't come from an event socket, in which case subsequent
    /// bytes can't be read either.
    #[allow(clippy::should_implement_trait, reason = "lends from its own buffer")]
    pub fn next(&mut self) -> Result<Option<FrameRead<'_>>, NoFrame> {
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        self.skip -= self.buffer.take(skip).len() as u64;
        let waiting = self.buffer.waiting().iter();
        let blank = waiting
            .take_while(|byte| matches!(byte, b'\n' | b'\r'))
            .count();
        self.buffer.take(blank);
        let Some((head, body)) = lengths(self.buffer.waiting())? else {
            return Ok(None);
        };
        if body > BODY_BYTES_MAX {
            self.buffer.take(head);
            self.skip = body;
            return Ok(Some(FrameRead::TooLong));
        }
        let body = usize::try_from(body).unwrap_or(usize::MAX);
        if self.buffer.len() - head < body {
            return Ok(None);
        }
        let (head, body) = self.buffer.take(head + body).split_at(head);
        Ok(Some(FrameRead::Frame(SocketFrame { head, body })))
    }
}

/// Returns two lengths for the frame at the start of `bytes`, which are those of the headers
/// (including their empty line) and of the body, or `None` if the headers are incomplete.
fn lengths(bytes: &[u8]) -> Result<Option<(usize, u64)>, NoFrame> {
    if memchr::memchr(b'\n', bytes).is_some_and(|end| !bytes[..end].contains(&b':')) {
        return Err(no_frame(bytes));
    }
    let Some((_, head)) = end_of_block(bytes) else {
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(no_frame(bytes));
        }
        return Ok(None);
    };
    let length = header(&bytes[..head], "Content-Length").unwrap_or(b"0");
    let body = std::str::from_utf8(length)
        .ok()
        .and_then(|length| length.parse().ok());
    match body {
        Some(body) => Ok(Some((head, body))),
        None => Err(no_frame(bytes)),
    }
}

fn no_frame(bytes: &[u8]) -> NoFrame {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let start = &line[..line.len().min(80)];
    NoFrame {
        line: String::from_utf8_lossy(start).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = "Content-Type: auth/request\n\nContent-Type: command/reply\n\
        Reply-Text: +OK accepted\n\nContent-Length: 3\nContent-Type: api/response\n\n-OK\n\
        Content-Length: 2\nContent-Type: text/event-json\n\n{}Content-Type: command/reply\n\n";

    fn read(pieces: &[&[u8]]) -> Result<Vec<String>, NoFrame> {
        let (mut reader, mut all) = (FrameReader::default(), Vec::new());
        for piece in pieces {
            reader.buffer().push(piece);
            while let Some(read) = reader.next()? {
                all.push(match read {
                    FrameRead::Frame(frame) => {
                        let kind = frame.header("Content-Type").unwrap_or_default();
                        let body = String::from_utf8_lossy(frame.body);
                        format!("{} {body}", String::from_utf8_lossy(kind))
                    }
                    FrameRead::TooLong => "too long".to_owned(),
                });
            }
        }
        Ok(all)
    }

    const FRAMES: [&str; 5] = [
        "auth/request ",
        "command/reply ",
        "api/response -OK",
        "text/event-json {}",
        "command/reply ",
    ];

    proptest! {
        #[test]
        fn stream_cut_anywhere_yields_the_same_frames(
            mut cuts in prop::collection::vec(0..STREAM.len(), 0..8),
        ) {
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &STREAM.as_bytes()[pair[0]..pair[1]]);
            let pieces: Vec<&[u8]> = pieces.collect();
            prop_assert_eq!(read(&pieces).expect("frames"), FRAMES);
        }

        #[test]
        fn reader_never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&[&bytes]);
        }
    }

    #[test]
    fn too_long_body_is_skipped() {
        let long = vec![b'x'; (32 << 20) + 1];
        let head = format!("Content-Length: {}\n\n", long.len());
        let frames = read(&[head.as_bytes(), &long, b"Content-Type: a/b\n\n"]);
        assert_eq!(frames.expect("frames"), ["too long", "a/b "]);
    }

    #[test]
    fn stream_that_is_not_an_event_socket_is_refused_at_once() {
        let banner = read(&[b"Asterisk Call Manager/11.0.0\r\n"]).expect_err("no frame");
        assert_eq!(banner.line, "Asterisk Call Manager/11.0.0");
        assert!(read(&[b"Content-Length: many\n\n"]).is_err());
        assert!(
            read(&[&vec![b':'; 70_000]]).is_err(),
            "a header without an end"
        );
    }
}
