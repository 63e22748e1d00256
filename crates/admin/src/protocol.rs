//! What a command asks the daemon, and what it answers: one JSON line a question, one or more
//! JSON lines back, the last of them `{"end":…}` or `{"error":…}`.

use crate::letters::Selection;
use callbridge_call::FinishedCall;
use callbridge_crm::FilterPage;
use callbridge_leads::lead_field::Item;
use callbridge_mapping::RetryValues;
use callbridge_model::{CallUuid, LeadId};
use callbridge_spool::{AuditedCall, State};
use serde::{Deserialize, Serialize};

/// A question to the daemon, by the command that asks it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ControlRequest {
    /// `status`: one item, as `status --json`.
    Status,
    /// `dead list`, `show`, `export`: an item a letter, oldest first, waiting ones included.
    Letters {
        /// The letters to list; an empty selection means all.
        which: Selection,
        /// With all the bytes kept of unreadable ones, not the first of them alone.
        #[serde(default)]
        whole: bool,
    },
    /// `dead watch`: [`ControlReply::Ready`], then an item a letter that comes to be from there on,
    /// until the line is closed.
    Watch,
    /// `dead retry`: an item a letter, with what became of it.
    Retry {
        /// The letters to send again; an empty selection is refused.
        which: Selection,
        /// The values to send where those are not what the rules give.
        #[serde(flatten)]
        wish: RetryValues,
        /// Only say what would be sent.
        dry_run: bool,
    },
    /// `dead discard`: an item a letter, with what became of it.
    Discard {
        /// The letters to take out; an empty selection is refused.
        which: Selection,
    },
    /// `lead missing`: an item a number that called and has no lead.
    LeadMissing,
    /// `lead list`: an item a number of the directory that a living lead has.
    LeadList,
    /// `lead set`: an item when the CRM has taken the values, and one when they are written.
    LeadSet {
        /// The lead whose fields are set.
        lead: LeadId,
        /// The fields with their new values.
        items: Vec<Item>,
    },
    /// `lead check`: an item a trunk, with what the number maps to there and why.
    LeadCheck {
        /// As a person writes it.
        phone: String,
    },
    /// `lead give`: an item with the lead that the number has now, and how many calls left by it.
    LeadGive {
        /// As a person writes it.
        phone: String,
        /// The lead that it has from now on.
        lead: LeadId,
    },
    /// `lead take`: an item with the lead that the number had.
    LeadTake {
        /// As a person writes it.
        phone: String,
    },
    /// `lead given`: an item a number that a person has given a lead.
    LeadGiven,
    /// `missed`: an item a customer who waits for a call back, longest waiting first.
    Missed {
        /// Only those who tried in the last so many seconds.
        within_sec: Option<u64>,
    },
    /// `page`: an item `{"url"}`, a link that opens the page once.
    PageLink {
        /// The rights of whoever opens the link.
        role: PageRole,
    },
    /// `explain --call`: an item with the finished call of this id, as the spool has it.
    Call {
        /// The linkedid, the uuid, or a telephone number.
        id: String,
    },
    /// `audit`: an item with the times without a connection, then one item per call with its fate
    /// and values.
    Audit {
        /// The calls of the PBX's file.
        calls: Vec<AuditedCall>,
    },
    /// `audit`: an item a call with what the CRM's journal should show of it; null for one that is
    /// not journaled here.
    Journaled {
        /// The calls of the PBX's file.
        calls: Vec<AuditedCall>,
    },
    /// `audit`: an item with a page of the CRM's journal, or why there is none; asked by the
    /// daemon's own sender, through its budget.
    JournalPage(FilterPage),
    /// `audit --take-in`: an item with what became of the call.
    TakeIn {
        /// The id of the call's PBX.
        pbx: String,
        /// As the file tells of it.
        call: Box<FinishedCall>,
        /// The uuid under which the call is journaled here, while the CRM's journal does not have
        /// it; `None` for a call that is not known here.
        lost: Option<CallUuid>,
    },
    /// `audit`: the result of a finished audit, kept for the metrics; no item.
    Audited {
        /// Calls of the file that nothing explains.
        unexplained: u64,
        /// Calls of the file that are stored with other values.
        different: u64,
    },
    /// `calls`: an item a call, oldest first; with `follow` then [`ControlReply::Ready`], and an
    /// item a call that comes to be or ends, until the line is closed.
    Calls {
        /// The filter that the calls must pass.
        which: CallsQuery,
        /// Calls that are kept already come first; without it `follow` begins with the daemon's
        /// start.
        past: bool,
        /// And those that come, until the line is closed.
        follow: bool,
    },
}

/// A filter of calls; without any rule all pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallsQuery {
    /// Of the day that it is in the PBX's zone.
    pub today: bool,
    /// Begun then or later: a date, with a time and a zone if wanted.
    pub from: Option<String>,
    /// Begun by then: a day is meant whole.
    pub to: Option<String>,
    /// With this number, as a person types it.
    pub phone: Option<String>,
    /// Calls over this trunk alone.
    pub trunk: Option<String>,
    /// Calls in this state alone.
    pub state: Option<State>,
    /// Calls between extensions, in place of the customers'.
    pub internal: bool,
    /// The zone of the dates, in place of the PBX's.
    pub zone: Option<String>,
}

/// The rights of a user on the administrator's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", parse_err_ty = String, parse_err_fn = no_role)]
pub enum PageRole {
    /// Sees everything, and changes nothing.
    View,
    /// Sees everything, and may change it.
    Admin,
}

impl PageRole {
    /// Returns the word of flags and files: `admin` or `view`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// May this role change anything?
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
    /// The zone of the PBX, in which people read times; before all else, where it is known.
    Zone(String),
    /// The past is complete: all that happens from here on follows.
    Ready,
    /// One thing that was asked for, in the shape of its request.
    Item(serde_json::Value),
    /// The answer is complete; nothing follows.
    End {
        /// The number of [`ControlReply::Item`] lines sent.
        count: u64,
    },
    /// The request failed or was refused; nothing follows.
    Error {
        /// The exit code of the command (sysexits).
        code: u8,
        /// The error in words: the fault, its place, and the remedy.
        words: String,
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
            words: "x\ny".into(),
        };
        let line = serde_json::to_string(&reply).expect("a line");
        assert_eq!(
            serde_json::from_str::<ControlReply>(&line).expect("an answer"),
            reply
        );
    }
}
