//! One CSV record, split into its fields.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Splits records, and keeps the last one's fields.
#[derive(Debug)]
pub(crate) struct CsvRecord {
    readers: [(u8, Reader); 3],
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl CsvRecord {
    pub(crate) fn new() -> Self {
        // The comma first: another delimiter is tried only where it gives too few fields.
        let reader = |delimiter| {
            let reader = ReaderBuilder::new().delimiter(delimiter).build();
            (delimiter, reader)
        };
        Self {
            readers: [reader(b','), reader(b';'), reader(b'\t')],
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Splits a record at commas, or where that gives fewer than `least` fields, at semicolons or
    /// tabs.
    pub(crate) fn read(&mut self, record: &[u8], least: usize) {
        for at in 0..self.readers.len() {
            if at == 0 || memchr::memchr(self.readers[at].0, record).is_some() {
                self.split(record, at);
            }
            if self.len() >= least {
                return;
            }
        }
    }

    fn split(&mut self, record: &[u8], reader: usize) {
        let reader = &mut self.readers[reader].1;
        reader.reset();
        self.bytes.resize(record.len() + 1, 0);
        self.ends.clear();
        self.ends.resize(record.len() + 2, 0);
        let (mut input, mut written, mut fields) = (record, 0, 0);
        loop {
            let (result, read, wrote, ended) =
                reader.read_record(input, &mut self.bytes[written..], &mut self.ends[fields..]);
            input = &input[read..];
            written += wrote;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                // Neither can be full: a field takes a byte of the record, and so does its end.
                ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull
                | ReadRecordResult::Record
                | ReadRecordResult::End => break,
            }
        }
        self.ends.truncate(fields);
    }

    /// How many fields it has.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A field without its quotes; empty beyond the last.
    pub(crate) fn field(&self, index: usize) -> &[u8] {
        let Some(&end) = self.ends.get(index) else {
            return b"";
        };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..end]
    }

    /// A field as text; empty where it is not UTF-8.
    pub(crate) fn text(&self, index: usize) -> &str {
        std::str::from_utf8(self.field(index)).unwrap_or_default()
    }
}
