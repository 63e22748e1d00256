//! Lists of leads and employees: read whole, or not at all.
//!
//! ```text
//! phone,leadId            extension,employeeId
//! +998901110001,4001      101,501
//! 901110002,4002          102,502
//! ```
//! Columns are found by the header's names; others may stand beside them. UTF-8, commas.

use crate::journal::number::{Country, e164};
use crate::journal::{EmployeeId, LeadId, Phone};
use callbridge_call::Extension;
use std::collections::BTreeMap;

/// A list that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first line does not name the columns.
    #[error("line 1: the header must name the columns `{wants}`, and says `{says}`")]
    Header {
        /// `phone,leadId`
        wants: &'static str,
        /// The first line, shortened.
        says: String,
    },
    /// A row that cannot be read.
    #[error("line {line}: {what}")]
    Row {
        /// Line of the file, the header being 1.
        line: u64,
        /// What is wrong with it, in words.
        what: String,
    },
}

/// Phones and their leads, sorted: 16 bytes a row. A phone that stands there with two leads keeps
/// both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeadList {
    /// The digits of E.164 as a number (none begins with 0), and a lead; sorted, no pair twice.
    rows: Vec<(u64, LeadId)>,
}

/// What a list says of a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not in the list.
    Nothing,
    /// It has this lead.
    One(LeadId),
    /// It has at least these two.
    Two(LeadId, LeadId),
}

impl LeadList {
    /// Reads the file's bytes. Numbers without a country's code are taken for `country`'s.
    pub fn read(bytes: &[u8], country: Option<Country>) -> Result<Self, Fault> {
        let mut rows = Vec::new();
        each_row(bytes, ["phone", "leadId"], |phone, lead| {
            let digits = key(phone, country).ok_or_else(|| {
                let whose = match country {
                    Some(country) => format!("of {country} or with its country's code"),
                    None => "with a plus (no --country says whose it is)".to_owned(),
                };
                format!("`{}` is no telephone number {whose}", shortened(phone))
            })?;
            let lead = LeadId::parse(lead)
                .ok_or_else(|| format!("`{}` is no lead id: digits alone", shortened(lead)))?;
            rows.push((digits, lead));
            Ok(())
        })?;
        rows.sort_unstable();
        rows.dedup();
        rows.shrink_to_fit();
        Ok(Self { rows })
    }

    /// The lead, or leads, of a phone.
    pub fn find(&self, phone: &Phone) -> Found {
        let Some(digits) = as_number(phone) else {
            return Found::Nothing;
        };
        let from = self.rows.partition_point(|(key, _)| *key < digits);
        let mut leads = self.rows[from..]
            .iter()
            .take_while(|(key, _)| *key == digits);
        match (leads.next(), leads.next()) {
            (None, _) => Found::Nothing,
            (Some((_, lead)), None) => Found::One(*lead),
            (Some((_, a)), Some((_, b))) => Found::Two(*a, *b),
        }
    }

    /// Rows, equal ones counted once.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The phones of which `newer` says something else than this list.
    pub fn changed(&self, newer: &Self) -> Vec<Phone> {
        let mut digits: Vec<u64> = Vec::new();
        let (mut old, mut new) = (self.rows.iter().peekable(), newer.rows.iter().peekable());
        loop {
            let differs = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(a), Some(b)) if a == b => {
                    old.next();
                    new.next();
                    continue;
                }
                (Some(a), Some(b)) if a < b => old.next(),
                (Some(_), None) => old.next(),
                (_, Some(_)) => new.next(),
            };
            digits.extend(differs.map(|(key, _)| *key));
        }
        digits.dedup();
        digits
            .iter()
            .filter_map(|key| Phone::from_e164(&format!("+{key}")))
            .collect()
    }
}

/// Reads a list of extensions and employees.
pub fn employees(bytes: &[u8]) -> Result<BTreeMap<Extension, EmployeeId>, Fault> {
    let mut list = BTreeMap::new();
    each_row(bytes, ["extension", "employeeId"], |extension, id| {
        if extension.is_empty() {
            return Err("the extension is missing".to_owned());
        }
        let id = EmployeeId::parse(id)
            .ok_or_else(|| format!("`{}` is no employee id: digits alone", shortened(id)))?;
        match list.insert(Extension::new(extension), id) {
            Some(other) if other != id => Err(format!(
                "extension {extension} has two employees, {other} and {id}"
            )),
            _ => Ok(()),
        }
    })?;
    Ok(list)
}

