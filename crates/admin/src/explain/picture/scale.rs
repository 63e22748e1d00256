//! Converts times to x positions on the axis.
//!
//! The axis is linear if that shows everything. In a long call, the important events are in a few
//! seconds at its ends. The long stretches without events are then shortened and marked.

use callbridge_call::EventTime;
use std::time::Duration;

/// Length in seconds below which a call is not shortened.
const SHORT_CALL: f64 = 90.0;
/// Minimum part of the call's length that a stretch without events must have to be shortened.
const LONG_PART: f64 = 1.0 / 20.0;
/// Seconds at both ends of a long stretch that are not shortened.
const AROUND: f64 = 2.0;
/// Long stretches are shortened if everything else would get less than this part of the axis.
const CROWDED: f64 = 0.05;
/// The part of the axis that everything else gets if long stretches are shortened.
const CLEARED: f64 = 0.4;
/// Minimum pixels between two labels of the axis.
const LABEL_GAP: f64 = 86.0;
/// Possible steps between two labels, in seconds.
const STEPS: [f64; 20] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
    3600.0, 7200.0, 14400.0, 21600.0, 43200.0,
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    from: EventTime,
    to: EventTime,
    left: f64,
    right: f64,
    cut: bool,
}

impl Stretch {
    fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Scale {
    stretches: Vec<Stretch>,
}

impl Scale {
    /// Makes an axis from `left` to `right` for these times, in any order.
    pub(super) fn new(mut moments: Vec<EventTime>, left: f64, right: f64) -> Self {
        moments.sort_unstable();
        moments.dedup();
        let begins = moments.first().copied();
        let first = begins.unwrap_or(EventTime::from_seconds(0));
        let ends = moments.last().copied().unwrap_or(first);
        // Even a call without length needs a place.
        let last = ends.max(first.plus(Duration::from_millis(100)));
        let total = last.since(first).as_secs_f64();
        let around = Duration::from_secs_f64(AROUND);
        let mut long = Vec::new();
        for pair in moments.windows(2) {
            if let [from, to] = *pair
                && to.since(from).as_secs_f64() > total * LONG_PART
            {
                long.push((from.plus(around), to.minus(around)));
            }
        }
        let spent: f64 = long.iter().map(|(a, b)| b.since(*a).as_secs_f64()).sum();
        let rest = total - spent;
        let crowded = total > SHORT_CALL && !long.is_empty() && rest < total * CROWDED;
        let mut axis = Self::default();
        if !crowded {
            axis.push(first, last, left, right, false);
            return axis;
        }
        let width = right - left;
        let weights: f64 = long.iter().map(|&(a, b)| weight(a, b)).sum();
        let mut x = left;
        let mut from = first;
        for (begins, ends) in long.into_iter().chain([(last, last)]) {
            let clear = begins.since(from).as_secs_f64() / rest.max(0.001) * width * CLEARED;
            axis.push(from, begins, x, x + clear, false);
            let cut = weight(begins, ends) / weights * width * (1.0 - CLEARED);
            axis.push(begins, ends, x + clear, x + clear + cut, true);
            x += clear + cut;
            from = ends;
        }
        axis
    }

    fn push(&mut self, from: EventTime, to: EventTime, left: f64, right: f64, cut: bool) {
        if to > from {
            self.stretches.push(Stretch {
                from,
                to,
                left,
                right,
                cut,
            });
        }
    }

    /// Returns the x position of a time. A time outside the axis gets the nearer end of the axis.
    pub(super) fn x(&self, at: EventTime) -> f64 {
        let found = self.stretches.iter().find(|stretch| at <= stretch.to);
        let Some(stretch) = found.or(self.stretches.last()) else {
            return 0.0;
        };
        let part = at.since(stretch.from).as_secs_f64() / stretch.seconds();
        stretch.left + part.clamp(0.0, 1.0) * (stretch.right - stretch.left)
    }

