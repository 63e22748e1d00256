//! Reloads the secrets that sign events. A secret that is changed in the CRM is used for signing at
//! once (§6.4.7), so the files and the stored connection are read every second.

use super::keyring::{Connection, Keyring};
use callbridge_model::secret_source::Error;
use callbridge_model::webhook_signature::Key;
use callbridge_model::{ExposeSecret as _, Secret, SecretPlace};
use callbridge_oauth::store;
use callbridge_spool::Handle;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Time between two reads of the files and the stored connection.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Places from which secrets are read, in addition to the stored connection.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Place of the application's secret, from `--webhook-secret-file`.
    pub application: Option<SecretPlace>,
    /// Places of `--installation-secret`, by the installation's id.
    pub installations: BTreeMap<String, SecretPlace>,
}

#[derive(Clone, Debug, Default)]
struct Texts {
    application: Vec<Secret>,
    installations: BTreeMap<String, Vec<Secret>>,
    /// The webhook secret of the stored connection.
    connection: Option<Secret>,
}

impl Places {
    /// Reads the secrets of all places, and the errors. An unreadable file counts as a file without
    /// secrets, because a removed secret must not stay valid because of another error.
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

/// Reads the secret of the stored connection. Returns `None` if there is none, or if it cannot be
/// read. The code that uses the connection reports the error.
pub async fn connection_secret(state: &Handle) -> Option<Secret> {
    let connection = store::read(state).await.ok().flatten();
    connection.and_then(|connection| connection.webhook_secret)
}

impl Texts {
    /// Returns a hash of all secrets, to notice a change.
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

    fn keyring(&self, bound: Option<&str>) -> Keyring {
        let installations = self.installations.iter();
        let connection = self.connection.as_ref();
        Keyring {
            installations: installations
                .map(|(id, secrets)| (id.clone(), keys(secrets)))
                .collect(),
            connection: connection.map(|secret| Connection::new(secret, bound)),
            application: keys(&self.application),
        }
    }
}

fn keys(secrets: &[Secret]) -> Vec<Key> {
    secrets.iter().map(Key::new).collect()
}

/// The current secrets, and the places from which they are reloaded.
#[derive(Debug)]
pub struct Secrets {
    places: Places,
    current: RwLock<Arc<Keyring>>,
    /// The stored text of [`Connection::binding`], which shows our connection's installation.
    bound: RwLock<Option<String>>,
    /// Current errors of the files. They contain no secret.
    errors: RwLock<Vec<String>>,
}

impl Secrets {
    /// Reads the places for the first time, and also returns their errors. `connection` is the
    /// secret of the stored connection. `bound` is the stored text of [`Connection::binding`].
    pub fn new(
        places: Places,
        connection: Option<Secret>,
        bound: Option<String>,
    ) -> (Arc<Self>, Vec<Error>) {
        let (mut texts, errors) = places.read();
        texts.connection = connection;
        let keyring = texts.keyring(bound.as_deref());
        let secrets = Self {
            places,
            current: RwLock::new(Arc::new(keyring)),
            bound: RwLock::new(bound),
            errors: RwLock::new(messages(&errors)),
        };
        (Arc::new(secrets), errors)
    }

    /// Returns the current secrets. Later changes do not alter the returned keyring.
    pub fn current(&self) -> Arc<Keyring> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the current errors of the files.
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

    /// Records that the secret of `connect` belongs to this installation. Returns the text to
    /// store, or `None` if there is no connection.
    pub fn bind(&self, installation: &str) -> Option<String> {
        let mut keyring = Keyring::clone(&self.current());
        let connection = keyring.connection.as_mut()?;
        connection.installation = Some(installation.to_owned());
        let binding = connection.binding(installation);
        let mut bound = self.bound.write().unwrap_or_else(PoisonError::into_inner);
        *bound = Some(binding.clone());
        drop(bound);
        self.set(keyring);
        Some(binding)
    }

    /// Reads the secrets every second until the future is dropped. A change is used after two equal
    /// reads in a row, because a file can be read while it is written.
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
                let bound = self.bound.read().unwrap_or_else(PoisonError::into_inner);
                self.set(read.keyring(bound.as_deref()));
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

    fn read(secret: Option<&str>, bound: Option<String>) -> Arc<Secrets> {
        Secrets::new(Places::default(), secret.map(Secret::from), bound).0
    }

    fn installation(secrets: &Secrets) -> Option<String> {
        let connection = secrets.current().connection.clone();
        connection.expect("a connection").installation
    }

    #[test]
    fn new_connection_secret_is_unbound() {
        assert!(read(None, None).current().is_empty());
        let secrets = read(Some("first"), None);
        assert_eq!(installation(&secrets), None);
        secrets.bind("7001");
        assert_eq!(installation(&secrets).as_deref(), Some("7001"));
        let bound = secrets.bound.read().expect("not poisoned").clone();
        let again = read(Some("first"), bound.clone());
        assert_eq!(
            installation(&again).as_deref(),
            Some("7001"),
            "after a restart"
        );
        assert_eq!(installation(&read(Some("second"), bound)), None);
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
        assert_eq!(first.keyring(None).application.len(), 2);
        assert!(!format!("{first:?}").contains("current"));
        for text in ["", "\n", "current\nbroken \u{7} line\n"] {
            std::fs::write(&file, text).expect("written");
            let (read, faults) = places.read();
            assert!(read.keyring(None).is_empty(), "{text:?}");
            assert_eq!(faults.len(), 2, "{text:?}");
        }
        std::fs::remove_file(&file).expect("removed");
        let (read, faults) = places.read();
        assert!(read.keyring(None).is_empty(), "{faults:?}");
    }
}
