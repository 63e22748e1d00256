//! Reads the rows of a list file, using the valid ones and reporting the rest.
//!
//! The file must be UTF-8, with or without a byte-order mark. Columns are found by their names in
//! the header, ignoring any others. The header also determines whether cells are separated by
//! commas, semicolons, or tabs.

use callbridge_asterisk::cell_value;
use callbridge_model::safe;
use std::fmt;

/// Maximum number of invalid rows to keep with their messages. Any further ones are merely counted.
const NAMED_MAX: usize = 1_000;
/// Bytes that may separate cells: the comma, or what spreadsheets use in locales with a decimal
/// comma.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// The first line doesn't contain the columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line 1: the header must name the columns `{wants}`, but is `{says}`")]
pub struct WrongHeader {
    /// The columns that the header must contain, such as `phone,leadId`.
    pub wants: String,
    /// The file's first line, limited to 60 characters.
    pub says: String,
}

/// A row that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Line number in the file, starting at 1 for the header.
    pub line: u64,
    /// The cell, shortened, or empty if the message says everything.
    pub cell: String,
    /// What's wrong with the cell, in the form of a predicate such as `is not an employee id`.
    pub message: String,
}

impl BadRow {
    fn describe(&self, cell: &str) -> String {
        let Self { line, message, .. } = self;
        match cell {
            "" => format!("line {line}: {message}"),
            cell => format!("line {line}: `{cell}` {message}"),
        }
    }

    /// Returns the message for a log, with a number reduced to its last four digits.
    pub fn masked(&self) -> String {
        self.describe(&masked(&self.cell))
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&self.cell))
    }
}

/// Minimum number of digits in a phone number. A shorter cell is shown in full.
const PHONE_DIGITS_MIN: usize = 7;

/// Replaces all but the last four digits of a long number with dots.
fn masked(cell: &str) -> String {
    let digits = cell.chars().filter(char::is_ascii_digit).count();
    if digits < PHONE_DIGITS_MIN {
        return cell.to_owned();
    }
    let mut masked = String::new();
    let mut digits_left = digits;
    for character in cell.chars() {
        if !character.is_ascii_digit() {
            masked.push(character);
            continue;
        }
        digits_left -= 1;
        masked.push(if digits_left >= 4 { '·' } else { character });
    }
    masked
}

/// A report on the rows in a list's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListReport {
    /// Number of valid rows, without duplicates.
    pub rows: usize,
    /// Number of rows that repeat another one.
    pub repeated: usize,
    /// The character between the cells, or `None` for a comma.
    pub separator: Option<char>,
    /// The first invalid rows, ordered by line.
    pub named: Vec<BadRow>,
    /// Total number of invalid rows, including those in `named`.
    pub bad: usize,
}

impl ListReport {
    /// Returns `true` if there are neither valid nor invalid rows.
    pub const fn is_empty(&self) -> bool {
        self.rows == 0 && self.bad == 0
    }

    /// Returns `true` if there are rows, but none can be used.
    pub const fn is_useless(&self) -> bool {
        self.rows == 0 && self.bad > 0
    }

    /// Returns how many invalid rows aren't listed.
    pub fn unlisted_count(&self) -> usize {
        self.bad - self.named.len()
    }

    /// Returns the first invalid row as formatted by `shown`, or an empty text if there isn't one.
    pub(super) fn first(&self, shown: fn(&BadRow) -> String) -> String {
        self.named.first().map(shown).unwrap_or_default()
    }

    pub(super) fn note(&mut self, row: BadRow) {
        self.bad += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(row);
        }
    }

    /// Returns remarks that don't require any action, such as ` (separated by `;`, 2 given twice)`,
    /// or an empty text if there are none.
    pub fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        match self.separator {
            Some('\t') => remarks.push("separated by tabs".to_owned()),
            Some(separator) => remarks.push(format!("separated by `{separator}`")),
            None => {}
        }
        if self.repeated > 0 {
            remarks.push(format!("{} given twice", self.repeated));
        }
        if remarks.is_empty() {
            return String::new();
        }
        format!(" ({})", remarks.join(", "))
    }
}

/// Creates the report on a row with an unusable cell.
pub(super) fn unusable_row(line: u64, cell: &str, message: impl Into<String>) -> BadRow {
    BadRow {
        line,
        cell: shorten(cell),
        message: message.into(),
    }
}

/// A row with two columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairRow {
    /// The line that the row starts on, counted from 1.
    pub line: u64,
    /// The row's cells, neither of which is empty.
    pub cells: [String; 2],
}

