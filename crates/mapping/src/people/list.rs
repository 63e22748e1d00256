//! Lead and employee lists. All valid rows in a file are used, and all invalid ones are reported.
//!
//! ```text
//! phone,leadId            extension,employeeId
//! +998901110001,4001      101,501
//! 901110002,4002          102,502
//! ```

use super::rows::{ListReport, WrongHeader, each_row, shorten, unusable_row};
use callbridge_call::Extension;
use callbridge_model::number::e164;
use callbridge_model::{Country, EmployeeId, LeadId, Phone};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

const LEADS: [&str; 2] = ["phone", "leadId"];
const EMPLOYEES: [&str; 2] = ["extension", "employeeId"];

/// Employees by extension, along with each employee's first extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Employees {
    ids: BTreeMap<Extension, EmployeeId>,
    first: BTreeMap<EmployeeId, Extension>,
}

impl Employees {
    /// Returns the employee's first extension in the list.
    pub fn extension_of(&self, employee: EmployeeId) -> Option<&Extension> {
        self.first.get(&employee)
    }
}

/// Collects employees in list order. If an extension occurs twice, the first row is used.
impl FromIterator<(Extension, EmployeeId)> for Employees {
    fn from_iter<T: IntoIterator<Item = (Extension, EmployeeId)>>(rows: T) -> Self {
        let mut all = Self::default();
        for (extension, id) in rows {
            if let Entry::Vacant(free) = all.ids.entry(extension.clone()) {
                free.insert(id);
                all.first.entry(id).or_insert(extension);
            }
        }
        all
    }
}

impl Deref for Employees {
    type Target = BTreeMap<Extension, EmployeeId>;

    fn deref(&self) -> &Self::Target {
        &self.ids
    }
}

/// Phone numbers and their leads in sorted order, using 16 bytes per row. A number with two leads
/// keeps both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeadList {
    /// The E.164 digits as a number (none starts with 0) and a lead. Sorted, without duplicates.
    rows: Vec<(u64, LeadId)>,
}

impl LeadList {
    /// Parses the file's bytes. Numbers without a country code belong to `country`.
    ///
    /// # Errors
    ///
    /// Returns an error if the header doesn't contain the columns.
    pub fn read(bytes: &[u8], country: Option<Country>) -> Result<(Self, ListReport), WrongHeader> {
        let mut rows = Vec::new();
        let mut about = ListReport::default();
        each_row(bytes, LEADS, &mut about, |line, phone, lead| {
            let Some(digits) = key(phone, country) else {
                return Err(unusable_row(line, phone, no_number(phone, country)));
            };
            let Some(lead_id) = LeadId::parse(lead) else {
                return Err(unusable_row(
                    line,
                    lead,
                    "is not a lead id: use digits only",
                ));
            };
            rows.push((digits, lead_id));
            Ok(())
        })?;
        rows.sort_unstable();
        let given = rows.len();
        rows.dedup();
        rows.shrink_to_fit();
        about.repeated = given - rows.len();
        about.rows = rows.len();
        // Numbers with two leads stay in the list and are reported. Neither lead is guessed.
        let pairs = rows.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let mut first: BTreeMap<u64, Option<(LeadId, u64)>> =
            pairs.map(|pair| (pair[0].0, None)).collect();
        if !first.is_empty() {
            each_row(
                bytes,
                LEADS,
                &mut ListReport::default(),
                |line, phone, lead| {
                    let seen = key(phone, country).and_then(|digits| first.get_mut(&digits));
                    if let (Some(seen), Some(lead)) = (seen, LeadId::parse(lead))
                        && let (other, before) = *seen.get_or_insert((lead, line))
                        && other != lead
                    {
                        let message = format!(
                            "has two leads, {other} (line {before}) and {lead}: its calls become \
                         dead letters `ambiguous_lead`"
                        );
                        about.note(unusable_row(line, phone, message));
                    }
                    Ok(())
                },
            )?;
            about.named.sort_by_key(|row| row.line);
        }
        Ok((Self { rows }, about))
    }

    /// Returns the leads for a phone number. If there are several, there's no telling which one is
    /// right.
    pub fn find(&self, phone: &Phone) -> impl Iterator<Item = LeadId> {
        let digits = as_number(phone);
        let from = self.rows.partition_point(|(key, _)| Some(*key) < digits);
        let rows = self.rows[from..].iter();
        let of_phone = rows.take_while(move |(key, _)| Some(*key) == digits);
        of_phone.map(|(_, lead)| *lead)
    }

