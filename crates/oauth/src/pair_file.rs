//! The file that holds a new pair of tokens until it has been stored in the database.
//!
//! The CRM sends a pair only once, and by then, the previous pair is no longer valid. If a process
//! ended while the database is unavailable, the connection would be lost. That's why the pair is
//! first written to the instance's socket directory, which only this user can read, and why every
//! startup begins by storing it.

use callbridge_model::{ExposeSecret as _, Secret};
use callbridge_spool::{ConnectionChange, Error, StatePlace, StoredConnection};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;
use tracing::{error, info, warn};

/// How long to wait before trying to store a pair again after an error.
pub(crate) const STORE_AGAIN: Duration = Duration::from_millis(500);
const NAME: &str = "new-tokens.json";

/// The file's content, all of which is secret.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The refresh token and the connection being replaced by the pair.
    from: (String, String),
    /// The refresh token and the connection with the new pair.
    to: (String, String),
}

#[derive(Clone, Debug)]
pub(crate) struct PairFile(PathBuf);

impl PairFile {
    /// Returns this process's file, or `None` for a state in a directory, because a file there
    /// wouldn't be any easier to write than the state.
    pub(crate) fn of(place: &StatePlace) -> Option<Self> {
        place.database()?;
        Some(Self(place.socket_folder().join(NAME)))
    }

    pub(crate) fn write(&self, from: &StoredConnection, to: &StoredConnection) -> io::Result<()> {
        let [from, to] = [from, to].map(|stored| {
            let refresh_token = stored.refresh_token.expose_secret().to_owned();
            (refresh_token, stored.content.expose_secret().to_owned())
        });
        let text = serde_json::to_vec(&Content { from, to })?;
        let born = self.0.with_extension("part");
        // A file left behind by another process may have a different mode.
        let _ = fs::remove_file(&born);
        let mut file = (OpenOptions::new().write(true).create_new(true))
            .mode(0o600)
            .open(&born)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&born, &self.0)
    }

    /// Reads the change that stores the pair, or returns `None` if there's no file.
    pub(crate) fn read(&self) -> io::Result<Option<ConnectionChange>> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // The text of such an error might contain a token.
        let content: Content =
            serde_json::from_reader(file).map_err(|_| io::ErrorKind::InvalidData)?;
        let [from, to] = [content.from, content.to].map(|(refresh_token, content)| {
            Some(StoredConnection {
                refresh_token: Secret::from(refresh_token),
                content: Secret::from(content),
            })
        });
        Ok(Some(ConnectionChange { from, to }))
    }

    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!(%error, file = %self.0.display(), "cannot remove the file with new tokens");
        }
    }
}

/// Returns `true` if an earlier process left behind a pair that [`store_left`] has to store.
pub fn is_left(place: &StatePlace) -> bool {
    PairFile::of(place).is_some_and(|file| file.0.exists())
}

/// Stores the pair that an earlier process left behind, retrying until the database responds.
pub async fn store_left(place: StatePlace) {
    let Some(file) = PairFile::of(&place) else {
        return;
    };
    let change = match file.read() {
        Ok(Some(change)) => change,
        Ok(None) => return,
        Err(error) => {
            error!(%error, file = %file.0.display(), "cannot read the tokens that an earlier \
                                                       process received");
            return;
        }
    };
    let mut logged = false;
    loop {
        match change_stored(&place, &change).await {
            Ok(stored) => {
                file.remove();
                if stored {
                    info!("stored the tokens that an earlier process received");
                } else {
                    info!("the tokens that an earlier process received were stored or replaced");
                }
                return;
            }
            Err(error) => {
                if !std::mem::replace(&mut logged, true) {
                    warn!(%error, "cannot store the tokens that an earlier process received; \
                                   callbridge tries again");
                }
            }
        }
        tokio::time::sleep(STORE_AGAIN).await;
    }
}

/// Makes the change on a separate thread, because it blocks until the disk or the database
/// responds.
pub(crate) async fn change_stored(
    place: &StatePlace,
    change: &ConnectionChange,
) -> Result<bool, Error> {
    let store = place.connections();
    let change = change.clone();
    let storing = tokio::task::spawn_blocking(move || store.change(&change));
    storing.await.unwrap_or(Err(Error::Closed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn stored(name: &str) -> StoredConnection {
        StoredConnection {
            refresh_token: Secret::from(format!("svcrt_{name}")),
            content: Secret::from(format!("{{\"of\": \"{name}\"}}")),
        }
    }

    #[test]
    fn pair_file_is_private_and_holds_the_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = PairFile(folder.path().join(NAME));
        assert_eq!(file.read().expect("no file"), None);
        for name in ["second", "third"] {
            file.write(&stored("first"), &stored(name))
                .expect("written");
            let mode = file.0.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let change = ConnectionChange {
                from: Some(stored("first")),
                to: Some(stored(name)),
            };
            assert_eq!(file.read().expect("readable"), Some(change));
        }
        file.remove();
        file.remove();
        assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
    }

    #[test]
    fn damaged_pair_file_is_reported_without_its_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = PairFile(folder.path().join(NAME));
        fs::write(&file.0, "{\"from\": [\"svcrt_secret\", 7]}").expect("written");
        let error = file.read().expect_err("damaged").to_string();
        assert!(!error.contains("svcrt"), "{error}");
    }
}
