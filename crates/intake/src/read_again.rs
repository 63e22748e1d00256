//! A message that could not be read, or that its PBX's owner had not published, is read once more:
//! by a person (`dead retry`), or after an upgrade.

use super::owners::OWNER_PREFIX;
use callbridge_call::ReportedCall;
use callbridge_formats::message::read;
use callbridge_model::CallUuid;
use callbridge_source::SourceUrl;
pub use callbridge_source::{FilesAgain, RECORD_IN_FILE};
use callbridge_spool::{Error, Op, PeerOutcome, STREAM_BEGAN, Store, UnreadMessage, tables};

/// Beginning of the words with which a message of a newer version is set aside.
const NEWER: &str = "version: it is ";

/// Versions that are counted each by itself; whoever publishes may name any.
const VERSIONS_MAX: u64 = 99;

/// A message of a newer version is counted by it.
pub(super) fn count_newer(why: &str) -> Option<Op> {
    let version = why.strip_prefix(NEWER)?.split(',').next()?;
    let version = version.parse::<u64>().ok()?.min(VERSIONS_MAX);
    Some(Op::count(format!("messages_of_version_{version}"), 1))
}

/// Returns `true` when these words say that a message was set aside for its version: a newer
/// callbridge may read it.
pub fn is_newer(why: &str) -> bool {
    why.starts_with(NEWER)
}

/// The call of a message.
///
/// # Errors
/// In words, where it is none, or cannot be read.
pub fn call(message: &UnreadMessage) -> Result<ReportedCall, String> {
    let url = SourceUrl::parse(&message.source);
    if !url.is_ok_and(|url| url.format().carries_whole_calls()) {
        let words = "bytes from a PBX's connection are not a call by themselves: discard it";
        return Err(words.to_owned());
    }
    let (kept, length) = (message.bytes.len() as u64, message.length);
    if kept < length {
        return Err(format!(
            "of its {length} bytes the first {kept} are kept: discard it"
        ));
    }
    let content_type = message.by.content_type.as_deref();
    read(&message.bytes, content_type).map_err(|wrong| wrong.words)
}

/// Checks that its publisher may report calls of its PBX. A message that an older version has kept
/// names no publisher: whoever reads it again has looked at it.
///
/// # Errors
/// When the store cannot be read; in words where it may not.
pub fn may_report(
    store: &Store,
    reported: &ReportedCall,
    message: &UnreadMessage,
) -> Result<Result<(), String>, Error> {
    let pbx = &reported.pbx;
    let owner = tables::meta::meta(store, &format!("{OWNER_PREFIX}{pbx}"))?;
    Ok(match (&owner, &message.by.user) {
        (Some(owner), Some(user)) if owner != user => Err(format!(
            "PBX {pbx} belongs to the broker's user {owner}, and {user} has published this: hand \
             it over (callbridge fleet owner {pbx} {user}), or discard this letter"
        )),
        _ => Ok(()),
    })
}

/// Operation that marks a call which may have been sent before this state began to read its stream;
/// `None` for any other.
///
/// # Errors
/// When the store cannot be read.
pub fn rebuilt(
    store: &Store,
    reported: &ReportedCall,
    uuid: Option<CallUuid>,
    message: &UnreadMessage,
) -> Result<Option<Op>, Error> {
    let place = SourceUrl::parse(&message.source).map(|url| url.place());
    let (Some(uuid), Ok(place)) = (uuid, place) else {
        return Ok(None);
    };
    let began = tables::meta::meta(store, &format!("{STREAM_BEGAN}{place}"))?;
    let began = began.and_then(|micros| micros.parse::<i64>().ok());
    let before = began.is_some_and(|began| reported.call.ended.micros() < began);
    Ok(before.then_some(Op::PeerOutcome(PeerOutcome::PossiblySent(uuid))))
}
