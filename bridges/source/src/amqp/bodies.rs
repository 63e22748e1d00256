//! Truncates and counts the message bodies arriving on a broker's connection before lapin (the AMQP
//! library) stores them.
//!
//! A broker limits the number of unacknowledged messages, but not their size. Since lapin holds
//! each body as a whole, a few large messages would fill up our memory, and do so again at every
//! startup. That's why we limit what's read from the connection itself. Bytes that exceed a body's
//! limit are dropped here, and once all bodies together have reached their limit, nothing more is
//! read until the consumer takes messages. Methods and content headers pass through [`frames`] on
//! the way.
//!
//! The dropped bytes are replaced with heartbeats, so that a connection isn't considered dead while
//! a long body arrives slowly.

use super::frames::{self, BODY, CONTENT, HEAD, HEARTBEAT, METHOD};
use crate::connect::Stream;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker, ready};
use std::{io, pin::Pin, sync::Arc};
use tokio::io::{AsyncRead, ReadBuf, ReadHalf};

const READ_BYTES: usize = 64 << 10;

/// Maximum number of truncated bodies whose original length is remembered. This only matters for a
/// connection that just publishes, where nothing ever takes the lengths.
const CUT_MAX: usize = 4_096;

const CONTENT_HEADER: u8 = 2;
const END: u8 = 0xce;
const HEARTBEAT_FRAME: [u8; 8] = [HEARTBEAT, 0, 0, 0, 0, 0, 0, END];

/// Counts the bytes held in bodies. Shared between the connection and the consumer of its messages.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    /// Maximum number of bytes held per message. A longer message is truncated to one byte more
    /// than that, so that the consumer can tell it's too long.
    one: u64,
    /// Maximum number of bytes held in all messages that the consumer hasn't taken yet. The last
    /// read may exceed this by up to 64 KiB.
    all: u64,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    /// Original lengths of the truncated bodies in bytes, in order.
    cut: VecDeque<u64>,
    /// Wakes the connection if it's waiting for room.
    line: Option<Waker>,
}

impl Bodies {
    pub(super) fn new(one: u64, all: u64) -> Self {
        let held = Arc::default();
        Self { one, all, held }
    }

    /// Records that the consumer took a message of `length` bytes. Returns the message's original
    /// length if it was truncated.
    pub(super) fn note_taken(&self, length: usize) -> Option<u64> {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        self.make_room(|held| {
            held.bytes = held.bytes.saturating_sub(length);
            let was_cut = length > self.one;
            was_cut.then(|| held.cut.pop_front()).flatten()
        })
    }

    /// Runs `free`, which releases held bytes, and wakes the connection if it's waiting for room.
    fn make_room<T>(&self, free: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.held.lock();
        let freed = free(&mut held);
        let line = held.line.take();
        drop(held);
        line.into_iter().for_each(Waker::wake);
        freed
    }

    /// Returns `true` if there's room to read more. Otherwise, `line` is woken once there is.
    fn has_room(&self, line: &Waker) -> bool {
        let mut held = self.held.lock();
        let room = held.bytes < self.all;
        if !room {
            held.line = Some(line.clone());
        }
        room
    }
}

/// Truncates the bodies in the bytes sent by a broker.
#[derive(Debug)]
struct Cutter {
    bodies: Bodies,
    /// The start of a frame, collected until there's enough of it to pass it on.
    begun: Vec<u8>,
    /// Number of bytes to pass on next, after which `drop` bytes are dropped.
    keep: u64,
    drop: u64,
    /// Whether the octet that ends the frame must be passed on because part of the frame was.
    ends: bool,
    /// How many bytes of each channel's current body can still be passed on.
    left: BTreeMap<u16, u64>,
}

impl Cutter {
    fn new(bodies: Bodies) -> Self {
        Self {
            bodies,
            begun: Vec::new(),
            keep: 0,
            drop: 0,
            ends: false,
            left: BTreeMap::new(),
        }
    }

    /// Processes the bytes in `read`, and appends those to pass on to `stays`.
    ///
    /// # Errors
    /// Returns an error for a frame that no broker is allowed to send.
    fn cut(&mut self, mut read: &[u8], stays: &mut Vec<u8>) -> io::Result<()> {
        while !read.is_empty() {
            if self.keep > 0 {
                stays.extend_from_slice(split(&mut read, &mut self.keep));
            } else if self.drop > 0 {
                split(&mut read, &mut self.drop);
            } else if std::mem::take(&mut self.ends) {
                self.keep = 1;
            } else {
                self.begun.push(read[0]);
                read = &read[1..];
                self.understand(stays)?;
            }
        }
        Ok(())
    }

