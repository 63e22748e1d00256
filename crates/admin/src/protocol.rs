//! The protocol between commands and the daemon. A request is one JSON line. The answer has one or
//! more JSON lines, and the last one is `{"end":…}` or `{"error":…}`.

use crate::dead_letters::Selection;
use callbridge_call::FinishedCall;
use callbridge_crm::FilterPage;
use callbridge_leads::lead_field::Item;
use callbridge_mapping::RetryValues;
use callbridge_model::{CallUuid, LeadId};
use callbridge_spool::{AuditedCall, State};
use serde::{Deserialize, Serialize};

/// A request to the daemon, by the command that makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ControlRequest {
    /// `status`: one item, as in `status --json`.
    Status,
    /// `dead list`, `show`, `export`: one item per dead letter or waiting call, oldest first.
    Letters {
        /// The selected ones. An empty selection means all.
        which: Selection,
        /// With all stored bytes of unreadable ones, not only the first of them.
        #[serde(default)]
        whole: bool,
    },
    /// `dead watch`: [`ControlReply::Ready`], then one item per new dead letter or waiting call,
    /// until the connection is closed.
    Watch,
    /// `dead retry`: one item per call, with the outcome.
    Retry {
        /// The ones to send again. An empty selection is refused.
        which: Selection,
        /// The values to send instead of those of the rules.
        #[serde(flatten)]
        wish: RetryValues,
        /// Only report what would be sent.
        dry_run: bool,
    },
    /// `dead discard`: one item per call, with the outcome.
    Discard {
        /// The ones to discard. An empty selection is refused.
        which: Selection,
    },
    /// `lead missing`: one item per number that called and has no lead.
    LeadMissing,
    /// `lead list`: one item per number of the directory that a living lead has.
    LeadList,
    /// `lead set`: one item when the CRM has accepted the values, and one when they are written.
    LeadSet {
        lead: LeadId,
        /// The fields with their new values.
        items: Vec<Item>,
    },
    /// `lead check`: one item per trunk, with the number's lead there and the reason.
    LeadCheck {
        /// As a person writes it.
        phone: String,
    },
    /// `lead give`: one item with the number's new lead, and how many calls left because of it.
    LeadGive {
        /// As a person writes it.
        phone: String,
        lead: LeadId,
    },
    /// `lead take`: one item with the lead that the number had.
    LeadTake {
        /// As a person writes it.
        phone: String,
    },
    /// `lead given`: one item per number to which a person has assigned a lead.
    LeadGiven,
    /// `branch list`: one item per branch.
    Branches,
    /// `branch add`. The reply is one item with the branch and its new token.
    BranchAdd {
        branch: String,
        pbxs: Vec<String>,
        /// SHA-256 of a token that the branch gets again. `None` for a new token.
        hash: Option<String>,
    },
    /// `branch rotate`: one item with the branch and its new token.
    BranchRotate { branch: String },
    /// `branch remove`: one item with the branch.
    BranchRemove { branch: String },
    /// `missed`: one item per customer who waits for a callback, longest wait first.
    Missed {
        /// Only those who called within this many seconds.
        within_sec: Option<u64>,
    },
    /// `page`: one item `{"url"}`, a one-time link to the page.
    PageLink {
        /// The rights that the link gives.
        role: PageRole,
    },
    /// `explain --call`: one item with the finished call of this id, as stored in the spool.
    Call {
        /// The linkedid, the uuid, or a phone number.
        id: String,
    },
    /// `audit`: one item with the times without a connection, then one item per call with its fate
    /// and values.
    Audit { calls: Vec<AuditedCall> },
    /// `audit`: one item per call with its expected values in the CRM's journal. Null if it is not
    /// journaled here.
    Journaled { calls: Vec<AuditedCall> },
    /// `audit`: one item with a page of the CRM's journal, or why there is none. The daemon's
    /// sender requests it within its budget.
    JournalPage(FilterPage),
    /// `audit --take-in`: one item with the outcome of the call.
    TakeIn {
        pbx: String,
        /// The call's facts in the file.
        call: Box<FinishedCall>,
        /// The uuid under which the call is journaled here while the CRM's journal does not have
        /// it. `None` for a call that is not known here.
        lost: Option<CallUuid>,
    },
    /// `audit`: the result of a finished audit, stored for the metrics. No item.
    Audited {
        /// Calls of the file without an explanation.
        unexplained: u64,
        /// Calls of the file that are stored with other values.
        different: u64,
    },
    /// `calls`: one item per call, oldest first. With `follow`, then [`ControlReply::Ready`], and
    /// one item per call that begins or ends, until the connection is closed.
    Calls {
        /// The filter that the calls must match.
        which: CallsQuery,
        /// Stored calls come first. Without it, `follow` begins with the daemon's start.
        past: bool,
        /// Also new calls, until the connection is closed.
        follow: bool,
    },
}

