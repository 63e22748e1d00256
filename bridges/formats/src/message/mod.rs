//! A finished call as a JSON message, so that any PBX can be a source: read and written.
//!
//! In comes one message, `application/vnd.callbridge.call+json; version=1`; out goes a
//! [`ReportedCall`](callbridge_call::ReportedCall), or a [`WrongCall`](callbridge_call::WrongCall)
//! that names each field that is wrong and what it may be. The other way a finished call becomes
//! such a message, which reads back as the same call. Nothing here knows a clock: whether a start
//! lies in the future is for whoever judges the call. `docs/call-message.md` describes the message.
//!
//! | module | what lives there |
//! |---|---|
//! | [`kind`] | what a message of a stream tells of, by its content type |
//! | [`outcomes`] | what became of calls, told to others who read the stream |
//! | [`webhook`] | an event of the CRM, told to the other machines of a `--standby` |
//! | [`field`] | the fields, and the values that each may have |
//! | `syntax` | bytes to fields, or the field at which the JSON breaks off |
//! | `value` | one field's value: its type and its limits |
//! | [`read`](mod@read) | a message to a call |
//! | [`write`](mod@write) | a call to its message |

pub mod field;
pub mod kind;
pub mod outcomes;
pub mod read;
mod syntax;
mod value;
pub mod webhook;
pub mod write;

pub use field::MessageField;
pub use kind::MessageKind;
pub use outcomes::Outcomes;
pub use read::read;
pub use webhook::WebhookMessage;
pub use write::{ResolvedIds, write};
