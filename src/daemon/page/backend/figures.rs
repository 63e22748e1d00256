//! The outcomes of a day's and a week's calls.

use super::DaemonBackend;
use callbridge_admin::Refusal;
use callbridge_call::EventTime;
use callbridge_model::clock;
use callbridge_page::backend::{Bar, Figures, Outcomes};
use callbridge_spool::{State, tables};
use jiff::{RoundMode, ToSpan as _, Unit, Zoned, ZonedRound};
use std::{collections::BTreeMap, sync::PoisonError, time::Duration};

/// Number of hours in the first chart.
const HOURS: usize = 24;
/// Number of days in the second chart, including today.
const DAYS: usize = 7;
/// How often past days are counted again, because their dead letters may have been resolved.
const DAYS_EVERY: Duration = Duration::from_secs(300);

/// The bars for the days before today, and when they were counted, in time since boot.
pub(in crate::daemon) type Week = Option<(Duration, Vec<Bar>)>;

fn outcomes(counted: &BTreeMap<State, u64>) -> Outcomes {
    let mut all = Outcomes::default();
    for (state, count) in counted {
        match state {
            State::Journaled => all.journaled += count,
            State::Ready | State::Sending | State::Submitted => all.queued += count,
            State::Waiting => all.waiting += count,
            State::Dead => all.letters += count,
            State::Discarded => all.discarded += count,
            State::Forwarded => all.forwarded += count,
        }
    }
    all
}

/// Returns the smallest of the sorted `delays`, in seconds, that the fraction `part` (0 to 1) of
/// them doesn't exceed.
fn quantile(delays: &[Duration], part: f64) -> Option<f64> {
    let last = delays.len().checked_sub(1)?;
    let place = (last as f64 * part).ceil() as usize;
    delays.get(place).map(Duration::as_secs_f64)
}

/// The start of each bar, and the end of the last one, in epoch seconds.
struct Bounds {
    hours: Vec<i64>,
    days: Vec<i64>,
    end: i64,
}

impl Bounds {
    /// Returns the bounds of the charts at the time `now`, in its own time zone, or `None` if a
    /// time is out of range.
    fn for_time(now: &Zoned) -> Option<Self> {
        let to_hour = ZonedRound::new()
            .smallest(Unit::Hour)
            .mode(RoundMode::Floor);
        let hour = now.round(to_hour).ok()?;
        let today = now.start_of_day().ok()?;
        let mut hours = Vec::new();
        for before in (0..HOURS).rev() {
            let span = i64::try_from(before).ok()?.hours();
            let at = hour.checked_sub(span).ok()?;
            hours.push(at.timestamp().as_second());
        }
        let mut days = Vec::new();
        for before in (0..DAYS).rev() {
            let span = i64::try_from(before).ok()?.days();
            let at = today.checked_sub(span).ok()?;
            days.push(at.start_of_day().ok()?.timestamp().as_second());
        }
        Some(Self {
            hours,
            days,
            // If the clock was set back, calls may start after `now`.
            end: now.timestamp().as_second() + 3600,
        })
    }
}

impl DaemonBackend {
    pub(super) async fn figures(&self) -> Result<Figures, Refusal> {
        let clock::Now { wall, boot } = clock::now();
        let zoned = self.zoned(wall);
        let Some(bounds) = zoned.as_ref().and_then(Bounds::for_time) else {
            return Ok(Figures::default());
        };
        let hours = self.bars(&bounds.hours, bounds.end).await?;
        let (past, today) = bounds.days.split_at(DAYS - 1);
        let mut days = self.past_days(past, today[0], boot).await?;
        days.extend(self.bars(today, bounds.end).await?);
        let begun = today[0];
        let end = bounds.end;
        let read = self.read(move |db| tables::figures::confirmation_delays(db, begun, end));
        let mut delays = read.await?;
        delays.sort_unstable();
        Ok(Figures {
            today: days.last().map(|bar| bar.outcomes).unwrap_or_default(),
            hours,
            days,
            confirmed_median_sec: quantile(&delays, 0.5),
            confirmed_p95_sec: quantile(&delays, 0.95),
        })
    }

    fn zoned(&self, at: EventTime) -> Option<Zoned> {
        let at = jiff::Timestamp::from_microsecond(at.micros()).ok()?;
        Some(at.to_zoned(self.zone.as_time_zone().clone()))
    }

    /// Returns the epoch second at which the day that was `before` days ago started in the PBX's
    /// time zone.
    pub(super) fn day_begun(&self, now: EventTime, before: i64) -> i64 {
        let zoned = self.zoned(now);
        let day = zoned.and_then(|at| at.checked_sub(before.days()).ok()?.start_of_day().ok());
        day.map_or(0, |day| day.timestamp().as_second())
    }

    /// Returns a bar for each start in `from`. A bar ends where the next one starts, and the last
    /// one ends at `end`. All times are in epoch seconds.
    async fn bars(&self, from: &[i64], end: i64) -> Result<Vec<Bar>, Refusal> {
        let ends = from.iter().skip(1).copied().chain([end]);
        let spans: Vec<(i64, i64)> = from.iter().copied().zip(ends).collect();
        let read = self.handler.spool.read(move |store| {
            let mut bars = Vec::new();
            for (from, until) in spans {
                let counted = tables::figures::outcomes(store, from, until)?;
                let outcomes = outcomes(&counted);
                bars.push(Bar { from, outcomes });
            }
            Ok(bars)
        });
        Ok(read.await?)
    }

    /// Returns the bars for the days before today, which are cached, because counting them requires
    /// reading many rows.
    async fn past_days(&self, from: &[i64], end: i64, now: Duration) -> Result<Vec<Bar>, Refusal> {
        {
            let week = self.week.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, bars)) = &*week
                && bars.iter().map(|bar| &bar.from).eq(from)
                && now.saturating_sub(*at) < DAYS_EVERY
            {
                return Ok(bars.clone());
            }
        }
        let bars = self.bars(from, end).await?;
        let mut week = self.week.lock().unwrap_or_else(PoisonError::into_inner);
        *week = Some((now, bars.clone()));
        Ok(bars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_days_begin_in_the_time_zone_of_the_pbx() {
        let zone = jiff::tz::TimeZone::get("Europe/Berlin").expect("a zone");
        // In Berlin, the clocks went back two days earlier, so one of the seven days has 25 hours.
        let now: jiff::Timestamp = "2026-10-27T14:33:20Z".parse().expect("a time");
        let bounds = Bounds::for_time(&now.to_zoned(zone)).expect("bounds");
        assert_eq!((bounds.hours.len(), bounds.days.len()), (HOURS, DAYS));
        assert_eq!(bounds.hours[HOURS - 1], now.as_second() - 33 * 60 - 20);
        let long = bounds.days.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(long.eq([24, 24, 24, 24, 25, 24].map(|hours| hours * 3600)));
        assert!(
            bounds
                .hours
                .windows(2)
                .all(|pair| pair[1] - pair[0] == 3600)
        );
    }
}