    /// Interprets a frame once `begun` contains enough of it. Appends the part of it that's known
    /// to `stays`, or a heartbeat if the whole frame is dropped.
    fn understand(&mut self, stays: &mut Vec<u8>) -> io::Result<()> {
        let Some((head, payload)) = self.begun.split_first_chunk::<HEAD>() else {
            return Ok(());
        };
        let [kind, high, low, a, b, c, d] = *head;
        let channel = u16::from_be_bytes([high, low]);
        let length = u32::from_be_bytes([a, b, c, d]);
        frames::check_length(kind, length)?;
        match kind {
            METHOD => {
                if payload.len() < length as usize {
                    return Ok(());
                }
                let mut method = payload.to_vec();
                frames::clean_method(&mut method)?;
                push_frame(stays, [kind, high, low], &method);
                self.keep = 1;
            }
            CONTENT_HEADER => {
                let Some(mut kept) = frames::keep_content_type(payload, length as usize)? else {
                    return Ok(());
                };
                self.drop = u64::from(length) - payload.len() as u64 + 1;
                self.content(channel, &mut kept[4..CONTENT]);
                push_frame(stays, [kind, high, low], &kept);
                stays.push(END);
            }
            BODY => self.body(channel, length, stays),
            _ => {
                stays.extend_from_slice(&self.begun);
                self.keep = u64::from(length) + 1;
            }
        }
        self.begun.clear();
        Ok(())
    }

    /// Processes the start of a body frame.
    fn body(&mut self, channel: u16, length: u32, stays: &mut Vec<u8>) {
        let left = self.left.entry(channel).or_insert(u64::MAX);
        let length = u64::from(length);
        let keep = length.min(*left);
        *left -= keep;
        self.bodies.held.lock().bytes += keep;
        if keep == 0 && length > 0 {
            self.drop = length + 1;
            stays.extend_from_slice(&HEARTBEAT_FRAME);
            return;
        }
        let kept = u32::try_from(keep).unwrap_or(u32::MAX);
        let [high, low] = channel.to_be_bytes();
        stays.extend([BODY, high, low]);
        stays.extend(kept.to_be_bytes());
        self.keep = keep;
        self.drop = length - keep;
        self.ends = true;
    }

    /// Processes the header of a message whose body comes next on this channel. `size` starts with
    /// the body's length, which is reduced to the limit.
    fn content(&mut self, channel: u16, size: &mut [u8]) {
        let Some(size) = size.first_chunk_mut::<8>() else {
            return;
        };
        let length = u64::from_be_bytes(*size);
        let most = self.bodies.one.saturating_add(1);
        if length > most {
            *size = most.to_be_bytes();
        }
        let mut held = self.bodies.held.lock();
        if length >= most && held.cut.len() < CUT_MAX {
            held.cut.push_back(length);
        }
        self.left.insert(channel, most);
    }
}

/// Appends a frame without its final octet.
fn push_frame(stays: &mut Vec<u8>, kind_and_channel: [u8; 3], payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    stays.extend(kind_and_channel);
    stays.extend(length.to_be_bytes());
    stays.extend(payload);
}

/// Takes up to `part` bytes from the start of `read`, and subtracts how many it took from `part`.
fn split<'a>(read: &mut &'a [u8], part: &mut u64) -> &'a [u8] {
    let length = usize::try_from(*part).unwrap_or(usize::MAX);
    let (taken, rest) = read.split_at(length.min(read.len()));
    *part -= taken.len() as u64;
    *read = rest;
    taken
}

/// The read half of a broker's connection, where bodies are truncated to the limits before lapin
/// sees them.
pub(super) struct LimitedLine {
    line: ReadHalf<Stream>,
    cutter: Cutter,
    read: Box<[u8]>,
    /// Bytes that are left after truncation. The first `given` of them have been passed on.
    stays: Vec<u8>,
    given: usize,
}

impl LimitedLine {
    pub(super) fn new(line: ReadHalf<Stream>, bodies: Bodies) -> Self {
        Self {
            line,
            cutter: Cutter::new(bodies),
            read: vec![0; READ_BYTES].into(),
            stays: Vec::new(),
            given: 0,
        }
    }
}

impl AsyncRead for LimitedLine {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let limited = self.get_mut();
        while limited.given == limited.stays.len() {
            limited.stays.clear();
            limited.given = 0;
            if !limited.cutter.bodies.has_room(cx.waker()) {
                return Poll::Pending;
            }
            let mut read = ReadBuf::new(&mut limited.read);
            ready!(Pin::new(&mut limited.line).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            limited.cutter.cut(read.filled(), &mut limited.stays)?;
        }
        let ready = &limited.stays[limited.given..];
        let length = ready.len().min(buffer.remaining());
        buffer.put_slice(&ready[..length]);
        limited.given += length;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// Counts how often the connection is woken.
    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short");
        let mut frame = vec![kind];
        frame.extend(channel.to_be_bytes());
        frame.extend(length.to_be_bytes());
        frame.extend(payload);
        frame.push(0xce);
        frame
    }

    /// Returns a content header with a content type and, unless `table` is empty, headers.
    fn header(channel: u16, size: u64, table: &[u8]) -> Vec<u8> {
        let mut payload = vec![0, 60, 0, 0];
        payload.extend(size.to_be_bytes());
        payload.extend([if table.is_empty() { 0x80 } else { 0xa0 }, 0]);
        payload.extend(b"\x04text");
        payload.extend(table);
        frame(CONTENT_HEADER, channel, &payload)
    }

