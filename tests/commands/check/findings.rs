//! Runs `check`, and asserts its findings, as JSON lines and as text.

use crate::commands::sidecar::{Place, json_lines};
use callbridge_page::backend::CheckFinding;
use serde_json::Value;

/// The JSON keys of the finding about a PBX's version.
const VERSION_KEYS: [&str; 7] = [
    "fix", "message", "name", "ok", "settings", "tells", "version",
];

/// The findings, the exit code, and the stderr of one run of `check`.
#[derive(Debug)]
pub struct CheckReport {
    /// The exit code.
    pub code: i32,
    findings: Vec<Value>,
    err: String,
}

/// Runs `check --json` with these flags. Checks the keys of each finding.
pub async fn check(place: &Place, flags: &[String]) -> CheckReport {
    let mut arguments = vec!["check".to_owned(), "--json".to_owned()];
    arguments.extend_from_slice(flags);
    let output = place.run_command(&arguments).await;
    let findings = json_lines(&output.out);
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
    CheckReport {
        code: output.code,
        findings,
        err: output.err,
    }
}

/// Runs `check` with and without `--json`. Both runs must report the same findings.
pub async fn check_in_both_forms(place: &Place, flags: &[String]) -> CheckReport {
    let report = check(place, flags).await;
    let mut arguments = vec!["check".to_owned()];
    arguments.extend_from_slice(flags);
    let output = place.run_command(&arguments).await;
    assert_eq!(output.code, report.code, "{output:?}");
    for finding in &report.findings {
        let name = finding["name"].as_str().expect("a name");
        let line = output
            .out
            .lines()
            .find(|line| line.contains(&format!(" {name}: ")));
        let line = line.unwrap_or_else(|| panic!("{name} is missing in {}", output.out));
        let mark = if finding["ok"] == true {
            "ok"
        } else {
            "failed"
        };
        assert!(line.starts_with(mark), "{line}");
    }
    report
}

impl CheckReport {
    fn findings_with(&self, ok: bool) -> Vec<&Value> {
        self.findings
            .iter()
            .filter(|finding| finding["ok"] == ok)
            .collect()
    }

    /// Asserts that no check failed.
    pub fn assert_clean(&self) {
        assert_eq!(
            (self.code, self.findings_with(false).len()),
            (0, 0),
            "{self:#?}"
        );
        assert_eq!(self.err, "");
    }

    /// Asserts that the flags were refused with this message before any check ran.
    pub fn assert_refused(&self, words: &str) {
        assert_eq!((self.code, self.findings.len()), (64, 0), "{self:#?}");
        assert!(self.err.contains(words), "{}", self.err);
    }

    /// Returns the successful finding whose name starts with `name`.
    pub fn ok_finding(&self, name: &str) -> &Value {
        let ok_findings = self.findings_with(true);
        let found = ok_findings
            .iter()
            .find(|finding| has_name_prefix(finding, name));
        found.unwrap_or_else(|| panic!("no successful finding {name} in {self:#?}"))
    }

    /// Asserts that exactly one check failed: its name starts with `name`, its message contains
    /// `message`, its fix contains `fix`, and the exit code is `code`.
    pub fn assert_single_failure(&self, code: i32, name: &str, message: &str, fix: &str) {
        let failures = self.findings_with(false);
        assert_eq!(failures.len(), 1, "{self:#?}");
        assert!(has_name_prefix(failures[0], name), "{self:#?}");
        for (key, words) in [("message", message), ("fix", fix)] {
            let text = failures[0][key].as_str().unwrap_or_default();
            assert!(
                text.contains(words),
                "`{words}` is missing in {key}: {text}"
            );
        }
        assert_eq!(self.code, code, "{self:#?}");
        let total = self.findings.len();
        let count = format!("1 of {total} checks failed");
        assert!(self.err.contains(&count), "{}", self.err);
    }

    /// Returns `true` if a check failed because the other side did not answer in time.
    pub fn has_timed_out(&self) -> bool {
        self.findings_with(false).iter().any(|finding| {
            let message = finding["message"].as_str().unwrap_or_default();
            message.contains("no answer within")
        })
    }

    /// Returns the names of all failed checks.
    pub fn failed_names(&self) -> Vec<String> {
        let failed = self.findings_with(false);
        failed
            .iter()
            .map(|finding| finding["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

fn has_name_prefix(finding: &Value, name: &str) -> bool {
    finding["name"]
        .as_str()
        .is_some_and(|text| text.starts_with(name))
}

/// Removes all values of a flag, and appends one value.
pub fn replace_flag(mut flags: Vec<String>, flag: &str, value: &str) -> Vec<String> {
    flags.retain(|given| !given.starts_with(&format!("{flag}=")));
    flags.push(format!("{flag}={value}"));
    flags
}
