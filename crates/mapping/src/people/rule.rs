//! Where leads and employees come from, as given in flags.

use super::list::Employees;
use callbridge_asterisk::decoder::VARIABLE_NAME_BYTES_MAX;
use callbridge_call::Extension;
use callbridge_model::EmployeeId;
use regex::Regex;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where a call's lead comes from.
#[derive(Clone, Debug)]
pub enum LeadRule {
    /// The value of a channel variable, as in `var:LEAD_ID`.
    Variable(String),
    /// The pattern's first group in a user field, as in `userfield:lead=(\d+)`.
    UserField(Regex),
    /// A list of phone numbers and leads (`csv:FILE`).
    Csv(PathBuf),
    /// Phone numbers and leads learned from the CRM (`directory`).
    Directory,
}

impl LeadRule {
    /// Returns the channel variable that the rule reads, if any.
    pub const fn variable(&self) -> Option<&String> {
        match self {
            Self::Variable(name) => Some(name),
            Self::UserField(_) | Self::Csv(_) | Self::Directory => None,
        }
    }

    /// Returns `true` for a rule that looks up the number, as opposed to reading information from
    /// the dialplan.
    pub const fn is_by_number(&self) -> bool {
        match self {
            Self::Variable(_) | Self::UserField(_) => false,
            Self::Csv(_) | Self::Directory => true,
        }
    }
}

/// The forms of a lead rule, for messages.
const FORMS: &str = "var:NAME, userfield:REGEX, csv:FILE and directory, separated by `;`";

/// Maximum memory used by a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Parses `var:LEAD_ID;csv:/etc/leads.csv`, or returns an error message. A `;` that doesn't start a
/// new rule is part of the pattern before it.
pub fn lead_rules(text: &str) -> Result<Vec<LeadRule>, String> {
    let mut pieces: Vec<String> = Vec::new();
    for piece in text.split(';') {
        let mut kinds = ["var:", "userfield:", "csv:"].iter();
        let begins = kinds.any(|kind| piece.starts_with(kind)) || piece.trim() == "directory";
        match pieces.last_mut() {
            Some(pattern) if !begins && pattern.starts_with("userfield:") => {
                *pattern += &format!(";{piece}");
            }
            _ => pieces.push(piece.to_owned()),
        }
    }
    pieces.iter().map(|piece| lead_rule(piece.trim())).collect()
}

fn lead_rule(piece: &str) -> Result<LeadRule, String> {
    if piece == "directory" {
        return Ok(LeadRule::Directory);
    }
    let (kind, rest) = piece.split_once(':').unwrap_or_default();
    match kind {
        "var" | "userfield" | "csv" if rest.is_empty() => {
            Err(format!("nothing follows `{kind}:`; the rules are {FORMS}"))
        }
        "var" if rest.len() > VARIABLE_NAME_BYTES_MAX => Err(format!(
            "`var:{rest}`: the name of a variable has at most {VARIABLE_NAME_BYTES_MAX} bytes"
        )),
        "var" => Ok(LeadRule::Variable(rest.to_owned())),
        "csv" => Ok(LeadRule::Csv(PathBuf::from(rest))),
        "userfield" => pattern(rest).map(LeadRule::UserField),
        _ => Err(format!(
            "`{piece}` is not a lead rule; the rules are {FORMS}"
        )),
    }
}

fn pattern(text: &str) -> Result<Regex, String> {
    let pattern = regex::RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default();
            let why = last.trim_start_matches("error: ");
            format!("`userfield:{text}` is not a pattern: {why}")
        })?;
    if pattern.captures_len() < 2 {
        let message = "has no group: put the lead's digits in one, as in `lead=(\\d+)`";
        return Err(format!("`userfield:{text}` {message}"));
    }
    Ok(pattern)
}

/// Where employees come from, by extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmployeeRule {
    /// Pairs in the flag itself, as in `101:501;102:502`.
    List(Employees),
    /// A file with the header `extension,employeeId`.
    File(PathBuf),
}

