//! Parses the table of rules, and lists the places in each section of the document.

use std::collections::BTreeSet;

#[derive(Debug)]
pub struct Row {
    pub section: String,
    pub place: String,
    pub how: How,
}

/// How a rule is shown.
#[derive(Debug)]
pub enum How {
    /// By these tests, as file and name.
    Shown(Vec<(String, String)>),
    /// The document says that this is not shown.
    NotShown,
    /// The rule cannot apply to a sandbox, for this reason.
    Explained(String),
    /// The rule binds the client, so `duties.tsv` lists it.
    Duty,
}

impl Row {
    /// Returns the section, and the place without its letter.
    pub fn section_and_place(&self) -> (&str, &str) {
        let place = self
            .place
            .trim_end_matches(|c: char| c.is_ascii_lowercase());
        (&self.section, place)
    }
}

/// Parses the table. Returns its rows and its errors.
pub fn parse(text: &str) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split('\t').collect();
        let [section, place, rule, how] = cells[..] else {
            faults.push(format!("line {}: not four cells", number + 1));
            continue;
        };
        let how = match how {
            "not shown" => Some(How::NotShown),
            "duty" => Some(How::Duty),
            _ => match how.strip_prefix("explained: ") {
                Some(why) => Some(How::Explained(why.to_owned())),
                None => parse_test_names(how).map(How::Shown),
            },
        };
        let is_explained = match &how {
            Some(How::Explained(why)) => why.len() > 20,
            _ => !rule.is_empty(),
        };
        match how {
            Some(how) if is_explained => rows.push(Row {
                section: section.to_owned(),
                place: place.to_owned(),
                how,
            }),
            _ => faults.push(format!("line {}: neither tests nor a reason", number + 1)),
        }
    }
    (rows, faults)
}

fn parse_test_names(how: &str) -> Option<Vec<(String, String)>> {
    let parts = how.split(" + ").map(|part| part.split_once(": "));
    parts
        .map(|part| part.map(|(file, test)| (file.to_owned(), test.to_owned())))
        .collect()
}

/// Returns the names of a file's tests: functions with the attribute, also inside `proptest!`.
/// Other attributes can be in between.
pub fn tests_of(text: &str) -> BTreeSet<&str> {
    let (mut found, mut is_test) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let words = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = words.strip_prefix("fn ") {
            if is_test {
                found.extend(rest.split('(').next());
            }
            is_test = false;
        }
    }
    found
}

/// Number of numbered rules, rows of tables, and items of lists in each section of the document.
const SECTIONS: [(&str, usize, usize, usize); 41] = [
    ("What the service does", 5, 0, 0),
    ("§2.1", 0, 6, 0),
    ("§2.2", 0, 9, 0),
    ("§2.3", 0, 6, 0),
    ("§2.4", 0, 3, 0),
    ("§2.5", 0, 11, 0),
    ("§2.6", 0, 8, 0),
    ("§2.7", 0, 4, 0),
    ("§2.8", 0, 0, 3),
    ("§3.1", 0, 12, 0),
    ("§3.4", 0, 5, 0),
    ("§4.1", 0, 2, 0),
    ("§4.1.1", 0, 7, 0),
    ("§4.2", 0, 5, 0),
    ("§4.3", 0, 1, 0),
    ("§4.4", 5, 1, 0),
    ("§4.5", 6, 2, 0),
    ("§4.6", 0, 1, 0),
    ("§4.7", 0, 9, 0),
    ("§5.1", 3, 0, 0),
    ("§5.2", 0, 6, 0),
    ("§5.3", 5, 0, 0),
    ("§5.4", 3, 0, 0),
    ("§5.6", 9, 0, 0),
    ("§6.1", 8, 0, 0),
    ("§6.2", 0, 7, 0),
    ("§6.3", 0, 4, 0),
    ("§6.4", 8, 0, 0),
    ("§6.5", 0, 10, 0),
    ("§6.6", 0, 0, 4),
    ("§6.7", 0, 4, 0),
    ("§6.8", 0, 19, 0),
    ("§6.9", 8, 4, 0),
    ("§7.2", 0, 2, 0),
    ("§7.3", 0, 9, 0),
    ("§7.4", 0, 6, 0),
    ("§7.5", 0, 14, 0),
    ("§7.6", 0, 15, 0),
    ("§7.7", 0, 4, 0),
    ("Limits", 0, 23, 0),
    ("Versioning", 5, 0, 0),
];

/// Returns every place of the document that must be in the table.
pub fn places() -> impl Iterator<Item = (&'static str, String)> {
    SECTIONS.iter().flat_map(|&(section, rules, rows, items)| {
        let rules = (1..=rules).map(|number| number.to_string());
        let rows = (1..=rows).map(|number| format!("row {number}"));
        let items = (1..=items).map(|number| format!("item {number}"));
        rules
            .chain(rows)
            .chain(items)
            .map(move |place| (section, place))
    })
}
