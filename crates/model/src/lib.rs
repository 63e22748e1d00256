//! The types that every part of callbridge uses: a call as the journal has it, ids, telephone
//! numbers, secrets, times, the form of `status`, and exit codes. No module here opens a socket. Of
//! the other crates, only `bridges/call` is used.
//!
//! | module | what it contains |
//! |---|---|
//! | `record` | a call as the journal will have it, and its outcome |
//! | [`number`] | telephone numbers, converted to E.164; `typed_number`: as a person types them |
//! | [`status`] | the form of `status --json`, its verdict, and its text for people |
//! | `secret`, [`secret_source`] | texts that cannot be printed, rights of tokens; their places |
//! | [`shell`] | commands of the operator, run with a time limit |
//! | `environment` | the environment variables, read once |
//! | `exit` | exit codes |
//! | [`clock`], [`dates`] | the only clock; times for people |
//! | `file_version` | whether a file has changed |
//! | [`heartbeat`] | whether the loops still run |
//! | [`plain_file`] | files in folders that others can write |
//! | [`mod@safe`] | texts from outside, made safe to show |
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
