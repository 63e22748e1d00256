//! Keeps the secrets that sign events in force. A secret that is changed in the CRM signs at once
//! (§6.4.7), so the files are read every second.

use super::keyring::{Connection, Keyring};
use callbridge_model::secret_source::Error;
use callbridge_model::webhook_signature::Key;
use callbridge_model::{ExposeSecret as _, Secret, SecretPlace};
use callbridge_oauth::store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Time between two checks of the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Places from which secrets are read.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `--webhook-secret-file`.
    pub application: Option<SecretPlace>,
    /// Places of `--installation-secret`, by the installation's id.
    pub installations: BTreeMap<String, SecretPlace>,
    /// The state folder, in which `connect` stores its secret.
    pub state: Option<PathBuf>,
}

#[derive(Clone, Debug, Default)]
struct Texts {
    application: Vec<Secret>,
    installations: BTreeMap<String, Vec<Secret>>,
    connection: Option<Secret>,
}

impl Places {
    /// Reads all of them. An unreadable file has no valid secrets: a removed secret must not stay
    /// valid because of another error.
    fn read(&self) -> (Texts, Vec<Error>) {
        let mut faults = Vec::new();
        let mut texts = Texts::default();
        if let Some(place) = &self.application {
            match place.read_lines() {
                Ok(secrets) => texts.application = secrets,
                Err(error) => faults.push(error),
            }
        }
        for (id, place) in &self.installations {
            match place.read_lines() {
                Ok(secrets) => {
                    texts.installations.insert(id.clone(), secrets);
                }
                Err(error) => faults.push(error),
            }
        }
        // The part that uses the connection reports an unreadable file.
        if let Some(Ok(Some(connection))) = self.state.as_deref().map(store::read) {
            texts.connection = connection.webhook_secret;
        }
        (texts, faults)
    }
}

impl Texts {
    /// Identifies a set without holding it.
    fn print(&self) -> uuid::Uuid {
        let application = self.application.iter().map(|it| ("application", it));
        let installations = self.installations.iter();
        let installations = installations.flat_map(|(id, all)| all.iter().map(|it| (&**id, it)));
        let connection = self.connection.iter().map(|it| ("connection", it));
        let all = application.chain(installations).chain(connection);
        let all: Vec<(&str, &str)> = all.map(|(of, it)| (of, it.expose_secret())).collect();
        uuid::Uuid::new_v5(&uuid::Uuid::nil(), format!("{all:?}").as_bytes())
    }

    fn keyring(&self, bound: Option<&str>) -> Keyring {
        let keys = |all: &Vec<Secret>| all.iter().map(Key::new).collect();
        let own = self.installations.iter();
        let connection = self.connection.as_ref();
        Keyring {
            installations: own.map(|(id, all)| (id.clone(), keys(all))).collect(),
            connection: connection.map(|it| Connection::new(it, bound)),
            application: keys(&self.application),
        }
    }
}

/// The current secrets, with what is needed to reload them.
#[derive(Debug)]
pub struct Secrets {
    places: Places,
    current: RwLock<Arc<Keyring>>,
    /// The stored text of [`Connection::binding`].
    bound: RwLock<Option<String>>,
    /// Current errors of the files. They contain no secret.
    faults: RwLock<Vec<String>>,
}

impl Secrets {
    /// Reads them for the first time. `bound` shows the installation that `connect`'s secret was
    /// found to belong to.
    pub fn new(places: Places, bound: Option<String>) -> (Arc<Self>, Vec<Error>) {
        let (texts, faults) = places.read();
        let keyring = texts.keyring(bound.as_deref());
        let secrets = Self {
            places,
            current: RwLock::new(Arc::new(keyring)),
            bound: RwLock::new(bound),
            faults: RwLock::new(messages(&faults)),
        };
        (Arc::new(secrets), faults)
    }

