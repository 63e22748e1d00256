//! The processes that share a state in PostgreSQL: the leader and the standbys.

use super::{FindingKind, Problem, Status};
use serde::{Deserialize, Serialize};

/// The processes that share this state, as one of these processes shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LeadershipStatus {
    /// The role of the process that made this status.
    pub role: Role,
    /// The process that leads. `null` if no process leads, or if the leader is not known.
    pub leader: Option<LeaderStatus>,
    /// The processes that wait, longest first.
    pub standbys: Vec<StandbyStatus>,
    /// Why this process, a standby, could not take over. `null` if it could.
    pub problem: Option<String>,
    /// Microseconds that the database takes to answer the leader. `null` if this process isn't the
    /// leader.
    pub round_trip_us: Option<u64>,
    /// Microseconds that the slowest commit of the last minute took, including its statements.
    /// `null` if there was none, or if this process isn't the leader.
    pub slowest_commit_us: Option<u64>,
    /// Sessions with the database that this process has lost while it was the leader.
    pub lost_sessions: u64,
    /// The last of them. `null` if there is none.
    pub last_lost_session: Option<LostSession>,
    /// The problems of the database, each with its fix.
    pub database: Vec<DatabaseProblem>,
}

/// A session with the database that was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LostSession {
    /// Epoch seconds at which it was lost.
    pub at: i64,
    pub reason: String,
}

/// A problem of the database that the processes share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DatabaseProblem {
    /// The stable name, as in metrics: `no_synchronous_standby`.
    pub kind: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// The process receives calls and sends them.
    Leader,
    /// The process waits until the leader ends.
    #[default]
    Standby,
    /// A command on a machine on which no daemon runs.
    Command,
}

impl Role {
    /// Returns the word in JSON and in the text: `standby`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The process that leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LeaderStatus {
    /// The value of `--instance`, or the name of the host.
    pub name: String,
    pub version: String,
    /// Epoch seconds at which the process began to lead.
    pub since: i64,
}

/// A process that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StandbyStatus {
    pub name: String,
    pub version: String,
    /// Epoch seconds at which the process began to wait.
    pub since: i64,
    /// Whether the process has the same CRM address and trunks as the leader.
    pub same_settings: bool,
}

impl LeadershipStatus {
    /// Returns the leader's name, for messages.
    pub fn leader_name(&self) -> String {
        match &self.leader {
            Some(leader) => leader.name.clone(),
            None => "no process".to_owned(),
        }
    }

    /// Returns `true` if the database could not be read.
    pub const fn is_unknown(&self) -> bool {
        self.leader.is_none() && self.problem.is_some()
    }

    /// Describes who leads, for messages: `hub1 leads`.
    pub fn sentence(&self) -> String {
        if self.is_unknown() {
            return "the leader is not known".to_owned();
        }
        format!("{} leads", self.leader_name())
    }
}

pub(super) fn leadership(status: &Status, found: &mut Vec<Problem>) {
    let Some(leadership) = &status.leadership else {
        return;
    };
    let command = status.command("status");
    if let Some(problem) = &leadership.problem {
        let message = format!("this standby could not take over: {problem}");
        let problem_found = Problem::new(FindingKind::Standby, message, status.check());
        found.push(problem_found.with_values([problem.clone()]));
    } else if leadership.leader.is_none() && leadership.role != Role::Command {
        let message = "no process leads: no call is received and none is sent";
        let none = Problem::new(FindingKind::NoLeader, message, command.clone());
        found.push(none.with_values([]));
    }
    for DatabaseProblem { message, .. } in &leadership.database {
        let problem = Problem::new(FindingKind::Database, message, status.check());
        found.push(problem.with_values([message.clone()]));
    }
    let others = leadership
        .standbys
        .iter()
        .filter(|standby| !standby.same_settings);
    let others: Vec<&str> = others.map(|standby| standby.name.as_str()).collect();
    if !others.is_empty() {
        let names = others.join(", ");
        let message = format!(
            "the CRM address or the trunks of {names} are not those of the leader: give all hubs \
             the same flags, and restart the one that is wrong"
        );
        let code = "standby_settings";
        let differs = Problem::new(FindingKind::Standby, message, command);
        found.push(differs.with_code(code, [names]));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn judge_leadership(leadership: LeadershipStatus) -> Status {
        let status = Status {
            leadership: Some(leadership),
            ..Status::default()
        };
        status.judged()
    }

    fn leadership_with_leader() -> LeadershipStatus {
        LeadershipStatus {
            leader: Some(LeaderStatus {
                name: "hub1".to_owned(),
                ..LeaderStatus::default()
            }),
            ..LeadershipStatus::default()
        }
    }

    fn standby(same_settings: bool) -> StandbyStatus {
        StandbyStatus {
            name: "hub2".to_owned(),
            same_settings,
            ..StandbyStatus::default()
        }
    }

    /// Returns statuses with this module's problems, each with the findings that it must produce.
    pub(in crate::status) fn statuses_with_findings() -> Vec<(Status, &'static [FindingKind])> {
        let none = LeadershipStatus::default();
        let differs = LeadershipStatus {
            standbys: vec![standby(false)],
            ..leadership_with_leader()
        };
        let same = LeadershipStatus {
            standbys: vec![standby(true)],
            ..leadership_with_leader()
        };
        let refused = LeadershipStatus {
            problem: Some("the token is another one than the leader's".to_owned()),
            ..leadership_with_leader()
        };
        let unsafe_database = LeadershipStatus {
            database: vec![DatabaseProblem {
                kind: "autovacuum_off".to_owned(),
                message: "autovacuum is off".to_owned(),
            }],
            ..leadership_with_leader()
        };
        vec![
            (judge_leadership(unsafe_database), &[FindingKind::Database]),
            (judge_leadership(none), &[FindingKind::NoLeader]),
            (judge_leadership(differs), &[FindingKind::Standby]),
            (judge_leadership(same), &[]),
            (judge_leadership(refused), &[FindingKind::Standby]),
        ]
    }
}
