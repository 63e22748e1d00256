//! Decides which problems begin and which end, from the findings of `status`. Pure: no clock, no
//! process.
//!
//! A kind of problem is reported if it was first seen [`LASTS`] ago and still exists. It has ended
//! if it was gone for [`QUIET`]. The time between two runs of the command for one kind is at least
//! [`REST`], so a kind that comes and goes repeatedly is reported once, and ends once.

use callbridge_model::status::{FindingKind, Problem};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Time that a problem must last before it is reported, because each start has some short problems.
pub const LASTS: Duration = Duration::from_secs(5);
/// Time that a problem must be gone before it has ended.
pub const QUIET: Duration = Duration::from_secs(10);
/// Minimum time between two runs of the command for one kind of problem.
pub const REST: Duration = Duration::from_secs(60);

/// A message to the command: one line of JSON on its stdin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notification {
    /// The kind of problem, as the word of `status` (`dead_letters`) or
    /// [`crate::notify::waiting::KIND`].
    pub kind: &'static str,
    pub state: Turn,
    /// Epoch seconds at which the problem began.
    pub since: i64,
    /// A short text about the problem, from the last check.
    pub message: String,
    /// The command that shows or fixes the problem.
    pub command: String,
}

/// Whether a problem begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// The problem has lasted for [`LASTS`].
    Begins,
    /// The problem has been gone for [`QUIET`].
    Ends,
}

/// One kind of problem, from its first sign to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProblemHistory {
    report: ReportedProblem,
    /// Times since boot at which the problem was first and last seen.
    first: Duration,
    last: Duration,
    notified: bool,
}

/// The contents of a message about one problem. Stored for problems that were reported and have not
/// ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ReportedProblem {
    since: i64,
    message: String,
    command: String,
}

/// All current and recent problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    histories: BTreeMap<FindingKind, ProblemHistory>,
    /// Time since boot of the last run of the command, by kind.
    runs: BTreeMap<FindingKind, Duration>,
}

impl Problems {
    /// Restores the open problems of an earlier run from the text of [`Problems::to_json`]. If the
    /// text is unreadable, nothing is restored, and open problems are reported again. They
    /// count as seen at `boot`, a time since boot.
    pub fn restore(text: Option<&str>, boot: Duration) -> Self {
        let read = text.and_then(|text| serde_json::from_str(text).ok());
        let stored: BTreeMap<String, ReportedProblem> = read.unwrap_or_default();
        let mut problems = Self::default();
        for (word, report) in stored {
            if let Ok(kind) = word.parse::<FindingKind>() {
                let history = ProblemHistory {
                    report,
                    first: boot,
                    last: boot,
                    notified: true,
                };
                problems.histories.insert(kind, history);
            }
        }
        problems
    }

    /// Returns the problems that were reported and have not ended, as JSON for the next start.
    pub fn to_json(&self) -> String {
        let mut notified = BTreeMap::new();
        for (kind, history) in &self.histories {
            if history.notified {
                notified.insert(kind.word(), &history.report);
            }
        }
        // Strings and numbers always serialize.
        serde_json::to_string(&notified).unwrap_or_default()
    }

