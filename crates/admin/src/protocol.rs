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

/// A request of a command to the daemon. The text of each variant names the command and the items
/// of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ControlRequest {
    /// Request of `status`. The answer is one item, as in `status --json`.
    Status,
    /// Request of `dead list`, `dead show`, and `dead export`. The answer has one item per dead
    /// letter or waiting call, oldest first.
    Letters {
        /// The dead letters or waiting calls to return. An empty selection means all dead letters.
        which: Selection,
        /// `true` returns all stored bytes of unreadable messages. `false` returns only their
        /// beginning.
        #[serde(default)]
        whole: bool,
    },
    /// Request of `dead watch`. The answer is [`ControlReply::Ready`], then one item per new dead
    /// letter or waiting call, until the connection is closed.
    Watch,
    /// Request of `dead retry`. The answer has one item with the outcome per call.
    Retry {
        /// The dead letters or waiting calls to send again. An empty selection is refused.
        which: Selection,
        /// The values that a person chose. They replace the values that the mapping rules return.
        #[serde(flatten)]
        wish: RetryValues,
        /// `true` only reports what would be sent. Nothing is sent or stored.
        dry_run: bool,
        /// `true` accepts calls of several numbers, even if all of them get one lead.
        #[serde(default)]
        several_numbers: bool,
    },
    /// Request of `dead discard`. The answer has one item with the outcome per call.
    Discard {
        /// The dead letters or waiting calls to discard. An empty selection is refused.
        which: Selection,
    },
    /// Request of `lead missing`. The answer has one item per number that called and has no lead.
    LeadMissing,
    /// Request of `lead list`. The answer has one item per number of the directory that a lead has
    /// now.
    LeadList,
    /// Request of `lead set`. The answer has one item when the CRM has accepted the values, and
    /// another item when the CRM has written them.
    LeadSet {
        lead: LeadId,
        /// The fields with their new values.
        items: Vec<Item>,
    },
    /// Request of `lead check`. The answer has one item per trunk: the lead that a call of the
    /// number on this trunk would get, and the reason.
    LeadCheck {
        /// The phone number as a person typed it.
        phone: String,
    },
    /// Request of `lead give`. The answer is one item: the number's new lead, how many waiting
    /// calls were released, and which of its dead letters the CRM refused.
    LeadGive {
        /// The phone number as a person typed it.
        phone: String,
        lead: LeadId,
        /// Assign the lead even if the CRM doesn't seem to have it.
        yes: bool,
    },
    /// Request of `lead take`. The answer is one item with the lead that was assigned to the
    /// number.
    LeadTake {
        /// The phone number as a person typed it.
        phone: String,
    },
    /// Request of `lead given`. The answer has one item per number to which a person has assigned a
    /// lead.
    LeadGiven,
    /// Request of `branch list`. The answer has one item per branch.
    Branches,
    /// Request of `branch add`. The answer is one item with the branch and its new token.
    BranchAdd {
        branch: String,
        pbxs: Vec<String>,
        /// SHA-256 of an earlier token that the branch uses again. `None` makes a new token.
        hash: Option<String>,
    },
    /// Request of `branch rotate`. The answer is one item with the branch and its new token.
    BranchRotate {
        branch: String,
        /// The old token ends at once, rather than after an hour.
        #[serde(default)]
        now: bool,
    },
    /// Request of `branch remove`. The answer is one item with the branch.
    BranchRemove { branch: String },
    /// Request of `sending resume`. The answer is one item `{"resumed"}`, which is `false` if
    /// sending wasn't paused by a second database.
    Resume,
    /// Request of `missed`. The answer has one item per customer who waits for a callback, longest
    /// wait first.
    Missed {
        /// Returns only customers who called within this many seconds before now.
        within_sec: Option<u64>,
    },
    /// Request of `page`. The answer is one item `{"url"}`, a one-time link to the page.
    PageLink {
        /// The rights of the person who opens the link.
        role: PageRole,
    },
    /// Request of `explain --call`. The answer is one item with the finished call as stored in the
    /// spool.
    Call {
        /// The call's linkedid or uuid, or the customer's phone number.
        id: String,
    },
    /// Request of `audit`. The answer is one item with the times in which PBXs were not connected,
    /// then one item per call: what became of the call, and its stored values.
    Audit { calls: Vec<AuditedCall> },
    /// Request of `audit`. The answer has one item per call with the values that the CRM's journal
    /// should show. The item is null if the call is not journaled in this state.
    Journaled { calls: Vec<AuditedCall> },
    /// Request of `audit`. The answer is one item with a page of the CRM's journal, or the reason
    /// why there is no page. The daemon's sender requests the page within its budget.
    JournalPage(FilterPage),
    /// Request of `audit --take-in`. The answer is one item with the outcome of the call.
    TakeIn {
        pbx: String,
        /// The call as the PBX's file describes it.
        call: Box<FinishedCall>,
        /// The uuid of a call that is journaled in this state, but that the CRM's journal does not
        /// have. `None` for a call that is not in this state.
        lost: Option<CallUuid>,
    },
    /// Request of `audit` to store the counts of a finished audit for the metrics. The answer has
    /// no item.
    Audited {
        /// Number of calls in the PBX's file without an explanation.
        unexplained: u64,
        /// Number of calls whose stored values differ from the values in the PBX's file.
        different: u64,
    },
    /// Request of `calls`. The answer has one item per call, oldest first. With `follow`, the
    /// answer goes on with [`ControlReply::Ready`], and one item per call that begins or ends,
    /// until the connection is closed.
    Calls {
        /// The filter that the calls must match.
        which: CallsQuery,
        /// `true` sends stored calls first. If it is `false`, `follow` begins with the daemon's
        /// start.
        past: bool,
        /// `true` also sends new calls, until the connection is closed.
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

    /// Returns `true` if the answer goes on with new events until the connection is closed.
    pub const fn follows(&self) -> bool {
        matches!(self, Self::Watch | Self::Calls { follow: true, .. })
    }
}

/// A filter of calls. A filter without any condition matches all calls.
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
    /// The time zone of the dates, instead of the PBX's zone.
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
    /// Returns the role's name in flags and files: `admin` or `view`.
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
    /// The time zone of the PBX, in which times are shown. This reply comes first, if the zone is
    /// known.
    Zone(String),
    /// All stored entries were sent. New entries follow.
    Ready,
    /// One entry of the answer. Its JSON form depends on the request.
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
        /// A message with the problem, the affected flag or file, and the fix.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_mapping::EmployeeChoice;
    use callbridge_model::{Reason, SuppliedFacts};

    #[test]
    fn requests_and_replies_round_trip_as_one_json_line() {
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
                several_numbers: true,
            },
            ControlRequest::LeadCheck {
                phone: "+998901110001".into(),
            },
            ControlRequest::LeadGive {
                phone: "90 111 00 01".into(),
                lead: LeadId::new(4001).expect("positive"),
                yes: false,
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
