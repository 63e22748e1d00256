//! Texts built into the program, in a fraction of their room. A build script packs them, the
//! program unpacks them where it needs them: recordings of the demo, texts of the page, licences.
//! It uses nothing.
//!
//! The form is LZ77 in its plainest: pairs of a run of literal bytes and a copy of what stands
//! further up, to the end.
//!
//! ```text
//! packed = pair…        pair = literal-length  literal bytes  copy-length  copy-distance
//! ```
//!
//! Numbers are LEB128. The last pair has no copy. The same text makes the same bytes always.

use std::collections::HashMap;

/// A copy that is shorter would save nothing.
const COPY_MIN: usize = 8;
/// Bytes that a copy is found by.
const KEY_BYTES: usize = 6;
/// A text that unpacks to more is none of ours.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Places looked at for one copy, the newest first.
const PLACES_MAX: usize = 64;

/// Packs a text.
pub fn pack(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut places: HashMap<&[u8], Vec<usize>> = HashMap::new();
    let (mut packed, mut literal_from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let copy = bytes
            .get(at..at + KEY_BYTES)
            .and_then(|key| longest(bytes, at, places.get(key)?));
        let step = match copy {
            Some((length, from)) => {
                literal(&mut packed, &bytes[literal_from..at]);
                number(&mut packed, length);
                number(&mut packed, at - from);
                literal_from = at + length;
                length
            }
            None => 1,
        };
        for place in at..at + step {
            if let Some(key) = bytes.get(place..place + KEY_BYTES) {
                places.entry(key).or_default().push(place);
            }
        }
        at += step;
    }
    literal(&mut packed, &bytes[literal_from..]);
    packed
}

/// The longest copy for what stands at `at`, and where from.
fn longest(bytes: &[u8], at: usize, places: &[usize]) -> Option<(usize, usize)> {
    let length = |from: usize| {
        let pairs = bytes[from..].iter().zip(&bytes[at..]);
        pairs.take_while(|(one, other)| one == other).count()
    };
    let newest = places.iter().rev().take(PLACES_MAX);
    let copies = newest.map(|&from| (length(from), from));
    copies.filter(|(length, _)| *length >= COPY_MIN).max()
}

fn literal(packed: &mut Vec<u8>, bytes: &[u8]) {
    number(packed, bytes.len());
    packed.extend_from_slice(bytes);
}

fn number(packed: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        packed.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

/// The text again; `None` of bytes that [`pack`] has not made.
pub fn unpack(packed: &[u8]) -> Option<String> {
    let (mut rest, mut text) = (packed, Vec::new());
    loop {
        let length = read_number(&mut rest)?;
        let (literal, after) = rest.split_at_checked(length)?;
        text.extend_from_slice(literal);
        rest = after;
        if rest.is_empty() {
            return String::from_utf8(text).ok();
        }
        let (length, distance) = (read_number(&mut rest)?, read_number(&mut rest)?);
        let from = text.len().checked_sub(distance).filter(|_| distance > 0)?;
        if length > TEXT_BYTES_MAX - text.len().min(TEXT_BYTES_MAX) {
            return None;
        }
        // A copy may reach into itself: each byte is there by the time it is read.
        for place in from..from + length {
            text.push(text[place]);
        }
    }
}

fn read_number(rest: &mut &[u8]) -> Option<usize> {
    let (mut number, mut shift) = (0_usize, 0);
    loop {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_repeats_takes_little_room() {
        let text =
            "{\"Event\": \"Newchannel\", \"Channel\": \"PJSIP/city-00000001\"}\n".repeat(500);
        let packed = pack(&text);
        assert!(packed.len() < 100, "{} bytes", packed.len());
        assert_eq!(unpack(&packed).as_deref(), Some(&*text));
    }

    #[test]
    fn what_is_cut_off_or_points_nowhere_is_refused() {
        let packed = pack(&"Customers call and are called. ".repeat(3));
        assert!(unpack(&packed[..packed.len() - 2]).is_none());
        assert_eq!(unpack(&[]), None);
        assert_eq!(unpack(&[1, b'a', 9, 0, 0]), None, "a copy of itself");
        assert_eq!(unpack(&[1, b'a', 9, 2, 0]), None, "a copy from before");
        assert_eq!(unpack(&[0x80; 20]), None, "a number without an end");
        let endless = [1, b'a', 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0];
        assert_eq!(unpack(&endless), None, "more than anything here");
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in "(ab|Ж|[a-c]{0,9}|aaaaaaaaaaaa){0,60}") {
            prop_assert_eq!(unpack(&pack(&text)), Some(text));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in any::<[u8; 32]>(), length in 0..32_usize) {
            let _ = unpack(&bytes[..length]);
        }
    }
}
