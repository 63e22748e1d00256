//! One thing that was looked at.

use callbridge_model::{Code, safe, safe_json};
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// The part of a finding that does not fit into words: a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Fields beside those of every finding.
    pub json: Map<String, Value>,
    /// The same as lines for people.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckFinding {
    /// The subject of the check: `source ami://…`, `token`.
    pub name: String,
    pub what: String,
    /// The remedy in words; empty where there is nothing to do.
    pub todo: String,
    /// The exit code it asks for; `None` when it is well.
    pub fault: Option<Code>,
    pub extra: Option<Box<Extra>>,
}

/// Returns a finding of a part that is right.
pub(crate) fn well(name: impl Into<String>, what: impl Display) -> CheckFinding {
    advice(name, what, "")
}

/// Returns a finding of a part that can stay, and might be better.
pub(crate) fn advice(
    name: impl Into<String>,
    what: impl Display,
    todo: impl Into<String>,
) -> CheckFinding {
    CheckFinding {
        name: name.into(),
        what: what.to_string(),
        todo: todo.into(),
        fault: None,
        extra: None,
    }
}

/// Returns a finding of a part that is wrong: `check` ends with this code or a higher one.
pub(crate) fn fault(
    code: Code,
    name: impl Into<String>,
    what: impl Display,
    todo: impl Into<String>,
) -> CheckFinding {
    CheckFinding {
        fault: Some(code),
        ..advice(name, what, todo)
    }
}

impl CheckFinding {
    /// `{name, ok, what, todo}`, and what is more than words.
    pub(crate) fn to_json(&self) -> String {
        let mut json = json!({
            "name": self.name, "ok": self.fault.is_none(), "what": self.what, "todo": self.todo,
        });
        if let (Some(extra), Some(object)) = (&self.extra, json.as_object_mut()) {
            object.extend(extra.json.clone());
        }
        safe_json(&json.to_string())
    }

    /// One line, or two with what to do; a table below it.
    pub(crate) fn to_text(&self, colour: bool) -> String {
        let mark = match (self.fault.is_none(), colour) {
            (true, true) => "\x1b[32mok   \x1b[0m",
            (true, false) => "ok   ",
            (false, true) => "\x1b[31mfault\x1b[0m",
            (false, false) => "fault",
        };
        let mut text = format!("{mark} {}: {}", safe(&self.name), safe(&self.what));
        let lines = self.extra.as_ref().map_or("", |extra| &extra.text).lines();
        for line in lines {
            text.push_str(&format!("\n      {}", safe(line)));
        }
        if !self.todo.is_empty() {
            text.push_str("\n      to do: ");
            text.push_str(&safe(&self.todo));
        }
        text
    }
}

/// The exit code of the worst fault: state and configuration before token and grant, those before
/// the disk, and that before what may pass by itself.
pub(crate) fn worst(findings: &[CheckFinding]) -> Option<Code> {
    findings.iter().filter_map(|finding| finding.fault).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_fault_gives_the_code() {
        let well = well("clock", "right");
        let remote = fault(Code::Unreachable, "source", "refused", "start it");
        let token = fault(Code::NoPermission, "token", "refused", "a new one");
        assert_eq!(worst(std::slice::from_ref(&well)), None);
        assert_eq!(
            worst(&[well, token.clone(), remote]),
            Some(Code::NoPermission)
        );
        assert_eq!(
            token.to_json(),
            r#"{"name":"token","ok":false,"todo":"a new one","what":"refused"}"#
        );
        assert_eq!(
            token.to_text(false),
            "fault token: refused\n      to do: a new one"
        );
    }
}
