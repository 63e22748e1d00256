//! Converts UTF-16 files, as saved by spreadsheets and Windows tools, to UTF-8.

use std::io::{self, Read};

/// Number of bytes to read from the file at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Returns the file's text in UTF-8. A file without a UTF-16 byte-order mark is left as is.
///
/// # Errors
/// Returns an error if the first bytes can't be read.
pub(crate) fn as_utf8<'a>(mut file: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut beginning = vec![0; PIECE_BYTES];
    let mut length = 0;
    // Reading from a pipe may return a single byte.
    while length < 2 {
        match file.read(&mut beginning[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    beginning.truncate(length);
    let is_big_endian = match beginning[..] {
        [0xFF, 0xFE, ..] => false,
        [0xFE, 0xFF, ..] => true,
        _ => return Ok(Box::new(io::Cursor::new(beginning).chain(file))),
    };
    beginning.drain(..2);
    Ok(Box::new(Utf16 {
        file: Box::new(io::Cursor::new(beginning).chain(file)),
        is_big_endian,
        rest: Vec::new(),
        text: Vec::new(),
        given: 0,
    }))
}

struct Utf16<'a> {
    file: Box<dyn Read + 'a>,
    is_big_endian: bool,
    /// Bytes of an incomplete character, the rest of which hasn't been read yet.
    rest: Vec<u8>,
    text: Vec<u8>,
    /// Number of bytes in `text` that have already been passed to the caller.
    given: usize,
}

impl Utf16<'_> {
    /// Reads the next piece of the file into `text`, which is empty at the end of the file.
    fn fill(&mut self) -> io::Result<()> {
        self.text.clear();
        self.given = 0;
        while self.text.is_empty() {
            let mut bytes = std::mem::take(&mut self.rest);
            let known = bytes.len();
            self.file
                .by_ref()
                .take(PIECE_BYTES as u64)
                .read_to_end(&mut bytes)?;
            let is_end = bytes.len() == known;
            let mut units: Vec<u16> = Vec::new();
            for pair in bytes.chunks_exact(2) {
                let pair = [pair[0], pair[1]];
                units.push(if self.is_big_endian {
                    u16::from_be_bytes(pair)
                } else {
                    u16::from_le_bytes(pair)
                });
            }
            // The first half of a character waits for its second half.
            let is_half = units
                .last()
                .is_some_and(|unit| (0xD800..0xDC00).contains(unit));
            if is_half && !is_end {
                units.pop();
            }
            if !is_end {
                self.rest = bytes[units.len() * 2..].to_vec();
            }
            self.text = String::from_utf16_lossy(&units).into_bytes();
            if is_end {
                break;
            }
        }
        Ok(())
    }
}

impl Read for Utf16<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.text.len() {
            self.fill()?;
        }
        let read = (&self.text[self.given..]).read(buffer)?;
        self.given += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these bytes as UTF-8 text.
    fn read_text(bytes: Vec<u8>) -> String {
        let mut text = String::new();
        let mut file = as_utf8(Box::new(io::Cursor::new(bytes))).expect("readable");
        file.read_to_string(&mut text).expect("UTF-8");
        text
    }

    #[test]
    fn utf16_of_either_byte_order_is_read_as_utf8() {
        let text = format!("\u{feff}{}", "Анна;\u{1F4DE}\r\n".repeat(20_000));
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let plain = text.trim_start_matches('\u{feff}');
        assert!(read_text(little) == plain && read_text(big) == plain);
    }

    #[test]
    fn text_that_is_not_utf16_is_unchanged() {
        for text in ["", "a", "a;b\n", "\u{feff}a;b\n"] {
            assert_eq!(read_text(text.as_bytes().to_vec()), text);
        }
    }
}
