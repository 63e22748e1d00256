//! The words that every part of callbridge uses: a call as the journal has it, ids, telephone
//! numbers, secrets, times, the shape of `status`, exit codes. Nothing here opens a socket, and of
//! the other crates only `bridges/call` is used.
//!
//! | module | what lives there |
//! |---|---|
//! | `record` | a call as the journal will have it, and what is to become of it |
//! | [`number`] | telephone numbers made E.164; `typed_number`: as a person types them |
//! | [`status`] | the shape of `status --json`, its verdict, and the same for people |
//! | `secret`, [`secret_source`] | texts that cannot be printed, tokens' rights; where they are |
//! | [`shell`] | commands that a person gives, run within their time |
//! | `environment` | the environment variables, read once |
//! | `exit` | how a command ends |
//! | [`clock`], [`dates`] | the only clock; times as people read and write them |
//! | `file_version` | whether a file is another than it was |
//! | [`heartbeat`] | whether the loops still turn |
//! | [`plain_file`] | files that stand where others may write |
//! | [`mod@safe`] | texts from outside, before they are shown |
//! | [`webhook_signature`] | the signature of an event of the CRM |

pub mod clock;
pub mod dates;
mod environment;
mod exit;
mod file_version;
pub mod heartbeat;
pub mod number;
pub mod plain_file;
mod record;
pub mod safe;
mod secret;
pub mod secret_source;
pub mod shell;
pub mod status;
mod typed_number;
pub mod webhook_signature;

pub use clock::Now;
pub use dates::Zone;
pub use environment::{ETC, Environment, credstore};
pub use exit::{Code, ExitCode};
pub use file_version::FileVersion;
pub use heartbeat::{Heartbeat, HeartbeatMonitor};
pub use number::Country;
pub use record::{
    ByHand, CallRecord, CallUuid, EmployeeId, Judged, LeadId, Outcome, Phone, Reason, SuppliedFacts,
};
pub use safe::{is_hostile, safe, safe_cell, safe_json, safe_lines};
pub use secret::{ExposeSecret, Grant, Secret, TokenFingerprint, forbid_dumps, is_token};
pub use secret_source::{SecretKind, SecretPlace};
pub use status::Status;
pub use typed_number::TypedNumber;
