//! The words that every part of callbridge uses: a call as the journal has it, ids, telephone
//! numbers, secrets, times, the shape of `status`, exit codes. Nothing here opens a socket, and of
//! the other crates only `bridges/call` is used.
//!
//! | module | what lives there |
//! |---|---|
//! | [`record`] | a call as the journal will have it, and what is to become of it |
//! | [`number`] | telephone numbers made E.164; [`typed_number`]: as a person types them |
//! | [`status`] | the shape of `status --json`, its verdict, and the same for people |
//! | [`grant`] | the rights of a token |
//! | [`token_fingerprint`] | a short hash by which a token is known again |
//! | [`secret`], [`secret_source`] | texts that cannot be printed, and where they are |
//! | [`environment`] | the environment variables, read once |
//! | [`exit`] | how a command ends |
//! | [`clock`], [`zone`] | the only clock; times as people read them |
//! | [`file_version`] | whether a file is another than it was |
//! | [`heartbeat`] | whether the loops still turn |
//! | [`permit`] | leave to send, until a moment of the boot clock |
//! | [`plain_file`] | files that stand where others may write |
//! | [`safe`] | texts from outside, before they are shown |
//! | [`webhook_signature`] | the signature of an event of the CRM |

pub mod clock;
pub mod dates;
pub mod environment;
pub mod exit;
pub mod file_version;
pub mod grant;
pub mod heartbeat;
pub mod number;
pub mod permit;
pub mod plain_file;
pub mod record;
pub mod safe;
pub mod secret;
pub mod secret_source;
pub mod status;
pub mod token_fingerprint;
pub mod typed_number;
pub mod webhook_signature;
pub mod zone;

pub use environment::Environment;
pub use exit::{Code, ExitCode};
pub use file_version::FileVersion;
pub use grant::Grant;
pub use record::{
    ByHand, CallRecord, CallUuid, EmployeeId, Judged, LeadId, Outcome, Phone, Reason, Said,
};
pub use secret::{ExposeSecret, Secret};
pub use secret_source::{SecretKind, SecretPlace};
pub use status::Status;
pub use token_fingerprint::TokenFingerprint;
pub use typed_number::TypedNumber;
pub use zone::Zone;
