//! Turns WebSocket text frames into binary ones, in the bytes on their way to tungstenite.
//!
//! tungstenite ends a connection at one byte in a text frame that is no UTF-8, and amiws passes
//! callers' names on as they came. As binary frames they reach the decoder, which repairs them.
//!
//! ```text
//! HTTP/1.1 101 …\r\n…\r\n\r\n          stepped over
//! ┌ FIN RSV opcode ┬ mask, len 7 ┬ len 16 or 64 ┬ key 32 ┬ payload ┐
//! │  opcode 1 → 2  │     0..=125 │  for 126, 127 │ if mask │         │  a control frame may
//! └────────────────┴─────────────┴──────────────┴────────┴─────────┘  stand between fragments
//! ```

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// Where in the stream the next byte lies. Pure: any split of the stream gives the same bytes.
#[derive(Clone, Debug)]
pub(crate) struct Filter(State);

#[derive(Clone, Debug)]
enum State {
    /// In the HTTP answer; how much of the closing CR LF CR LF has passed.
    Http { matched: u8 },
    /// At the first byte of a frame.
    First,
    /// At its second byte.
    Second,
    /// In the extended length: bytes to come, length so far, key bytes that follow.
    Length { left: u8, length: u64, key: u8 },
    /// In key and payload: bytes to come.
    Payload { left: u64 },
}

impl Filter {
    pub(crate) fn new() -> Self {
        Self(State::Http { matched: 0 })
    }

    /// Passes bytes on, in place.
    pub(crate) fn pass(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            if let State::Payload { left } = &mut self.0 {
                let skip = usize::try_from(*left).unwrap_or(usize::MAX);
                let skip = skip.min(bytes.len());
                *left -= skip as u64;
                if *left == 0 {
                    self.0 = State::First;
                }
                bytes = &mut bytes[skip..];
                continue;
            }
            self.step(&mut bytes[0]);
            bytes = &mut bytes[1..];
        }
    }

    fn step(&mut self, byte: &mut u8) {
        self.0 = match self.0 {
            State::Http { matched } => match (matched, *byte) {
                (3, b'\n') => State::First,
                (0 | 2, b'\r') | (1, b'\n') => State::Http {
                    matched: matched + 1,
                },
                (_, b'\r') => State::Http { matched: 1 },
                (_, _) => State::Http { matched: 0 },
            },
            State::First => {
                if *byte & 0x0f == TEXT {
                    *byte = *byte & 0xf0 | BINARY;
                }
                State::Second
            }
            State::Second => {
                let key = if *byte & 0x80 == 0 { 0 } else { 4 };
                let length = 0;
                match *byte & 0x7f {
                    126 => State::Length {
                        left: 2,
                        length,
                        key,
                    },
                    127 => State::Length {
                        left: 8,
                        length,
                        key,
                    },
                    length => payload(u64::from(length), key),
                }
            }
            State::Length { left, length, key } => {
                let length = length << 8 | u64::from(*byte);
                match left.saturating_sub(1) {
                    0 => payload(length, key),
                    left => State::Length { left, length, key },
                }
            }
            State::Payload { left } => State::Payload { left },
        };
    }
}

fn payload(length: u64, key: u8) -> State {
    match length.saturating_add(u64::from(key)) {
        0 => State::First,
        left => State::Payload { left },
    }
}

/// The read side of a stream, passed through the [`Filter`].
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

    /// A frame as RFC 6455 §5.2 lays it out.
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
    fn only_the_opcode_of_text_frames_changes() {
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
        Filter::new().pass(&mut stream);
        assert!(stream == wanted);
    }

    proptest! {
        #[test]
        fn any_split_of_the_stream_gives_the_same_bytes(
            frames in proptest::collection::vec((any::<u8>(), 0_usize..300, any::<bool>()), 0..8),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..24),
        ) {
            let mut stream = HTTP.to_vec();
            for (first, length, masked) in frames {
                stream.extend(frame(first, &vec![0x81; length], masked));
            }
            let mut whole = stream.clone();
            Filter::new().pass(&mut whole);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut filter, mut from) = (Filter::new(), 0);
            for cut in cuts.into_iter().chain([stream.len()]) {
                filter.pass(&mut stream[from..cut]);
                from = cut;
            }
            prop_assert_eq!(stream, whole);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            Filter(State::First).pass(&mut bytes);
        }
    }
}