    /// Returns round times, counted from `origin`, with their x positions. Two times are far enough
    /// apart for their labels.
    pub(super) fn ticks(&self, origin: EventTime) -> Vec<(f64, EventTime)> {
        let mut ticks: Vec<(f64, EventTime)> = Vec::new();
        for stretch in &self.stretches {
            let room = (stretch.right - stretch.left) / LABEL_GAP;
            let least = stretch.seconds() / room.max(0.1);
            let Some(&step) = STEPS.iter().find(|&&step| step >= least) else {
                continue;
            };
            let before = origin.micros().saturating_sub(stretch.from.micros()) as f64 / 1e6;
            let mut n = (-before / step).ceil();
            loop {
                let late = (n * step * 1e6).round() as i64;
                let at = EventTime::from_micros(origin.micros().saturating_add(late));
                if at > stretch.to || late == i64::MAX {
                    break;
                }
                let x = self.x(at);
                if ticks
                    .last()
                    .is_none_or(|(last, _)| x - last >= LABEL_GAP * 0.9)
                {
                    ticks.push((x, at));
                }
                n += 1.0;
            }
        }
        ticks
    }

    /// Returns the middles of the shortened stretches, each with its real length.
    pub(super) fn shortened_stretches(&self) -> impl Iterator<Item = (f64, Duration)> {
        let cut = self.stretches.iter().filter(|stretch| stretch.cut);
        cut.map(|stretch| {
            let middle = f64::midpoint(stretch.left, stretch.right);
            (middle, stretch.to.since(stretch.from))
        })
    }
}

/// Returns the weight of a shortened stretch when the axis is shared. Longer stretches are wider,
/// but not in proportion.
fn weight(from: EventTime, to: EventTime) -> f64 {
    to.since(from).as_secs_f64().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: f64) -> EventTime {
        EventTime::from_micros((1_795_000_000.0 * 1e6 + seconds * 1e6) as i64)
    }

    fn scale(moments: &[f64]) -> Scale {
        Scale::new(moments.iter().map(|&s| time_at(s)).collect(), 100.0, 1100.0)
    }

    #[test]
    fn short_call_has_a_linear_axis() {
        let scale = scale(&[0.0, 0.1, 1.0, 2.0]);
        assert!((scale.x(time_at(1.0)) - 600.0).abs() < 0.01);
        assert_eq!(scale.shortened_stretches().count(), 0);
        let ticks = scale.ticks(time_at(0.0));
        assert!((5..=12).contains(&ticks.len()), "{ticks:?}");
        assert!(ticks.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 70.0));
    }

    #[test]
    fn twelve_hour_gap_is_shortened_so_both_ends_are_readable() {
        let scale = scale(&[0.0, 2.0, 5.0, 43_190.0, 43_195.0, 43_200.0]);
        let widths = [(0.0, 5.0), (43_190.0, 43_200.0)]
            .map(|(a, b)| scale.x(time_at(b)) - scale.x(time_at(a)));
        assert!(widths.iter().all(|width| *width > 100.0), "{widths:?}");
        let cuts: Vec<(f64, Duration)> = scale.shortened_stretches().collect();
        assert_eq!(cuts.len(), 1);
        assert_eq!(
            cuts[0].1.as_secs(),
            43_181,
            "but for two seconds at each end"
        );
        assert!((scale.x(time_at(43_200.0)) - 1100.0).abs() < 0.01);
        assert!(scale.ticks(time_at(0.0)).len() >= 6);
    }

    #[test]
    fn scale_places_single_moment_and_never_decreases() {
        let one = scale(&[0.0]);
        assert!((one.x(time_at(0.0)) - 100.0).abs() < 0.01 && !one.ticks(time_at(0.0)).is_empty());
        let scale = scale(&[0.0, 1.0, 700.0, 701.0, 5_000.0]);
        let xs: Vec<f64> = (0..=5_000)
            .map(|s| scale.x(time_at(f64::from(s))))
            .collect();
        assert!(xs.windows(2).all(|pair| pair[1] >= pair[0]));
    }
}
