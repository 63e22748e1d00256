//! Calls journaled by another provider, such as the CRM's own phone integration, and which of them
//! callbridge has journaled as well.

use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::Phone;
use callbridge_model::status::ForeignCalls;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Two reports can be about the same call only if their starts differ by no more than this many
/// seconds.
pub(crate) const APART_SECONDS: u64 = 60;
/// How long another provider's call waits for a matching call of ours.
const WAITS: Duration = Duration::from_secs(3600);
/// How long a call that matched one of ours is remembered.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of calls waiting for a match. Beyond that, the oldest ones are dropped.
const WAITING_MAX: usize = 200;
const DOUBLES_MAX: usize = 500;
const HOUR: i64 = 3600;

/// A call journaled by another provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignCall {
    /// The provider's name in the CRM.
    pub provider: String,
    /// The customer's number. Calls are matched by number and start.
    pub phone: Phone,
    /// When the call started, as reported by the provider.
    pub started: EpochSeconds,
}

impl ForeignCall {
    fn is_same_call(&self, phone: &Phone, started: EpochSeconds) -> bool {
        let apart = self.started.get().abs_diff(started.get());
        self.phone == *phone && apart <= APART_SECONDS
    }
}

/// Another provider's call, with the time of its event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TimedForeignCall {
    at: EventTime,
    #[serde(flatten)]
    call: ForeignCall,
}

/// Other providers' calls that are remembered, oldest first: those waiting for a matching call of
/// ours, and those that have matched one (`doubles`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignLog {
    waiting: Vec<TimedForeignCall>,
    doubles: Vec<TimedForeignCall>,
}

impl ForeignLog {
    /// Adds a call journaled by another provider. `ours` is `true` if it matches one of our calls.
    pub(crate) fn foreign(&mut self, call: ForeignCall, ours: bool, at: EventTime) {
        let mut known = self.waiting.iter().chain(&self.doubles);
        if !known.any(|timed| timed.call == call) {
            let log = if ours {
                &mut self.doubles
            } else {
                &mut self.waiting
            };
            log.push(TimedForeignCall { at, call });
            self.forget(at);
        }
    }

    /// Notes that one of our calls was journaled, returning `true` if another provider's waiting
    /// call matches it.
    pub(crate) fn note_ours(
        &mut self,
        phone: &Phone,
        started: EpochSeconds,
        at: EventTime,
    ) -> bool {
        let found = self
            .waiting
            .extract_if(.., |timed| timed.call.is_same_call(phone, started));
        let before = self.doubles.len();
        self.doubles.extend(found);
        let more = self.doubles.len() > before;
        self.forget(at);
        more
    }

    fn forget(&mut self, now: EventTime) {
        for (all, span, most) in [
            (&mut self.waiting, WAITS, WAITING_MAX),
            (&mut self.doubles, KEPT, DOUBLES_MAX),
        ] {
            all.retain(|timed| is_within(timed, now, span));
            let too_many = all.len().saturating_sub(most);
            all.drain(..too_many);
        }
    }

    /// Returns the providers that journaled any of our calls in the last 24 hours, each with the
    /// number of such calls.
    pub(crate) fn providers(&self, now: EventTime) -> Vec<ForeignCalls> {
        let mut providers = BTreeMap::<&str, Vec<i64>>::new();
        for timed in &self.doubles {
            if is_within(timed, now, KEPT) {
                let starts = providers.entry(&timed.call.provider).or_default();
                starts.push(timed.call.started.get());
            }
        }
        let mut all = Vec::new();
        for (provider, mut starts) in providers {
            starts.sort_unstable();
            all.push(ForeignCalls {
                provider: provider.to_owned(),
                calls: starts.len() as u64,
                most_in_an_hour: most_in_an_hour(&starts),
                last_at: starts.last().copied().unwrap_or(0),
            });
        }
        all
    }
}

fn most_in_an_hour(starts: &[i64]) -> u64 {
    let mut most = 0;
    for from in starts {
        let hour = *from..*from + HOUR;
        let calls = starts.iter().filter(|start| hour.contains(start)).count();
        most = most.max(calls);
    }
    most as u64
}

/// Returns `true` if the call's event is at most `span` old. If the clock was set back, its age is
/// taken to be 0.
fn is_within(timed: &TimedForeignCall, now: EventTime, span: Duration) -> bool {
    now.since(timed.at) <= span
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_795_151_317;

    fn time_at(seconds: i64) -> EventTime {
        EventTime::from_seconds(START + seconds)
    }

    fn phone(n: u32) -> Phone {
        Phone::from_e164(&format!("+99890111000{n}")).expect("a number")
    }

    fn call(n: u32, seconds: i64) -> ForeignCall {
        ForeignCall {
            provider: "ONLINE_PBX".to_owned(),
            phone: phone(n),
            started: EpochSeconds::new(START + seconds),
        }
    }

    fn figures(log: &ForeignLog, now: i64) -> Vec<(u64, u64)> {
        let all = log.providers(time_at(now)).into_iter();
        all.map(|provider| (provider.calls, provider.most_in_an_hour))
            .collect()
    }

    /// Returns `true` if our call with the nth number, which started at second `seconds`, matches
    /// another provider's call that started at second 0 with the first number.
    fn is_same_call(n: u32, seconds: i64) -> bool {
        let mut log = ForeignLog::default();
        log.foreign(call(1, 0), false, time_at(30));
        log.note_ours(&phone(n), EpochSeconds::new(START + seconds), time_at(90))
    }

    #[test]
    fn calls_of_one_number_within_a_minute_count_as_one() {
        assert!(is_same_call(1, 60) && is_same_call(1, -60));
        assert!(!is_same_call(1, 61) && !is_same_call(1, -61) && !is_same_call(2, 0));
        let mut log = ForeignLog::default();
        log.foreign(call(1, 0), true, time_at(30));
        log.foreign(call(1, 0), true, time_at(31));
        assert_eq!(figures(&log, 60), [(1, 1)], "a repeat is the same call");
        log.foreign(call(2, 3_599), true, time_at(3_600));
        assert_eq!(figures(&log, 3_600), [(2, 2)]);
    }

    #[test]
    fn unmatched_foreign_call_expires_in_hour_matched_in_day() {
        let mut log = ForeignLog::default();
        log.foreign(call(1, 0), false, time_at(0));
        log.foreign(call(2, 0), true, time_at(0));
        log.foreign(call(3, 3_600), true, time_at(3_601));
        let late = log.note_ours(&phone(1), EpochSeconds::new(START), time_at(3_602));
        assert!(!late);
        assert_eq!(figures(&log, 3_602), [(2, 1)], "an hour apart");
        assert_eq!(figures(&log, 86_401), [(1, 1)]);
        assert_eq!(figures(&log, 100_000), []);
    }

    #[test]
    fn foreign_log_is_bounded_under_a_flood_of_calls() {
        let mut log = ForeignLog::default();
        for second in 0..5_000 {
            log.foreign(call(1, second), second % 2 == 0, time_at(second));
        }
        assert_eq!(
            (log.waiting.len(), log.doubles.len()),
            (WAITING_MAX, DOUBLES_MAX)
        );
    }
}
