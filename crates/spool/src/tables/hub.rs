//! The position of a hub: which incarnation of the state this is, and how far it has come.
//!
//! `seq` grows with each commit. The answer to a branch carries the pair, and the branch's row keeps
//! the `seq` of its last answer. The branch sends the highest pair that it has seen. If the branch
//! has seen more than its row says, commits were lost: a backup was restored, or the state is new.
//! A new incarnation then begins, with a time of silence toward the CRM, because requests that the
//! lost commits recorded still count there.

use super::branches;
use crate::{Db, Done, Error, Store};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counter of incarnations that began because commits were lost.
pub const LOST_COMMITS: &str = "hub_lost_commits";
/// Counter of claims of a branch that came too soon after its last one.
const CLAIMS_IGNORED: &str = "hub_claims_ignored";

/// A pair that a hub answers, and that a branch sends back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubPosition {
    /// Another one begins when commits were lost.
    pub incarnation: String,
    /// Number of the commit. It keeps growing in a new incarnation.
    pub seq: u64,
}

/// The end of a silence toward the CRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSilence {
    /// The boot that `until` belongs to. The silence of an earlier boot is replaced by that of the
    /// reboot.
    pub boot_id: String,
    /// Time since boot.
    pub until: Duration,
}

/// The row of the table `hub`, as of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRow {
    pub position: HubPosition,
    /// Time at which the incarnation began.
    pub began: EventTime,
    /// The branch whose request showed that commits were lost. `None` for the first incarnation.
    pub revealed_by: Option<String>,
    pub silence: Option<HubSilence>,
}

/// A request of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRequest {
    pub branch: String,
    /// The highest pair that the branch has seen. `None` if it sends none, as scripts do.
    pub seen: Option<HubPosition>,
    /// The incarnation that begins if commits were lost.
    pub next_incarnation: String,
    /// The silence that begins with it.
    pub silence: HubSilence,
    /// Calls in the request that can be read.
    pub calls: u64,
    /// The report of the branch as JSON, if this request is one.
    pub report: Option<String>,
    pub at: EventTime,
}

/// The position of the commit that a request of a branch is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAnswer {
    pub position: HubPosition,
    /// The request showed that commits were lost, so a new incarnation has begun.
    pub lost_commits: bool,
}

type StoredHub = (
    String,
    u64,
    EventTime,
    Option<String>,
    Option<String>,
    Option<u64>,
);

/// Reads the position. `None` if the state was never a hub's.
pub(crate) fn stored(db: &Db) -> Result<Option<HubRow>, Error> {
    let text =
        "SELECT incarnation, seq, began, revealed_by, silent_boot, silent_until FROM hub LIMIT 1";
    let row: Option<StoredHub> = db.query_first(text, [])?;
    let Some((incarnation, seq, began, revealed_by, boot_id, until)) = row else {
        return Ok(None);
    };
    let silence = boot_id.zip(until).map(|(boot_id, until)| HubSilence {
        boot_id,
        until: Duration::from_nanos(until),
    });
    Ok(Some(HubRow {
        position: HubPosition { incarnation, seq },
        began,
        revealed_by,
        silence,
    }))
}

pub(crate) fn begin(store: &mut Store, incarnation: &str, at: EventTime) -> Result<(), Error> {
    let text = "INSERT INTO hub (id, incarnation, seq, began) VALUES (1, ?1, 0, ?2)
         ON CONFLICT DO NOTHING";
    store.run(text, (incarnation, at.micros()))?;
    store.hub = stored(store)?;
    Ok(())
}

/// Counts the running transaction. It is the last change in it.
pub(crate) fn advance(store: &mut Store) -> Result<(), Error> {
    let Some(hub) = &mut store.hub else {
        return Ok(());
    };
    hub.position.seq += 1;
    let seq = hub.position.seq;
    store.run("UPDATE hub SET seq = ?1", [seq])
}

pub(crate) fn request(store: &mut Store, request: &BranchRequest) -> Result<Done, Error> {
    let answered = branches::answered_seq(store, &request.branch)?;
    let mut lost_commits = match &request.seen {
        Some(seen) => has_lost_commits(store, seen, answered)?,
        None => false,
    };
    if lost_commits && branches::has_claimed_lately(store, request)? {
        store.tally.count(CLAIMS_IGNORED, 1);
        lost_commits = false;
    }
    if lost_commits {
        begin_again(store, request)?;
    }
    let hub = store.hub.as_ref().ok_or(Error::NoHub)?;
    // `advance` counts this transaction at its end.
    let position = HubPosition {
        incarnation: hub.position.incarnation.clone(),
        seq: hub.position.seq + 1,
    };
    branches::note_request(store, request, position.seq)?;
    Ok(Done::Hub(HubAnswer {
        position,
        lost_commits,
    }))
}

/// Returns `true` if this state never gave the branch that answer. `answered` is the `seq` of the
/// last answer to the branch that this state knows of.
fn has_lost_commits(store: &Store, seen: &HubPosition, answered: u64) -> Result<bool, Error> {
    let hub = store.hub.as_ref().ok_or(Error::NoHub)?;
    if seen.incarnation == hub.position.incarnation {
        return Ok(seen.seq > answered);
    }
    let text = "SELECT 1 FROM past_incarnations WHERE incarnation = ?1";
    Ok(!store.exists(text, [&seen.incarnation])?)
}

fn begin_again(store: &mut Store, request: &BranchRequest) -> Result<(), Error> {
    let hub = store.hub.as_ref().ok_or(Error::NoHub)?;
    let before = hub.position.incarnation.clone();
    let seen = request.seen.iter().map(|seen| seen.incarnation.clone());
    for past in seen.chain([before]) {
        let text = "INSERT INTO past_incarnations (incarnation) VALUES (?1) ON CONFLICT DO NOTHING";
        store.run(text, [past])?;
    }
    let text = "UPDATE hub SET incarnation = ?1, began = ?2, revealed_by = ?3, silent_boot = ?4,
         silent_until = ?5";
    let until = u64::try_from(request.silence.until.as_nanos()).unwrap_or(u64::MAX >> 1);
    let values = (
        &request.next_incarnation,
        request.at.micros(),
        &request.branch,
        &request.silence.boot_id,
        until,
    );
    store.run(text, values)?;
    let seq = hub_seq(store);
    store.hub = stored(store)?;
    if let Some(hub) = &mut store.hub {
        hub.position.seq = seq;
    }
    store.tally.count(LOST_COMMITS, 1);
    branches::note_claim(store, request)
}

fn hub_seq(store: &Store) -> u64 {
    store.hub.as_ref().map_or(0, |hub| hub.position.seq)
}
