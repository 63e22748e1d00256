//! Reads a file that contains one JSON document, and checks whether it's complete. Bytes beyond a
//! record's limit are counted but not kept.

use bytes::Bytes;
use callbridge_call::framing::BYTE_ORDER_MARK;
use std::io::{self, Read};

/// Files longer than this aren't read to the end, so there's no telling whether they're complete.
const SCANNED_BYTES_MAX: u64 = 16 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// A document, of which possibly only the start is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// The document (or the start of it), without a byte-order mark or surrounding whitespace and
    /// NUL bytes.
    pub(super) bytes: Bytes,
    /// Length in bytes of the document, or of the part that was read.
    pub(super) length: u64,
    /// Whether the file contains exactly one complete JSON object, with nothing after it.
    pub(super) is_complete: bool,
}

/// Reads a document, keeping at most `bytes_max` bytes and skipping a byte-order mark as well as
/// surrounding whitespace and NUL bytes.
///
/// # Errors
///
/// Returns an error if the file can't be read.
pub(super) fn read(mut file: impl Read, bytes_max: usize) -> io::Result<Document> {
    let mut kept = Vec::new();
    let mut scan = ObjectScan::default();
    let mut length = 0;
    let mut trailing = 0;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match file.read(&mut piece) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut bytes = &piece[..read];
        if length == 0 {
            let start = bytes
                .iter()
                .position(|byte| !is_blank(*byte) && !BYTE_ORDER_MARK.contains(byte));
            bytes = &bytes[start.unwrap_or(read)..];
        }
        scan.take_in(bytes);
        let room = bytes_max.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        length += bytes.len() as u64;
        let blanks = bytes
            .iter()
            .rev()
            .take_while(|byte| is_blank(**byte))
            .count();
        if blanks < bytes.len() {
            trailing = 0;
        }
        trailing += blanks as u64;
        if read == 0 || length > SCANNED_BYTES_MAX {
            length -= trailing;
            kept.truncate(usize::try_from(length).unwrap_or(usize::MAX));
            return Ok(Document {
                bytes: kept.into(),
                length,
                is_complete: read == 0 && scan.is_complete(),
            });
        }
    }
}

const fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0
}

/// Finds the end of a JSON object by counting braces and brackets, without checking whether the
/// document can be decoded.
#[derive(Debug, Default)]
struct ObjectScan {
    /// Number of open braces and brackets.
    depth: u64,
    in_text: bool,
    is_escaped: bool,
    /// Whether the object has ended.
    is_over: bool,
    /// Whether anything other than a single object was found.
    is_other: bool,
}

impl ObjectScan {
    fn take_in(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.is_escaped {
                self.is_escaped = false;
            } else if self.in_text {
                self.is_escaped = *byte == b'\\';
                self.in_text = *byte != b'"';
            } else if !is_blank(*byte) {
                self.take_in_structure(*byte);
            }
        }
    }

    fn take_in_structure(&mut self, byte: u8) {
        if self.is_over || (self.depth == 0 && byte != b'{') {
            self.is_other = true;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.is_over |= self.depth == 0;
            }
            _ => {}
        }
    }

    const fn is_complete(&self) -> bool {
        self.is_over && !self.is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &[u8], bytes_max: usize) -> Document {
        read(text, bytes_max).expect("readable")
    }

    #[test]
    fn document_is_complete_at_its_last_brace() {
        let text = br#"{"a": "}{\"\\", "b": [{"c": 1}, {}]}"#;
        for end in 0..text.len() {
            assert!(!document(&text[..end], 1 << 20).is_complete, "{end}");
        }
        let marked = document(&[&b"\xef\xbb\xbf"[..], text].concat(), 1 << 20);
        assert!(marked.is_complete && &marked.bytes[..] == text);
        for after in ["", "\n", " \r\n\0\0"] {
            let whole = document(&[text, after.as_bytes()].concat(), 1 << 20);
            assert!(whole.is_complete && &whole.bytes[..] == text, "{after:?}");
        }
        for other in ["{}{}", "{} x", "[1]", "x", "\"{}\"", "", "}"] {
            assert!(!document(other.as_bytes(), 1 << 20).is_complete, "{other}");
        }
    }

    #[test]
    fn long_document_is_kept_in_part_and_measured() {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(300_000));
        let hole = vec![0; 200_000];
        let found = document(&[&hole[..], text.as_bytes(), b"\n"].concat(), 100_000);
        assert!(found.is_complete);
        assert_eq!(found.length, text.len() as u64);
        assert_eq!(&found.bytes[..], &text.as_bytes()[..100_000]);
    }

    #[test]
    fn document_scan_stops_at_its_limit() {
        let text = std::io::repeat(b'x').take(SCANNED_BYTES_MAX * 2);
        let object = b"{\"a\":\"".as_slice().chain(text).chain(b"\"}".as_slice());
        let found = read(object, 10).expect("readable");
        assert!(!found.is_complete, "its end is beyond the limit");
        assert!(found.length <= SCANNED_BYTES_MAX + PIECE_BYTES as u64);
        let blanks = std::io::repeat(b' ').take(SCANNED_BYTES_MAX * 2);
        let found = read(b"{}".as_slice().chain(blanks), 10).expect("readable");
        assert!(!found.is_complete, "more can follow beyond the limit");
    }
}
