//! Splits one CSV record into its fields.

use callbridge_call::framing::without_byte_order_mark;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// Delimiters used in files from PBXs, databases, and spreadsheets, in the order they're tried.
pub(crate) const DELIMITERS: [u8; 4] = *b",;\t|";

/// How a quote inside a quoted field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuoteEscape {
    /// `""`, as in RFC 4180.
    Doubled,
    /// `\"`, as written by MySQL's `SELECT … INTO OUTFILE` and some export tools.
    Backslash,
}

/// Splits records and keeps the fields of the last one.
#[derive(Debug, Default)]
pub(crate) struct CsvRecord {
    /// csv-core readers by delimiter, created for the first record that needs them. Most records
    /// don't, and building a reader's tables takes longer than splitting many records.
    readers: [Option<Box<Reader>>; DELIMITERS.len()],
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl CsvRecord {
    /// Splits a record at this delimiter, which must be one of [`DELIMITERS`].
    pub(crate) fn read(&mut self, record: &[u8], delimiter: u8) {
        let record = without_byte_order_mark(record);
        let is_split = self.split_strictly(record, delimiter, QuoteEscape::Doubled)
            || self.split_strictly(record, delimiter, QuoteEscape::Backslash);
        if !is_split {
            self.split_any(record, delimiter);
        }
    }

    /// Splits a record written the way Asterisk, databases, and spreadsheets do it, where a field
    /// that starts with a quote also ends with one (ignoring surrounding spaces). Returns `false`
    /// if the record doesn't follow these rules.
    fn split_strictly(&mut self, record: &[u8], delimiter: u8, escape: QuoteEscape) -> bool {
        self.bytes.clear();
        self.ends.clear();
        if record.is_empty() {
            return false;
        }
        let mut rest = record;
        loop {
            let unpadded = without_blanks(rest);
            let after = match unpadded.split_first() {
                Some((b'"', quoted)) => self.take_quoted(quoted, delimiter, escape),
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

    /// Consumes a field after its opening quote, returning the bytes from the next delimiter
    /// onward.
    fn take_quoted<'r>(
        &mut self,
        mut rest: &'r [u8],
        delimiter: u8,
        escape: QuoteEscape,
    ) -> Option<&'r [u8]> {
        loop {
            let (text, after) = rest.split_at(memchr::memchr(b'"', rest)?);
            rest = &after[1..];
            if escape == QuoteEscape::Backslash && text.ends_with(b"\\") {
                self.bytes.extend_from_slice(&text[..text.len() - 1]);
                self.bytes.push(b'"');
                continue;
            }
            self.bytes.extend_from_slice(text);
            if let [b'"', after @ ..] = rest {
                self.bytes.push(b'"');
                rest = after;
                continue;
            }
            let after = without_blanks(rest);
            let ends = after.first().is_none_or(|byte| *byte == delimiter);
            return ends.then_some(after);
        }
    }

    fn take_bare<'r>(&mut self, rest: &'r [u8], delimiter: u8) -> Option<&'r [u8]> {
        let (field, after) = rest.split_at(memchr::memchr(delimiter, rest).unwrap_or(rest.len()));
        if memchr::memchr2(b'\r', b'\n', field).is_some() {
            return None;
        }
        self.bytes.extend_from_slice(field);
        Some(after)
    }

    /// Splits any CSV record using csv-core.
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
                // Neither buffer can be full, because each field and each end takes up a byte of
                // the record.
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

    /// Returns a field's value without quotes, surrounding spaces, and the markers spreadsheets use
    /// to force text, or an empty value past the last field.
    ///
    /// This is the only place where CSV values are trimmed, so the value that's checked is always
    /// the one that's used.
    pub(crate) fn field(&self, index: usize) -> &[u8] {
        let Some(&end) = self.ends.get(index) else {
            return b"";
        };
        let start = match index.checked_sub(1) {
            Some(before) => self.ends[before],
            None => 0,
        };
        without_text_marks(self.bytes[start..end].trim_ascii())
    }

