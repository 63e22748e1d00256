//! The contents of a tick: its id, and who published it.
//!
//! Nothing in it is trusted. A tick is ours when its id is one that we drew at random and that
//! nobody else knew before; when it was published we remember ourselves.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// A longer message is no tick. The slots of a last one are some ten bytes each.
const BYTES_MAX: usize = 16 * 1024;
/// More slots than this do not fit into a last tick.
const SLOTS_MAX: usize = 1000;
/// The most of a name that is shown, in characters.
const NAME_MAX: usize = 80;

/// The id of one tick, drawn at random for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TickId(pub Uuid);

impl TickId {
    /// Draws a new id at random, which no other process can guess.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

/// One turn of one process: the id of the tick that it began with. Only who is fed its ticks can
/// know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnId(pub TickId);

/// The slots of a budget that still count, as durations: two machines share no clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotAges {
    /// The window that they are counted in, in milliseconds: older ones are left out.
    pub window_ms: u64,
    /// Milliseconds between each request's end and the writing of this tick; below zero where the
    /// request may still arrive.
    pub ended_ms: Vec<i64>,
}

impl SlotAges {
    /// The ages, as they stand `now`, of requests that ended then; `None` where there are too many.
    pub fn new(window: Duration, ended: &[Duration], now: Duration) -> Option<Self> {
        let millis = |it: Duration| i64::try_from(it.as_millis()).unwrap_or(i64::MAX);
        // Up to the millisecond: no request is said to be older than it is.
        let age = |at: &Duration| millis(now) - millis(*at) - 1;
        (ended.len() <= SLOTS_MAX).then(|| Self {
            window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
            ended_ms: ended.iter().map(age).collect(),
        })
    }

    /// Returns the requests' ends by the receiver's clock, which reads `received` now; each is put
    /// later by `room`, for two clocks run apart.
    pub fn ended(&self, received: Duration, room: Duration) -> Vec<Duration> {
        let ended = |age: &i64| {
            let span = Duration::from_millis(age.unsigned_abs());
            match age {
                0.. => (received + room).saturating_sub(span),
                _ => received + room + span,
            }
        };
        self.ended_ms.iter().map(ended).collect()
    }
}

/// A tick as its message in the queue holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// The id by which its publisher recognises the tick.
    pub tick: TickId,
    /// The publisher's machine and process, for people: `host (812)`.
    pub from: String,
    /// The publisher can send, as far as it knows.
    #[serde(default)]
    pub able: bool,
    /// The turn of its publisher, where the queue has come to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The requests that still count, in the last tick of a turn; `None` in every other tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotAges>,
}

impl Tick {
    /// The tick as JSON, the body of its message.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads it; `None` for anything else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let short = (bytes.len() <= BYTES_MAX).then_some(bytes)?;
        let mut tick: Self = serde_json::from_slice(short).ok()?;
        tick.slots = tick.slots.filter(|it| it.ended_ms.len() <= SLOTS_MAX);
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
            turn: Some(TurnId(TickId::random())),
            slots: SlotAges::new(Duration::from_secs(60), &[], Duration::ZERO),
        };
        assert_eq!(Tick::read(&tick.to_bytes()), Some(tick.clone()));
        // as versions before it wrote it
        let older = format!(r#"{{"tick":"{}","from":"alpha","able":true}}"#, Uuid::nil());
        let older = Tick::read(older.as_bytes()).expect("a tick");
        assert_eq!((older.turn, older.slots), (None, None));
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

    #[test]
    fn slots_are_never_older_for_whoever_hears_of_them_than_they_were() {
        let at = Duration::from_millis;
        let (window, now) = (at(60_000), at(500_000));
        let ended = [at(450_000), at(499_999), at(505_000)];
        let ages = SlotAges::new(window, &ended, now).expect("few");
        assert_eq!(ages.ended_ms, [49_999, 0, -5_001]);
        let received = ages.ended(at(7_000), at(1_200));
        assert_eq!(received, [Duration::ZERO, at(8_200), at(13_201)]);
        let many = vec![now; SLOTS_MAX + 1];
        assert_eq!(SlotAges::new(window, &many, now), None);
        let full = Tick {
            tick: TickId::random(),
            from: "x".repeat(NAME_MAX),
            able: false,
            turn: Some(TurnId(TickId::random())),
            slots: SlotAges::new(window, &many[1..], at(0)),
        };
        assert_eq!(Tick::read(&full.to_bytes()), Some(full));
    }
}