/// Hands each row's two cells to `take`, whose fault is told with the row's line.
fn each_row(
    bytes: &[u8],
    columns: [&'static str; 2],
    mut take: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), Fault> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(bytes);
    let first_line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let header = || Fault::Header {
        wants: if columns[0] == "phone" {
            "phone,leadId"
        } else {
            "extension,employeeId"
        },
        says: shortened(String::from_utf8_lossy(first_line).trim()),
    };
    let names = reader.headers().map_err(|_| header())?.clone();
    let place = |column: &str| {
        names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(column))
    };
    let (Some(a), Some(b)) = (place(columns[0]), place(columns[1])) else {
        return Err(header());
    };
    let mut row = csv::StringRecord::new();
    loop {
        let before = reader.position().line();
        let more = reader.read_record(&mut row).map_err(|error| Fault::Row {
            line: error.position().map_or(before, csv::Position::line),
            what: match error.kind() {
                csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
                _ => error.to_string(),
            },
        })?;
        if !more {
            return Ok(());
        }
        let line = row.position().map_or(before, |at| line_of(bytes, at));
        let cell = |at: usize, name: &str| {
            let text = row.get(at).filter(|text| !text.is_empty());
            text.ok_or_else(|| format!("the {name} is missing"))
        };
        cell(a, columns[0])
            .and_then(|first| take(first, cell(b, columns[1])?))
            .map_err(|what| Fault::Row { line, what })?;
    }
}

/// The line a row begins in: the reader's own count stops before empty lines.
fn line_of(bytes: &[u8], at: &csv::Position) -> u64 {
    let from = usize::try_from(at.byte())
        .unwrap_or(bytes.len())
        .min(bytes.len());
    let breaks = bytes[from..]
        .iter()
        .take_while(|b| matches!(b, b'\r' | b'\n'));
    at.line() + breaks.filter(|b| **b == b'\n').count() as u64
}

/// A number that stands there in E.164 is taken as it is: a million rows are read in a second.
fn key(text: &str, country: Option<Country>) -> Option<u64> {
    const DIGITS_MIN: usize = 8;
    let as_it_is = Phone::from_e164(text)
        .filter(|phone| phone.as_str().len() > DIGITS_MIN && !text.starts_with("+0"));
    as_number(&as_it_is.or_else(|| e164(text, country))?)
}

fn as_number(phone: &Phone) -> Option<u64> {
    phone.as_str()[1..].parse().ok()
}

