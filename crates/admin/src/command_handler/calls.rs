//! Answers requests about calls: the calls of a time range or a number, new calls, and one call by
//! its id.

use super::{Answered, CommandHandler, ReplySender, Stop};
use crate::explain::shape::{Other, Shape};
use crate::kept_call::{KeptCall, judged_as_kept};
use crate::protocol::{CallsQuery, ControlReply};
use crate::refusal::Refusal;
use callbridge_call::EventTime;
use callbridge_model::{Country, TypedNumber, Zone, clock, dates};
use callbridge_spool::{
    CallFilter, Error, Handle, Listed, Place, RowId, Search, State, Store, tables,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of state changes of calls in one read.
const MOVES_PAGE: usize = 200;
/// Minimum time between two updates to a follower.
const UPDATE_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of unfinished calls that are remembered as sent to a follower. When it is
/// reached, all of them are forgotten, so they can be sent again.
const UNDER_WAY_MAX: usize = 10_000;
/// Maximum number of other calls that are listed with the newest call of a number.
const OTHERS_MAX: usize = 20;
type ReadDate = fn(&str, &jiff::tz::TimeZone) -> Result<EventTime, String>;
/// The error of `calls --follow` if calls moved faster than they were read.
const TOO_MANY: &str =
    "too many changes to list: see `callbridge calls --today`, then follow again";

impl CommandHandler {
    /// Sends stored calls if `past` is set, then new calls if `follow` is set.
    pub(super) async fn calls(
        &self,
        which: &CallsQuery,
        past: bool,
        follow: bool,
        line: &mut ReplySender,
    ) -> Answered {
        let filter = self.filter(which)?;
        // The number of state changes is read before the list, so later changes are sent after it.
        let read = self.spool.read(move |store| {
            // Without `past`, calls that changed since the daemon's start are sent. Internal calls
            // do not change, so only new internal calls are sent.
            let moves = if past { store.moves_so_far() } else { 0 };
            Ok((moves, tables::listed::newest_internal(store)?))
        });
        let (moves, internal) = read.await?;
        if past {
            self.kept_calls(&filter, which.internal, line).await?;
        }
        if !follow {
            return Ok(());
        }
        line.reply(ControlReply::Ready).await?;
        if which.internal {
            return self::follow(
                &self.spool,
                internal,
                |store, seen| tables::listed::internal_since(store, seen).map(Some),
                |call| filter.matches(&call).then(|| item(call)),
                TOO_MANY,
                line,
            )
            .await;
        }
        // Each call is sent when it is new and when it ends, but not in between.
        let mut under_way = BTreeSet::new();
        self::follow(
            &self.spool,
            moves,
            |store, seen| tables::listed::moved_since(store, seen, MOVES_PAGE),
            |call| {
                let is_sent = is_news(&call, &mut under_way) && filter.matches(&call);
                is_sent.then(|| item(call))
            },
            TOO_MANY,
            line,
        )
        .await
    }

    fn zone(&self, wanted: Option<&str>) -> Zone {
        let named = wanted.or(self.zone.as_deref()).and_then(Zone::from_name);
        named.unwrap_or_else(|| Zone::from_pbx(None))
    }

    /// Returns the countries whose numbers can be typed without their code.
    pub fn countries(&self) -> impl Iterator<Item = Country> {
        let of_trunks = self.rules.trunks.iter().filter_map(|trunk| trunk.country);
        of_trunks.chain(self.rules.country)
    }

    fn filter(&self, which: &CallsQuery) -> Result<CallFilter, Refusal> {
        let zone = self.zone(which.zone.as_deref());
        let mut from = read_date("--from", which.from.as_deref(), &zone, dates::date)?;
        let to = read_date("--to", which.to.as_deref(), &zone, dates::date_end)?;
        if which.today {
            from = day_of(clock::now().wall, &zone).or(from);
        }
        let mut phone = None;
        if let Some(text) = &which.phone {
            phone = TypedNumber::read(text, self.countries());
            if phone.is_none() {
                let message = format!("--phone: `{text}` is not a telephone number: {NUMBER}");
                return Err(Refusal::usage(message));
            }
        }
        Ok(CallFilter {
            from: from.map(|at| at.floor_seconds().get()),
            until: to.map(|at| at.floor_seconds().get()),
            phone,
            trunk: which.trunk.clone(),
            state: which.state,
            extension: None,
        })
    }

    async fn kept_calls(
        &self,
        filter: &CallFilter,
        internal: bool,
        line: &mut ReplySender,
    ) -> Answered {
        let mut next = Some(filter.beginning());
        while let Some(after) = next {
            let filter = filter.clone();
            let page = self.spool.read(move |store| {
                if internal {
                    tables::listed::list_internal(store, &filter, after)
                } else {
                    tables::listed::list_calls(store, &filter, after)
                }
            });
            let (calls, then) = page.await?;
            line.items(calls.into_iter().map(item)).await?;
            next = then;
        }
        Ok(())
    }

    /// Sends the call with this id. If `id` is a phone number, sends the newest call of the number
    /// with the ids of its other calls.
    pub(super) async fn call(&self, id: &str, line: &mut ReplySender) -> Answered {
        let typed = TypedNumber::read(id, self.countries());
        // A few digits can also be the beginning of a uuid.
        if let Some(typed) = typed.as_ref().filter(|typed| typed.is_plain())
            && self.call_of_number(typed, line).await?
        {
            return Ok(());
        }
        let asked = id.to_owned();
        let search = self
            .spool
            .read(move |store| tables::calls::search_call(store, &asked));
        match search.await? {
            Search::One(row) => {
                let id = row.id;
                let read = self
                    .spool
                    .read(move |store| tables::letters::actions(store, id));
                let actions = read.await?;
                line.item(KeptCall::from_row(*row, None, Some(actions)))
                    .await
            }
            Search::None => {
                if let Some(typed) = typed.filter(|typed| !typed.is_plain())
                    && self.call_of_number(&typed, line).await?
                {
                    return Ok(());
                }
                let message = format!(
                    "no stored call has the id {id}: give its linkedid, its uuid, or the number \
                     of its customer"
                );
                Err(Refusal::new(65, message).into())
            }
            Search::Several(uuids) => {
                let lines: Vec<String> = uuids.iter().map(|uuid| format!("\n  {uuid}")).collect();
                let message = format!("several uuids begin with {id}:{}", lines.concat());
                Err(Refusal::new(65, message).into())
            }
        }
    }

    /// Sends the newest call of a number. Returns `false` if no stored call has the number.
    async fn call_of_number(
        &self,
        typed: &TypedNumber,
        line: &mut ReplySender,
    ) -> Result<bool, Stop> {
        let mut found: Vec<Listed> = Vec::new();
        let mut next = Some(Place::END);
        while let Some(before) = next
            && found.len() <= OTHERS_MAX
        {
            let filter = CallFilter {
                phone: Some(typed.clone()),
                ..CallFilter::default()
            };
            let page = self.spool.read(move |store| {
                tables::listed::list_calls_back(store, &filter, before, OTHERS_MAX + 1)
            });
            let (calls, then) = page.await?;
            found.extend(calls);
            next = then;
        }
        let mut found = found.into_iter();
        let Some(id) = found.next().map(|newest| newest.id) else {
            return Ok(false);
        };
        let row = self.spool.read(move |store| tables::calls::row(store, id));
        let Some(row) = row.await? else {
            return Ok(false); // purged meanwhile
        };
        let others = found
            .take(OTHERS_MAX)
            .map(|other| Other::from_record(&other.record));
        line.item(KeptCall::from_row(row, Some(others.collect()), None))
            .await?;
        Ok(true)
    }
}

/// Sends each entry that the spool added after `seen`, then each new entry, until the daemon ends
/// or the client disconnects.
///
/// `page` reads the next entries after a position, and returns the position after them. That is the
/// given position if there are no more entries. `page` returns `None` if the spool no longer
/// remembers the entries. `item` converts an entry to an item, or returns `None` to skip it.
///
/// # Errors
/// [`Stop::Gone`] if the client disconnected, the errors of the spool, and the message `too_many`
/// with exit code 69 if entries were forgotten before they were sent.
pub(super) async fn follow<P, T>(
    spool: &Handle,
    mut seen: P,
    page: impl Fn(&Store, P) -> Result<Option<(Vec<T>, P)>, Error> + Copy + Send + 'static,
    mut item: impl FnMut(T) -> Option<Value>,
    too_many: &str,
    line: &mut ReplySender,
) -> Answered
where
    P: Copy + PartialEq + Send + 'static,
    T: Send + 'static,
{
    let mut changed = spool.changed();
    loop {
        changed.mark_unchanged();
        loop {
            let before = seen;
            let Some((things, after)) = spool.read(move |store| page(store, before)).await? else {
                return Err(Refusal::new(69, too_many).into());
            };
            for item in things.into_iter().filter_map(&mut item) {
                line.item(item).await?;
            }
            if after == seen {
                break;
            }
            seen = after;
        }
        tokio::time::sleep(UPDATE_EVERY).await;
        if changed.changed().await.is_err() {
            return Ok(()); // the daemon ends
        }
    }
}

/// The forms in which a number can be typed, for errors of `--phone`.
const NUMBER: &str = "give the whole number, or at least its last four digits";

/// Reads the date of a flag. `None` if the flag was not given.
fn read_date(
    flag: &str,
    text: Option<&str>,
    zone: &Zone,
    read: ReadDate,
) -> Result<Option<EventTime>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match read(text, zone.as_time_zone()) {
        Ok(at) => Ok(Some(at)),
        Err(why) => Err(Refusal::usage(format!("{flag}: {why}"))),
    }
}

