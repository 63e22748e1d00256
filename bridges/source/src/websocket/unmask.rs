//! Turns WebSocket text frames into binary frames before tungstenite (the WebSocket library) reads
//! them.
//!
//! tungstenite ends a connection if a single byte in a text frame isn't valid UTF-8, and amiws
//! passes on callers' names unchanged. In binary frames, such names reach the decoder, which
//! repairs them.
//!
//! ```text
//! HTTP/1.1 101 …\r\n…\r\n\r\n          skipped
//! ┌ FIN RSV opcode ┬ mask, len 7 ┬ len 16 or 64 ┬ key 32 ┬ payload ┐
//! │  opcode 1 → 2  │     0..=125 │  for 126, 127 │ if mask │         │  a control frame may come
//! └────────────────┴─────────────┴──────────────┴────────┴─────────┘  between fragments
//! ```

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// Changes text frames to binary frames, keeping track of the position in the stream. The result
/// doesn't depend on how the stream is split into reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Whether the HTTP response is complete, so that frames follow.
    upgraded: bool,
    /// The last bytes of the HTTP response and, later on, the part of a frame's head received so
    /// far.
    head: Vec<u8>,
    /// Remaining bytes of the frame's key and payload.
    left: u64,
}

impl Filter {
    /// Changes the opcodes in these bytes in place.
    pub(crate) fn pass(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        loop {
            let rest = bytes.len() - at;
            let skip = usize::try_from(self.left).map_or(rest, |left| left.min(rest));
            self.left -= skip as u64;
            at += skip;
            let Some(byte) = bytes.get_mut(at) else {
                return;
            };
            self.step(byte);
            at += 1;
        }
    }

    fn step(&mut self, byte: &mut u8) {
        if !self.upgraded {
            self.head.push(*byte);
            self.upgraded = self.head.ends_with(b"\r\n\r\n");
            if self.upgraded {
                self.head.clear();
            } else {
                self.head.drain(..self.head.len().saturating_sub(3));
            }
            return;
        }
        if self.head.is_empty() && *byte & 0x0f == TEXT {
            *byte = *byte & 0xf0 | BINARY;
        }
        self.head.push(*byte);
        let length = match self.head[1..] {
            [second, a, b] if second & 0x7f == 126 => u64::from(u16::from_be_bytes([a, b])),
            [_, a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            [second] if second & 0x7f < 126 => u64::from(second & 0x7f),
            _ => return,
        };
        let key = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        self.left = length.saturating_add(key);
        self.head.clear();
    }
}

/// The read half of a stream, with the [`Filter`] applied.
pub(crate) struct Unmasked<S> {
    pub(crate) stream: S,
    pub(crate) filter: Filter,
}

impl<S: AsyncRead + Unpin> AsyncRead for Unmasked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        this.filter.pass(&mut buffer.filled_mut()[before..]);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HTTP: &[u8] = b"HTTP/1.1 101 Switching\r\nA: \r\r\n\x01\x81\r\n\r\n";

    /// Creates a frame as defined in RFC 6455 §5.2.
    fn frame(first: u8, payload: &[u8], masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..126 => frame.push(mask | u8::try_from(length).expect("short")),
            length @ 126..65_536 => {
                frame.push(mask | 126);
                frame.extend(u16::try_from(length).expect("middling").to_be_bytes());
            }
            length => {
                frame.push(mask | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        if masked {
            frame.extend([1, 0x81, 2, 3]);
        }
        frame.extend(payload);
        frame
    }

    #[test]
    fn filter_changes_only_the_opcode_of_text_frames() {
        let long = vec![0x81; 70_000];
        let mut stream = HTTP.to_vec();
        let mut wanted = HTTP.to_vec();
        for (first, becomes) in [
            (0x81, 0x82), // text
            (0x82, 0x82), // binary
            (0x01, 0x02), // the first fragment of a text
            (0x89, 0x89), // a ping between the fragments
            (0x00, 0x00), // a middle fragment
            (0x80, 0x80), // the last one
            (0xc1, 0xc2), // text, compressed
            (0x88, 0x88), // close
        ] {
            for payload in [&b""[..], b"\x81\x01", &long[..125], &long[..126], &long] {
                for masked in [false, true] {
                    stream.extend(frame(first, payload, masked));
                    wanted.extend(frame(becomes, payload, masked));
                }
            }
        }
        Filter::default().pass(&mut stream);
        assert!(stream == wanted);
    }

    proptest! {
        #[test]
        fn stream_split_anywhere_yields_the_same_bytes(
            frames in proptest::collection::vec((any::<u8>(), 0_usize..300, any::<bool>()), 0..8),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..24),
        ) {
            let mut stream = HTTP.to_vec();
            for (first, length, masked) in frames {
                stream.extend(frame(first, &vec![0x81; length], masked));
            }
            let mut whole = stream.clone();
            Filter::default().pass(&mut whole);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut filter, mut from) = (Filter::default(), 0);
            for cut in cuts.into_iter().chain([stream.len()]) {
                filter.pass(&mut stream[from..cut]);
                from = cut;
            }
            prop_assert_eq!(stream, whole);
        }

        #[test]
        fn filter_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (head, left) = (Vec::new(), 0);
            Filter { upgraded: true, head, left }.pass(&mut bytes);
        }
    }
}
