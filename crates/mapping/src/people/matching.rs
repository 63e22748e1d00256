//! Finds employees that don't match any calls, i.e., entries that can't be extensions and lists
//! that don't match any call.

use super::People;
use crate::journal::Rules;
use callbridge_call::Extension;
use callbridge_model::status::{Doubtful, Employees, Unlisted};
use std::collections::{BTreeMap, BTreeSet};

/// A call's extension and trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedExtension {
    pub pbx: String,
    /// The trunk's name, which is unique within its PBX.
    pub trunk: String,
    /// The extension as reported by the PBX.
    pub extension: Extension,
    /// In epoch seconds.
    pub started: i64,
}

/// Latin and Cyrillic letters that can be mistaken for digits.
const LOOK_ALIKES: [(&str, char); 3] = [("OoОо", '0'), ("IlІ|", '1'), ("Зз", '3')];

/// Returns the extension that was probably meant if the only letters in the text look like digits,
/// such as `101` for `1O1`.
pub fn probable_extension(extension: &str) -> Option<String> {
    let meant: String = extension.chars().map(look_alike_digit).collect();
    let all_digits = meant.bytes().all(|b| b.is_ascii_digit());
    let some_digit = extension.bytes().any(|b| b.is_ascii_digit());
    if all_digits && some_digit && meant != extension {
        Some(meant)
    } else {
        None
    }
}

/// Returns the digit that a letter can be mistaken for, leaving any other character unchanged.
fn look_alike_digit(character: char) -> char {
    for (letters, digit) in LOOK_ALIKES {
        if letters.contains(character) {
            return digit;
        }
    }
    character
}

/// Compares the trunks' employee lists with the extensions of the most recent calls (`met`).
pub fn compare(rules: &Rules, people: &People, met: &[UsedExtension]) -> Employees {
    let mut listed = BTreeSet::new();
    for trunk in rules.trunks.iter() {
        if let Some(employees) = people.employees_at(trunk) {
            listed.extend(employees.keys());
        }
    }
    let mut hit = BTreeSet::new();
    let mut unlisted = BTreeMap::new();
    let mut calls = 0;
    let mut matched = 0;
    for used in met {
        let Some(trunk) = rules.trunks.find(&used.pbx, &used.trunk) else {
            continue;
        };
        calls += u64::from(trunk.employees.is_some());
        if people.employee_of(&used.extension, trunk).is_some() {
            matched += 1;
            hit.insert(&used.extension);
        } else {
            let (count, last) = unlisted.entry(&used.extension).or_insert((0, used.started));
            *count += 1;
            *last = used.started.max(*last);
        }
    }
    let unmatched: Vec<String> = listed.difference(&hit).map(ToString::to_string).collect();
    let mut doubtful = Vec::new();
    for extension in &unmatched {
        if let Some(meant) = probable_extension(extension) {
            let extension = extension.clone();
            doubtful.push(Doubtful { extension, meant });
        }
    }
    let unlisted = unlisted
        .into_iter()
        .map(|(extension, (calls, last_at))| Unlisted {
            extension: extension.to_string(),
            calls,
            last_at,
        })
        .collect();
    Employees {
        calls,
        matched,
        doubtful,
        unlisted,
        unmatched,
        unknown: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trunk::{Trunk, Trunks, parse};

    #[test]
    fn digits_typed_as_letters_are_recognized_but_not_in_names() {
        for (typed, expected) in [
            ("1O1", Some("101")),
            ("1О1", Some("101")),
            ("l01", Some("101")),
            ("10З", Some("103")),
            ("101", None),
            ("10B", None),
            ("OIl", None),
            ("anna", None),
            ("", None),
        ] {
            assert_eq!(probable_extension(typed).as_deref(), expected, "{typed}");
        }
    }

    fn used_extension(trunk: &str, extension: &str, started: i64) -> UsedExtension {
        UsedExtension {
            pbx: "pbx1".to_owned(),
            trunk: trunk.to_owned(),
            extension: Extension::new(extension),
            started,
        }
    }

    #[test]
    fn unused_entries_and_unlisted_extensions_are_reported() {
        let flag = "city=PJSIP/city,employees=1O1:501;102:502;103:503";
        let trunks = vec![parse(flag, &Trunk::default()).expect("a good flag")];
        let rules = Rules {
            trunks: Trunks::new(trunks).expect("one trunk"),
            ..Rules::default()
        };
        let calls = [
            used_extension("city", "101", 10),
            used_extension("city", "101", 20),
            used_extension("city", "102", 30),
            used_extension("other", "102", 40),
        ];
        let found = compare(&rules, &People::default(), &calls);
        assert_eq!((found.calls, found.matched), (3, 1));
        assert_eq!(found.unmatched, ["103", "1O1"]);
        let doubtful = &found.doubtful[0];
        assert_eq!(
            (doubtful.extension.as_str(), doubtful.meant.as_str()),
            ("1O1", "101")
        );
        let unlisted = &found.unlisted[0];
        let summary = (
            unlisted.extension.as_str(),
            unlisted.calls,
            unlisted.last_at,
        );
        assert_eq!(summary, ("101", 2, 20));
        // The trunk has no employee list, so its call isn't counted.
        let bare = parse("bare=PJSIP/bare", &Trunk::default()).expect("a good flag");
        let rules = Rules {
            trunks: Trunks::new(rules.trunks.iter().cloned().chain([bare]).collect()).expect("two"),
            ..Rules::default()
        };
        let found = compare(
            &rules,
            &People::default(),
            &[used_extension("bare", "109", 10)],
        );
        assert_eq!((found.calls, found.unlisted.len()), (0, 1));
        // An extension that's really called that isn't mistyped.
        let real = compare(
            &rules,
            &People::default(),
            &[used_extension("city", "1O1", 10)],
        );
        assert!(real.doubtful.is_empty(), "{real:?}");
    }
}