    /// Returns a field as text, or an empty text if it isn't valid UTF-8.
    pub(crate) fn text(&self, index: usize) -> &str {
        std::str::from_utf8(self.field(index)).unwrap_or_default()
    }
}

fn without_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| **byte == b' ').count();
    &bytes[blanks..]
}

/// Strips single quotes around a value and the markers spreadsheets use to force a number to be
/// text (`'998901110001` and `="998901110001"`).
fn without_text_marks(field: &[u8]) -> &[u8] {
    match field {
        [b'\'', value @ .., b'\''] | [b'\'', value @ ..] | [b'=', b'"', value @ .., b'"'] => {
            value.trim_ascii()
        }
        _ => field,
    }
}

/// Cleans up a cell from another CSV reader, stripping surrounding spaces, spreadsheet text
/// markers, and any quotes the reader missed because of a leading space.
pub fn cell_value(cell: &str) -> &str {
    let bytes = match cell.trim().as_bytes() {
        [b'"', value @ .., b'"'] => value.trim_ascii(),
        value => value,
    };
    // Only ASCII characters were removed, so this is still valid UTF-8.
    std::str::from_utf8(without_text_marks(bytes)).unwrap_or(cell)
}

/// Characters found in the borders database clients draw around tables and in empty spreadsheet
/// rows.
const FRAME_CHARS: &str = "+-|=:,;\t ";

/// Returns `true` for a row without values, such as a table border drawn by a database client
/// (`-----+-----`), its summary line (`(2 rows)`, `2 rows in set (0.00 sec)`), or an empty
/// spreadsheet row.
pub(crate) fn is_frame(row: &[u8]) -> bool {
    let Ok(row) = std::str::from_utf8(row) else {
        return false;
    };
    let row = row.trim();
    let is_drawn = |c| FRAME_CHARS.contains(c) || ('\u{2500}'..='\u{257f}').contains(&c);
    row.chars().all(is_drawn) || is_row_count(row)
}

/// Returns `true` for an ID rounded by a spreadsheet, such as `1.77245E+09` or `1,77E+09`.
pub(crate) fn is_rounded(id: &str) -> bool {
    let is_of = |text: &str, others: &[char]| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_digit() || others.contains(&c))
    };
    let parts = id.split_once("E+");
    parts.is_some_and(|(number, exponent)| is_of(number, &['.', ',']) && is_of(exponent, &[]))
}

fn is_row_count(row: &str) -> bool {
    let count = match row.strip_prefix('(').and_then(|row| row.strip_suffix(')')) {
        Some(count) => count,
        None if row.contains(" in set") => row,
        None => return false,
    };
    let mut words = count.split(' ');
    let is_counted = words
        .next()
        .is_some_and(|count| count.parse::<u64>().is_ok());
    is_counted
        && words
            .next()
            .is_some_and(|unit| unit.chars().all(char::is_alphabetic))
}

