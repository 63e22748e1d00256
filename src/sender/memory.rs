//! What the sender remembers over restarts beside its slots: one small JSON text in the spool.

use super::line::Streak;
use super::sweep::ways::Ways;
use crate::spool::TokenPrint;
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Its name among the spool's settings.
pub const KEY: &str = "sender.memory";

/// All of it. What is missing or cannot be read is as in a fresh state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// How the journal lets itself be read.
    pub ways: Ways,
    /// The last token there was: what it was refused says nothing of another.
    pub token: Option<TokenPrint>,
    /// The window of the slots: they know nothing of what was sent longer ago.
    pub window: Option<Duration>,
    /// Nothing is sent before its end.
    pub silence: Option<Silence>,
    /// The pace after a 429 that came below our cap.
    pub shared: Option<Shared>,
    /// Refusals in a row, at submissions and after them.
    pub streaks: [Streak; 2],
    /// The token that the service refuses.
    pub refused: Option<Refused>,
}

/// A token that the service refuses: asked about once a minute, over restarts too (§7.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Which one.
    pub token: TokenPrint,
    /// The last time it was refused.
    pub at: EventTime,
}

/// A time of silence, for all that may have been sent and is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The boot that it is counted in.
    pub boot_id: String,
    /// Its end, since that boot.
    pub until: Duration,
}

/// Somebody shares the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Requests a window that were left.
    pub allowed: u32,
    /// Since when.
    pub since: EventTime,
}

impl Memory {
    /// What was stored; nothing where it cannot be read.
    pub fn read(text: Option<&str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// What is stored.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_read_back_and_what_is_not_known_is_fresh() {
        let memory = Memory {
            shared: Some(Shared {
                allowed: 30,
                since: EventTime::from_seconds(7),
            }),
            refused: Some(Refused {
                token: TokenPrint::of("svc_pat_dead"),
                at: EventTime::from_seconds(8),
            }),
            ..Memory::default()
        };
        assert_eq!(Memory::read(Some(&memory.text())), memory);
        assert_eq!(Memory::read(Some("{\"later\": 1}")), Memory::default());
        assert_eq!(Memory::read(Some("no JSON")), Memory::default());
        assert_eq!(Memory::read(None), Memory::default());
    }
}
