//! Reloads the secrets used to sign events. If a secret is changed in the CRM, it takes effect
//! there immediately (§6.4.7), so the files and the stored connection are read every second.

use super::keyring::Keyring;
use callbridge_model::secret_source::Error;
use callbridge_model::webhook_signature::Key;
use callbridge_model::{ExposeSecret as _, Secret, SecretPlace};
use callbridge_oauth::store;
use callbridge_spool::Handle;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Interval between reads of the files and the stored connection.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Where to read secrets from, in addition to the stored connection.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Where the application's secret is, from `--webhook-secret-file`.
    pub application: Option<SecretPlace>,
    /// Where each installation's secrets are, from `--installation-secret`, by installation ID.
    pub installations: BTreeMap<String, SecretPlace>,
}

#[derive(Clone, Debug, Default)]
struct Texts {
    application: Vec<Secret>,
    installations: BTreeMap<String, Vec<Secret>>,
    /// The stored connection's webhook secret.
    connection: Option<Secret>,
}

impl Places {
    /// Reads the secrets from everywhere, and collects the errors. An unreadable file is treated as
    /// one without secrets, because a secret that was removed mustn't remain valid just because of
    /// some other error.
    fn read(&self) -> (Texts, Vec<Error>) {
        let mut errors = Vec::new();
        let mut texts = Texts::default();
        if let Some(place) = &self.application {
            match place.read_lines() {
                Ok(secrets) => texts.application = secrets,
                Err(error) => errors.push(error),
            }
        }
        for (id, place) in &self.installations {
            match place.read_lines() {
                Ok(secrets) => {
                    texts.installations.insert(id.clone(), secrets);
                }
                Err(error) => errors.push(error),
            }
        }
        (texts, errors)
    }
}

/// Reads the stored connection's secret, returning `None` if there is none or if it can't be read.
/// The error is reported by the code that uses the connection.
pub async fn connection_secret(state: &Handle) -> Option<Secret> {
    let connection = store::read(state).await.ok().flatten();
    connection.and_then(|connection| connection.webhook_secret)
}

impl Texts {
    /// Returns a hash of all secrets, for detecting changes.
    fn print(&self) -> uuid::Uuid {
        let mut all: Vec<(&str, &str)> = Vec::new();
        for secret in &self.application {
            all.push(("application", secret.expose_secret()));
        }
        for (id, secrets) in &self.installations {
            for secret in secrets {
                all.push((id, secret.expose_secret()));
            }
        }
        if let Some(secret) = &self.connection {
            all.push(("connection", secret.expose_secret()));
        }
        uuid::Uuid::new_v5(&uuid::Uuid::nil(), format!("{all:?}").as_bytes())
    }

    fn keyring(&self) -> Keyring {
        let installations = self.installations.iter();
        Keyring {
            installations: installations
                .map(|(id, secrets)| (id.clone(), keys(secrets)))
                .collect(),
            connection: self.connection.as_ref().map(Key::new),
            application: keys(&self.application),
        }
    }
}

fn keys(secrets: &[Secret]) -> Vec<Key> {
    secrets.iter().map(Key::new).collect()
}

/// The current secrets, along with where they're reloaded from.
#[derive(Debug)]
pub struct Secrets {
    places: Places,
    current: RwLock<Arc<Keyring>>,
    /// The files' current errors, which don't contain any secrets.
    errors: RwLock<Vec<String>>,
}

impl Secrets {
    /// Reads the secrets for the first time, and also returns any errors. `connection` is the
    /// stored connection's secret.
    pub fn new(places: Places, connection: Option<Secret>) -> (Arc<Self>, Vec<Error>) {
        let (mut texts, errors) = places.read();
        texts.connection = connection;
        let secrets = Self {
            places,
            current: RwLock::new(Arc::new(texts.keyring())),
            errors: RwLock::new(messages(&errors)),
        };
        (Arc::new(secrets), errors)
    }

    /// Returns the current secrets. Later changes don't affect the returned keyring.
    pub fn current(&self) -> Arc<Keyring> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the files' current errors.
    pub fn errors(&self) -> Vec<String> {
        let errors = self.errors.read();
        errors.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_errors(&self, errors: Vec<String>) {
        *self.errors.write().unwrap_or_else(PoisonError::into_inner) = errors;
    }

    fn set(&self, keyring: Keyring) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(keyring);
    }

    /// Reads the secrets every second until the future is dropped. A change takes effect once it's
    /// been read twice in a row, because a file may be read while it's being written.
    pub async fn keep(self: Arc<Self>, state: Handle) {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let mut used = None;
        let mut seen = None;
        loop {
            ticks.tick().await;
            let places = self.places.clone();
            let reading = tokio::task::spawn_blocking(move || places.read());
            let Ok((mut read, errors)) = reading.await else {
                continue;
            };
            read.connection = connection_secret(&state).await;
            let errors = messages(&errors);
            let state = Some((read.print(), errors.clone()));
            if state == seen && state != used {
                if used.is_some() || errors != self.errors() {
                    report(&errors);
                }
                self.set(read.keyring());
                self.set_errors(errors);
                used.clone_from(&state);
            }
            seen = state;
        }
    }
}

fn messages(errors: &[Error]) -> Vec<String> {
    let messages = errors.iter();
    messages
        .map(|error| format!("{error}; no delivery can be verified with this file"))
        .collect()
}

fn report(errors: &[String]) {
    if errors.is_empty() {
        tracing::info!("read the signing secrets of webhooks again");
    }
    for error in errors {
        tracing::warn!(error, "cannot use a file of signing secrets of webhooks");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_oauth::Connection;
    use callbridge_spool::{self as spool, ConnectionChange, Done, Op};

    #[tokio::test]
    async fn connection_secret_is_read_from_the_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = spool::open(folder.path(), spool::Settings::default());
        let (state, guard) = opened.expect("a state");
        assert!(connection_secret(&state).await.is_none());
        let text = include_str!("../../../tests/golden/connection.json");
        let connection = Connection::from_json(text).expect("a connection");
        let change = ConnectionChange {
            from: None,
            to: Some(connection.stored()),
        };
        let done = state.write(vec![Op::Connection(Box::new(change))]).await;
        assert_eq!(done, Ok(vec![Done::Connection(true)]));
        let secret = connection_secret(&state).await.expect("a secret");
        assert_eq!(secret.expose_secret(), "webhook");
        drop(state);
        guard.close();
    }

    #[test]
    fn connection_secret_verifies_from_the_start() {
        let secrets = Secrets::new(Places::default(), None).0;
        assert!(secrets.current().is_empty());
        let secrets = Secrets::new(Places::default(), Some(Secret::from("first"))).0;
        assert!(secrets.current().connection.is_some());
    }

    #[test]
    fn unusable_secret_file_yields_no_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        std::fs::write(&file, "current\nprevious\n").expect("written");
        let places = Places {
            application: Some(SecretPlace::File(file.clone())),
            installations: [(
                "9".to_owned(),
                SecretPlace::File(folder.path().join("none")),
            )]
            .into(),
        };
        let (first, faults) = places.read();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(first.keyring().application.len(), 2);
        assert!(!format!("{first:?}").contains("current"));
        for text in ["", "\n", "current\nbroken \u{7} line\n"] {
            std::fs::write(&file, text).expect("written");
            let (read, faults) = places.read();
            assert!(read.keyring().is_empty(), "{text:?}");
            assert_eq!(faults.len(), 2, "{text:?}");
        }
        std::fs::remove_file(&file).expect("removed");
        let (read, faults) = places.read();
        assert!(read.keyring().is_empty(), "{faults:?}");
    }
}
