//! Calls that another sender may have settled, and the outcomes that the stream is to be told.
//!
//! A possibly sent call is ready and held back: its `not_before` is `HELD`, which no index of calls
//! to be sent knows, and its row stands in the table `remade` until it is ready no more. It is of a
//! round of looking, the next one where a round is under way. Of the rounds before, and of the one
//! under way those that began at `SearchProgress::since` or later, all have been looked for, and go
//! out newest first.
//!
//! Letters and parked calls of such a stream may have been sent as well, with what a person or the
//! directory knew then. They are looked for with the others, and leave `remade` when they
//! were, or as soon as they are no letter any more.

use super::{deliveries, meta, step};
use crate::{
    Db, Due, Error, IfAbsent, OutcomeSource, PeerOutcome, PossiblySentCalls, RowId, Segment,
    Settlement, State, Step, Store,
};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::CallUuid;
use uuid::Uuid;

/// The setting that keeps [`SearchProgress`]: two numbers.
const SEARCH_PROGRESS: &str = "remade.looked";
/// The `not_before` of a possibly sent call.
const HELD: i64 = -1;

/// The attempt of a call that another machine has taken in again.
const TAKEN_IN_AGAIN: &str = "taken in again at another sender: the CRM's journal had lost it";

/// Counters: possibly sent calls, those that pages showed, and calls that the stream settled.
const TAKEN: &str = "remade_calls";
const FOUND: &str = "remade_found";
const SETTLED: &str = "outcomes_read";

pub(crate) fn apply(store: &mut Store, outcome: &PeerOutcome) -> Result<(), Error> {
    match outcome {
        PeerOutcome::PossiblySent(uuid) => possibly_sent(store, *uuid),
        PeerOutcome::AllPossiblySent => all_possibly_sent(store),
        PeerOutcome::SearchedFor(since) => searched_for(store, *since),
        PeerOutcome::Settled(settlement) => settle(store, settlement),
        PeerOutcome::Shown { calls, at } => deliveries::shown(store, calls, *at),
        PeerOutcome::Published(through) => {
            store.run("DELETE FROM outcomes WHERE id <= ?1", [through])
        }
    }
}

/// Progress of the search for possibly sent calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SearchProgress {
    round: i64,
    /// Seconds: of this round those that began then or later have been looked for.
    since: i64,
}

impl SearchProgress {
    const NOTHING: i64 = i64::MAX;

    /// Reads the progress. A text that cannot be read is taken for none: all calls are searched
    /// for, perhaps once more.
    fn read(db: &Db) -> Result<Self, Error> {
        let text = meta::meta(db, SEARCH_PROGRESS)?.unwrap_or_default();
        let mut numbers = text.split(' ').map(|it| it.parse().ok());
        let (round, since) = (numbers.next().flatten(), numbers.next().flatten());
        Ok(Self {
            round: round.unwrap_or(0),
            since: since.unwrap_or(Self::NOTHING),
        })
    }

    /// Returns the round of what comes now.
    fn coming(self) -> i64 {
        self.round + i64::from(self.since != Self::NOTHING)
    }
}

fn possibly_sent(store: &mut Store, uuid: CallUuid) -> Result<(), Error> {
    let uuid = uuid.0.into_bytes();
    let text = "UPDATE calls SET not_before = ?2, live = 0
         WHERE uuid = ?1 AND state = 'ready' AND not_before = 0 AND first_sent IS NULL
             AND attempts = '[]'";
    let held = store.execute(text, (uuid, HELD))?;
    let kept = "SELECT id FROM calls WHERE uuid = ?1 AND state IN ('dead', 'parked')
                 AND first_sent IS NULL AND attempts = '[]'";
    if held > 0 || store.exists(kept, [uuid])? {
        hold_for_search(store, uuid)?;
    }
    Ok(())
}

