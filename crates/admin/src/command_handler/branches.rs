//! `branch …`: the branches of a hub, and their tokens.

use super::CommandHandler;
use crate::refusal::Refusal;
use callbridge_call::EpochSeconds;
use callbridge_hub::status::branch_status;
use callbridge_hub::token::{hash, new_token};
use callbridge_mapping::trunk;
use callbridge_model::status::BranchStatus;
use callbridge_model::{Code, ExposeSecret as _, Secret, clock};
use callbridge_spool::{BranchChange, Done, NewBranch, Op, TokenRotation, tables};
use serde_json::{Value, json};

/// Time for which the previous token stays valid after a rotation.
const PREVIOUS_VALID_SEC: i64 = 3600;

impl CommandHandler {
    /// Returns all branches, with their last reports.
    pub(super) async fn branches(&self) -> Result<Vec<BranchStatus>, Refusal> {
        let read = self.spool.read(|store| tables::branches::branches(store));
        let now = clock::now().wall.floor_seconds().get();
        let branches = read.await?.into_iter();
        Ok(branches.map(|branch| branch_status(branch, now)).collect())
    }

    /// Adds a branch, or adds PBXs to a branch that exists. Returns the new token, which is null
    /// for an existing branch or if `given` (the hash of an earlier token) is set.
    pub(super) async fn add_branch(
        &self,
        branch: &str,
        pbxs: Vec<String>,
        given: Option<String>,
    ) -> Result<Value, Refusal> {
        if !trunk::is_name(branch) {
            return Err(Refusal::usage(format!("NAME: `{branch}` is not a name")));
        }
        if pbxs.is_empty() {
            return Err(Refusal::usage(
                "--pbx is missing: name each PBX of the branch",
            ));
        }
        for pbx in &pbxs {
            if !trunk::is_name(pbx) {
                return Err(Refusal::usage(format!("--pbx {pbx}: it is not a name")));
            }
        }
        let token = new_token().ok_or_else(no_random)?;
        let is_given = given.is_some();
        let new = NewBranch {
            name: branch.to_owned(),
            token: given.unwrap_or_else(|| hash(&token)),
            pbxs,
            at: now(),
        };
        match self.change_branch(Op::AddBranch(new), branch).await? {
            BranchChange::NewToken if !is_given => Ok(with_token(branch, &token)),
            _ => Ok(json!({"branch": branch, "token": null})),
        }
    }

    /// Replaces the token of a branch, and returns the new token. The previous token stays valid
    /// for an hour, unless it ends `at_once`.
    pub(super) async fn rotate_branch(
        &self,
        branch: &str,
        at_once: bool,
    ) -> Result<Value, Refusal> {
        let token = new_token().ok_or_else(no_random)?;
        let rotation = TokenRotation {
            branch: branch.to_owned(),
            token: hash(&token),
            previous_until: (!at_once)
                .then(|| EpochSeconds::new(now().get().saturating_add(PREVIOUS_VALID_SEC))),
        };
        self.change_branch(Op::RotateToken(rotation), branch)
            .await?;
        Ok(with_token(branch, &token))
    }

    /// Removes a branch. Its calls stay in the spool.
    pub(super) async fn remove_branch(&self, branch: &str) -> Result<Value, Refusal> {
        self.change_branch(Op::RemoveBranch(branch.to_owned()), branch)
            .await?;
        Ok(json!({"branch": branch}))
    }

    /// Ends the pause that began when branches showed that another database is in use.
    pub(super) async fn resume_sending(&self) -> Result<Value, Refusal> {
        let done = self.spool.write(vec![Op::ResumeSending]).await?;
        let is_resumed = done.first() == Some(&Done::Resumed(true));
        Ok(json!({"resumed": is_resumed}))
    }

    /// Writes a change of branches to the spool. When this returns, the listener uses the change.
    async fn change_branch(&self, op: Op, branch: &str) -> Result<BranchChange, Refusal> {
        let mut done = self.spool.write(vec![op]).await?;
        if let Some(branches) = &self.branches {
            branches.reload(&self.spool).await?;
        }
        match done.pop() {
            Some(Done::Branch(BranchChange::Unknown)) => {
                let message =
                    format!("no branch has the name {branch}: see `callbridge branch list`");
                Err(Refusal::new(Code::Input.number(), message))
            }
            Some(Done::Branch(BranchChange::TokenOf { branch })) => {
                let message = format!(
                    "branch {branch} has this token already. Leave --token-file out to get another \
                     one"
                );
                Err(Refusal::new(Code::Input.number(), message))
            }
            Some(Done::Branch(BranchChange::PbxOf { pbx, branch })) => {
                let message = format!(
                    "PBX {pbx} belongs to branch {branch}. Remove that branch, or give the PBX \
                     another name"
                );
                Err(Refusal::new(Code::Input.number(), message))
            }
            Some(Done::Branch(change)) => Ok(change),
            _ => Ok(BranchChange::Unknown),
        }
    }
}

fn now() -> EpochSeconds {
    clock::now().wall.floor_seconds()
}

/// Adds the token to the answer. This is the only place where a token is shown.
fn with_token(branch: &str, token: &Secret) -> Value {
    json!({"branch": branch, "token": token.expose_secret()})
}

fn no_random() -> Refusal {
    let message = "the operating system returned no random bytes, so no token can be made";
    Refusal::new(Code::Failed.number(), message)
}
