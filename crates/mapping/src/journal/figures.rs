//! A call's UUID and numbers, i.e., its start, duration, and talk time.

use callbridge_call::{EpochSeconds, EventTime, FinishedCall, Linkedid};
use callbridge_model::{CallUuid, Zone};
use std::time::Duration;
use uuid::Uuid;

/// The namespace of the calls' UUIDs. Changing it would journal every call a second time.
const NAMESPACE: Uuid = Uuid::from_u128(0x7960_997f_d1f6_4443_b29d_16fa_e6d2_7ae1);

/// 2000-01-01. No call can have started before that.
const EARLIEST: EventTime = EventTime::from_seconds(946_684_800);

/// How far a call's start or end may be ahead of this machine's clock.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum number of seconds by which two separately rounded numbers can differ.
const ROUNDING_SEC: u32 = 1;

/// Returns a call's idempotency key (§2.6 `uuid`), which is the UUIDv5 of the PBX's ID, a NUL byte,
/// and the root linkedid.
pub fn uuid(pbx: &str, linkedid: &Linkedid) -> CallUuid {
    let name = [pbx.as_bytes(), b"\0", linkedid.as_str().as_bytes()].concat();
    CallUuid(Uuid::new_v5(&NAMESPACE, &name))
}

/// Returns a message if no call can have started at `start`, because it's before 2000 or too far
/// ahead of `now`, or `None` if the start is possible. The journal takes epoch seconds (§2.6
/// `VALID_EPOCH_SEC`).
pub fn wrong_start(start: EventTime, now: EventTime) -> Option<String> {
    let ahead = start.since(now);
    if start >= EARLIEST && ahead <= AHEAD_MAX {
        return None;
    }
    // If the year can't be formatted, only the seconds are shown.
    let shown = Zone::utc()
        .format(start, "%Y-%m-%dT%H:%M:%SZ")
        .unwrap_or_else(|| format!("{} s", start.floor_seconds()));
    if start < EARLIEST {
        return Some(format!("the call began at {shown}, before the year 2000"));
    }
    let ahead = ahead.as_secs();
    Some(format!(
        "the call began at {shown}, {ahead} s ahead of this machine's clock"
    ))
}

/// Returns a message if `end` is too far in the future for the call to have ended then. Either the
/// PBX's clock was set forward during the call, or a message has the wrong duration.
pub fn wrong_end(end: EventTime, now: EventTime) -> Option<String> {
    let ahead = end.since(now);
    if ahead <= AHEAD_MAX {
        return None;
    }
    let ahead = ahead.as_secs();
    Some(format!(
        "the call would end {ahead} s ahead of this machine's clock"
    ))
}

/// The numbers for the journal, along with any errors in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// When the call started, or its arrival minus its duration if the PBX's start is impossible.
    pub started_at: EpochSeconds,
    /// Whole seconds from start to end, rounded half up, but at least 1.
    pub duration_sec: u32,
    /// Talk time in seconds, at most `duration_sec`, or 0 if the call wasn't answered.
    pub talk_time_sec: u32,
    /// The message from [`wrong_start`], or `None` if the PBX's start is possible.
    pub wrong_start: Option<String>,
    /// The message from [`wrong_end`], or `None` if the end is possible.
    pub wrong_end: Option<String>,
    /// A message with both numbers if the talk time exceeds the duration.
    pub talk_excess: Option<String>,
    /// Sentences about talk time that was reduced to the duration.
    pub remarks: Vec<String>,
}

impl Figures {
    /// Computes the numbers for a call that arrived at `now`. Exact intervals are rounded to whole
    /// seconds, half up.
    pub fn from_call(call: &FinishedCall, now: EventTime) -> Self {
        let length = call.ended.since(call.started);
        let duration_sec = half_up(length).max(1);
        let talked = if call.answered { half_up(call.talk) } else { 0 };
        let wrong_start = wrong_start(call.started, now);
        let arrived = wrong_start.as_ref().map(|_| now.minus(length));
        let mut remarks = Vec::new();
        let mut talk_excess = None;
        if talked > duration_sec + ROUNDING_SEC {
            let talk = call.talk.as_secs_f64();
            let length = length.as_secs_f64();
            talk_excess = Some(format!("{talk:.3} s of talk in a call of {length:.3} s"));
        } else if talked > duration_sec {
            let clamped = format!("talk of {talked} s clamped to the duration, {duration_sec} s");
            remarks.push(clamped);
        }
        Self {
            started_at: arrived.unwrap_or(call.started).floor_seconds(),
            duration_sec,
            talk_time_sec: talked.min(duration_sec),
            wrong_start,
            wrong_end: wrong_end(call.ended, now),
            talk_excess,
            remarks,
        }
    }
}