/// Holds back all calls that are ready: another sender ends, which is rare, and its outcomes stood
/// in the stream.
fn all_possibly_sent(store: &mut Store) -> Result<(), Error> {
    let round = SearchProgress::read(store)?.coming();
    store.execute("UPDATE remade SET round = ?1", [round])?;
    let mut held = 0;
    for live in [true, false] {
        let text = "INSERT OR IGNORE INTO remade SELECT id, ?2, started FROM calls
             WHERE state = 'ready' AND not_before = 0 AND live = ?1 AND first_sent IS NULL";
        held += store.execute(text, (live, round))?;
    }
    let text = "UPDATE calls SET not_before = ?1, live = 0
         WHERE state = 'ready' AND id IN (SELECT row FROM remade WHERE round = ?2)";
    store.execute(text, (HELD, round))?;
    store.tally.count(TAKEN, held as u64);
    Ok(())
}

fn searched_for(store: &Store, since: Option<EpochSeconds>) -> Result<(), Error> {
    let SearchProgress { round, .. } = SearchProgress::read(store)?;
    let (round, since) = match since {
        Some(since) => (round, since.get()),
        None => (round + 1, SearchProgress::NOTHING),
    };
    // what is ready may be sent now; what waits for a person or a lead goes on waiting for that
    let text = "DELETE FROM remade WHERE (round < ?1 OR round = ?1 AND started >= ?2)
             AND (SELECT state FROM calls WHERE id = remade.row) != 'ready'";
    store.execute(text, (round, since))?;
    meta::set_meta(store, SEARCH_PROGRESS, &format!("{round} {since}"))
}

fn settle(store: &mut Store, settlement: &Settlement) -> Result<(), Error> {
    let mut settled = 0;
    let outcomes = &settlement.outcomes;
    let journaled = (&outcomes.journaled, Step::Journaled(settlement.source));
    let discarded = (&outcomes.discarded, Step::Discard { by_peer: true });
    for (uuids, step) in [journaled, discarded] {
        for uuid in uuids {
            settled += u64::from(settle_one(store, *uuid, &step, settlement)?);
        }
    }
    for (uuid, generation) in &outcomes.again {
        taken_in_again(store, *uuid, *generation, settlement.at)?;
    }
    let counter = match settlement.source {
        OutcomeSource::Stream => SETTLED,
        _ => FOUND,
    };
    store.tally.count(counter, settled);
    Ok(())
}

/// Settles one call; returns whether that was news.
fn settle_one(
    store: &mut Store,
    uuid: Uuid,
    step: &Step,
    settlement: &Settlement,
) -> Result<bool, Error> {
    let text = "SELECT id, state, first_sent IS NULL, generation, fate
         FROM calls WHERE uuid = ?1";
    let found: Option<(_, _, bool, u32, Option<IfAbsent>)> =
        store.query_first(text, [uuid.into_bytes()])?;
    let Some((row, state, unsent, here, fate)) = found else {
        return Ok(false);
    };
    let by_stream = settlement.source == OutcomeSource::Stream;
    let waits = match state {
        State::Ready | State::Dead | State::Parked => true,
        // Another machine sends now, and asks for what was sent from here. What it knows is the
        // call as it was first sent, not as a person has changed it.
        State::Submitted => by_stream && fate != Some(IfAbsent::Changed),
        State::Sending | State::Journaled | State::Discarded | State::Forwarded => false,
    };
    // A page shows what is. What the stream tells may be of the time before it was taken in again.
    let generation = settlement.outcomes.generations.get(&uuid);
    let generation = generation.copied().unwrap_or(0);
    // What was sent from here is for its own answer, unless who settled it says so.
    if by_stream && generation < here || !waits || !(unsent || by_stream) {
        return Ok(false);
    }
    if generation > here {
        set_generation(store, row, generation)?;
    }
    step::step(store, row, step, settlement.at)?;
    Ok(true)
}