/// Parses `101:501;102:502` or a file name, or returns an error message.
pub fn employee_rule(text: &str) -> Result<EmployeeRule, String> {
    if text.is_empty() {
        return Err("is empty; give `101:501;102:502` or a file".to_owned());
    }
    // A list has pairs and no slash. A file name that looks like a list is written as `./101:501`.
    if text.contains('/') || !text.contains(':') {
        return Ok(EmployeeRule::File(PathBuf::from(text)));
    }
    let mut known = BTreeMap::new();
    let mut rows = Vec::new();
    let pairs = text.split(';').map(str::trim);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (extension, id) = pair.split_once(':').unwrap_or_default();
        let extension = extension.trim();
        let id = match EmployeeId::parse(id) {
            Some(id) if !extension.is_empty() => id,
            _ => {
                let message = "is not EXTENSION:EMPLOYEE, as in `101:501` (a file needs a `/`)";
                return Err(format!("`{pair}` {message}"));
            }
        };
        if let Some(other) = known.insert(extension, id)
            && other != id
        {
            let message = format!("extension {extension} has two employees, {other} and {id}");
            return Err(message);
        }
        rows.push((Extension::new(extension), id));
    }
    Ok(EmployeeRule::List(rows.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_text(rule: &LeadRule) -> String {
        match rule {
            LeadRule::Variable(name) => format!("var {name}"),
            LeadRule::UserField(pattern) => format!("userfield {pattern}"),
            LeadRule::Csv(file) => format!("csv {}", file.display()),
            LeadRule::Directory => "directory".to_owned(),
        }
    }

    fn shape(text: &str) -> Result<Vec<String>, String> {
        lead_rules(text).map(|rules| rules.iter().map(rule_text).collect())
    }

    fn shape_error(text: &str) -> String {
        shape(text).expect_err("wrong")
    }

    #[test]
    fn lead_rules_keep_their_order() {
        let text = r"userfield:lead=(\d+);?;csv:/etc/leads.csv;directory;var:LEAD_ID";
        let rules = shape(text).expect("good");
        assert_eq!(
            rules,
            [
                r"userfield lead=(\d+);?",
                "csv /etc/leads.csv",
                "directory",
                "var LEAD_ID"
            ]
        );
    }

    #[test]
    fn invalid_lead_rule_is_reported_with_the_valid_forms() {
        insta::assert_snapshot!(
            shape_error("LEAD_ID"),
            @"`LEAD_ID` is not a lead rule; the rules are var:NAME, userfield:REGEX, csv:FILE and \
            directory, separated by `;`"
        );
        insta::assert_snapshot!(
            shape_error("var:"),
            @"nothing follows `var:`; the rules are var:NAME, userfield:REGEX, csv:FILE and \
            directory, separated by `;`"
        );
        insta::assert_snapshot!(
            shape_error(r"userfield:lead=\d+"),
            @"`userfield:lead=\\d+` has no group: put the lead's digits in one, as in \
            `lead=(\\d+)`"
        );
        insta::assert_snapshot!(
            shape_error("userfield:lead=("),
            @"`userfield:lead=(` is not a pattern: unclosed group"
        );
        let long = format!("var:{}", "x".repeat(81));
        assert!(
            shape_error(&long).ends_with("has at most 80 bytes"),
            "{}",
            shape_error(&long)
        );
        assert!(shape(&long[..84]).is_ok());
        insta::assert_snapshot!(
            shape_error("csv:a.csv;directories"),
            @"`directories` is not a lead rule; the rules are var:NAME, userfield:REGEX, csv:FILE \
            and directory, separated by `;`"
        );
    }

    fn pair(extension: &str, id: i64) -> (Extension, EmployeeId) {
        (
            Extension::new(extension),
            EmployeeId::new(id).expect("positive"),
        )
    }

    #[test]
    fn employees_key_accepts_a_list_or_a_file() {
        let list = employee_rule("101:501; 102:502;").expect("a list");
        assert_eq!(
            list,
            EmployeeRule::List([pair("101", 501), pair("102", 502)].into_iter().collect())
        );
        for file in ["employees.csv", "./101:501", "/etc/callbridge/e:1.csv"] {
            assert_eq!(
                employee_rule(file),
                Ok(EmployeeRule::File(PathBuf::from(file)))
            );
        }
        assert!(employee_rule("101:501;101:501").is_ok(), "told twice alike");
        insta::assert_snapshot!(
            employee_rule("101:501;101:502").expect_err("two"),
            @"extension 101 has two employees, 501 and 502"
        );
        insta::assert_snapshot!(
            employee_rule("101:anna").expect_err("a name"),
            @"`101:anna` is not EXTENSION:EMPLOYEE, as in `101:501` (a file needs a `/`)"
        );
    }
}
