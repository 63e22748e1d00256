//! Calls that are published once more: a stream confirms what most of its nodes hold, and none of
//! them need have it on its disk. Whoever loses a broker publishes again what was confirmed shortly
//! before, once for each outage; a person may do so from any moment (`state forward-again`). A call
//! that the stream has kept is the same call by its uuid.

use callbridge_call::EventTime;
use callbridge_spool::{Error, Handle, Op, Row, RowId, tables};
use std::time::Duration;

/// Age up to which confirmed calls may not be on a lost broker's disk (300 s), and the time in
/// which a lost line is noticed (30 s).
pub const BEFORE_LOSS: Duration = Duration::from_secs(300 + 30);
/// The setting that keeps [`ForwardAgain`], until all of it is published.
const KEY: &str = "forward.again";

/// A span of which what was forwarded is published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardAgain {
    /// The last of it that was published.
    after: (EventTime, RowId),
    until: EventTime,
}

impl ForwardAgain {
    /// Covers all calls forwarded between two moments.
    pub const fn between(since: EventTime, until: EventTime) -> Self {
        Self {
            after: (since, RowId(0)),
            until,
        }
    }

    /// Covers the calls that may be lost with a broker whose loss is noticed `now`: the last 330 s.
    pub fn lost(now: EventTime) -> Self {
        Self::between(now.minus(BEFORE_LOSS), now)
    }

    /// Behind these calls, which were published.
    pub(crate) fn behind(self, calls: &[Row]) -> Self {
        let last = calls.last().map(|row| (row.since, row.id));
        Self {
            after: last.unwrap_or(self.after),
            until: self.until,
        }
    }

    /// Both: what was published again before another outage may be lost, too.
    fn and(self, more: Self) -> Self {
        Self {
            after: self.after.min(more.after),
            until: self.until.max(more.until),
        }
    }

    pub(crate) fn op(self) -> Op {
        let ((since, row), until) = (self.after, self.until);
        let until = until.micros();
        Op::meta(KEY, format!("{} {} {until}", since.micros(), row.0))
    }

    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|it| it.parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let (since, row, until) = (next()?, next()?, next()?);
        Some(Self {
            after: (EventTime::from_micros(since), RowId(row)),
            until: EventTime::from_micros(until),
        })
    }
}

/// Reads the span that is to be published again; `None` when none is left.
pub(crate) async fn due(spool: &Handle) -> Result<Option<ForwardAgain>, Error> {
    let text = spool.meta(KEY).await?;
    Ok(text.as_deref().and_then(ForwardAgain::read))
}

/// The next calls of it.
pub(crate) async fn calls(
    spool: &Handle,
    due: ForwardAgain,
    limit: usize,
) -> Result<Vec<Row>, Error> {
    let calls =
        spool.read(move |store| tables::calls::forwarded(store, due.after, due.until, limit));
    Ok(calls.await?.into_iter().map(|(_, row)| row).collect())
}

/// More is to be published again.
///
/// # Errors
/// When the spool cannot be read or written.
pub async fn add(spool: &Handle, more: ForwardAgain) -> Result<(), Error> {
    let before = due(spool).await?;
    let all = before.map_or(more, |before| before.and(more));
    spool.write(vec![all.op()]).await.map(drop)
}

/// All of it is published.
pub(crate) async fn over(spool: &Handle) -> Result<(), Error> {
    let key = KEY.to_owned();
    spool.write(vec![Op::MetaGone { key }]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_outages_are_one_span_from_the_first_and_what_is_stored_reads_back() {
        let at = EventTime::from_seconds;
        let first = ForwardAgain::lost(at(10_000));
        assert_eq!(first, ForwardAgain::between(at(9_670), at(10_000)));
        let second = ForwardAgain::lost(at(10_060));
        let both = first.and(second);
        assert_eq!(both, ForwardAgain::between(at(9_670), at(10_060)));
        let Op::Meta { key, value } = both.op() else {
            panic!("a setting");
        };
        assert_eq!(
            (key.as_str(), ForwardAgain::read(&value)),
            (KEY, Some(both))
        );
        assert_eq!(ForwardAgain::read("7 8"), None);
    }
}
