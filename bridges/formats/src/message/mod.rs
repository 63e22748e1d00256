//! A finished call as a JSON message, which allows any PBX to be a source.
//!
//! Reading a message (`application/vnd.callbridge.call+json; version=1`) returns a
//! [`ReportedCall`](callbridge_call::ReportedCall), or a [`WrongCall`](callbridge_call::WrongCall)
//! that lists each invalid field and its allowed values. Writing turns a finished call into a
//! message that reads back as the same call. Since this module has no clock, the code that judges
//! the call checks whether the start is in the future. `docs/call-message.md` describes the
//! message.
//!
//! | module | contents |
//! |---|---|
//! | [`field`] | the fields, with the type and limits of each value |
//! | [`read`](mod@read) | reads a call from a message |
//! | [`write`](mod@write) | writes a call as a message |

pub mod field;
pub mod read;
pub mod write;

pub use field::MessageField;
pub use read::read;
pub use write::{ResolvedIds, write};

/// Version of the message format that callbridge reads and writes.
pub const VERSION: u64 = 1;

/// The media type of a message, without parameters.
const MEDIA_TYPE: &str = "application/vnd.callbridge.call+json";

/// Returns the `content_type` to publish a message with.
pub fn content_type() -> String {
    format!("{MEDIA_TYPE}; version={VERSION}")
}

/// Returns why a message with this `content_type` can't be read if it specifies a different version
/// of the message format. Returns `None` for any other media type, because then the bytes decide.
pub fn version_problem(content_type: &str) -> Option<String> {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next()?;
    if !media.eq_ignore_ascii_case(MEDIA_TYPE) {
        return None;
    }
    let version = parts.find_map(version_parameter)?;
    match version.parse::<u64>() {
        Ok(VERSION) => None,
        Ok(newer) if newer > VERSION => Some(newer_version(newer)),
        Ok(_) | Err(_) => Some(format!(
            "version: the content type has an unknown version; use {MEDIA_TYPE}; version={VERSION}"
        )),
    }
}

fn version_parameter(part: &str) -> Option<&str> {
    let (name, value) = part.split_once('=')?;
    if name.trim().eq_ignore_ascii_case("version") {
        Some(value.trim().trim_matches('"'))
    } else {
        None
    }
}

fn newer_version(version: u64) -> String {
    format!(
        "version: it is {version}, and this callbridge reads version {VERSION}; install a newer \
         callbridge, or publish version {VERSION}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_of_another_version_is_refused() {
        assert_eq!(version_problem(&content_type()), None);
        assert_eq!(version_problem(&content_type().to_uppercase()), None);
        for other in ["", "application/json", ";", "application/json; version=2"] {
            assert_eq!(version_problem(other), None);
        }
        let newer = version_problem(&format!("{MEDIA_TYPE}; version=2")).expect("a problem");
        assert!(newer.starts_with("version: it is 2, and this"), "{newer}");
        let none = version_problem(&format!("{MEDIA_TYPE}; version=one")).expect("a problem");
        assert!(none.ends_with("use application/vnd.callbridge.call+json; version=1"));
    }
}
