//! A hub's position: the incarnation of its state, and `seq`, which counts its commits.
//!
//! Each response carries the position, and the state keeps the `seq` of the last response to each
//! of a branch's senders (`senders`). A collector sends the highest position that it has seen. If
//! that's higher than the `seq` kept for it, commits were lost: either a backup was restored, or
//! the state is new. A new incarnation then begins, along with a period during which the CRM is
//! sent nothing, because the requests in the lost commits still count against the request budget.
//!
//! After a restore, the lost incarnation never answers again. If it does, a second database is in
//! use, such as the old primary after a failover. Both hubs then find such answers in their
//! collectors' requests, and stop sending until someone has decided which database to keep.

use super::intake::Intake;
use super::{branches, hub_row, senders, slots};
use crate::{
    BranchRequest, Done, Error, HubAnswer, HubPosition, Sighting, Silence, SilenceReason, Store,
};
use callbridge_call::EventTime;
use std::time::Duration;

/// Name of the counter for incarnations that began because commits were lost.
pub const LOST_COMMITS: &str = "hub_lost_commits";
/// Name of the counter for ignored claims. A branch's request may claim that commits were lost,
/// which is ignored if it comes too soon after the last claim, no matter which branch made that
/// one.
const CLAIMS_IGNORED: &str = "hub_claims_ignored";
/// Minimum time between two new incarnations. Each of them pauses the hub and makes all collectors
/// resend what they have, so a stolen token or a broken sender must not cause this often.
const CLAIM_AGAIN: Duration = Duration::from_secs(3600);

pub(crate) fn begin(store: &mut Store, incarnation: &str, at: EventTime) -> Result<(), Error> {
    let text = "INSERT INTO hub (id, incarnation, seq, began) VALUES (1, ?1, 0, ?2)
         ON CONFLICT DO NOTHING";
    store.run(text, (incarnation, at.micros()))?;
    store.hub = hub_row::load(store)?;
    Ok(())
}

/// Increments the hub's `seq` for the running transaction, which must be the transaction's last
/// change. If another process has changed `seq`, the statement violates its NOT NULL constraint, so
/// nothing in the transaction is committed.
pub(crate) fn advance(store: &mut Store) -> Result<(), Error> {
    let Some(hub) = &mut store.hub else {
        return Ok(());
    };
    let before = hub.position.seq;
    hub.position.seq += 1;
    store.run(
        "UPDATE hub SET seq = CASE WHEN seq = ?1 THEN seq + 1 END",
        [before],
    )
}

pub(crate) fn request(
    store: &mut Store,
    request: &BranchRequest,
    intake: &mut Intake,
) -> Result<Done, Error> {
    let asked = match intake.take_senders(&request.branch) {
        Some(asked) => asked,
        None => senders::ask(store, &request.branch)?,
    };
    let senders =
        senders::read(store, asked)?.ok_or_else(|| Error::NoBranch(request.branch.clone()))?;
    let answered = senders.answered(request);
    let mut lost_commits = match &request.seen {
        Some(seen) => has_lost_commits(store, seen, answered)?,
        None => false,
    };
    let is_too_soon = lost_commits && has_begun_again_lately(store, request.at);
    if is_too_soon {
        store.tally.count(CLAIMS_IGNORED, 1);
        lost_commits = false;
    }
    if let (Some(seen), Some(hub)) = (&request.seen, &store.hub)
        && seen.incarnation != hub.position.incarnation
    {
        let has_strayed = senders.has_strayed(request, &hub.position.incarnation);
        if has_strayed && !is_past_position(store, seen)? {
            note_sighting(store, request)?;
        } else {
            note_past_position(store, seen)?;
        }
    }
    if lost_commits {
        begin_again(store, request)?;
    }
    let hub = store.hub.as_ref().ok_or(Error::NoHub)?;
    // `advance` will count this transaction at its end.
    let position = HubPosition {
        incarnation: hub.position.incarnation.clone(),
        seq: hub.position.seq + 1,
    };
    // If a claim came too soon, the old `seq` is kept so that the sender's next request repeats it.
    let last = HubPosition {
        seq: if is_too_soon { answered } else { position.seq },
        ..position.clone()
    };
    senders.note(store, request, &last)?;
    branches::note_request(store, request)?;
    Ok(Done::Hub(HubAnswer {
        position,
        lost_commits,
    }))
}

