//! How the CRM's journal shows our calls, and which other providers also journal them.

use super::{FindingKind, Problem, Status};
use serde::{Deserialize, Serialize};

/// If another provider has journaled at least this many of our calls within an hour, it is
/// reported.
const FOREIGN_MIN: u64 = 2;

/// A value of a call that is sent, and that the journal shows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SentField {
    /// Seconds of talk between customer and company.
    #[default]
    Talk,
    /// The customer's number in E.164.
    Phone,
    /// The extension that answered or rang.
    Extension,
    /// The employee's id in the CRM.
    Employee,
    /// Inbound or outbound, seen from the company.
    Direction,
    /// Whether customer and company talked with each other.
    Answered,
    Start,
    Duration,
}

impl SentField {
    /// Returns the value's name in JSON and metrics: `talk`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the value's name for people, and `true` if `--field` can set its name.
    fn name_for_people(self) -> (&'static str, bool) {
        match self {
            Self::Talk => ("talk time", true),
            Self::Phone | Self::Extension => (self.word(), true),
            Self::Answered => ("answer", false),
            Self::Employee | Self::Direction | Self::Start | Self::Duration => (self.word(), false),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Echo {
    #[default]
    Right,
    /// The journal shows no value.
    Missing,
    Different,
}

/// A value of calls that is compared with the CRM's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalField {
    pub field: SentField,
    /// The name of the value in the request.
    pub name: String,
    pub compared: u64,
    pub missing: u64,
    pub different: u64,
    /// Result for the newest compared call.
    pub last: Echo,
}

/// Calls of the last 24 hours that callbridge and another provider have both journaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignCalls {
    /// The provider's name in the CRM.
    pub provider: String,
    pub calls: u64,
    /// Highest number of these calls that began within one hour.
    pub most_in_an_hour: u64,
    /// Epoch seconds at which the newest of the calls began.
    pub last_at: i64,
}

pub(super) fn fields(status: &Status, found: &mut Vec<Problem>) {
    for field in &status.journal_fields {
        let (word, named) = field.field.name_for_people();
        let (shows, count) = match field.last {
            Echo::Right => continue,
            Echo::Missing => (format!("no {word}"), field.missing),
            Echo::Different => (format!("another {word} than was sent"), field.different),
        };
        let (flag, ask) = if named {
            let flag = format!("--field {}={}", field.field.word(), field.name);
            let ask = format!("is {flag} right?");
            (flag, ask)
        } else {
            (field.name.clone(), format!("it is sent as {}", field.name))
        };
        let compared = field.compared;
        let message = format!("the journal shows {shows} ({count} of {compared} calls): {ask}");
        let values = [flag, count.to_string(), compared.to_string()];
        found.push(
            Problem::new(FindingKind::FieldNotShown, message, status.check()).with_values(values),
        );
    }
}

pub(super) fn foreign_calls(status: &Status, found: &mut Vec<Problem>) {
    for foreign in &status.foreign_calls {
        if foreign.most_in_an_hour < FOREIGN_MIN {
            continue;
        }
        let ForeignCalls {
            provider, calls, ..
        } = foreign;
        let message = format!(
            "{provider} journals our calls as well ({calls} in 24 hours), so each call appears \
             there twice: switch off the call journal of {provider} in the CRM, or these trunks \
             here (journal=no)"
        );
        let values = [provider.clone(), calls.to_string()];
        found.push(
            Problem::new(FindingKind::ForeignCalls, message, status.check()).with_values(values),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_messages(status: Status) -> Vec<String> {
        let mut messages = Vec::new();
        for problem in status.judged().problems {
            let kinds = [FindingKind::FieldNotShown, FindingKind::ForeignCalls];
            if kinds.contains(&problem.kind) {
                messages.push(problem.message);
            }
        }
        messages
    }

    fn field(field: SentField, name: &str, last: Echo) -> JournalField {
        JournalField {
            field,
            name: name.to_owned(),
            compared: 3,
            missing: 2,
            different: 1,
            last,
        }
    }

    #[test]
    fn field_missing_or_different_in_newest_call_is_reported() {
        let status = Status {
            journal_fields: vec![
                field(SentField::Talk, "talkTimeSec", Echo::Missing),
                field(SentField::Phone, "clientPhone", Echo::Right),
                field(SentField::Employee, "employeeId", Echo::Different),
            ],
            ..Status::default()
        };
        insta::assert_snapshot!(problem_messages(status).join("\n"), @r"
        the journal shows no talk time (2 of 3 calls): is --field talk=talkTimeSec right?
        the journal shows another employee than was sent (1 of 3 calls): it is sent as employeeId
        ");
    }

    /// Returns the messages about a provider with this number of calls, and this highest number of
    /// calls within an hour.
    fn provider_messages(calls: u64, most_in_an_hour: u64) -> Vec<String> {
        problem_messages(Status {
            foreign_calls: vec![ForeignCalls {
                provider: "ONLINE_PBX".to_owned(),
                calls,
                most_in_an_hour,
                last_at: 1_795_151_317,
            }],
            ..Status::default()
        })
    }

    #[test]
    fn another_provider_is_reported_after_two_calls_in_an_hour() {
        assert_eq!(provider_messages(9, 1), [""; 0]);
        let text = provider_messages(9, 2).join("\n");
        assert!(
            text.starts_with("ONLINE_PBX journals our calls as well (9 in 24 hours)"),
            "{text}"
        );
        assert!(text.ends_with("(journal=no)"), "{text}");
    }
}
