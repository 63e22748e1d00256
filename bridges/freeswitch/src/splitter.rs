//! Splits FreeSWITCH's messages, both on the event socket and in recordings of it.
//!
//! ```text
//! Content-Length: 817            outer headers   ┐
//! Content-Type: text/event-plain                 │ one frame
//!                                empty line      │
//! Event-Name: CHANNEL_CREATE…    817 bytes: the message
//! {"Event-Name":"CHANNEL_…"}     one event per line, as JSON
//! Event-Name: CHANNEL_CREATE…    a plain event that ends with its own empty line
//! ```
//! All three forms are recognized by how they start, so no setting is needed, and a recording may
//! start in the middle of a frame. An empty line after a body is optional.

use crate::block::{end_of_block, value_of};
use callbridge_call::framing::{
    BYTE_ORDER_MARK, FrameStep, MESSAGE_BYTES_MAX, bytes_before_message,
};
use memchr::{memchr, memmem};

/// The start of an event socket frame.
const FRAME: &[u8] = b"Content-";
/// How a plain event may start. `CUSTOM` events start with their subclass.
const EVENTS: [&[u8]; 2] = [b"Event-Name: ", b"Event-Subclass: "];
/// Number of bytes at the end of a piece that are searched again, because they may be the start of
/// a frame.
const TAIL: usize = 64;

/// Finds messages in bytes that continue where the last step left off. The first bytes may be from
/// anywhere in a stream.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    /// Number of bytes skipped so far while searching for the next message, or `None` if no search
    /// is in progress.
    astray: Option<u64>,
    /// Whether the skipped bytes belong to a message that was too long.
    too_long: bool,
    /// Length of the frame at the start of the current bytes, or 0 if it isn't known yet.
    needs: usize,
}

/// The result of examining the current bytes.
enum Sighting {
    /// A message, along with the index where the next one starts.
    Found {
        from: usize,
        to: usize,
        next: usize,
    },
    TooLong {
        bytes: u64,
        to: usize,
        used: usize,
    },
    /// Skip this many bytes, and examine the rest again.
    Skip(usize),
    /// Skip this many bytes, and wait for more.
    Wait(usize),
}

impl Splitter {
    /// Searches for the next message in `bytes`, which continue where the last step's `used` left
    /// off. `at_end` means that no more bytes will follow.
    pub fn step(&mut self, bytes: &[u8], at_end: bool) -> FrameStep {
        let mut done = 0;
        loop {
            let rest = &bytes[done..];
            let sighting = match self.astray {
                Some(_) => self.search(rest, at_end),
                None => self.classify(rest, at_end),
            };
            match sighting {
                Sighting::Skip(used) => done += used,
                Sighting::Wait(used) => return FrameStep::More { used: done + used },
                Sighting::TooLong { bytes, to, used } => {
                    return FrameStep::TooLong {
                        bytes,
                        to: done + to,
                        used: done + used,
                    };
                }
                Sighting::Found { from, to, next } => {
                    return FrameStep::Message {
                        from: done + from,
                        to: done + to,
                        used: done + next,
                    };
                }
            }
        }
    }

    /// Checks whether a message starts at the first byte, after skipping anything that comes before
    /// it.
    fn classify(&mut self, bytes: &[u8], at_end: bool) -> Sighting {
        let lead = bytes_before_message(bytes);
        if lead > 0 {
            return Sighting::Skip(lead);
        }
        let is_cut_mark = BYTE_ORDER_MARK.starts_with(bytes);
        if bytes.is_empty() || (bytes.len() < self.needs || is_cut_mark) && !at_end {
            return Sighting::Wait(0);
        }
        self.needs = 0;
        let is_event = EVENTS.iter().any(|event| begins(bytes, event));
        let found = if bytes[0] == b'{' {
            line(bytes, at_end)
        } else if is_event || begins(bytes, FRAME) {
            self.block(bytes, is_event, at_end)
        } else {
            self.astray = Some(0);
            return Sighting::Skip(0);
        };
        match found {
            Sighting::Found { from, to, next } if to - from > MESSAGE_BYTES_MAX => {
                Sighting::TooLong {
                    bytes: (to - from) as u64,
                    to,
                    used: next,
                }
            }
            Sighting::Wait(_) if bytes.len() > 2 * MESSAGE_BYTES_MAX => self.is_too_long(1),
            found => found,
        }
    }

