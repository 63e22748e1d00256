//! Splits one CSV record into its fields.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Delimiters of the files that PBXs, databases, and spreadsheets write, in the order in which
/// they are tried.
pub(crate) const DELIMITERS: [u8; 4] = *b",;\t|";

/// Splits records, and keeps the last one's fields.
#[derive(Debug, Default)]
pub(crate) struct CsvRecord {
    /// Readers of csv-core by delimiter, made for the first record that needs them. Most records do
    /// not, and making the tables of a reader takes longer than splitting many records.
    readers: [Option<Box<Reader>>; DELIMITERS.len()],
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl CsvRecord {
    /// Splits a record at this delimiter, which is one of [`DELIMITERS`].
    pub(crate) fn read(&mut self, record: &[u8], delimiter: u8) {
        if !self.split_plain(record, delimiter) {
            self.split_any(record, delimiter);
        }
    }

    /// Splits a record in the form of Asterisk and databases: each field is quoted from its first
    /// byte to its last, or contains no quote. Returns `false` for any other record.
    fn split_plain(&mut self, record: &[u8], delimiter: u8) -> bool {
        self.bytes.clear();
        self.ends.clear();
        // csv-core treats the first byte of a byte order mark, and an empty record, differently.
        if matches!(record.first(), None | Some(0xEF)) {
            return false;
        }
        let mut rest = record;
        loop {
            let after = match rest.split_first() {
                Some((b'"', quoted)) => self.take_quoted(quoted, delimiter),
                _ => self.take_bare(rest, delimiter),
            };
            let Some(after) = after else {
                return false;
            };
            self.ends.push(self.bytes.len());
            match after.split_first() {
                Some((_, next)) => rest = next,
                None => return true,
            }
        }
    }

    /// Takes a field after its opening quote. Returns the bytes after the closing quote.
    fn take_quoted<'r>(&mut self, mut rest: &'r [u8], delimiter: u8) -> Option<&'r [u8]> {
        loop {
            let close = memchr::memchr(b'"', rest)?;
            self.bytes.extend_from_slice(&rest[..close]);
            rest = &rest[close + 1..];
            match rest.first() {
                Some(b'"') => self.bytes.push(b'"'),
                Some(&byte) if byte != delimiter => return None,
                Some(_) | None => return Some(rest),
            }
            rest = &rest[1..];
        }
    }

    fn take_bare<'r>(&mut self, rest: &'r [u8], delimiter: u8) -> Option<&'r [u8]> {
        let (field, after) = rest.split_at(memchr::memchr(delimiter, rest).unwrap_or(rest.len()));
        if memchr::memchr3(b'"', b'\r', b'\n', field).is_some() {
            return None;
        }
        self.bytes.extend_from_slice(field);
        Some(after)
    }

    /// Splits any CSV record with csv-core.
    fn split_any(&mut self, record: &[u8], delimiter: u8) {
        let known = DELIMITERS.iter().position(|known| *known == delimiter);
        let index = known.unwrap_or(0);
        let reader = self.readers[index].get_or_insert_with(|| {
            let delimiter = DELIMITERS[index];
            Box::new(ReaderBuilder::new().delimiter(delimiter).build())
        });
        reader.reset();
        self.bytes.resize(record.len() + 1, 0);
        self.ends.clear();
        self.ends.resize(record.len() + 2, 0);
        let mut input = record;
        let mut written = 0;
        let mut fields = 0;
        loop {
            let (result, read, wrote, ended) =
                reader.read_record(input, &mut self.bytes[written..], &mut self.ends[fields..]);
            input = &input[read..];
            written += wrote;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                // Neither buffer can be full, because each field and each end takes a byte of the
                // record.
                ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull
                | ReadRecordResult::Record
                | ReadRecordResult::End => break,
            }
        }
        self.ends.truncate(fields);
        self.bytes.truncate(written);
    }

    /// Returns the number of fields in the last record.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a field without its quotes. Empty after the last one.
    pub(crate) fn field(&self, index: usize) -> &[u8] {
        let Some(&end) = self.ends.get(index) else {
            return b"";
        };
        &self.bytes[index.checked_sub(1).map_or(0, |before| self.ends[before])..end]
    }

    /// Returns a field as text. Empty if it is not UTF-8.
    pub(crate) fn text(&self, index: usize) -> &str {
        std::str::from_utf8(self.field(index)).unwrap_or_default()
    }
}

/// Returns the fields of a record, to show them to a person. The delimiter is the one that gives
/// the most fields.
pub fn fields(record: &[u8]) -> Vec<String> {
    let mut fields = CsvRecord::default();
    let counts = DELIMITERS.map(|delimiter| {
        fields.read(record, delimiter);
        (fields.len(), delimiter)
    });
    // If several delimiters give the same number, the first in the list is used.
    let most = counts.into_iter().rev().max_by_key(|(count, _)| *count);
    fields.read(record, most.map_or(b',', |(_, delimiter)| delimiter));
    (0..fields.len())
        .map(|i| String::from_utf8_lossy(fields.field(i)).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(record: &CsvRecord) -> Vec<&[u8]> {
        (0..record.len()).map(|at| record.field(at)).collect()
    }

    /// Line ends, other delimiters, a byte order mark, and an escaped quote.
    const ODD: [&str; 8] = ["\r", "\n", "\r\n", ";", "\t", "|", "\u{feff}", "\\\""];

    /// Makes records from parts of rows, and from bytes that break them.
    fn record() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => Just("\"".to_owned()),
            2 => Just("\"\"".to_owned()),
            4 => Just(",".to_owned()),
            3 => Just("\",\"".to_owned()),
            1 => prop::sample::select(&ODD).prop_map(str::to_owned),
            4 => "[a-zA-Z0-9 _/{}:.]{0,6}",
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn plain_split_yields_the_same_fields_as_csv_core(
            bytes in record(),
            delimiter in prop::sample::select(&DELIMITERS),
        ) {
            let mut ours = CsvRecord::default();
            let mut plain = CsvRecord::default();
            if !ours.split_plain(&bytes, delimiter) {
                ours.split_any(&bytes, delimiter);
            }
            plain.split_any(&bytes, delimiter);
            prop_assert_eq!(split(&ours), split(&plain));
        }
    }
}
