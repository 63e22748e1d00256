//! A growing file's records, as they are cut from it.

use bytes::Bytes;
use callbridge_formats::{Format, Frame, Framing};

/// Where the last complete record in `bytes` ends, for a reader that begins at the end.
pub(super) fn last_end(format: Format, bytes: &[u8]) -> Option<usize> {
    let mut ends = memchr::memrchr_iter(b'\n', bytes);
    let end = match format.framing() {
        Framing::Line | Framing::CsvRecord | Framing::Event => ends.next(),
        Framing::EmptyLine => ends.find(|end| {
            let start = memchr::memrchr(b'\n', &bytes[..*end]).map_or(0, |at| at + 1);
            matches!(&bytes[start..*end], b"" | b"\r")
        }),
    };
    end.map(|at| at + 1)
}

/// The record; empty when it was longer than any record may be, and thrown away.
pub(super) fn kept(frame: Frame<'_>) -> Bytes {
    match frame {
        Frame::Message(bytes) => Bytes::copy_from_slice(bytes),
        Frame::TooLong { .. } => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_formats::Framer;

    #[test]
    fn reading_from_the_end_begins_after_the_last_complete_record() {
        assert_eq!(last_end(Format::CelCsv, b"a\nb\nhalf"), Some(4));
        assert_eq!(last_end(Format::AmiJson, b"half"), None);
        assert_eq!(last_end(Format::Ami, b"A: b\r\n\r\nC: d\r\n"), Some(8));
        assert_eq!(last_end(Format::Ami, b"A: b\r\n"), None);
    }

    #[test]
    fn a_record_knows_where_it_ends_in_the_file() {
        let mut framer = Framer::at(Format::AmiJson, 100);
        framer.push(b"{1}\r\n\n{2");
        let first = framer.next().map(kept).expect("a line");
        assert_eq!((&first[..], framer.position()), (&b"{1}"[..], 105));
        assert_eq!(framer.next(), None);
        framer.push(b"}");
        assert_eq!(framer.next(), None);
        let rest = framer.finish().map(kept);
        let rest = rest.expect("a line without its end");
        assert_eq!((&rest[..], framer.position()), (&b"{2}"[..], 109));
    }
}