    /// Returns the current secrets. A later change of the files does not alter them.
    pub fn current(&self) -> Arc<Keyring> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the current errors of the files.
    pub fn faults(&self) -> Vec<String> {
        let faults = self.faults.read();
        faults.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_faults(&self, faults: Vec<String>) {
        *self.faults.write().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    fn set(&self, keyring: Keyring) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(keyring);
    }

    /// Notes that `connect`'s secret belongs to this installation. Returns the text to store.
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

    /// Reads the files every second until it is dropped. A change counts if two reads in a row
    /// agree, because a file can be read while it is written.
    pub async fn keep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let (mut used, mut seen) = (None, None);
        loop {
            ticks.tick().await;
            let places = self.places.clone();
            let reading = tokio::task::spawn_blocking(move || places.read());
            let Ok((read, faults)) = reading.await else {
                continue;
            };
            let faults = messages(&faults);
            let state = Some((read.print(), faults.clone()));
            if state == seen && state != used {
                if used.is_some() || faults != self.faults() {
                    report(&faults);
                }
                let bound = self.bound.read().unwrap_or_else(PoisonError::into_inner);
                let bound = bound.clone();
                self.set(read.keyring(bound.as_deref()));
                self.set_faults(faults);
                used.clone_from(&state);
            }
            seen = state;
        }
    }
}

fn messages(faults: &[Error]) -> Vec<String> {
    let messages = faults.iter();
    messages
        .map(|fault| format!("{fault}; no delivery is proved by this file"))
        .collect()
}

fn report(faults: &[String]) {
    if faults.is_empty() {
        tracing::info!("read the secrets that sign events again");
    }
    for error in faults {
        tracing::warn!(error, "cannot use a file of secrets that sign events");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use callbridge_call::EpochSeconds;
    use callbridge_oauth::connection::Client;
    use std::path::Path;

    /// As `connect` leaves it, with this secret.
    pub fn connected(folder: &Path, secret: Option<&str>) {
        let text = || "x".to_owned();
        let at = EpochSeconds::new(0);
        let connection = callbridge_oauth::Connection {
            client: Client {
                crm_url: text(),
                auth_url: text(),
                consent_url: text(),
                redirect_uri: text(),
                client_id: text(),
                client_secret: Secret::from("x"),
                client_secret_file: None,
                ca_file: None,
                proxy: None,
            },
            asked_scope: text(),
            scope: text(),
            access_token: Secret::from("x"),
            issued_at: at,
            expires_at: at,
            refresh_token: Secret::from("x"),
            previous_token: None,
            previous_expires_at: None,
            webhook_secret: secret.map(Secret::from),
            embedded_secret: None,
            company_id: None,
            refresh_began_at: None,
            refused_at: None,
            over: None,
            others: serde_json::Map::new(),
        };
        std::fs::write(store::path(folder), connection.to_json()).expect("written");
    }

    #[test]
    fn connection_secret_is_read_and_new_secret_is_unbound() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = Places {
            state: Some(folder.path().to_owned()),
            ..Places::default()
        };
        let read = || Secrets::new(places.clone(), None).0;
        assert!(read().current().is_empty());
        connected(folder.path(), None);
        assert!(
            read().current().is_empty(),
            "without a webhook configuration it has none"
        );
        connected(folder.path(), Some("first"));
        let secrets = read();
        let installation = |secrets: &Secrets| {
            let connection = secrets.current().connection.clone();
            connection.expect("a connection").installation
        };
        assert_eq!(installation(&secrets), None);
        secrets.bind("7001");
        assert_eq!(installation(&secrets).as_deref(), Some("7001"));
        let bound = secrets.bound.read().expect("not poisoned").clone();
        let again = Secrets::new(places.clone(), bound.clone()).0;
        assert_eq!(
            installation(&again).as_deref(),
            Some("7001"),
            "after a restart"
        );
        connected(folder.path(), Some("second"));
        let anew = Secrets::new(places.clone(), bound).0;
        assert_eq!(installation(&anew), None);
    }

    #[test]
    fn file_that_cannot_be_used_proves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let write = |text: &str| std::fs::write(&file, text).expect("written");
        write("current\nprevious\n");
        let places = Places {
            application: Some(SecretPlace::File(file.clone())),
            installations: [(
                "9".to_owned(),
                SecretPlace::File(folder.path().join("none")),
            )]
            .into(),
            state: None,
        };
        let (first, faults) = places.read();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(first.keyring(None).application.len(), 2);
        assert!(!format!("{first:?}").contains("current"));
        for text in ["", "\n", "current\nbroken \u{7} line\n"] {
            write(text);
            let (read, faults) = places.read();
            assert!(read.keyring(None).is_empty(), "{text:?}");
            assert_eq!(faults.len(), 2, "{text:?}");
        }
        std::fs::remove_file(&file).expect("removed");
        let (read, faults) = places.read();
        assert!(read.keyring(None).is_empty(), "{faults:?}");
    }
}
