//! What an attempt's outcome means for its row (§3.4, §6.9).

use super::target;
use callbridge_call::EventTime;
use std::time::Duration;

/// How long after the first, second and third failure the next attempt is made; after the fourth
/// there is none.
pub const BACKOFF: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
];

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver answered with this status; its body is not looked at.
    Status(u16),
    /// No answer in time.
    TimedOut,
    /// No connection, or one that broke: the words say why.
    Broken(String),
    /// The name leads to a private address now: nothing was sent.
    Private,
}

/// What an outcome means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryVerdict {
    /// It arrived.
    Delivered,
    /// It goes again, after its time.
    Retry,
    /// It never goes again.
    Never,
}

impl AttemptOutcome {
    /// What it means.
    pub const fn verdict(&self) -> DeliveryVerdict {
        match self {
            Self::Status(200..=299) => DeliveryVerdict::Delivered,
            Self::Status(408 | 429 | 500..=599) | Self::TimedOut | Self::Broken(_) => {
                DeliveryVerdict::Retry
            }
            // Other 4xx and every 3xx, and what is no status at all.
            Self::Status(_) | Self::Private => DeliveryVerdict::Never,
        }
    }

    /// The status, if there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(*status),
            Self::TimedOut | Self::Broken(_) | Self::Private => None,
        }
    }

    /// What went wrong, for the journal.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Status(200..=299) => None,
            Self::Status(300..=399) => Some("a redirect is not followed".to_owned()),
            Self::Status(status) => Some(format!("status {status}")),
            Self::TimedOut => Some("timeout".to_owned()),
            Self::Broken(words) => Some(words.clone()),
            Self::Private => Some(target::PRIVATE.to_owned()),
        }
    }
}

impl DeliveryVerdict {
    /// When a row goes again after this many attempts, the last of which ended so; `None`: never.
    pub fn again(self, now: EventTime, attempts: u32) -> Option<EventTime> {
        let made = usize::try_from(attempts).unwrap_or(usize::MAX);
        let wait = BACKOFF.get(made.saturating_sub(1))?;
        (self == Self::Retry).then(|| now.plus(*wait))
    }
}