/// Returns `true` if this state doesn't know the response with the position `seen`, because its
/// commit was lost. `answered` is the `seq` of the last response to the sender that this state
/// knows about.
fn has_lost_commits(store: &Store, seen: &HubPosition, answered: u64) -> Result<bool, Error> {
    let hub = store.hub.as_ref().ok_or(Error::NoHub)?;
    if seen.incarnation == hub.position.incarnation {
        return Ok(seen.seq > answered);
    }
    let text = "SELECT 1 FROM past_incarnations WHERE incarnation = ?1";
    Ok(!store.exists(text, [&seen.incarnation])?)
}

/// Returns `true` if a sender had already seen this position of a past incarnation, which therefore
/// needn't have answered since. A collector whose machine was set back to a snapshot, or that was
/// cloned, sends such a position.
fn is_past_position(store: &Store, seen: &HubPosition) -> Result<bool, Error> {
    let text = "SELECT 1 FROM past_incarnations WHERE incarnation = ?1 AND seq >= ?2";
    store.exists(text, (&seen.incarnation, seen.seq))
}

fn note_past_position(store: &Store, seen: &HubPosition) -> Result<(), Error> {
    let text = "UPDATE past_incarnations SET seq = ?2 WHERE incarnation = ?1 AND seq < ?2";
    store.run(text, (&seen.incarnation, seen.seq))
}

fn begin_again(store: &mut Store, request: &BranchRequest) -> Result<(), Error> {
    let hub = store.hub.as_ref().ok_or(Error::NoHub)?;
    let before = hub.position.clone();
    for past in request.seen.iter().chain([&before]) {
        let text = "INSERT INTO past_incarnations (incarnation, seq) VALUES (?1, ?2)
             ON CONFLICT DO NOTHING";
        store.run(text, (&past.incarnation, past.seq))?;
        note_past_position(store, past)?;
    }
    let text = "UPDATE hub SET incarnation = ?1, began = ?2, revealed_by = ?3";
    let values = (
        &request.next_incarnation,
        request.at.micros(),
        &request.branch,
    );
    store.run(text, values)?;
    slots::begin_silence(store, &request.silence)?;
    let seq = hub_seq(store);
    store.hub = hub_row::load(store)?;
    if let Some(hub) = &mut store.hub {
        hub.position.seq = seq;
    }
    store.tally.count(LOST_COMMITS, 1);
    senders::begin_again(store)
}

/// Notes that another database has answered a sender. If this proves that the database is in use,
/// sending pauses.
fn note_sighting(store: &mut Store, request: &BranchRequest) -> Result<(), Error> {
    let branches = branches::count(store)?;
    let hub = store.hub.as_mut().ok_or(Error::NoHub)?;
    let sighting = Sighting {
        branch: request.branch.clone(),
        at: request.at,
    };
    if hub.split_by.is_none() {
        hub.split_by = sighting.proof(hub.sighting.as_ref(), branches);
    }
    let split_by = hub.split_by.clone();
    hub.sighting = Some(sighting);
    let text = "UPDATE hub SET sighted_by = ?1, sighted_at = ?2, split_by = ?3";
    store.run(text, (&request.branch, request.at.micros(), split_by))
}

/// Ends the pause after another database was in use. A silence follows, since the requests of that
/// database's hub can still count.
pub(crate) fn resume_sending(store: &mut Store) -> Result<Done, Error> {
    let hub = store.hub.as_mut().ok_or(Error::NoHub)?;
    if hub.split_by.take().is_none() {
        return Ok(Done::Resumed(false));
    }
    hub.sighting = None;
    senders::forget_answers(store)?;
    let text = "UPDATE hub SET sighted_by = NULL, sighted_at = NULL, split_by = NULL";
    store.run(text, ())?;
    slots::begin_silence(store, &Silence::to_begin(SilenceReason::SecondDatabase))?;
    Ok(Done::Resumed(true))
}

/// Returns `true` if the current incarnation began less than an hour ago because of lost commits.
fn has_begun_again_lately(store: &Store, now: EventTime) -> bool {
    let Some(hub) = &store.hub else {
        return false;
    };
    let since = now.since(hub.began).max(hub.began.since(now));
    hub.revealed_by.is_some() && since < CLAIM_AGAIN
}

fn hub_seq(store: &Store) -> u64 {
    store.hub.as_ref().map_or(0, |hub| hub.position.seq)
}
