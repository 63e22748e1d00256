//! Reads an unreadable message again: for a person (`dead retry`), or after an upgrade.

use callbridge_call::ReportedCall;
use callbridge_formats::message::read;
use callbridge_source::SourceUrl;
pub use callbridge_source::{FilesAgain, RECORD_IN_FILE};
use callbridge_spool::{Op, UnreadMessage};

/// Prefix of the message for a payload of a newer version.
const NEWER: &str = "version: it is ";

/// Highest version with its own counter. Higher versions count as this one, because a publisher
/// can name any number.
const VERSIONS_MAX: u64 = 99;

/// Returns the operation that counts a message of a newer version under its version. `why` is the
/// reason why the message cannot be read. `None` if the reason is not the version.
pub(super) fn count_newer(why: &str) -> Option<Op> {
    let digits = why.strip_prefix(NEWER)?.split(',').next()?;
    let version = digits.parse::<u64>().ok()?.min(VERSIONS_MAX);
    Some(Op::count(format!("messages_of_version_{version}"), 1))
}

/// Returns `true` if this reason says that a message was stored because of its version. A newer
/// callbridge can perhaps read it.
pub fn is_newer(why: &str) -> bool {
    why.starts_with(NEWER)
}

/// Decodes the call of a stored message.
///
/// # Errors
/// The reason, if the stored message is not a whole call, or cannot be read.
pub fn call(message: &UnreadMessage) -> Result<ReportedCall, String> {
    let url = SourceUrl::parse(&message.source);
    if !url.is_ok_and(|url| url.format().carries_whole_calls()) {
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
