//! Secrets that a service shows once, at the first exchange (§5.6.8). `disconnect` ends the tokens,
//! not the connection in the CRM: a later consent brings these secrets no more, and webhooks go on
//! being signed with them. So they outlive the connection's file.

use super::connection::{Client, Connection, bare_option};
use super::store::{self, Error};
use callbridge_model::{Secret, plain_file};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::Path;

pub const FILE: &str = "shown-once.json";
/// Maximum bytes that are read of it.
const FILE_MAX: u64 = 64 * 1024;

/// Secrets that a CRM has shown once to one client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownOnce {
    crm_url: String,
    client_id: String,
    /// Secret with which the CRM signs webhooks.
    #[serde(serialize_with = "bare_option")]
    pub webhook_secret: Option<Secret>,
    /// Secret with which the CRM signs embedded pages.
    #[serde(serialize_with = "bare_option")]
    pub embedded_secret: Option<Secret>,
}

impl ShownOnce {
    /// Takes them from a connection that this client replaces.
    pub fn of(connection: &Connection, client: &Client) -> Self {
        let shown = Self {
            crm_url: connection.client.crm_url.clone(),
            client_id: connection.client.client_id.clone(),
            webhook_secret: connection.webhook_secret.clone(),
            embedded_secret: connection.embedded_secret.clone(),
        };
        let shown = Some(shown).filter(|it| it.is_of(client));
        shown.unwrap_or_default()
    }

    /// Secrets from an earlier connection of this client. If the file cannot be read, returns none
    /// and logs a warning.
    pub fn left(dir: &Path, client: &Client) -> Self {
        let stored = stored(dir).unwrap_or_else(|why| {
            tracing::warn!(
                %why,
                "secrets that the CRM has shown once cannot be read: give them by hand, or have \
                 the CRM make new ones"
            );
            None
        });
        stored.filter(|it| it.is_of(client)).unwrap_or_default()
    }

    fn is_of(&self, client: &Client) -> bool {
        self.client_id == client.client_id && self.crm_url == client.crm_url
    }
}

/// Reads the file. `None` if there is none. An error never contains a value of the file.
fn stored(dir: &Path) -> Result<Option<ShownOnce>, String> {
    let path = dir.join(FILE);
    match plain_file::read(&path, FILE_MAX) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| format!("{} is damaged in line {}", path.display(), error.line())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Stores those of a connection that ends, if it has any. An unreadable file is renamed, because
/// its secrets are not shown again.
///
/// # Errors
/// If the folder cannot be written.
pub fn keep(dir: &Path, connection: &Connection) -> Result<(), Error> {
    let kept = ShownOnce::of(connection, &connection.client);
    if kept.webhook_secret.is_none() && kept.embedded_secret.is_none() {
        return Ok(());
    }
    let path = dir.join(FILE);
    let write = || -> io::Result<()> {
        if stored(dir).is_err() {
            std::fs::rename(&path, dir.join(format!("{FILE}.damaged")))?;
        }
        let new = dir.join(format!("{FILE}.new"));
        store::replace(dir, &new, &path, &serde_json::to_vec_pretty(&kept)?)
    };
    write().map_err(|error| Error::not_writable(path.clone(), error))
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::connection;
    use super::*;
    use callbridge_model::ExposeSecret as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn shown_secrets_outlive_connection_only_for_same_client() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        let ours = connection();
        assert!(ShownOnce::left(dir, &ours.client).webhook_secret.is_none());
        keep(dir, &ours).expect("kept");
        let left = ShownOnce::left(dir, &ours.client)
            .webhook_secret
            .expect("there");
        assert_eq!(left.expose_secret(), "webhook_hidden");
        let mode = dir.join(FILE).metadata().expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let other = Client {
            client_id: "svc_app_2".to_owned(),
            ..ours.client.clone()
        };
        assert!(ShownOnce::left(dir, &other).webhook_secret.is_none());
        assert!(ShownOnce::of(&ours, &other).webhook_secret.is_none());
        std::fs::write(dir.join(FILE), "torn webhook_hidden").expect("written");
        assert!(ShownOnce::left(dir, &ours.client).webhook_secret.is_none());
        let why = stored(dir).expect_err("damaged");
        assert!(why.contains("damaged") && !why.contains("hidden"), "{why}");
        keep(dir, &ours).expect("kept");
        assert!(ShownOnce::left(dir, &ours.client).webhook_secret.is_some());
        let beside = std::fs::read(dir.join(format!("{FILE}.damaged")));
        assert_eq!(beside.expect("there"), b"torn webhook_hidden");
    }
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<ShownOnce>("shown-once");
    }
}
