//! Calls whose channels have all hung up, ordered by when they're due to be finished. This way, due
//! calls are found without checking all the others.

use super::index::{Schedule, in_order};
use crate::facts::{Leg, OpenCall};
use crate::resolve::calls_within;
use crate::{EventTime, Settings};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long to wait for the missing start of a call that has hung up. Without its start, a call
/// would be incomplete, and a call consisting of leftover events would be dropped.
const BEGINNING_WAIT: Duration = Duration::from_secs(60);

/// The deadline of a call that has hung up, at which it's finished if nothing else is received.
///
/// | the call | by our clock | by the stream |
/// |---|---|---|
/// | is live | `clock` | or `stream`, unless its CDR arrives over another connection |
/// | is part of a backlog | otherwise `clock`, once the stream is quiet | `stream` |
/// | waits for a CDR over another connection | `clock` and `arrived` | `stream` and `arrived` |
/// | has only leftover events so far | – | `stream` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deadline {
    /// Time by our own clock. For a backlog, also how long the stream must have been quiet.
    clock: Option<(EventTime, Option<Duration>)>,
    /// Time of the stream.
    stream: Option<EventTime>,
    /// Time by our own clock after which the CDR can no longer arrive.
    arrived: Option<EventTime>,
    /// Whether a command may dial another line for the call until then.
    pub(super) may_redial: bool,
}

impl Deadline {
    /// Returns the deadline of a call that's over, or of the first call within it that is, or
    /// `None` if nothing in it is over.
    pub(super) fn for_call(call: &OpenCall, settings: &Settings) -> Option<Self> {
        let times = &call.times;
        if call.is_ghost() {
            return Some(Self {
                stream: Some(times.quiet.plus(BEGINNING_WAIT)),
                ..Self::default()
            });
        }
        let mut may_redial = false;
        let (quiet_since, wait) = if call.is_over() {
            let patience = patience_after_end(call, settings);
            may_redial = !patience.is_zero();
            let quiet = times.quiet.plus(patience);
            let arrived = times.quiet_arrived.plus(patience);
            let wait = wait(call, settings, call.awaits_beginning(), |_| true);
            ((quiet, arrived), wait)
        } else {
            let group = call.ended_groups(settings).into_iter().next()?;
            let awaits_beginning = times.backwards && !group.begun;
            let wait = wait(call, settings, awaits_beginning, |leg| {
                group.channels.contains(&leg.id)
            });
            ((group.at, group.arrived), wait)
        };
        Some(Self {
            may_redial,
            ..Self::for_quiet_since(call, settings, quiet_since, wait)
        })
    }

    /// Returns the deadline of a call that has been quiet since `quiet_since` by the clock of its
    /// events and since `arrived` by ours. `wait` is how long it must be quiet.
    fn for_quiet_since(
        call: &OpenCall,
        settings: &Settings,
        (quiet_since, arrived): (EventTime, EventTime),
        wait: Duration,
    ) -> Self {
        let times = &call.times;
        let due = arrived.plus(wait);
        let is_cdr_apart = settings.cdr_apart && wait > settings.settle;
        if times.live {
            // Events of a stalled connection arrive all at once, so only the stream shows how far
            // apart they were.
            let stream = quiet_since.plus(wait);
            return Self {
                clock: Some((due, None)),
                stream: if is_cdr_apart { None } else { Some(stream) },
                ..Self::default()
            };
        }
        // The rest of a backlog may still arrive.
        if is_cdr_apart {
            let quiet = settings.settle;
            let at = due.max(times.latest_arrived.plus(quiet));
            return Self {
                clock: Some((at, Some(quiet))),
                stream: Some(quiet_since.plus(quiet)),
                arrived: Some(due),
                ..Self::default()
            };
        }
        Self {
            clock: Some((times.latest_arrived.plus(wait), Some(wait))),
            stream: Some(quiet_since.plus(wait)),
            ..Self::default()
        }
    }

    /// Returns `true` if the call consists only of leftover events, such as a hangup that overtook
    /// all other events of its channel. Such a call waits only for the stream's time, since the
    /// other events may be slow to arrive.
    const fn is_scraps(&self) -> bool {
        self.clock.is_none()
    }
}

