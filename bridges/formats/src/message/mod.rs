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
//! | [`outcomes`] | what became of calls, told to others who read the stream |
//! | [`webhook`] | an event of the CRM, told to the other machines of a `--standby` |
//! | [`field`] | the fields, and the values that each may have: types and limits |
//! | [`read`](mod@read) | a message to a call |
//! | [`write`](mod@write) | a call to its message |
//!
//! A stream carries more than calls: those who read it tell each other what became of them. Each
//! [`MessageKind`] has a media type of its own, and is taken past the reader of calls.

pub mod field;
pub mod outcomes;
pub mod read;
pub mod webhook;
pub mod write;

pub use field::MessageField;
pub use outcomes::Outcomes;
pub use read::read;
pub use webhook::WebhookMessage;
pub use write::{ResolvedIds, write};

/// The version of each kind that is read and written.
const VERSION: u64 = 1;

/// Kinds of the messages on a stream of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// A finished call; also whatever names no kind that there is, for then the bytes decide.
    Call,
    /// Outcomes of calls that came before it in the stream.
    Outcomes,
    /// An event of the CRM that one of several machines was sent.
    Webhook,
}

impl MessageKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Call, Self::Outcomes, Self::Webhook];

    /// The media type, without parameters.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Call => "application/vnd.callbridge.call+json",
            Self::Outcomes => "application/vnd.callbridge.outcomes+json",
            Self::Webhook => "application/vnd.callbridge.webhook+json",
        }
    }

    /// Returns the value that a publisher writes into `content_type`.
    pub fn content_type(self) -> String {
        format!("{}; version={VERSION}", self.media_type())
    }

    /// The kind of a message with this `content_type`.
    pub fn of(content_type: Option<&str>) -> Self {
        let media = content_type.and_then(|it| it.split(';').next());
        let named = |kind: &Self| {
            media.is_some_and(|media| media.trim().eq_ignore_ascii_case(kind.media_type()))
        };
        Self::ALL.into_iter().find(named).unwrap_or(Self::Call)
    }

    /// Returns the reason for not reading a message with this `content_type`: another version than
    /// ours. Other types are let pass, for the bytes decide.
    pub fn version_fault(self, content_type: &str) -> Option<String> {
        let media_type = self.media_type();
        let mut parts = content_type.split(';').map(str::trim);
        let media = parts.next()?;
        if !media.eq_ignore_ascii_case(media_type) {
            return None;
        }
        let version = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            let own = name.trim().eq_ignore_ascii_case("version");
            own.then(|| value.trim().trim_matches('"'))
        })?;
        match version.parse::<u64>() {
            Ok(VERSION) => None,
            Ok(newer) if newer > VERSION => Some(newer_words(newer)),
            Ok(_) | Err(_) => Some(format!(
                "version: the content type names none that there is; it may be {media_type}; \
                 version={VERSION}"
            )),
        }
    }
}

fn newer_words(version: u64) -> String {
    format!(
        "version: it is {version}, and this callbridge reads version {VERSION}; install a newer \
         callbridge, or publish version {VERSION}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_media_type_and_anything_else_may_be_a_call() {
        for kind in MessageKind::ALL {
            let text = kind.content_type();
            assert_eq!(MessageKind::of(Some(&text)), kind);
            assert_eq!(MessageKind::of(Some(&text.to_uppercase())), kind);
            assert_eq!(kind.version_fault(&text), None);
        }
        let call = "application/vnd.callbridge.call+json; version=1";
        assert_eq!(MessageKind::Call.content_type(), call);
        for other in [None, Some(""), Some("application/json"), Some(";")] {
            assert_eq!(MessageKind::of(other), MessageKind::Call);
        }
    }

    #[test]
    fn another_version_of_a_kind_is_named() {
        let kind = MessageKind::Outcomes;
        let newer = format!("{}; version=2", kind.media_type());
        let words = kind.version_fault(&newer).expect("a fault");
        assert!(words.starts_with("version: it is 2, and this"), "{words}");
        let none = format!("{}; version=one", kind.media_type());
        let words = kind.version_fault(&none).expect("a fault");
        assert!(words.contains("; it may be application/vnd.callbridge.outcomes+json; version=1"));
        assert_eq!(kind.version_fault("application/json; version=2"), None);
    }
}
