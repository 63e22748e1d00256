//! Secrets that a CRM only shows once, at the first exchange (§5.6.8). `disconnect` ends the tokens
//! but not the connection in the CRM, so a later consent doesn't return these secrets, and webhooks
//! are still signed with them. That's why the secrets are stored separately and outlive the
//! connection.

use super::connection::{Client, Connection, bare_option};
use callbridge_model::{ExposeSecret as _, Secret};
use callbridge_spool::{ConnectionStore, Error};
use serde::{Deserialize, Serialize};

/// Secrets that a CRM has shown once to an application.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownOnce {
    crm_url: String,
    client_id: String,
    /// The secret that the CRM signs webhooks with.
    #[serde(serialize_with = "bare_option")]
    pub webhook_secret: Option<Secret>,
    /// The secret that the CRM signs embedded pages with.
    #[serde(serialize_with = "bare_option")]
    pub embedded_secret: Option<Secret>,
}

impl ShownOnce {
    /// Copies a connection's secrets, or returns none if the connection belongs to a different
    /// client.
    pub fn from_connection(connection: &Connection, client: &Client) -> Self {
        let shown = Self {
            crm_url: connection.client.crm_url.clone(),
            client_id: connection.client.client_id.clone(),
            webhook_secret: connection.webhook_secret.clone(),
            embedded_secret: connection.embedded_secret.clone(),
        };
        if shown.is_of(client) {
            shown
        } else {
            Self::default()
        }
    }

    /// Reads the secrets stored for an earlier connection of this client. If there are none for
    /// this client, or if they can't be parsed (which is logged as a warning), none are returned.
    ///
    /// # Errors
    /// Returns an error if the state can't be read.
    pub fn read_earlier(state: &ConnectionStore, client: &Client) -> Result<Self, Error> {
        let Some(stored) = state.shown_once()? else {
            return Ok(Self::default());
        };
        match serde_json::from_str::<Self>(stored.expose_secret()) {
            Ok(shown) if shown.is_of(client) => Ok(shown),
            Ok(_) => Ok(Self::default()),
            Err(_) => {
                // serde's error might contain a secret, so it isn't logged.
                tracing::warn!(
                    "cannot read the stored secrets that the CRM shows only once: enter them by \
                     hand, or have the CRM make new ones"
                );
                Ok(Self::default())
            }
        }
    }

    fn is_of(&self, client: &Client) -> bool {
        self.client_id == client.client_id && self.crm_url == client.crm_url
    }
}

/// Stores the secrets of a connection that's ending, if it has any.
///
/// # Errors
/// Returns an error if the state can't be written.
pub fn keep(state: &ConnectionStore, connection: &Connection) -> Result<(), Error> {
    let kept = ShownOnce::from_connection(connection, &connection.client);
    if kept.webhook_secret.is_none() && kept.embedded_secret.is_none() {
        return Ok(());
    }
    let text = serde_json::to_string(&kept).unwrap_or_default();
    state.keep_shown_once(&Secret::from(text))
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::connection;
    use super::*;

    fn secret_left_for(client: &Client, state: &ConnectionStore) -> Option<String> {
        let left = ShownOnce::read_earlier(state, client).expect("readable");
        let secret = left.webhook_secret?;
        Some(secret.expose_secret().to_owned())
    }

    #[test]
    fn shown_secrets_outlive_connection_only_for_same_client() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_handle, guard) =
            callbridge_spool::open(folder.path(), callbridge_spool::Settings::default())
                .expect("a state");
        let state = ConnectionStore::new(folder.path());
        let ours = connection();
        assert_eq!(secret_left_for(&ours.client, &state), None);
        keep(&state, &ours).expect("kept");
        assert_eq!(
            secret_left_for(&ours.client, &state).as_deref(),
            Some("webhook_hidden")
        );
        let other = Client {
            client_id: "svc_app_2".to_owned(),
            ..ours.client.clone()
        };
        assert_eq!(secret_left_for(&other, &state), None);
        assert!(
            ShownOnce::from_connection(&ours, &other)
                .webhook_secret
                .is_none()
        );
        let torn = Secret::from("torn webhook_hidden");
        state.keep_shown_once(&torn).expect("kept");
        assert_eq!(secret_left_for(&ours.client, &state), None);
        keep(&state, &ours).expect("kept");
        assert!(secret_left_for(&ours.client, &state).is_some());
        guard.close();
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
