//! Rereads unreadable messages, either at a user's request (`dead retry`) or after an upgrade.

use callbridge_call::ReportedCall;
use callbridge_formats::message::read;
use callbridge_source::SourceUrl;
pub use callbridge_source::{FilesAgain, RECORD_IN_FILE};
use callbridge_spool::{BRANCH_SOURCE, Op, UnreadMessage};

/// How the message for a payload of a newer version starts.
const NEWER: &str = "version: it is ";

/// Highest version with its own counter. Higher ones are counted as this one, because a publisher
/// can specify any number.
const VERSIONS_MAX: u64 = 99;

/// Returns the operation that counts a message of a newer version under that version. `why` is why
/// the message can't be read. Returns `None` if the version isn't the reason.
pub(super) fn count_newer(why: &str) -> Option<Op> {
    let digits = why.strip_prefix(NEWER)?.split(',').next()?;
    let version = digits.parse::<u64>().ok()?.min(VERSIONS_MAX);
    Some(Op::count(format!("messages_of_version_{version}"), 1))
}

/// Returns `true` if this is the reason given when a message is stored because of its version, in
/// which case a newer callbridge may be able to read it.
pub fn is_newer(why: &str) -> bool {
    why.starts_with(NEWER)
}

/// Decodes the call in a stored message.
///
/// # Errors
///
/// Returns the reason if the stored message isn't a whole call or can't be read.
pub fn call(message: &UnreadMessage) -> Result<ReportedCall, String> {
    let url = SourceUrl::parse(&message.source);
    let is_line = message.source.starts_with(BRANCH_SOURCE);
    if !is_line && !url.is_ok_and(|url| url.format().carries_whole_calls()) {
        let reason = "only complete calls can be tried again, and this message is an event of a \
                      PBX: discard it";
        return Err(reason.to_owned());
    }
    let kept = message.bytes.len() as u64;
    let length = message.length;
    if kept < length {
        return Err(format!(
            "the message is incomplete ({kept} of {length} bytes were stored): discard it"
        ));
    }
    let content_type = message.content_type.as_deref();
    read(&message.bytes, content_type).map_err(|wrong| wrong.message)
}