    /// Finds the end of a frame including its body, or of a plain event without a frame.
    fn block(&mut self, bytes: &[u8], is_event: bool, at_end: bool) -> Sighting {
        let Some((end, body)) = end_of_block(bytes) else {
            if !at_end {
                return Sighting::Wait(0);
            }
            return Sighting::Found {
                from: 0,
                to: bytes.len(),
                next: bytes.len(),
            };
        };
        let head = &bytes[..end];
        let length = length(head).unwrap_or(0);
        if length > MESSAGE_BYTES_MAX {
            return self.is_too_long(body);
        }
        let whole = body + length;
        let there = &bytes[body..whole.min(bytes.len())];
        // The body is shorter than `Content-Length`, because the next frame starts inside it.
        if !is_event && let Some(cut) = next_frame(head, there) {
            let to = body + cut;
            return Sighting::Found {
                from: body,
                to,
                next: to,
            };
        }
        if bytes.len() < whole && !at_end {
            self.needs = whole;
            return Sighting::Wait(0);
        }
        let to = whole.min(bytes.len());
        // Keep a reply's headers, because they contain the reply, but drop those of an event or a
        // JSON body.
        let bare = !is_event && (is_of_event(head) || there.first() == Some(&b'{'));
        let from = if bare && to > body { body } else { 0 };
        Sighting::Found { from, to, next: to }
    }

    /// Starts skipping a message that's too long to keep.
    fn is_too_long(&mut self, used: usize) -> Sighting {
        self.astray = Some(used as u64);
        self.too_long = true;
        Sighting::Skip(used)
    }

    /// Searches for the start of the next frame, event, or JSON line.
    fn search(&mut self, bytes: &[u8], at_end: bool) -> Sighting {
        let skipped = self.astray.unwrap_or(0);
        let found = beginning(bytes, skipped == 0);
        if found.is_none() && !at_end {
            let used = bytes.len().saturating_sub(TAIL);
            self.astray = Some(skipped + used as u64);
            return Sighting::Wait(used);
        }
        let used = found.unwrap_or(bytes.len());
        self.astray = None;
        if std::mem::take(&mut self.too_long) {
            return Sighting::TooLong {
                bytes: skipped + used as u64,
                to: used,
                used,
            };
        }
        Sighting::Skip(used)
    }
}

/// Returns `true` if either of `bytes` and `with` is a prefix of the other.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let most = bytes.len().min(with.len());
    bytes[..most] == with[..most]
}

fn line(bytes: &[u8], at_end: bool) -> Sighting {
    let (to, next) = match memchr(b'\n', bytes) {
        Some(end) => (end, end + 1),
        None if at_end => (bytes.len(), bytes.len()),
        None => return Sighting::Wait(0),
    };
    let to = bytes[..to].strip_suffix(b"\r").map_or(to, <[u8]>::len);
    Sighting::Found { from: 0, to, next }
}

/// Returns the headers' `Content-Length`, treating a value that isn't a number as the maximum.
fn length(head: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value_of(head, b"Content-Length")?).unwrap_or_default();
    Some(text.trim().parse().unwrap_or(usize::MAX))
}

fn is_of_event(head: &[u8]) -> bool {
    let kind = value_of(head, b"Content-Type").unwrap_or_default();
    kind.starts_with(b"text/event-")
}

/// Returns the offset in an event's body where the next frame starts. A body doesn't normally
/// contain a frame, so the event must have been cut off there. Content carried by the event itself
/// isn't searched.
fn next_frame(head: &[u8], body: &[u8]) -> Option<usize> {
    if !is_of_event(head) {
        return None;
    }
    let mut lengths = memmem::find_iter(body, b"Content-Length: ");
    let at = lengths.find(|&at| is_frame(&body[at..]))?;
    let Some((end, inner)) = end_of_block(body) else {
        return Some(at);
    };
    let is_whole = inner.saturating_add(length(&body[..end]).unwrap_or(0)) >= body.len();
    if is_whole && at >= end {
        None
    } else {
        Some(at)
    }
}

/// Returns `true` if the bytes start with the `Content-Length` and `Content-Type` headers of an
/// event or a response.
fn is_frame(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"Content-Length: ") else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let kinds: [&[u8]; 2] = [b"\nContent-Type: text/event-", b"\nContent-Type: api/"];
    digits > 0 && kinds.iter().any(|kind| rest[digits..].starts_with(kind))
}

/// Returns the offset of the next frame, event, or JSON line, which may be at the first byte if
/// `first` is `true`.
fn beginning(bytes: &[u8], first: bool) -> Option<usize> {
    let frame = memmem::find_iter(bytes, b"Content-").find(|&at| {
        let replies: [&[u8]; 2] = [b"Content-Type: command/reply", b"Content-Type: auth/"];
        is_frame(&bytes[at..]) || replies.iter().any(|reply| bytes[at..].starts_with(reply))
    });
    let event = line_start(bytes, b"\nEvent-Name: ", first);
    let json = line_start(bytes, b"\n{\"", first);
    [frame, event, json].into_iter().flatten().min()
}

/// Returns the offset of the next line that starts with `begin`, which includes the line feed
/// before the line. If `first` is `true`, the line may also be at the first byte.
fn line_start(bytes: &[u8], begin: &[u8], first: bool) -> Option<usize> {
    if let Some(line_feed) = memmem::find(bytes, begin) {
        return Some(line_feed + 1);
    }
    if first && bytes.starts_with(&begin[1..]) {
        Some(0)
    } else {
        None
    }
}