/// Another has found that the journal lost a call. What waits here, or is under way, goes on: it is
/// of that time from now on.
fn taken_in_again(
    store: &mut Store,
    uuid: Uuid,
    generation: u32,
    at: EventTime,
) -> Result<(), Error> {
    let text = "SELECT id, state FROM calls WHERE uuid = ?1 AND generation < ?2";
    let found = store.query_first(text, (uuid.into_bytes(), generation))?;
    let Some((row, state)): Option<(RowId, State)> = found else {
        return Ok(());
    };
    if state != State::Journaled {
        return set_generation(store, row, generation);
    }
    let again = Step::SendAgain {
        why: TAKEN_IN_AGAIN.to_owned(),
        generation: Some(generation),
    };
    step::step(store, row, &again, at)?;
    // Whoever took it in sends it, and tells: it is looked for before it is sent from here.
    let text = "UPDATE calls SET not_before = ?2 WHERE id = ?1";
    store.execute(text, (row.0, HELD))?;
    hold_for_search(store, uuid.into_bytes())
}

fn hold_for_search(store: &mut Store, uuid: [u8; 16]) -> Result<(), Error> {
    let round = SearchProgress::read(store)?.coming();
    let text = "INSERT OR IGNORE INTO remade SELECT id, ?2, started FROM calls WHERE uuid = ?1";
    store.execute(text, (uuid, round))?;
    store.tally.count(TAKEN, 1);
    Ok(())
}

fn set_generation(db: &Db, row: RowId, generation: u32) -> Result<(), Error> {
    let text = "UPDATE calls SET generation = ?2 WHERE id = ?1";
    db.run(text, (row.0, generation))
}

/// Reads the figures of possibly sent calls, and the newest that may be sent.
pub fn possibly_sent_calls(store: &Store) -> Result<PossiblySentCalls, Error> {
    let named = |name: &str| {
        let count = store.tally.named.get(name).copied();
        u64::try_from(count.unwrap_or(0)).unwrap_or(0)
    };
    let mut calls = PossiblySentCalls {
        waiting: store.query_one("SELECT calls FROM remade_size WHERE one = 1", [])?,
        taken: named(TAKEN),
        found: named(FOUND),
        settled: named(SETTLED),
        ..PossiblySentCalls::default()
    };
    if calls.waiting > 0 {
        let progress = SearchProgress::read(store)?;
        calls.released = released(store, progress)?;
        let later = "SELECT row FROM remade WHERE round > ?1 LIMIT 1";
        let later = store.exists(later, [progress.round])?;
        calls.is_searching = is_searching(store, progress.round, progress.since)? || later;
    }
    Ok(calls)
}

/// Some calls of this round, that began before this second, are to be looked for.
fn is_searching(db: &Db, round: i64, before: i64) -> Result<bool, Error> {
    let text = "SELECT row FROM remade WHERE round = ?1 AND started < ?2 LIMIT 1";
    db.exists(text, (round, before))
}

/// The newest that may be sent: of this round, or else of the last one before it.
fn released(db: &Db, progress: SearchProgress) -> Result<Option<Due>, Error> {
    let text = "SELECT c.id AS row, c.uuid, c.since FROM remade r JOIN calls c ON c.id = r.row
         WHERE r.round = ?1 AND r.started >= ?2 AND c.state = 'ready'
         ORDER BY r.started DESC, r.row DESC LIMIT 1";
    let this = db.query_first(text, (progress.round, progress.since))?;
    if this.is_some() {
        return Ok(this);
    }
    let text = "SELECT c.id AS row, c.uuid, c.since FROM remade r JOIN calls c ON c.id = r.row
         WHERE r.round < ?1 AND c.state = 'ready'
         ORDER BY r.round DESC, r.started DESC, r.row DESC LIMIT 1";
    db.query_first(text, [progress.round])
}

/// The newest `calls` of those that are to be looked for in this round; `None` when there are none.
pub fn segment(db: &Db, calls: u32) -> Result<Option<Segment>, Error> {
    let progress = SearchProgress::read(db)?;
    let text = "SELECT count(*), min(started) FROM (
             SELECT started FROM remade WHERE round = ?1 AND started < ?2
             ORDER BY started DESC LIMIT ?3)";
    let values = (progress.round, progress.since, calls);
    let (calls, Some(since)) = db.query_one::<(u32, Option<EpochSeconds>)>(text, values)? else {
        return Ok(None);
    };
    let more = is_searching(db, progress.round, since.get())?;
    Ok(Some(Segment { calls, since, more }))
}
