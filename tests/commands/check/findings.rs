//! The findings of `check`, as JSON lines and as text.

use crate::commands::sidecar::{Place, json_lines};
use callbridge_page::backend::CheckFinding;
use serde_json::Value;

/// The keys of the finding about a PBX's version.
const VERSION_KEYS: [&str; 7] = [
    "fix", "message", "name", "ok", "settings", "tells", "version",
];

/// One run of `check`.
#[derive(Debug)]
pub struct Checked {
    /// The exit code.
    pub code: i32,
    findings: Vec<Value>,
    err: String,
}

/// Runs `check --json`.
pub async fn check(place: &Place, flags: &[String]) -> Checked {
    let mut arguments = vec!["check".to_owned(), "--json".to_owned()];
    arguments.extend_from_slice(flags);
    let said = place.say(&arguments).await;
    let findings = json_lines(&said.out);
    for finding in &findings {
        let keys: Vec<&String> = finding.as_object().expect("an object").keys().collect();
        let name = finding["name"].as_str().expect("a name");
        // The administrator's page has a text for each finding in each language.
        let read: CheckFinding = serde_json::from_value(finding.clone()).expect("a finding");
        assert!(read.kind().is_some(), "the page has no text of {name}");
        if name.starts_with("version of ") {
            assert_eq!(keys, VERSION_KEYS);
        } else {
            assert_eq!(keys, ["fix", "message", "name", "ok"]);
        }
    }
    Checked {
        code: said.code,
        findings,
        err: said.err,
    }
}

/// Runs `check` with and without `--json`. Both must report the same findings.
pub async fn check_in_both_forms(place: &Place, flags: &[String]) -> Checked {
    let checked = check(place, flags).await;
    let mut arguments = vec!["check".to_owned()];
    arguments.extend_from_slice(flags);
    let text = place.say(&arguments).await;
    assert_eq!(text.code, checked.code, "{text:?}");
    for finding in &checked.findings {
        let name = finding["name"].as_str().expect("a name");
        let line = text
            .out
            .lines()
            .find(|line| line.contains(&format!(" {name}: ")));
        let line = line.unwrap_or_else(|| panic!("{name} is missing in {}", text.out));
        let mark = if finding["ok"] == true {
            "ok"
        } else {
            "failed"
        };
        assert!(line.starts_with(mark), "{line}");
    }
    checked
}

impl Checked {
    fn of(&self, ok: bool) -> Vec<&Value> {
        self.findings
            .iter()
            .filter(|finding| finding["ok"] == ok)
            .collect()
    }

    /// Checks that there is no problem.
    pub fn is_clean(&self) {
        assert_eq!((self.code, self.of(false).len()), (0, 0), "{self:#?}");
        assert_eq!(self.err, "");
    }

    /// Checks that the flags were refused with this message before any check ran.
    pub fn is_refused(&self, words: &str) {
        assert_eq!((self.code, self.findings.len()), (64, 0), "{self:#?}");
        assert!(self.err.contains(words), "{}", self.err);
    }

    /// Returns the successful finding whose name starts with `name`.
    pub fn well(&self, name: &str) -> &Value {
        let of_name = self.of(true);
        let found = of_name.iter().find(|finding| begins(finding, name));
        found.unwrap_or_else(|| panic!("no good {name} in {self:#?}"))
    }

    /// Checks that there is exactly one problem: its name starts with `name`, its text contains
    /// `message`, its fix contains `fix`, and the exit code is `code`.
    pub fn fails(&self, code: i32, name: &str, message: &str, fix: &str) {
        let faults = self.of(false);
        assert_eq!(faults.len(), 1, "{self:#?}");
        assert!(begins(faults[0], name), "{self:#?}");
        for (key, words) in [("message", message), ("fix", fix)] {
            let said = faults[0][key].as_str().unwrap_or_default();
            assert!(
                said.contains(words),
                "`{words}` is missing in {key}: {said}"
            );
        }
        assert_eq!(self.code, code, "{self:#?}");
        let all = self.findings.len();
        let count = format!("1 of {all} checks failed");
        assert!(self.err.contains(&count), "{}", self.err);
    }

    /// Returns `true` if a check failed because the other side did not answer in time.
    pub fn has_timed_out(&self) -> bool {
        self.of(false).iter().any(|finding| {
            let message = finding["message"].as_str().unwrap_or_default();
            message.contains("no answer within")
        })
    }

    /// Returns the names of all failed checks.
    pub fn faults(&self) -> Vec<String> {
        let name = |finding: &&Value| finding["name"].as_str().unwrap_or_default().to_owned();
        self.of(false).iter().map(name).collect()
    }
}

fn begins(finding: &Value, name: &str) -> bool {
    finding["name"]
        .as_str()
        .is_some_and(|own| own.starts_with(name))
}

/// Replaces the value of a flag.
pub fn with(mut flags: Vec<String>, flag: &str, value: &str) -> Vec<String> {
    flags.retain(|own| !own.starts_with(&format!("{flag}=")));
    flags.push(format!("{flag}={value}"));
    flags
}
