//! What came of a page of the CRM's journal that the daemon was asked for.

use callbridge_crm::{ApiError, Page};
use serde::{Deserialize, Serialize};

/// The answer to [`ControlRequest::JournalPage`](crate::ControlRequest::JournalPage), as the daemon
/// judges the CRM's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalAnswer {
    /// The CRM sent the page.
    Page {
        /// The page as the CRM sent it.
        page: Page,
        /// Calls on it that this state has as journaled.
        ours: u32,
    },
    /// A page is to have fewer records (`MAX`, §7.5).
    TooLarge {
        /// The reason in the service's words.
        why: String,
    },
    /// The CRM refused the request for its parameters, such as the range.
    Refused {
        /// The reason in the service's words.
        why: String,
    },
    /// The page did not come; the same request may succeed later.
    Failed {
        /// The words of the service, or of whoever is in the way.
        why: String,
    },
    /// The page cannot be had, and asking again does not help.
    Barred {
        /// The reason, and the remedy for a person.
        why: String,
        /// The CRM itself said so.
        asked: bool,
    },
}

impl JournalAnswer {
    /// Judges why a page did not come.
    pub fn of(error: &ApiError) -> Self {
        let why = error.to_string();
        match error {
            ApiError::Forbidden { .. } => Self::Barred {
                why: format!(
                    "the CRM does not let this token read it ({why}): give the connection the \
                     grant PERMISSION_OPEN_API_CALL:READ"
                ),
                asked: true,
            },
            ApiError::Rejected { errors, .. } if callbridge_crm::answer::names_max(errors) => {
                Self::TooLarge { why }
            }
            ApiError::Rejected { .. } => Self::Refused { why },
            ApiError::NotFound { .. } | ApiError::WrongAddress { .. } => Self::Barred {
                why: format!("the CRM has no such endpoint ({why})"),
                asked: true,
            },
            ApiError::TokenRefused { .. }
            | ApiError::TooMany { .. }
            | ApiError::Server { .. }
            | ApiError::Unreadable { .. }
            | ApiError::TimedOut
            | ApiError::Lost { .. }
            | ApiError::NotConnected { .. }
            | ApiError::NotPermitted
            | ApiError::TlsRefused { .. } => Self::Failed { why },
        }
    }
}