    /// Returns the phone numbers whose leads are different in `newer`.
    pub fn changed_phones(&self, newer: &Self) -> Vec<Phone> {
        let old = (self.rows.iter()).filter(|row| newer.rows.binary_search(row).is_err());
        let new = (newer.rows.iter()).filter(|row| self.rows.binary_search(row).is_err());
        let mut digits: Vec<u64> = old.chain(new).map(|(key, _)| *key).collect();
        digits.sort_unstable();
        digits.dedup();
        let phones = digits
            .iter()
            .map(|key| Phone::from_e164(&format!("+{key}")));
        phones.flatten().collect()
    }
}

/// Parses a list of extensions and employees, omitting any extension that's listed with two
/// employees.
///
/// # Errors
///
/// Returns an error if the header doesn't contain the columns.
pub fn employees(bytes: &[u8]) -> Result<(Employees, ListReport), WrongHeader> {
    let mut about = ListReport::default();
    let mut lines: BTreeMap<Extension, (EmployeeId, u64)> = BTreeMap::new();
    let mut rows = Vec::new();
    let mut twice = BTreeSet::new();
    let mut repeated = 0;
    each_row(bytes, EMPLOYEES, &mut about, |line, extension, id| {
        if let Some((_, alone)) = extension.rsplit_once('/') {
            let alone = shorten(alone);
            let message = format!("is a channel: give only the extension, `{alone}`");
            return Err(unusable_row(line, extension, message));
        }
        let Some(employee) = EmployeeId::parse(id) else {
            return Err(unusable_row(
                line,
                id,
                "is not an employee id: use digits only",
            ));
        };
        let own = Extension::new(extension);
        let (other, before) = *lines.entry(own.clone()).or_insert((employee, line));
        if other != employee {
            twice.insert(own);
            let message = format!(
                "has two employees, {other} (line {before}) and {employee}: neither is sent"
            );
            return Err(unusable_row(line, extension, message));
        }
        if before != line {
            repeated += 1;
        }
        rows.push((own, employee));
        Ok(())
    })?;
    rows.retain(|(extension, _)| !twice.contains(extension));
    let list: Employees = rows.into_iter().collect();
    about.rows = list.len();
    about.repeated = repeated;
    Ok((list, about))
}

/// Describes why a cell doesn't contain a number.
fn no_number(cell: &str, country: Option<Country>) -> String {
    if numbers_in(cell) > 1 {
        return "holds several numbers: give each its own row, with the same lead".to_owned();
    }
    match country {
        Some(country) => {
            let code = country.code();
            format!("is not a valid telephone number ({code} or international)")
        }
        None => "is not a telephone number with + and its country code (no --country is given)"
            .to_owned(),
    }
}

/// Counts the parts of a cell that could each be a number. Separators between the digits of a
/// single number (spaces, dashes, and parentheses) don't count, whereas a plus starts the next
/// number.
fn numbers_in(cell: &str) -> usize {
    const DIGITS_MIN: usize = 5;
    let marks = [' ', '-', '.', '(', ')', '\u{a0}'];
    let cell = cell.replace('+', "|");
    cell.split(|c: char| !c.is_ascii_digit() && !marks.contains(&c))
        .filter(|piece| piece.chars().filter(char::is_ascii_digit).count() >= DIGITS_MIN)
        .count()
}

/// Converts a cell to the key for its phone number, which is the E.164 digits as a number. A number
/// already in E.164 is used directly, so that a million rows can be read in a second. A cell with
/// several numbers has no key.
fn key(text: &str, country: Option<Country>) -> Option<u64> {
    const DIGITS_MIN: usize = 8;
    if let Some(phone) = Phone::from_e164(text)
        && phone.as_str().len() > DIGITS_MIN
        && !text.starts_with("+0")
    {
        return as_number(&phone);
    }
    let phone = e164(text, country)?;
    if numbers_in(text) > 1 {
        return None;
    }
    as_number(&phone)
}

