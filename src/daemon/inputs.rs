//! Checks whether a standby has the same token and lists as the leader.

use super::leadership::hex;
use super::outward::token_source;
use crate::config::{Config, TokenFrom};
use callbridge_mapping::people::files::Watched;
use callbridge_model::SecretPlace;
use callbridge_sender::status::SenderStatus;
use callbridge_sender::token_update::print;
use callbridge_spool::Handle;
use ring::digest::{Context, SHA256, digest};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// Interval between reads of the files.
pub(crate) const COMPARE_EVERY: Duration = Duration::from_secs(10);
/// Name of the setting with the leader's [`Inputs`].
const INPUTS_KEY: &str = "leader.inputs";

/// Files that may change while a process is running. A standby must have the same ones as the
/// leader.
#[derive(Clone, Debug)]
pub(crate) struct InputFiles {
    /// `None` if the token isn't in a file.
    token: Option<SecretPlace>,
    /// The lists of leads and employees.
    lists: Vec<PathBuf>,
}

impl InputFiles {
    pub(crate) fn from_config(config: &Config) -> Self {
        let token = match config.crm.as_ref().and_then(|crm| crm.token.as_ref()) {
            Some(TokenFrom::Place(place)) => Some(place.clone()),
            Some(TokenFrom::Command(_) | TokenFrom::Connection) | None => None,
        };
        let watched = Watched::for_trunks(config.rules.every_trunk());
        let lists = watched.files().into_iter().map(Path::to_path_buf);
        Self {
            token,
            lists: lists.collect(),
        }
    }

    /// Reads the files on a thread that may block.
    async fn read(&self) -> Inputs {
        let files = self.clone();
        let reading = tokio::task::spawn_blocking(move || files.read_blocking());
        reading.await.unwrap_or_default()
    }

    fn read_blocking(&self) -> Inputs {
        let place = self.token.as_ref();
        let tokens = place.and_then(|place| token_source(place).read().ok().flatten());
        let mut lists = Context::new(&SHA256);
        for file in &self.lists {
            // If a list can't be read, that's reported by the code that uses it.
            let content = std::fs::read(file).unwrap_or_default();
            lists.update(digest(&SHA256, &content).as_ref());
        }
        Inputs {
            token: tokens.map(|tokens| print(&tokens.current).to_string()),
            lists: hex(&lists.finish().as_ref()[..8]),
        }
    }
}

/// Fingerprints of the [`InputFiles`], which a standby compares with the leader's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Inputs {
    /// The token's fingerprint, or `None` if the token is stored in the state or isn't known.
    token: Option<String>,
    /// Hash of the lists of leads and employees.
    lists: String,
}

impl Inputs {
    /// Returns why a process with these inputs couldn't continue the leader's work.
    fn difference(&self, leader: &Self) -> Option<String> {
        if self.token.is_some() && leader.token.is_some() && self.token != leader.token {
            let problem = "its token differs from the leader's: give all hubs the same token";
            return Some(problem.to_owned());
        }
        if self.lists != leader.lists {
            let problem = "its lists of leads or employees differ from the leader's: copy the \
                           leader's files";
            return Some(problem.to_owned());
        }
        None
    }
}

/// Stores the leader's inputs whenever they change, so that standbys can compare them with their
/// own.
pub(crate) async fn publish(
    files: InputFiles,
    spool: Handle,
    sender: watch::Receiver<SenderStatus>,
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(COMPARE_EVERY);
    let mut stored = None;
    loop {
        ticks.tick().await;
        let mut inputs = files.read().await;
        if sender.borrow().token.state != "ok" {
            // The leader's token doesn't work, so a standby with a different one isn't reported.
            inputs.token = None;
        }
        if stored.as_ref() != Some(&inputs) {
            let json = serde_json::to_string(&inputs)?;
            if spool.keep_meta(INPUTS_KEY, json).await.is_ok() {
                stored = Some(inputs);
            }
        }
    }
}

/// Returns why a process with these files couldn't continue the leader's work, or `None` if it
/// could.
pub(crate) async fn difference(files: &InputFiles, spool: &Handle) -> Option<String> {
    let stored = spool.meta(INPUTS_KEY).await.ok()??;
    let leader: Inputs = serde_json::from_str(&stored).ok()?;
    files.read().await.difference(&leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(token: Option<&str>, lists: &str) -> Inputs {
        Inputs {
            token: token.map(str::to_owned),
            lists: lists.to_owned(),
        }
    }

    #[test]
    fn input_difference_names_token_or_lists_if_known() {
        let leader = inputs(Some("a"), "x");
        assert_eq!(leader.difference(&leader), None);
        assert_eq!(inputs(None, "x").difference(&leader), None);
        assert_eq!(leader.difference(&inputs(None, "x")), None);
        let token = inputs(Some("b"), "x").difference(&leader);
        assert!(token.expect("a problem").contains("token"));
        let lists = inputs(Some("a"), "y").difference(&leader);
        assert!(lists.expect("a problem").contains("lists"));
    }
}
