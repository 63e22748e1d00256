//! Messages that wait because a broker or `--notify-command` does not accept them.

use super::verdict::{Problem, count_with_noun};
use super::{FindingKind, Status};
use serde::{Deserialize, Serialize};

/// Messages that a broker has not confirmed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxStatus {
    /// The kind of message: `dead_letters`.
    pub name: String,
    pub messages: u64,
    /// Why the broker accepts no messages. `null` while it accepts messages.
    pub problem: Option<OutboxProblem>,
}

/// Why a broker accepts no messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxProblem {
    /// The broker's own text: `low on memory`.
    pub reason: String,
    /// A message with the reason and the fix.
    pub message: String,
}

pub(super) fn dead_letter_queue(status: &Status, found: &mut Vec<Problem>) {
    for outbox in &status.outboxes {
        let Some(problem) = &outbox.problem else {
            continue;
        };
        let waiting = count_with_noun(outbox.messages, "notice waits", "notices wait");
        let advice = &problem.message;
        let message = format!(
            "dead letters are not published to the dead-letter queue ({waiting}): {advice}"
        );
        let refused = Problem::new(FindingKind::DeadLetterQueue, message, status.check());
        found.push(refused.with_values([outbox.messages.to_string(), advice.clone()]));
    }
}

pub(super) fn notify_command(status: &Status, found: &mut Vec<Problem>) {
    if let Some(reason) = &status.notify_problem {
        let message = format!("--notify-command failed and is tried again: {reason}");
        found.push(
            Problem::new(FindingKind::Notify, message, status.check())
                .with_values([reason.clone()]),
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn status_of_queue(outbox: OutboxStatus) -> Status {
        Status {
            outboxes: vec![outbox],
            ..Status::default()
        }
    }

    /// Returns statuses with this module's problems, each with the findings that it must produce.
    pub(in crate::status) fn statuses_with_findings() -> Vec<(Status, &'static [FindingKind])> {
        let full = OutboxStatus {
            problem: Some(OutboxProblem::default()),
            ..OutboxStatus::default()
        };
        let command = Status {
            notify_problem: Some("exit status: 1".to_owned()),
            ..Status::default()
        };
        vec![
            (
                status_of_queue(full).judged(),
                &[FindingKind::DeadLetterQueue],
            ),
            (status_of_queue(OutboxStatus::default()).judged(), &[]),
            (command.judged(), &[FindingKind::Notify]),
        ]
    }
}