fn as_number(phone: &Phone) -> Option<u64> {
    phone.as_str()[1..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> (LeadList, ListReport) {
        LeadList::read(text.as_bytes(), Country::parse("UZ")).expect("a header")
    }

    fn parse_list(text: &str) -> LeadList {
        read(text).0
    }

    fn bad_rows(about: &ListReport) -> String {
        let lines: Vec<String> = about.named.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    fn lead(id: i64) -> LeadId {
        LeadId::new(id).expect("positive")
    }

    fn find_leads(list: &LeadList, text: &str) -> Vec<LeadId> {
        list.find(&phone(text)).take(2).collect()
    }

    fn phone(text: &str) -> Phone {
        Phone::from_e164(text).expect("a phone")
    }

    #[test]
    fn numbers_of_every_form_find_their_lead() {
        let text = "\u{feff}name,leadId,phone\r\n\
             \"Olim, Tashkent\",4001,+998901110001\r\n,4002,901110002\r\n\
             x,4003,998 90 111-00-03\r\n\"x\", '4005, \"'998901110005\"\r\n";
        let (list, about) = read(text);
        assert_eq!((about.rows, about.bad), (4, 0));
        assert_eq!(find_leads(&list, "+998901110005"), [lead(4005)]);
        assert_eq!(find_leads(&list, "+998901110001"), [lead(4001)]);
        assert_eq!(find_leads(&list, "+998901110002"), [lead(4002)]);
        assert_eq!(find_leads(&list, "+998901110003"), [lead(4003)]);
        assert_eq!(find_leads(&list, "+998901110004"), Vec::new());
    }

    #[test]
    fn phone_listed_twice_has_one_lead_or_reports_both_leads() {
        let (list, about) = read(
            "phone,leadId\n901110001,1\n+998901110001,1\n901110002,2\n901110002,3\n901110003,4\n",
        );
        assert_eq!(find_leads(&list, "+998901110001"), [lead(1)]);
        let two = [lead(2), lead(3)];
        assert_eq!(find_leads(&list, "+998901110002"), two);
        assert_eq!(find_leads(&list, "+998901110003"), [lead(4)]);
        assert_eq!((about.repeated, about.bad), (1, 1));
        insta::assert_snapshot!(
            bad_rows(&about),
            @"line 5: `901110002` has two leads, 2 (line 4) and 3: its calls become dead letters \
            `ambiguous_lead`"
        );
        assert_eq!(about.remarks(), " (1 given twice)");
    }

    #[test]
    fn bad_rows_are_all_reported_and_good_rows_are_used() {
        let text = b"phone,leadId\n901110001,1\n\n101,2\n901110002,L-17\n901110003\n901110004,0\n\
            \xff\xfe,2\n901110005,5\n";
        let (list, about) = LeadList::read(text, Country::parse("UZ")).expect("a header");
        assert_eq!(find_leads(&list, "+998901110001"), [lead(1)]);
        assert_eq!(find_leads(&list, "+998901110005"), [lead(5)]);
        assert_eq!((about.rows, about.bad), (2, 5));
        insta::assert_snapshot!(bad_rows(&about), @r"
        line 4: `101` is not a valid telephone number (UZ or international)
        line 5: `L-17` is not a lead id: use digits only
        line 6: the leadId is missing
        line 7: `0` is not a lead id: use digits only
        line 8: is not UTF-8
        ");
        let (_, about) = LeadList::read(b"phone,leadId\n901110001,1\n", None).expect("a header");
        assert!(about.is_useless());
        insta::assert_snapshot!(
            bad_rows(&about),
            @"line 2: `901110001` is not a telephone number with + and its country code (no \
            --country is given)"
        );
    }

    #[test]
    fn cell_with_several_numbers_is_reported_as_a_bad_row() {
        for cell in [
            "\"+998901110001, +998901110002\"",
            "+998901110001;+998901110002",
            "+998901110001 / +998901110002",
            "901110001 / 901110002",
            "+998901110001 +998901110002",
            "\"901110001\n901110002\"",
            "901110001 or 901110002",
        ] {
            let (list, about) = read(&format!("phone,leadId\n{cell},1\n901110009,9\n"));
            assert_eq!((list.rows.len(), about.bad), (1, 1), "{cell}: {about:?}");
            let message = bad_rows(&about);
            assert!(
                message.contains("holds several numbers"),
                "{cell}: {message}"
            );
            assert!(message.starts_with("line 2: "), "{cell}: {message}");
        }
        for cell in [
            "(90) 111-00-01",
            "+998 90 111 00 01",
            "901110001;ext=12",
            "998901110001",
        ] {
            assert_eq!(
                read(&format!("phone,leadId\n{cell},1\n")).1.bad,
                0,
                "{cell}"
            );
        }
    }

    #[test]
    fn separator_of_cells_is_detected_from_the_header() {
        for (text, separator) in [
            ("phone;leadId\n+998901110001;1\n", Some(';')),
            ("phone\tname\tleadId\n+998901110001\tA, B\t1\n", Some('\t')),
            ("name;phone;leadId\n\"A; B\";901110001;1\n", Some(';')),
            ("phone,leadId\n+998901110001,1\n", None),
        ] {
            let (list, about) = read(text);
            assert_eq!(find_leads(&list, "+998901110001"), [lead(1)], "{text}");
            assert_eq!((about.separator, about.bad), (separator, 0), "{text}");
        }
        let about = read("phone;leadId\n901110001;1\n").1;
        assert_eq!(about.remarks(), " (separated by `;`)");
        // The header determines the separator, and rows with a different one are reported.
        let (list, about) = read("phone,leadId\n901110001;1\n901110002,2\n");
        assert_eq!((list.rows.len(), about.bad), (1, 1));
    }

    fn header_error(text: &str) -> String {
        LeadList::read(text.as_bytes(), None)
            .expect_err("wrong")
            .to_string()
    }

    #[test]
    fn file_without_columns_is_refused_and_without_rows_is_empty() {
        insta::assert_snapshot!(
            header_error("number;lead\n+998901110001;4001\n"),
            @"line 1: the header must name the columns `phone,leadId`, but is `number;lead`"
        );
        insta::assert_snapshot!(
            header_error(""),
            @"line 1: the header must name the columns `phone,leadId`, but is ``"
        );
        for text in [
            "phone,leadId",
            "phone,leadId\n\n",
            "\u{feff}leadId,phone\r\n",
        ] {
            let (list, about) = read(text);
            assert!(list.rows.is_empty() && about.is_empty(), "{text}");
        }
    }

    fn read_employees(text: &str) -> (Employees, ListReport) {
        employees(text.as_bytes()).expect("a header")
    }

    #[test]
    fn ambiguous_extension_has_no_employee_and_is_reported() {
        let (list, about) = read_employees("extension,employeeId\n101,501\n102,502\n102,502\n");
        let id = EmployeeId::new(502);
        assert_eq!(list.get(&Extension::new("102")), id.as_ref());
        assert_eq!((about.rows, about.repeated, about.bad), (2, 1, 0));
        let of_502 = list.extension_of(EmployeeId::new(502).expect("an id"));
        assert_eq!(of_502, Some(&Extension::new("102")));
        let (two, _) = read_employees("extension,employeeId\n901,501\n102,501\n");
        let first = two.extension_of(EmployeeId::new(501).expect("an id"));
        assert_eq!(first, Some(&Extension::new("901")), "the first in the list");
        let (list, about) = read_employees(
            "extension;employeeId\n101;501\n102;502\n101;503\nPJSIP/104;504\n105;anna\n",
        );
        assert_eq!((list.len(), about.rows, about.bad), (1, 1, 3));
        assert_eq!(list.get(&Extension::new("101")), None);
        insta::assert_snapshot!(bad_rows(&about), @r"
        line 4: `101` has two employees, 501 (line 2) and 503: neither is sent
        line 5: `PJSIP/104` is a channel: give only the extension, `104`
        line 6: `anna` is not an employee id: use digits only
        ");
    }

    #[test]
    fn phones_with_a_changed_lead_are_reported() {
        let old = parse_list("phone,leadId\n901110001,1\n901110002,2\n901110003,3\n");
        let new = parse_list("phone,leadId\n901110001,1\n901110002,9\n901110004,4\n");
        let expected = ["+998901110002", "+998901110003", "+998901110004"].map(phone);
        assert_eq!(old.changed_phones(&new), expected);
        assert_eq!(new.changed_phones(&new), []);
    }

    proptest! {
        #[test]
        fn list_finds_the_same_leads_as_a_linear_search(
            rows in prop::collection::vec((901_110_000_u64..901_110_020, 1_i64..4), 0..60),
            asked in 901_110_000_u64..901_110_020,
        ) {
            let lines: String = rows.iter().map(|(p, l)| format!("{p},{l}\n")).collect();
            let list = parse_list(&format!("phone,leadId\n{lines}"));
            let mut leads: Vec<i64> =
                rows.iter().filter(|(p, _)| *p == asked).map(|(_, l)| *l).collect();
            leads.sort_unstable();
            leads.dedup();
            let expected = match leads[..] {
                [] => vec![],
                [one] => vec![lead(one)],
                [a, b, ..] => vec![lead(a), lead(b)],
            };
            prop_assert_eq!(find_leads(&list, &format!("+998{asked}")), expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_panic(bytes: Vec<u8>) {
            let mut file = b"phone,leadId\n".to_vec();
            file.extend(&bytes);
            let _ = LeadList::read(&file, Country::parse("UZ"));
            let _ = LeadList::read(&bytes, None);
        }
    }
}