impl ControlRequest {
    /// Returns `true` if the request does not change the state.
    pub const fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::Letters { .. }
                | Self::Watch
                | Self::LeadMissing
                | Self::LeadList
                | Self::LeadGiven
                | Self::Branches
                | Self::Missed { .. }
                | Self::Call { .. }
                | Self::Audit { .. }
                | Self::Journaled { .. }
                | Self::Calls { .. }
        )
    }

    /// Returns `true` if the answer continues with events in the daemon.
    pub const fn follows(&self) -> bool {
        matches!(self, Self::Watch | Self::Calls { follow: true, .. })
    }
}

/// A filter of calls. Without a condition, all match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallsQuery {
    /// Calls of the current day in the PBX's zone.
    pub today: bool,
    /// Calls from this time on: a date, optionally with a time and a zone.
    pub from: Option<String>,
    /// Calls until this time. A date includes the whole day.
    pub to: Option<String>,
    /// Calls with this number, as a person types it.
    pub phone: Option<String>,
    pub trunk: Option<String>,
    pub state: Option<State>,
    /// Calls between extensions instead of customer calls.
    pub internal: bool,
    /// The zone of the dates, instead of the PBX's.
    pub zone: Option<String>,
}

/// The rights of a user on the administrator's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", parse_err_ty = String, parse_err_fn = no_role)]
pub enum PageRole {
    /// Sees everything, but can change nothing.
    View,
    /// Can see and change everything.
    Admin,
}

impl PageRole {
    /// Returns the word in flags and files: `admin` or `view`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if this role can change something.
    pub const fn may_act(self) -> bool {
        matches!(self, Self::Admin)
    }
}

fn no_role(word: &str) -> String {
    format!("`{word}` is not a role: `admin` or `view` is expected")
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// The zone of the PBX, in which times are shown. It comes first, if it is known.
    Zone(String),
    /// All stored entries were sent. New ones follow.
    Ready,
    /// One requested entry, in the form of its request.
    Item(serde_json::Value),
    /// The answer is complete. Nothing follows.
    End {
        /// The number of [`ControlReply::Item`] lines sent.
        count: u64,
    },
    /// The request failed or was refused. Nothing follows.
    Error {
        /// The exit code of the command (sysexits).
        code: u8,
        /// A message with the problem, its place, and the fix.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_mapping::EmployeeChoice;
    use callbridge_model::{Reason, SuppliedFacts};

    #[test]
    fn questions_and_answers_survive_the_line() {
        let asks = [
            ControlRequest::Status,
            ControlRequest::Watch,
            ControlRequest::Letters {
                which: Selection {
                    all: true,
                    ..Selection::default()
                },
                whole: true,
            },
            ControlRequest::Retry {
                which: Selection {
                    reason: Some(Reason::Failed),
                    ..Selection::default()
                },
                wish: RetryValues {
                    lead: LeadId::new(4001),
                    employee: Some(EmployeeChoice::None),
                    said: Some(SuppliedFacts {
                        answered: Some(true),
                        talk_sec: Some(80),
                        direction: None,
                    }),
                },
                dry_run: true,
            },
            ControlRequest::LeadCheck {
                phone: "+998901110001".into(),
            },
            ControlRequest::LeadGive {
                phone: "90 111 00 01".into(),
                lead: LeadId::new(4001).expect("positive"),
            },
            ControlRequest::Calls {
                which: CallsQuery {
                    from: Some("2026-11-20".into()),
                    state: Some(State::Journaled),
                    ..CallsQuery::default()
                },
                past: true,
                follow: false,
            },
        ];
        for ask in asks {
            let line = serde_json::to_string(&ask).expect("a line");
            assert!(!line.contains('\n'));
            if let ControlRequest::Retry { .. } = ask {
                let wants = r#"},"lead":4001,"employee":"none","said":{"#;
                assert!(line.contains(wants), "{line}");
            }
            assert_eq!(
                serde_json::from_str::<ControlRequest>(&line).expect("a question"),
                ask
            );
        }
        let reply = ControlReply::Error {
            code: 64,
            message: "x\ny".into(),
        };
        let line = serde_json::to_string(&reply).expect("a line");
        assert_eq!(
            serde_json::from_str::<ControlReply>(&line).expect("an answer"),
            reply
        );
    }
}
