//! The OAuth connection as stored. A change states which connection it replaces, and is refused if
//! another one has been stored in the meantime.

use callbridge_model::{ExposeSecret as _, Secret};
use serde::Deserialize;

/// A connection as stored. All values are secret.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredConnection {
    /// Identifies the connection, because every refresh and every consent creates a new one.
    pub refresh_token: Secret,
    /// The connection as JSON.
    pub content: Secret,
}

impl StoredConnection {
    fn has_token_of(&self, other: &Self) -> bool {
        self.refresh_token.expose_secret() == other.refresh_token.expose_secret()
    }
}

impl PartialEq for StoredConnection {
    fn eq(&self, other: &Self) -> bool {
        self.has_token_of(other) && self.content.expose_secret() == other.content.expose_secret()
    }
}

impl Eq for StoredConnection {}

/// A change to the connection, made only if the refresh token in `from` is still the stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionChange {
    /// The connection that was read, or `None` if none was stored.
    pub from: Option<StoredConnection>,
    /// The connection to store, or `None` to remove it.
    pub to: Option<StoredConnection>,
}