/// Rounds to whole seconds, half up. The journal's numbers only go up to `u32::MAX - 1`.
pub fn half_up(exact: Duration) -> u32 {
    let seconds = (exact.as_micros() + 500_000) / 1_000_000;
    u32::try_from(seconds).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_testkit::sample::call;
    use proptest::prelude::*;

    fn figures(length_ms: u64, talk_ms: u64, answered: bool) -> Figures {
        let mut call = call();
        call.ended = call.started.plus(Duration::from_millis(length_ms));
        (call.talk, call.answered) = (Duration::from_millis(talk_ms), answered);
        Figures::from_call(&call, call.ended)
    }

    /// Promise: The same call always has the same uuid.
    #[test]
    fn uuid_is_the_uuid5_of_pbx_and_linkedid() {
        // Computed in Python: uuid.uuid5(NAMESPACE, "pbx1\0" + "1795151317.146")
        for (pbx, linkedid, expected) in [
            (
                "pbx1",
                "1795151317.146",
                "0ceb32a8-260a-5ba6-b8f1-30205fcc212d",
            ),
            (
                "explain",
                "1795151432.208",
                "dccc0247-09d5-5aa2-a893-54ff5847852d",
            ),
            (
                "main",
                "pbx1-1529936170.42",
                "a15afcda-7fe2-5716-8984-479614ce5a8c",
            ),
        ] {
            let linkedid = Linkedid::new(linkedid).expect("not empty");
            assert_eq!(uuid(pbx, &linkedid).to_string(), expected);
        }
    }

    /// Returns the duration and talk time of an answered call.
    fn whole_seconds(length_ms: u64, talk_ms: u64) -> (u32, u32) {
        let figures = figures(length_ms, talk_ms, true);
        (figures.duration_sec, figures.talk_time_sec)
    }

    #[test]
    fn seconds_are_rounded_half_up_and_a_call_lasts_at_least_one() {
        assert_eq!(whole_seconds(5_020, 4_000), (5, 4));
        assert_eq!(whole_seconds(5_500, 4_499), (6, 4));
        assert_eq!(whole_seconds(5_499, 4_500), (5, 5));
        assert_eq!(whole_seconds(10, 0), (1, 0));
    }

    #[test]
    fn unanswered_call_has_no_talk() {
        assert_eq!(figures(4_000, 400, false).talk_time_sec, 0);
    }

    #[test]
    fn talk_beyond_duration_is_clamped_and_real_excess_reported() {
        let clamped = figures(4_400, 4_600, true);
        assert_eq!((clamped.duration_sec, clamped.talk_time_sec), (4, 4));
        assert_eq!(clamped.talk_excess, None);
        assert_eq!(
            clamped.remarks,
            ["talk of 5 s clamped to the duration, 4 s"]
        );
        let excess = figures(4_400, 5_600, true);
        assert_eq!(
            excess.talk_excess.as_deref(),
            Some("5.600 s of talk in a call of 4.400 s")
        );
        assert_eq!((excess.duration_sec, excess.talk_time_sec), (4, 4));
    }

    /// Returns the error for a start at this second. The current second is 1795151317.
    fn wrong_start_of(seconds: i64) -> Option<String> {
        let now = EventTime::from_seconds(1_795_151_317);
        wrong_start(EventTime::from_seconds(seconds), now)
    }

    #[test]
    fn start_before_2000_or_five_minutes_ahead_is_wrong() {
        assert_eq!(wrong_start_of(1_795_151_317 + 300), None);
        assert_eq!(wrong_start_of(946_684_800), None);
        insta::assert_snapshot!(
            wrong_start_of(946_684_799).expect("wrong"),
            @"the call began at 1999-12-31T23:59:59Z, before the year 2000"
        );
        insta::assert_snapshot!(
            wrong_start_of(1_795_151_618).expect("wrong"),
            @"the call began at 2026-11-20T05:13:38Z, 301 s ahead of this machine's clock"
        );
        assert!(wrong_start_of(1_795_151_317_000).is_some(), "milliseconds");
    }

    #[test]
    fn wrong_start_is_replaced_by_arrival_minus_duration() {
        let mut call = call();
        call.started = EventTime::from_seconds(5);
        call.ended = EventTime::from_seconds(15);
        let figures = Figures::from_call(&call, EventTime::from_seconds(1_795_151_317));
        assert_eq!(figures.started_at, EpochSeconds::new(1_795_151_307));
        assert!(figures.wrong_start.is_some());
    }

    #[test]
    fn end_over_five_minutes_ahead_is_wrong_and_keeps_the_start() {
        let mut call = call();
        let now = call.started.plus(Duration::from_secs(9));
        for (seconds, is_wrong) in [(9, false), (309, false), (310, true), (3609, true)] {
            call.ended = call.started.plus(Duration::from_secs(seconds));
            let figures = Figures::from_call(&call, now);
            assert_eq!(figures.wrong_end.is_some(), is_wrong, "{seconds}");
            assert_eq!(figures.started_at, call.started.floor_seconds());
        }
    }

    proptest! {
        #[test]
        fn talk_is_never_above_duration(length_ms: u32, talk_ms: u32, answered: bool) {
            let figures = figures(length_ms.into(), talk_ms.into(), answered);
            prop_assert!(figures.duration_sec >= 1);
            prop_assert!(figures.talk_time_sec <= figures.duration_sec);
            let more = talk_ms > length_ms.saturating_add(2_000).max(2_500);
            prop_assert!(!(answered && more) || figures.talk_excess.is_some());
        }
    }
}
