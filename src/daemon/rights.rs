//! With whose rights the daemon runs, and who else can read its secrets: said at the start.

use crate::config::Config;
use crate::privilege::is_open_to_all;
use callbridge_model::SecretPlace;

/// Says it of a `run` with these flags.
pub(crate) fn announce(config: &Config) {
    if let Some(owner) = config.held.owner {
        tracing::info!(
            user = owner.uid,
            group = owner.gid,
            "root has become the owner of the state folder, for good"
        );
    }
    for (_, place) in config.places() {
        match place {
            SecretPlace::Held(file, _) => tracing::info!(
                file = %file.display(),
                "a secret was read by root, and its file cannot be read any more: another one \
                 counts after a restart"
            ),
            SecretPlace::File(_) | SecretPlace::Variable(_) => {}
        }
    }
    for file in config.secret_files().iter().filter(|it| is_open_to_all(it)) {
        tracing::warn!(
            file = %file.display(),
            "every user of this machine can read a secret's file: chmod o-r it"
        );
    }
}