/// Returns how long a command that keeps redialing may still dial another line for a call whose
/// channels have all hung up.
fn patience_after_end(call: &OpenCall, settings: &Settings) -> Duration {
    if !call.legs.values().any(Leg::is_dialed_repeatedly) {
        return Duration::ZERO;
    }
    let within = calls_within(call, settings).into_iter();
    within.map(|call| call.patience).max().unwrap_or_default()
}

/// Returns how long the channels selected by `is_own` wait after their last hangup for a CDR or for
/// the start of their call.
fn wait(
    call: &OpenCall,
    settings: &Settings,
    awaits_beginning: bool,
    is_own: impl Fn(&Leg) -> bool + Copy,
) -> Duration {
    let settle = if awaits_beginning {
        settings.settle.max(BEGINNING_WAIT)
    } else {
        settings.settle
    };
    let mut trunks = call
        .legs
        .values()
        .filter(|leg| is_own(leg))
        .filter_map(|leg| leg.endpoint(&settings.endpoints));
    let awaits_cdr = settings.awaits_cdr()
        && trunks.any(|trunk| trunk.awaits_cdr)
        && !call.has_userfield_of(is_own);
    match settings.cdr_wait {
        Some(cdr_wait) if awaits_cdr => settle.max(cdr_wait),
        Some(_) | None => settle,
    }
}

/// The calls by number, and ordered by deadline.
#[derive(Debug, Default)]
pub(super) struct Settling {
    pub(super) deadlines: BTreeMap<u64, Deadline>,
    /// Calls due by our own clock, with a separate schedule for each length of quiet to wait for.
    by_clock: BTreeMap<Option<Duration>, Schedule<EventTime>>,
    /// Calls by the stream's time.
    by_stream: Schedule<EventTime>,
    /// Calls waiting for a CDR from another connection, by our own clock.
    apart: Schedule<EventTime>,
    /// Number of calls that only have leftover events so far.
    pub(super) scraps: usize,
}

impl Settling {
    /// Sets the deadline of a call that has hung up.
    pub(super) fn put(&mut self, key: u64, deadline: Deadline) {
        if self.deadlines.get(&key) == Some(&deadline) {
            return;
        }
        self.remove(key);
        if let Some((at, quiet)) = deadline.clock {
            self.by_clock.entry(quiet).or_default().put(key, at);
        }
        match (deadline.arrived, deadline.stream) {
            (Some(arrived), _) => self.apart.put(key, arrived),
            (None, Some(stream)) => self.by_stream.put(key, stream),
            (None, None) => {}
        }
        self.scraps += usize::from(deadline.is_scraps());
        self.deadlines.insert(key, deadline);
    }

    pub(super) fn remove(&mut self, key: u64) {
        if let Some(deadline) = self.deadlines.remove(&key) {
            for schedule in self.by_clock.values_mut() {
                schedule.remove(key);
            }
            self.apart.remove(key);
            self.by_stream.remove(key);
            self.scraps -= usize::from(deadline.is_scraps());
        }
    }

    /// Returns the calls to finish if an event arrives now and the stream has reached `stream`,
    /// ordered by number.
    pub(super) fn due_by_stream(&self, now: EventTime, stream: Option<EventTime>) -> Vec<u64> {
        let live = self
            .by_clock
            .get(&None)
            .into_iter()
            .flat_map(|order| order.due_at(now));
        let backlog = stream.into_iter().flat_map(|at| self.by_stream.due_at(at));
        let apart = self
            .apart
            .due_at(now)
            .filter(|key| stream >= self.deadlines[key].stream);
        let mut due = in_order(live.chain(backlog).chain(apart));
        due.dedup();
        due
    }

    /// Returns the calls to finish by our own clock if the stream's last message arrived at
    /// `arrived`, ordered by number.
    pub(super) fn due_by_clock(&self, now: EventTime, arrived: Option<EventTime>) -> Vec<u64> {
        let orders = self
            .by_clock
            .iter()
            .filter(|(wait, _)| now >= quiet_from(arrived, **wait));
        in_order(orders.flat_map(|(_, order)| order.due_at(now)))
    }

