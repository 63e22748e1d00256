//! What came of a page of the CRM's journal that the daemon was asked for.

use callbridge_crm::{ApiError, Page};
use serde::{Deserialize, Serialize};

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalAnswer {
    /// It came.
    Page {
        /// The page.
        page: Page,
        /// How many of its calls are journaled here.
        ours: u32,
    },
    /// A page is to have fewer records (`MAX`, §7.5).
    TooLarge {
        /// The service's words.
        why: String,
    },
    /// It was refused for what it asks.
    Refused {
        /// The service's words.
        why: String,
    },
    /// It did not come; it may if it is asked for again.
    Failed {
        /// The words of the service, or of whoever is in the way.
        why: String,
    },
    /// It will not come.
    Barred {
        /// Why, and what to do.
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
