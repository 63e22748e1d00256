//! What a tick says: which one it is, and who published it.
//!
//! Nothing in it is trusted. A tick is ours when its id is one that we drew at random and have not
//! told anybody else; when it was published we remember ourselves.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A longer message is no tick.
const BYTES_MAX: usize = 1024;
/// The most of a name that is shown, in characters.
const NAME_MAX: usize = 80;

/// The id of one tick, drawn at random for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TickId(Uuid);

impl TickId {
    /// Another than any before.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// For tests, which draw theirs from a seed.
    pub const fn from_number(number: u128) -> Self {
        Self(Uuid::from_u128(number))
    }
}

/// A tick as it stands in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Which one it is.
    pub tick: TickId,
    /// Who published it, for people: its machine and process.
    pub from: String,
    /// It could send, for all it knows.
    #[serde(default)]
    pub able: bool,
}

impl Tick {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads it; `None` for anything else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let short = (bytes.len() <= BYTES_MAX).then_some(bytes)?;
        let mut tick: Self = serde_json::from_slice(short).ok()?;
        tick.from = tick.from.chars().take(NAME_MAX).collect();
        Some(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_read_as_it_was_written_and_all_else_is_none() {
        let tick = Tick {
            tick: TickId::random(),
            from: "alpha (17)".to_owned(),
            able: true,
        };
        assert_eq!(Tick::read(&tick.to_bytes()), Some(tick.clone()));
        assert_ne!(TickId::random(), TickId::random());
        for other in [&b""[..], b"{}", b"tick", &[b' '; BYTES_MAX + 1], b"\xff"] {
            assert_eq!(Tick::read(other), None);
        }
        let long = Tick {
            from: "x".repeat(500),
            ..tick
        };
        let read = Tick::read(&long.to_bytes()).expect("a tick");
        assert_eq!(read.from.chars().count(), NAME_MAX);
    }
}