    /// Processes the findings at the epoch second `at`, and returns the messages that are due.
    /// `boot` is the time since boot, which never steps.
    pub fn update(&mut self, problems: &[Problem], at: i64, boot: Duration) -> Vec<Notification> {
        let mut seen: BTreeMap<FindingKind, Vec<&Problem>> = BTreeMap::new();
        for problem in problems {
            seen.entry(problem.kind).or_default().push(problem);
        }
        for (kind, all) in &seen {
            let history = self.histories.entry(*kind).or_insert(ProblemHistory {
                report: ReportedProblem {
                    since: at,
                    ..ReportedProblem::default()
                },
                first: boot,
                last: boot,
                notified: false,
            });
            history.last = boot;
            let messages: Vec<&str> = all.iter().map(|problem| problem.message.as_str()).collect();
            history.report.message = messages.join("; ");
            history.report.command = all
                .first()
                .map(|problem| problem.command.clone())
                .unwrap_or_default();
        }
        let mut notifications = Vec::new();
        let runs = &mut self.runs;
        self.histories.retain(|kind, history| {
            let last_run = runs.get(kind);
            let rested = last_run.is_none_or(|ran| boot.saturating_sub(*ran) >= REST);
            let there = seen.contains_key(kind);
            let gone = boot.saturating_sub(history.last) >= QUIET;
            let state = match (there, history.notified) {
                (true, false) if boot.saturating_sub(history.first) >= LASTS => Turn::Begins,
                (false, true) if gone => Turn::Ends,
                (false, false) => return !gone,
                (true, _) | (false, true) => return true,
            };
            if !rested {
                return true;
            }
            runs.insert(*kind, boot);
            let ReportedProblem {
                since,
                message,
                command,
            } = history.report.clone();
            notifications.push(Notification {
                kind: kind.word(),
                state,
                since,
                message,
                command,
            });
            history.notified = state == Turn::Begins;
            history.notified
        });
        notifications
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(kind: FindingKind, message: &str) -> Problem {
        Problem {
            kind,
            message: message.to_owned(),
            command: format!("callbridge {message}"),
            detail: callbridge_model::status::verdict::Detail::default(),
        }
    }

    fn second(second: u64) -> Duration {
        Duration::from_secs(1_000 + second)
    }

    /// Returns the seconds of the messages about a problem that exists while `is_there` returns
    /// `true`.
    fn problem_turns(is_there: impl Fn(u64) -> bool, seconds: u64) -> Vec<(u64, Turn)> {
        let mut problems = Problems::default();
        let mut turns = Vec::new();
        for at in 0..seconds {
            let found = is_there(at).then(|| problem(FindingKind::Paused, "unreachable"));
            let found: Vec<Problem> = found.into_iter().collect();
            for notified in problems.update(&found, 0, second(at)) {
                turns.push((at, notified.state));
            }
        }
        turns
    }

    #[test]
    fn problem_is_reported_once_at_its_start_and_once_at_its_end() {
        let turns = problem_turns(|at| (100..300).contains(&at), 600);
        assert_eq!(turns, [(105, Turn::Begins), (309, Turn::Ends)]);
    }

    #[test]
    fn short_problem_is_not_reported_and_flapping_one_only_once() {
        assert_eq!(problem_turns(|at| (100..104).contains(&at), 600), []);
        let flaps = problem_turns(|at| at < 300 && at % 8 < 4, 600);
        assert_eq!(flaps, [(8, Turn::Begins), (309, Turn::Ends)]);
    }

    #[test]
    fn json_line_shows_kind_state_since_message_and_command() {
        let mut problems = Problems::default();
        let two = [
            problem(FindingKind::SourceDown, "a is down"),
            problem(FindingKind::SourceDown, "b is down"),
        ];
        assert_eq!(problems.update(&two, 70, second(0)), []);
        let notified = problems.update(&two, 75, second(5));
        assert_eq!(
            serde_json::to_string(&notified[0]).expect("JSON"),
            r#"{"kind":"source_down","state":"begins","since":70,"#.to_owned()
                + r#""message":"a is down; b is down","command":"callbridge a is down"}"#
        );
        assert_eq!(notified.len(), 1);
    }

    #[test]
    fn problem_across_restart_is_reported_once_and_ends_once() {
        let found = [problem(FindingKind::DeadLetters, "2 letters")];
        let mut before = Problems::default();
        assert_eq!(Problems::default().to_json(), "{}");
        before.update(&found, 70, second(0));
        assert_eq!(before.to_json(), "{}", "not told yet");
        assert_eq!(before.update(&found, 75, second(5)).len(), 1);
        // Later versions must be able to read the stored text, so it must not change.
        let golden = r#"{"dead_letters":{"since":70,"message":"2 letters","#.to_owned()
            + r#""command":"callbridge 2 letters"}}"#;
        assert_eq!(before.to_json(), golden);
        let mut after = Problems::restore(Some(&golden), second(30));
        for at in 30..200 {
            assert_eq!(after.update(&found, 100, second(at)), [], "{at}");
        }
        assert_eq!(after.update(&[], 0, second(208)), []);
        let ended = after.update(&[], 0, second(209));
        assert_eq!((ended[0].state, ended[0].since), (Turn::Ends, 70));
        assert_eq!(after.to_json(), "{}");
        assert_eq!(Problems::restore(Some("{"), second(0)), Problems::default());
        let unknown = r#"{"of_the_future":{"since":1,"message":"w","command":"t"}}"#;
        assert_eq!(
            Problems::restore(Some(unknown), second(0)),
            Problems::default()
        );
    }

    proptest! {
        #[test]
        fn problem_begin_and_end_reports_alternate_a_minute_apart(
            there in prop::collection::vec(any::<bool>(), 0..60),
        ) {
            // Each value lasts seven seconds. Then there is no problem for a long time.
            let turns = problem_turns(
                |at| there.get(at as usize / 7).copied().unwrap_or(false),
                700,
            );
            for (n, (_, turn)) in turns.iter().enumerate() {
                prop_assert_eq!(*turn, if n % 2 == 0 { Turn::Begins } else { Turn::Ends });
            }
            for pair in turns.windows(2) {
                prop_assert!(pair[1].0 - pair[0].0 >= REST.as_secs());
            }
            prop_assert_eq!(turns.len() % 2, 0, "what began has ended");
        }
    }
}
