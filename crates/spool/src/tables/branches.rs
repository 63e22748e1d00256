//! A hub's branches, with their tokens, their PBXs, and their last reports.

use super::senders;
use crate::{Branch, BranchChange, BranchRequest, Db, Error, NewBranch, Store, TokenRotation};
use callbridge_call::EpochSeconds;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct StoredBranch {
    name: String,
    token: String,
    previous_token: Option<String>,
    previous_until: Option<EpochSeconds>,
    added: EpochSeconds,
    taken: u64,
    refused: u64,
    refused_at: Option<EpochSeconds>,
    refusal: Option<String>,
    reported: Option<EpochSeconds>,
    report: Option<String>,
}

/// Returns all branches, by name.
pub fn branches(db: &Db) -> Result<Vec<Branch>, Error> {
    let text =
        "SELECT name, token, previous_token, previous_until, added, taken, refused, refused_at,
                refusal, reported, report
         FROM branches ORDER BY name";
    let stored: Vec<StoredBranch> = db.query_all(text, ())?;
    let mut pbxs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let text = "SELECT branch, pbx FROM branch_pbxs ORDER BY branch, pbx";
    for (branch, pbx) in db.query_all::<(String, String)>(text, ())? {
        pbxs.entry(branch).or_default().push(pbx);
    }
    let mut senders = senders::by_branch(db)?;
    let mut all = Vec::with_capacity(stored.len());
    for stored in stored {
        all.push(Branch {
            pbxs: pbxs.remove(&stored.name).unwrap_or_default(),
            senders: senders.remove(&stored.name).unwrap_or_default(),
            name: stored.name,
            token: stored.token,
            previous: stored.previous_token.zip(stored.previous_until),
            added: stored.added,
            taken: stored.taken,
            refused: stored.refused,
            refusal: stored.refused_at.zip(stored.refusal),
            reported: stored.reported,
            report: stored.report,
        });
    }
    Ok(all)
}

/// Returns the branch that a PBX belongs to, if there is one.
pub fn branch_of(db: &Db, pbx: &str) -> Result<Option<String>, Error> {
    db.query_first("SELECT branch FROM branch_pbxs WHERE pbx = ?1", [pbx])
}

pub(crate) fn add(store: &mut Store, branch: &NewBranch) -> Result<BranchChange, Error> {
    for pbx in &branch.pbxs {
        match branch_of(store, pbx)? {
            Some(owner) if owner != branch.name => {
                let pbx = pbx.clone();
                return Ok(BranchChange::PbxOf { pbx, branch: owner });
            }
            Some(_) | None => {}
        }
    }
    let text = "SELECT name FROM branches WHERE name <> ?1 AND (token = ?2 OR previous_token = ?2)";
    let token = (&branch.name, &branch.token);
    if let Some(owner) = store.query_first::<String>(text, token)? {
        return Ok(BranchChange::TokenOf { branch: owner });
    }
    // The new branch starts with the hub's `seq`. It may have seen responses to a removed branch
    // with the same name, which don't mean that commits were lost.
    let seq = store.hub.as_ref().map_or(0, |hub| hub.position.seq);
    let text = "INSERT INTO branches (name, token, added, seq) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING";
    let values = (&branch.name, &branch.token, branch.at.get(), seq);
    let is_new = store.execute(text, values)? == 1;
    for pbx in &branch.pbxs {
        let text = "INSERT INTO branch_pbxs (pbx, branch) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        store.run(text, (pbx, &branch.name))?;
    }
    Ok(if is_new {
        BranchChange::NewToken
    } else {
        BranchChange::PbxsAdded
    })
}

pub(crate) fn rotate(db: &Db, rotation: &TokenRotation) -> Result<BranchChange, Error> {
    let text = "UPDATE branches SET previous_token = token, previous_until = ?3, token = ?2
         WHERE name = ?1";
    let until = rotation.previous_until.map(EpochSeconds::get);
    let changed = db.execute(text, (&rotation.branch, &rotation.token, until))?;
    Ok(if changed == 1 {
        BranchChange::NewToken
    } else {
        BranchChange::Unknown
    })
}

pub(crate) fn remove(db: &Db, name: &str) -> Result<BranchChange, Error> {
    if db.execute("DELETE FROM branches WHERE name = ?1", [name])? == 0 {
        return Ok(BranchChange::Unknown);
    }
    db.run("DELETE FROM branch_pbxs WHERE branch = ?1", [name])?;
    db.run("DELETE FROM branch_senders WHERE branch = ?1", [name])?;
    Ok(BranchChange::Removed)
}

/// Returns the number of branches.
pub(crate) fn count(db: &Db) -> Result<u64, Error> {
    db.query_one("SELECT count(*) FROM branches", ())
}

/// Stores what a request changes about its branch: the number of calls accepted, the refused lines,
/// and the report.
pub(super) fn note_request(db: &Db, request: &BranchRequest) -> Result<(), Error> {
    let text = "UPDATE branches SET taken = taken + ?2 WHERE name = ?1";
    db.run(text, (&request.branch, request.calls))?;
    if let Some(refusal) = &request.refusal {
        let text = "UPDATE branches SET refused = refused + ?2, refused_at = ?3, refusal = ?4
             WHERE name = ?1";
        let at = request.at.floor_seconds().get();
        db.run(text, (&request.branch, request.refused, at, refusal))?;
    }
    if let Some(report) = &request.report {
        let text = "UPDATE branches SET reported = ?2, report = ?3 WHERE name = ?1";
        let at = request.at.floor_seconds().get();
        db.run(text, (&request.branch, at, report))?;
    }
    Ok(())
}
