//! The OAuth connection as it is stored. A change names the connection that it replaces. If another
//! connection was stored meanwhile, the change is refused.

use callbridge_model::{ExposeSecret as _, Secret};
use serde::Deserialize;

/// A connection as it is stored. All values are secret.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredConnection {
    /// Identifies the connection, because each refresh and each consent makes another token.
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

/// A change of the connection, made only if the refresh token of `from` is still stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionChange {
    /// The connection that was read. `None` if no connection was stored.
    pub from: Option<StoredConnection>,
    /// The connection to store. `None` removes it.
    pub to: Option<StoredConnection>,
}