    /// Returns a message's frames, which are the method, the header, and the body in pieces of up
    /// to `most` bytes.
    fn message(channel: u16, body: &[u8], most: usize) -> Vec<u8> {
        let mut all = frame(1, channel, b"deliver");
        all.extend(header(channel, body.len() as u64, b""));
        body.chunks(most)
            .for_each(|part| all.extend(frame(BODY, channel, part)));
        all
    }

    fn remove_heartbeats(bytes: &[u8]) -> Vec<u8> {
        let (mut kept, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let length = u32::from_be_bytes([rest[3], rest[4], rest[5], rest[6]]) as usize;
            let (frame, after) = rest.split_at(HEAD + length + 1);
            assert_eq!(frame.last(), Some(&0xce), "{frame:?}");
            if frame != HEARTBEAT_FRAME {
                kept.extend(frame);
            }
            rest = after;
        }
        kept
    }

    fn cut(cutter: &mut Cutter, read: &[u8], stays: &mut Vec<u8>) {
        cutter.cut(read, stays).expect("frames of a broker");
    }

    fn bodies() -> Bodies {
        Bodies::new(10, 25)
    }

    #[test]
    fn long_body_is_cut_and_its_full_length_is_known() {
        let bodies = bodies();
        let mut cutter = Cutter::new(bodies.clone());
        let mut stays = Vec::new();
        let long: Vec<u8> = (0..40).collect();
        cut(&mut cutter, &message(1, &long, 8), &mut stays);
        cut(&mut cutter, &message(1, b"short", 8), &mut stays);
        assert_eq!(
            stays
                .windows(8)
                .filter(|bytes| *bytes == HEARTBEAT_FRAME)
                .count(),
            3
        );
        let mut wanted = message(1, &long[..11], 8);
        wanted.extend(message(1, b"short", 8));
        assert_eq!(remove_heartbeats(&stays), wanted);
        assert_eq!(
            (bodies.note_taken(11), bodies.note_taken(5)),
            (Some(40), None)
        );
    }

    #[test]
    fn headers_are_dropped_however_long_and_the_body_is_kept() {
        let mut cutter = Cutter::new(bodies());
        let mut stays = Vec::new();
        cut(&mut cutter, &header(1, 5, &[7; 300_000]), &mut stays);
        cut(&mut cutter, &frame(BODY, 1, b"short"), &mut stays);
        let mut wanted = header(1, 5, b"");
        wanted.extend(frame(BODY, 1, b"short"));
        assert_eq!(stays, wanted);
    }

    #[test]
    fn frame_above_the_limit_is_an_error_each_time_it_is_read() {
        let mut cutter = Cutter::new(bodies());
        let mut stays = Vec::new();
        for _ in 0..2 {
            let error = cutter.cut(&[METHOD, 0, 0, 0x7f, 0, 0, 0, 0], &mut stays);
            assert!(error.is_err() && stays.is_empty());
        }
    }

    #[test]
    fn full_buffer_pauses_line_until_bodies_are_taken() {
        let bodies = bodies();
        let mut cutter = Cutter::new(bodies.clone());
        let mut stays = Vec::new();
        let wakes = Arc::<WakeCount>::default();
        let line = Waker::from(Arc::clone(&wakes));
        assert!(bodies.has_room(&line));
        for _ in 0..3 {
            cut(&mut cutter, &message(1, &[7; 9], 8), &mut stays);
        }
        assert!(!bodies.has_room(&line), "27 bytes are held");
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        bodies.note_taken(9);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(bodies.has_room(&line));
        cut(&mut cutter, &message(1, &[7; 9], 8), &mut stays);
        assert!(!bodies.has_room(&line));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    proptest! {
        /// Short bodies stay the same, long ones are truncated to the limit, and every frame is
        /// complete, regardless of how the bytes are read and how the channels are interleaved.
        #[test]
        fn frames_are_whole_after_reads_of_any_size(
            lengths in prop::collection::vec((0_usize..40, 1_u16..4), 1..12),
            most in 1_usize..12,
            pieces in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let (mut written, mut wanted) = (frame(1, 0, b"start"), frame(1, 0, b"start"));
            for (length, channel) in lengths {
                let body: Vec<u8> = (0..40).take(length).collect();
                written.extend(message(channel, &body, most));
                // Truncated frames look just like those that a broker would have sent for the
                // shorter body.
                wanted.extend(message(channel, &body[..length.min(11)], most));
            }
            let mut cutter = Cutter::new(bodies());
            let mut stays = Vec::new();
            let (mut rest, mut turns) = (&written[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let piece = (*turns.next().expect("some")).min(rest.len());
                cut(&mut cutter, &rest[..piece], &mut stays);
                rest = &rest[piece..];
            }
            prop_assert_eq!(remove_heartbeats(&stays), wanted);
        }

        /// Bytes that no broker would send neither cause a panic nor grow in number.
        #[test]
        fn cutter_never_panics_or_grows_on_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            let mut cutter = Cutter::new(bodies());
            let mut stays = Vec::new();
            let _ = cutter.cut(&bytes, &mut stays);
            prop_assert!(stays.len() <= bytes.len() + HEARTBEAT_FRAME.len());
        }
    }
}