    /// Returns when the next call is due by our own clock.
    pub(super) fn next(&self, arrived: Option<EventTime>) -> Option<EventTime> {
        let moments = self.by_clock.iter().filter_map(|(wait, order)| {
            let (at, _) = order.first()?;
            Some(at.max(quiet_from(arrived, *wait)))
        });
        moments.min()
    }
}

/// Returns when the stream will have been quiet for `wait`.
fn quiet_from(arrived: Option<EventTime>, wait: Option<Duration>) -> EventTime {
    let from = arrived.zip(wait).map(|(arrived, wait)| arrived.plus(wait));
    from.unwrap_or(EventTime::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn time_at(seconds: i64) -> EventTime {
        EventTime::from_seconds(seconds)
    }

    fn times() -> impl Strategy<Value = EventTime> {
        (0..20_i64).prop_map(time_at)
    }

    fn deadlines() -> impl Strategy<Value = Deadline> {
        let quiet = (0..3_u64).prop_map(Duration::from_secs);
        let backlog = (times(), times(), quiet, option::of(times()));
        prop_oneof![
            (times(), option::of(times())).prop_map(|(at, stream)| Deadline {
                clock: Some((at, None)),
                stream,
                ..Deadline::default()
            }),
            backlog.prop_map(|(stream, at, quiet, arrived)| Deadline {
                clock: Some((at, Some(quiet))),
                stream: Some(stream),
                arrived,
                ..Deadline::default()
            }),
            times().prop_map(|stream| Deadline {
                stream: Some(stream),
                ..Deadline::default()
            }),
        ]
    }

    /// Returns `true` if a call with this deadline is due, as a simple reference implementation.
    fn is_due(deadline: Deadline, now: EventTime, stream: Option<EventTime>) -> bool {
        let stream_passed = deadline
            .stream
            .is_some_and(|due| stream.is_some_and(|stream| stream >= due));
        match (deadline.stream, deadline.clock) {
            (_, Some((at, None))) => now >= at || stream_passed,
            (Some(_), _) => stream_passed && deadline.arrived.is_none_or(|at| now >= at),
            (None, Some((at, Some(_)))) => now >= at,
            (None, None) => false,
        }
    }

    fn keys_where(
        deadlines: &BTreeMap<u64, Deadline>,
        is_wanted: impl Fn(Deadline) -> bool,
    ) -> Vec<u64> {
        let keys = deadlines
            .iter()
            .filter(|(_, deadline)| is_wanted(**deadline));
        keys.map(|(&key, _)| key).collect()
    }

    /// Returns when the deadline passes by our clock, as a simple reference implementation.
    fn clock_deadline(deadline: Deadline, last: Option<EventTime>) -> Option<EventTime> {
        let (at, quiet) = deadline.clock?;
        let quiet_at = last.zip(quiet).map(|(last, quiet)| last.plus(quiet));
        Some(quiet_at.map_or(at, |quiet_at| at.max(quiet_at)))
    }

    proptest! {
        #[test]
        fn settling_orders_match_a_scan_of_every_call(
            steps in vec((0..12_u64, option::of(deadlines())), 1..60),
            now in 0..25_i64,
            stream in option::of(0..25_i64),
        ) {
            let (now, stream) = (time_at(now), stream.map(time_at));
            let mut settling = Settling::default();
            let mut plain: BTreeMap<u64, Deadline> = BTreeMap::new();
            for (key, deadline) in steps {
                match deadline {
                    Some(deadline) => {
                        settling.put(key, deadline);
                        plain.insert(key, deadline);
                    }
                    None => {
                        settling.remove(key);
                        plain.remove(&key);
                    }
                }
                let by_stream = keys_where(&plain, |call| is_due(call, now, stream));
                prop_assert_eq!(settling.due_by_stream(now, stream), by_stream);
                let by_clock = keys_where(&plain, |call| {
                    clock_deadline(call, stream).is_some_and(|at| now >= at)
                });
                prop_assert_eq!(settling.due_by_clock(now, stream), by_clock);
                let next = plain.values().filter_map(|call| clock_deadline(*call, stream)).min();
                prop_assert_eq!(settling.next(stream), next);
                prop_assert_eq!(&settling.deadlines, &plain);
                let scraps = plain.values().filter(|call| call.is_scraps()).count();
                prop_assert_eq!(settling.scraps, scraps);
            }
        }
    }
}
