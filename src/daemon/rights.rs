//! With whose rights the daemon runs, and who else can read its secrets: said at the start.

use crate::config::Config;
use crate::privilege::{Owner, is_open_to_all};
use callbridge_model::SecretPlace;
use std::path::PathBuf;

/// What is to be said.
#[derive(Debug)]
pub(crate) struct RightsReport {
    owner: Option<Owner>,
    held: Vec<PathBuf>,
    open: Vec<PathBuf>,
}

impl RightsReport {
    /// Of a `run` with these flags.
    pub(crate) fn of(config: &Config) -> Self {
        let held = |(_, place): (String, &SecretPlace)| match place {
            SecretPlace::Held(path, _) => Some(path.clone()),
            SecretPlace::File(_) | SecretPlace::Variable(_) => None,
        };
        let mut open = config.secret_files();
        open.retain(|path| is_open_to_all(path));
        Self {
            owner: config.held.owner,
            held: config.places().into_iter().filter_map(held).collect(),
            open,
        }
    }

    pub(crate) fn announce(&self) {
        if let Some(owner) = self.owner {
            tracing::info!(
                user = owner.uid,
                group = owner.gid,
                "root has become the owner of the state folder, for good"
            );
        }
        for file in &self.held {
            tracing::info!(
                file = %file.display(),
                "a secret was read by root, and its file cannot be read any more: another one \
                 counts after a restart"
            );
        }
        for file in &self.open {
            tracing::warn!(
                file = %file.display(),
                "every user of this machine can read a secret's file: chmod o-r it"
            );
        }
    }
}
