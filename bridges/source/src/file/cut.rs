//! Cuts a growing file's bytes into frames that know where they end.

use bytes::Bytes;
use callbridge_formats::{Format, Framer, Framing};

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

/// One record, and how many bytes of the file have passed when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The record; empty when it was longer than any record may be, and thrown away.
    pub bytes: Bytes,
    pub end: u64,
}

#[derive(Debug)]
pub(super) struct Cutter(Framer);

impl Cutter {
    /// For a file read from `offset` on.
    pub(super) fn new(format: Format, offset: u64) -> Self {
        Self(Framer::at(format, offset))
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Bytes of the file up to the end of the last record that was cut.
    pub(super) const fn passed(&self) -> u64 {
        self.0.position()
    }

    /// The next complete record.
    pub(super) fn next(&mut self) -> Option<Cut> {
        let bytes = kept(self.0.next()?);
        Some(self.cut(bytes))
    }

    /// What is left of a file that ends here for good: records without their end.
    pub(super) fn rest(&mut self) -> Option<Cut> {
        let bytes = kept(self.0.finish()?);
        Some(self.cut(bytes))
    }

    const fn cut(&self, bytes: Bytes) -> Cut {
        let end = self.0.position();
        Cut { bytes, end }
    }
}

fn kept(frame: callbridge_formats::Frame<'_>) -> Bytes {
    match frame {
        callbridge_formats::Frame::Message(bytes) => Bytes::copy_from_slice(bytes),
        callbridge_formats::Frame::TooLong { .. } => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_from_the_end_begins_after_the_last_complete_record() {
        assert_eq!(last_end(Format::CelCsv, b"a\nb\nhalf"), Some(4));
        assert_eq!(last_end(Format::AmiJson, b"half"), None);
        assert_eq!(last_end(Format::Ami, b"A: b\r\n\r\nC: d\r\n"), Some(8));
        assert_eq!(last_end(Format::Ami, b"A: b\r\n"), None);
    }

    #[test]
    fn a_record_knows_where_it_ends_in_the_file() {
        let mut cutter = Cutter::new(Format::AmiJson, 100);
        cutter.push(b"{1}\r\n\n{2");
        let first = cutter.next().expect("a line");
        assert_eq!((&first.bytes[..], first.end), (&b"{1}"[..], 105));
        assert_eq!(cutter.next(), None);
        cutter.push(b"}");
        assert_eq!(cutter.next(), None);
        let rest = cutter.rest().expect("a line without its end");
        assert_eq!((&rest.bytes[..], rest.end), (&b"{2}"[..], 109));
    }
}