/// Returns a record's fields for display to a user, using the delimiter that yields the most
/// fields.
pub fn fields(record: &[u8]) -> Vec<String> {
    let mut fields = CsvRecord::default();
    let counts = DELIMITERS.map(|delimiter| {
        fields.read(record, delimiter);
        (fields.len(), delimiter)
    });
    // If several delimiters yield the same number, the first one in the list is used.
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

    /// Newlines, other delimiters, a byte-order mark, and an escaped quote.
    const ODD: [&str; 8] = ["\r", "\n", "\r\n", ";", "\t", "|", "\u{feff}", "\\\""];

    /// Generates records from fragments of rows and from bytes that break them. Spaces are left
    /// out, since csv-core wouldn't recognize a quoted field next to one.
    fn record() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => Just("\"".to_owned()),
            2 => Just("\"\"".to_owned()),
            4 => Just(",".to_owned()),
            3 => Just("\",\"".to_owned()),
            1 => prop::sample::select(&ODD).prop_map(str::to_owned),
            4 => "[a-zA-Z0-9_/{}:.]{0,6}",
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn strict_split_yields_the_same_fields_as_csv_core(
            bytes in record(),
            delimiter in prop::sample::select(&DELIMITERS),
        ) {
            let bytes = without_byte_order_mark(&bytes);
            prop_assume!(!bytes.starts_with(b"\xEF"));
            let mut strict = CsvRecord::default();
            let mut plain = CsvRecord::default();
            if strict.split_strictly(bytes, delimiter, QuoteEscape::Doubled) {
                plain.split_any(bytes, delimiter);
                prop_assert_eq!(split(&strict), split(&plain));
            }
        }
    }

    fn values(record: &str, delimiter: u8) -> Vec<String> {
        let mut fields = CsvRecord::default();
        fields.read(record.as_bytes(), delimiter);
        (0..fields.len())
            .map(|index| fields.text(index).to_owned())
            .collect()
    }

    #[test]
    fn values_are_read_without_padding_and_text_marks() {
        for (record, delimiter) in [
            ("a,b c,\"d,e\"", b','),
            (" a , b c , \"d,e\" ", b','),
            ("\"a\", \"b c\", \"d,e\"", b','),
            ("\"a   \",\"b c\t\",\" d,e\"", b','),
            ("'a,'b c,\"'d,e\"", b','),
            ("'a','b c',\"'d,e'\"", b','),
            ("\"=\"\"a\"\"\",=\"b c\",\"d,e\"", b','),
            (" a | b c | d,e ", b'|'),
            ("a;\"b c\" ;d,e", b';'),
        ] {
            assert_eq!(values(record, delimiter), ["a", "b c", "d,e"], "{record}");
        }
    }

    #[test]
    fn quote_is_escaped_by_a_backslash_only_if_the_record_needs_it() {
        for (record, expected) in [
            (r#""\"Bob, b\" <9>","x""#, vec![r#""Bob, b" <9>"#, "x"]),
            (r#""x","\"Ann\"""#, vec!["x", r#""Ann""#]),
            (r#""\"\" <9>","x""#, vec![r#""" <9>"#, "x"]),
            (r#""{\"a\":\"b\"}","x""#, vec![r#"{"a":"b"}"#, "x"]),
            // A backslash at the end of a value doesn't escape anything.
            (r#""C:\","x""#, vec!["C:\\", "x"]),
            (r#""""Ann"" <9>","x""#, vec![r#""Ann" <9>"#, "x"]),
            // psql doesn't quote anything, so a caller's name has its own quotes.
            (r#""" <9>,x"#, vec!["<9>", "x"]),
            (r#"x, "Ann" <9> ,y"#, vec!["x", r#""Ann" <9>"#, "y"]),
        ] {
            assert_eq!(values(record, b','), expected, "{record}");
        }
    }

    #[test]
    fn rounded_id_is_recognized() {
        for id in ["1.77245E+09", "1,77245E+09", "2E+9"] {
            assert!(is_rounded(id), "{id}");
        }
        for id in [
            "1772445600.1",
            "pbx-1772445600.1",
            "8E+x",
            "E+9",
            "",
            "7e2c9f3a-E+1",
        ] {
            assert!(!is_rounded(id), "{id}");
        }
    }

    #[test]
    fn lines_around_a_table_have_no_values() {
        for frame in [
            "---------+-------+--------",
            "+-------+-------+",
            "|-------|:-----:|",
            "├───────┼───────┤",
            "(2 rows)",
            "(1 row)",
            "(2 строки)",
            "2 rows in set (0.00 sec)",
            ",,,,,",
            " ; ; ",
        ] {
            assert!(is_frame(frame.as_bytes()), "{frame}");
        }
        for row in [
            "a,b",
            "1,2",
            "(2 rows),x",
            "2",
            "(998901110001)",
            "\"\",\"\"",
            "(x)",
        ] {
            assert!(!is_frame(row.as_bytes()), "{row}");
        }
    }
}