/// Returns the time at which the day of `now` begins in this zone.
fn day_of(now: EventTime, zone: &Zone) -> Option<EventTime> {
    let instant = jiff::Timestamp::from_microsecond(now.micros()).ok()?;
    let local = instant.to_zoned(zone.as_time_zone().clone());
    let begins = local.start_of_day().ok()?.timestamp();
    Some(EventTime::from_micros(begins.as_microsecond()))
}

/// Returns `true` if a changed call must be sent, because it is new or has ended. `under_way` has
/// the ids of unfinished calls that were already sent.
fn is_news(call: &Listed, under_way: &mut BTreeSet<RowId>) -> bool {
    match call.state {
        Some(State::Journaled | State::Forwarded | State::Dead | State::Waiting)
        | Some(State::Discarded)
        | None => {
            under_way.remove(&call.id);
            true
        }
        Some(State::Ready | State::Sending | State::Submitted) => {
            if under_way.len() >= UNDER_WAY_MAX {
                under_way.clear();
            }
            under_way.insert(call.id)
        }
    }
}

/// Returns the call as in `explain --json`, with its state.
fn item(call: Listed) -> Value {
    let state = call.state_word();
    let judged = judged_as_kept(call.record, call.state, call.reason);
    let mut item = json!(Shape::from_judged(&judged));
    item["state"] = json!(state);
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_spool::RowId;

    #[test]
    fn day_begins_at_midnight_in_the_zone_of_the_pbx() {
        let now = EventTime::from_seconds(1_795_151_317); // 05:08:37 UTC
        for (name, begin) in [
            ("UTC", 1_795_132_800),
            ("Asia/Tashkent", 1_795_132_800 - 5 * 3600),
            ("America/New_York", 1_795_132_800 + 5 * 3600),
        ] {
            let zone = Zone::from_name(name).expect("a zone");
            let day = day_of(now, &zone).map(|at| at.floor_seconds().get());
            assert_eq!(day, Some(begin), "{name}");
        }
    }

    /// Returns the same call each time, with this state.
    fn listed_call(state: State) -> Listed {
        let call = callbridge_testkit::sample::call();
        let rules = callbridge_mapping::Rules::default();
        let people = callbridge_mapping::People::default();
        let judged = callbridge_mapping::judge(&call, "pbx1", &rules, &people, call.ended);
        Listed {
            id: RowId(7),
            state: Some(state),
            reason: None,
            record: judged.record,
        }
    }

    #[test]
    fn followed_call_is_reported_when_new_and_when_finished() {
        let mut under_way = BTreeSet::new();
        assert!(is_news(&listed_call(State::Ready), &mut under_way));
        assert!(!is_news(&listed_call(State::Sending), &mut under_way));
        assert!(
            !is_news(&listed_call(State::Ready), &mut under_way),
            "a request that failed is no news"
        );
        assert!(!is_news(&listed_call(State::Submitted), &mut under_way));
        assert!(is_news(&listed_call(State::Journaled), &mut under_way));
        assert!(is_news(&listed_call(State::Dead), &mut under_way));
        assert!(
            is_news(&listed_call(State::Ready), &mut under_way),
            "a letter that is sent again is"
        );
    }
}