/// Reads both cells of each valid row, and returns them along with a report on the file's rows.
///
/// # Errors
///
/// Returns an error if the header doesn't contain the columns.
pub fn pairs(
    bytes: &[u8],
    columns: [&'static str; 2],
) -> Result<(Vec<PairRow>, ListReport), WrongHeader> {
    let mut pairs = Vec::new();
    let mut about = ListReport::default();
    each_row(bytes, columns, &mut about, |line, first, second| {
        let cells = [first.to_owned(), second.to_owned()];
        pairs.push(PairRow { line, cells });
        Ok(())
    })?;
    Ok((pairs, about))
}

/// Calls `take` with the line and both cells of each row. Rows that are invalid or rejected by
/// `take` are added to the report `about`, and reading continues with the next row.
pub(super) fn each_row(
    bytes: &[u8],
    columns: [&'static str; 2],
    about: &mut ListReport,
    mut take: impl FnMut(u64, &str, &str) -> Result<(), BadRow>,
) -> Result<(), WrongHeader> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let first_line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let separator = separator(first_line);
    if separator != b',' {
        about.separator = Some(char::from(separator));
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(bytes);
    let places = match reader.headers() {
        Ok(names) => columns.map(|column| place_of(column, names)),
        Err(_) => [None, None],
    };
    let [Some(first_place), Some(second_place)] = places else {
        return Err(WrongHeader {
            wants: columns.join(","),
            says: shorten(String::from_utf8_lossy(first_line).trim()),
        });
    };
    let mut row = csv::StringRecord::new();
    loop {
        let before = reader.position().line();
        let taken = match reader.read_record(&mut row) {
            Ok(false) => return Ok(()),
            Ok(true) => {
                let line = row.position().map_or(before, |at| line_of(bytes, at));
                let first = cell_value(row.get(first_place).unwrap_or_default());
                let second = cell_value(row.get(second_place).unwrap_or_default());
                if first.is_empty() {
                    Err(missing_cell(line, columns[0]))
                } else if second.is_empty() {
                    Err(missing_cell(line, columns[1]))
                } else {
                    take(line, first, second)
                }
            }
            Err(error) => {
                let line = error.position().map_or(before, csv::Position::line);
                let message = match error.kind() {
                    csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
                    _ => error.to_string(),
                };
                Err(unusable_row(line, "", message))
            }
        };
        if let Err(bad_row) = taken {
            about.note(bad_row);
        }
    }
}

fn place_of(column: &str, names: &csv::StringRecord) -> Option<usize> {
    names
        .iter()
        .position(|name| cell_value(name).eq_ignore_ascii_case(column))
}

fn missing_cell(line: u64, column: &str) -> BadRow {
    unusable_row(line, "", format!("the {column} is missing"))
}

/// Returns the most frequent separator in the header, or a comma if there is none.
fn separator(header: &[u8]) -> u8 {
    let mut most = b',';
    let mut most_count = 0;
    for separator in SEPARATORS {
        let count = header.iter().filter(|byte| **byte == separator).count();
        if count > most_count {
            most = separator;
            most_count = count;
        }
    }
    most
}

/// Returns the line that a row starts on. The reader's own count stops before empty lines.
fn line_of(bytes: &[u8], at: &csv::Position) -> u64 {
    let from = usize::try_from(at.byte()).unwrap_or(bytes.len());
    let rest = bytes.get(from..).unwrap_or_default().iter();
    let breaks = rest.take_while(|b| matches!(b, b'\r' | b'\n'));
    at.line() + breaks.filter(|b| **b == b'\n').count() as u64
}

/// Shortens a cell for messages, because files can contain anything.
pub(super) fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut short: String = text.chars().take(CHARACTERS_MAX).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        short.push('…');
    }
    safe(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad_row(cell: &str) -> BadRow {
        BadRow {
            line: 3,
            cell: cell.to_owned(),
            message: "is wrong".to_owned(),
        }
    }

    #[test]
    fn log_masks_number_to_last_four_digits_and_nothing_else() {
        let masked = ["+998 90 111-00-01", "101", "x"].map(|cell| bad_row(cell).masked());
        insta::assert_snapshot!(masked.join("\n"), @r"
        line 3: `+··· ·· ···-00-01` is wrong
        line 3: `101` is wrong
        line 3: `x` is wrong
        ");
        assert!(
            bad_row("+998901110001")
                .to_string()
                .contains("+998901110001")
        );
    }

    #[test]
    fn bad_rows_beyond_the_limit_are_only_counted() {
        let rows = "x,\n".repeat(NAMED_MAX + 7);
        let text = format!("phone,leadId\n{rows}");
        let mut about = ListReport::default();
        let read = each_row(
            text.as_bytes(),
            ["phone", "leadId"],
            &mut about,
            |_, _, _| Ok(()),
        );
        assert_eq!(read, Ok(()));
        let counted = (about.bad, about.named.len(), about.unlisted_count());
        assert_eq!(counted, (NAMED_MAX + 7, NAMED_MAX, 7));
    }
}
