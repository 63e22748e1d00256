//! Sums up employees' calls with customers by extension. [`WorkSums`] adds calls in order of their
//! start. [`employee_work`] reads them from a running spool, one hour at a time, so that no commit
//! has to wait long.

use crate::tables::figures::{self, CustomerCall};
use crate::{Error, Handle};
use std::collections::BTreeMap;

/// Length in seconds of the time range read at once.
const HOUR: i64 = 3600;
/// Calls are read from this many seconds before the requested range, because a customer whose call
/// was missed yesterday may be called back today.
const LOOK_BACK: i64 = 24 * 3600;

/// Sums for a single extension's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmployeeWork {
    /// The employee's ID in the CRM, from the last call that had one.
    pub employee_id: Option<i64>,
    /// Inbound calls answered at the extension.
    pub answered: u64,
    /// Unanswered inbound calls that rang at the extension.
    pub missed: u64,
    /// Outbound calls, answered or not.
    pub outbound: u64,
    /// Talk time in seconds, inbound and outbound.
    pub talk_sec: u64,
    /// Total time in seconds that answered callers waited.
    pub wait_sec: u64,
    /// Customers who were called back after a missed call.
    pub called_back: u64,
    /// Total time in seconds from each customer's first missed call to the callback.
    pub call_back_sec: u64,
}

impl EmployeeWork {
    /// Returns how many seconds answered callers waited on average, or `None` if no call was
    /// answered.
    pub fn mean_wait_sec(&self) -> Option<f64> {
        mean(self.wait_sec, self.answered)
    }

    /// Returns how many seconds passed on average from a missed call to the callback, or `None` if
    /// no one was called back.
    pub fn mean_call_back_sec(&self) -> Option<f64> {
        mean(self.call_back_sec, self.called_back)
    }
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// The sums by extension, and the customers still waiting for a callback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkSums {
    /// Sums by extension, with `None` for calls that reached no one.
    pub work: BTreeMap<Option<String>, EmployeeWork>,
    waiting: BTreeMap<String, i64>,
}

impl WorkSums {
    /// Adds a call. If it started before `from` (epoch seconds), it isn't counted, but still
    /// updates which customers are waiting for a callback.
    pub fn add(&mut self, call: &CustomerCall, from: i64) {
        let counts = call.started >= from;
        match (call.inbound, call.answered) {
            (true, false) => {
                if let Some(phone) = &call.phone {
                    self.waiting.entry(phone.clone()).or_insert(call.started);
                }
                if !counts {
                    return;
                }
                if call.rang.is_empty() {
                    self.work.entry(None).or_default().missed += 1;
                }
                for extension in &call.rang {
                    let work = self.work.entry(Some(extension.clone())).or_default();
                    work.missed += 1;
                }
            }
            (inbound, answered) => {
                let mut waited = None;
                if answered && let Some(phone) = &call.phone {
                    waited = self.waiting.remove(phone);
                }
                if !counts {
                    return;
                }
                let work = self.work.entry(call.extension.clone()).or_default();
                work.employee_id = call.employee_id.or(work.employee_id);
                work.talk_sec += call.talk_sec;
                if inbound {
                    work.answered += 1;
                    work.wait_sec += call.wait_sec;
                    return;
                }
                work.outbound += 1;
                if let Some(since) = waited {
                    work.called_back += 1;
                    work.call_back_sec += (call.started - since).max(0).unsigned_abs();
                }
            }
        }
    }
}

/// Sums up each extension's calls that started at or after `from` and before `until` (epoch
/// seconds). Calls that `unanswered=no` keeps out of the journal count as missed.
///
/// # Errors
/// Returns an error if the spool can't be read.
pub async fn employee_work(spool: &Handle, from: i64, until: i64) -> Result<WorkSums, Error> {
    let mut sums = WorkSums::default();
    let mut hour = from.saturating_sub(LOOK_BACK);
    while hour < until {
        let end = hour.saturating_add(HOUR).min(until);
        let read = spool.read(move |store| figures::customer_calls(store, hour, end));
        for call in read.await? {
            sums.add(&call, from);
        }
        hour = end;
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(started: i64, inbound: bool, answered: bool) -> CustomerCall {
        CustomerCall {
            started,
            inbound,
            answered,
            phone: Some("+998901110001".to_owned()),
            extension: (answered || !inbound).then(|| "101".to_owned()),
            employee_id: answered.then_some(501),
            talk_sec: if answered { 30 } else { 0 },
            wait_sec: 7,
            rang: vec!["101".to_owned(), "102".to_owned()],
        }
    }

    fn sums(calls: &[CustomerCall], from: i64) -> WorkSums {
        let mut sums = WorkSums::default();
        calls.iter().for_each(|call| sums.add(call, from));
        sums
    }

    fn work_of<'a>(sums: &'a WorkSums, extension: &str) -> &'a EmployeeWork {
        &sums.work[&Some(extension.to_owned())]
    }

    #[test]
    fn missed_call_counts_where_it_rang_and_is_called_back_once() {
        let calls = [
            call(100, true, false),
            call(160, true, false),
            call(200, false, false),
            call(400, false, true),
            call(500, false, true),
        ];
        let sums = sums(&calls, 0);
        let first = work_of(&sums, "101");
        assert_eq!((first.missed, first.outbound, first.talk_sec), (2, 3, 60));
        assert_eq!((first.called_back, first.call_back_sec), (1, 300));
        assert_eq!(first.employee_id, Some(501));
        assert_eq!(work_of(&sums, "102").missed, 2);
    }

    #[test]
    fn answered_repeat_call_does_not_count_as_a_callback() {
        let sums = sums(&[call(100, true, false), call(130, true, true)], 0);
        let first = work_of(&sums, "101");
        assert_eq!((first.answered, first.wait_sec), (1, 7));
        assert_eq!((first.called_back, first.call_back_sec), (0, 0));
        assert_eq!(first.talk_sec, 30);
    }

    #[test]
    fn missed_call_before_period_counts_only_for_callback() {
        let mut silent = call(100, true, false);
        silent.rang.clear();
        let sums = sums(&[silent.clone(), call(1_000, false, true)], 500);
        assert_eq!(sums.work.len(), 1, "nothing of the missed one: {sums:?}");
        assert_eq!(work_of(&sums, "101").call_back_sec, 900);
        silent.started = 2_000;
        let mut sums = sums;
        sums.add(&silent, 500);
        assert_eq!(sums.work[&None].missed, 1, "it rang nowhere");
    }

    #[test]
    fn mean_covers_counted_calls_and_is_none_without_calls() {
        let did = EmployeeWork {
            answered: 2,
            wait_sec: 9,
            ..EmployeeWork::default()
        };
        assert_eq!(did.mean_wait_sec(), Some(4.5));
        assert_eq!(did.mean_call_back_sec(), None);
    }
}