/// For messages: cells come from files that may hold anything.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut short: String = text.chars().take(CHARACTERS_MAX).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() {
        short.push('…');
    }
    short.escape_debug().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<LeadList, Fault> {
        LeadList::read(text.as_bytes(), Country::parse("UZ"))
    }

    fn lead(id: i64) -> LeadId {
        LeadId::new(id).expect("positive")
    }

    fn phone(text: &str) -> Phone {
        Phone::from_e164(text).expect("a phone")
    }

    #[test]
    fn numbers_of_every_form_find_their_lead() {
        let text = "\u{feff}name,leadId,phone\r\n\
             \"Olim, Tashkent\",4001,+998901110001\r\n,4002,901110002\r\n\
             x,4003,998 90 111-00-03\r\n";
        let list = read(text).expect("good");
        assert_eq!(list.find(&phone("+998901110001")), Found::One(lead(4001)));
        assert_eq!(list.find(&phone("+998901110002")), Found::One(lead(4002)));
        assert_eq!(list.find(&phone("+998901110003")), Found::One(lead(4003)));
        assert_eq!(list.find(&phone("+998901110004")), Found::Nothing);
    }

    #[test]
    fn a_phone_told_twice_alike_is_one_and_told_twice_otherwise_is_two() {
        let list = read("phone,leadId\n901110001,1\n+998901110001,1\n901110002,2\n901110002,3\n")
            .expect("good");
        assert_eq!(list.find(&phone("+998901110001")), Found::One(lead(1)));
        assert_eq!(
            list.find(&phone("+998901110002")),
            Found::Two(lead(2), lead(3))
        );
    }

    #[test]
    fn a_bad_row_is_named_with_its_line() {
        let wrong = |text| read(text).expect_err("wrong").to_string();
        insta::assert_snapshot!(
            wrong("phone;leadId\n+998901110001;4001\n"),
            @"line 1: the header must name the columns `phone,leadId`, and says `phone;leadId`"
        );
        insta::assert_snapshot!(
            wrong(""),
            @"line 1: the header must name the columns `phone,leadId`, and says ``"
        );
        insta::assert_snapshot!(
            wrong("phone,leadId\n901110001,1\n\n101,2\n"),
            @"line 4: `101` is no telephone number of UZ or with its country's code"
        );
        insta::assert_snapshot!(
            wrong("phone,leadId\n901110001,L-17\n"),
            @"line 2: `L-17` is no lead id: digits alone"
        );
        insta::assert_snapshot!(
            wrong("phone,leadId\n901110001\n"),
            @"line 2: the leadId is missing"
        );
        insta::assert_snapshot!(
            wrong("phone,leadId\n901110001,0\n"),
            @"line 2: `0` is no lead id: digits alone"
        );
        let bytes = b"phone,leadId\n901110001,1\n\xff\xfe,2\n";
        let fault = LeadList::read(bytes, None).expect_err("no country");
        insta::assert_snapshot!(
            fault,
            @"line 2: `901110001` is no telephone number with a plus (no --country says whose \
            it is)"
        );
        let fault = LeadList::read(bytes, Country::parse("UZ")).expect_err("not UTF-8");
        insta::assert_snapshot!(fault, @"line 3: is not UTF-8");
    }

    #[test]
    fn employees_are_read_and_one_extension_has_one() {
        let list = employees(b"extension,employeeId\n101,501\n102,502\n").expect("good");
        assert_eq!(
            list.get(&Extension::new("102")),
            EmployeeId::new(502).as_ref()
        );
        let fault = employees(b"extension,employeeId\n101,501\n101,502\n").expect_err("two");
        insta::assert_snapshot!(fault, @"line 3: extension 101 has two employees, 501 and 502");
    }

    #[test]
    fn the_phones_whose_answer_changed_are_told() {
        let old = read("phone,leadId\n901110001,1\n901110002,2\n901110003,3\n").expect("good");
        let new = read("phone,leadId\n901110001,1\n901110002,9\n901110004,4\n").expect("good");
        let wants = ["+998901110002", "+998901110003", "+998901110004"].map(phone);
        assert_eq!(old.changed(&new), wants);
        assert_eq!(new.changed(&new), []);
    }

    proptest! {
        #[test]
        fn a_list_answers_as_a_plain_search_would(
            rows in prop::collection::vec((901_110_000_u64..901_110_020, 1_i64..4), 0..60),
            asked in 901_110_000_u64..901_110_020,
        ) {
            let lines: String = rows.iter().map(|(p, l)| format!("{p},{l}\n")).collect();
            let list = read(&format!("phone,leadId\n{lines}")).expect("good");
            let mut leads: Vec<i64> =
                rows.iter().filter(|(p, _)| *p == asked).map(|(_, l)| *l).collect();
            leads.sort_unstable();
            leads.dedup();
            let wants = match leads[..] {
                [] => Found::Nothing,
                [one] => Found::One(lead(one)),
                [a, b, ..] => Found::Two(lead(a), lead(b)),
            };
            prop_assert_eq!(list.find(&phone(&format!("+998{asked}"))), wants);
        }

        #[test]
        fn any_bytes_are_a_list_or_a_fault_without_panic(bytes: Vec<u8>) {
            let mut file = b"phone,leadId\n".to_vec();
            file.extend(&bytes);
            let _ = LeadList::read(&file, Country::parse("UZ"));
            let _ = LeadList::read(&bytes, None);
        }
    }
}
