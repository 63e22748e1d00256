//! The secrets that can have signed a delivery (§6.4.4): first those of the delivery's
//! installation, then the application's.

use super::headers::Headers;
use callbridge_model::webhook_signature::{Key, Signature, Signing};
use callbridge_model::{ExposeSecret as _, Secret};
use std::collections::BTreeMap;

/// The current secrets that verify deliveries. Cheap to clone, because there are few.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    /// `--installation-secret ID=F`: the current and previous secret of each installation, by its
    /// id.
    pub installations: BTreeMap<String, Vec<Key>>,
    /// The secret that `connect` received, if there is a connection.
    pub connection: Option<Connection>,
    /// Current and previous secret of `--webhook-secret-file`.
    pub application: Vec<Key>,
}

/// The secret of our own connection. No token response names our installation, but the deliveries
/// that this secret verifies do (§6.4.6).
///
/// The header that names an installation is not signed, so it can be changed on the way. A delivery
/// with this secret's signature is therefore accepted under any header, and the newest one shows
/// our installation. A known installation only decides how another signature is refused: the secret
/// of another installation can be configured later, but ours is known.
#[derive(Clone, Debug)]
pub struct Connection {
    pub key: Key,
    /// A short hash of the secret.
    pub print: String,
    /// The id of the installation that the connection was found to be. `None` if it is not known
    /// yet.
    pub installation: Option<String>,
}

impl Connection {
    /// Creates a connection from its secret. `bound` is a stored text of [`Connection::binding`].
    /// The text is ignored if it was made with an earlier secret.
    pub fn new(secret: &Secret, bound: Option<&str>) -> Self {
        let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), secret.expose_secret().as_bytes());
        let print = hash.simple().to_string()[16..].to_owned();
        let installation = bound
            .and_then(|bound| bound.split_once(' '))
            .filter(|(known, _)| *known == print)
            .map(|(_, installation)| installation.to_owned());
        Self {
            key: Key::new(secret),
            print,
            installation,
        }
    }

    /// Returns the text to store when the connection is found to be this installation: the hash of
    /// the secret, and the installation's id.
    pub fn binding(&self, installation: &str) -> String {
        format!("{} {installation}", self.print)
    }
}

/// Owner of the secret that verified a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwner {
    /// The installation of the delivery, by `--installation-secret`.
    Installation,
    /// Our connection, and the delivery names the installation that it is known to be.
    Connection,
    /// Our connection, but the delivery names an installation that was not known to be ours. The
    /// matching secret shows that the installation is ours.
    Unbound,
    /// The application, by the secret of `--webhook-secret-file`.
    Application,
}

impl Keyring {
    /// Returns `true` if there is no secret, so no delivery can be verified.
    pub fn is_empty(&self) -> bool {
        self.installations.is_empty() && self.connection.is_none() && self.application.is_empty()
    }

    /// Starts to verify the signature of a delivery, whose body arrives in pieces.
    pub fn begin(&self, headers: &Headers) -> Proof {
        let own = self.installations.get(&headers.installation);
        let connection = if own.is_none() {
            self.connection.as_ref()
        } else {
            None
        };
        let known = connection.and_then(|connection| connection.installation.as_ref());
        let is_bound = known == Some(&headers.installation);
        let mut keys: Vec<(SecretOwner, &Key)> = Vec::new();
        for key in own.into_iter().flatten() {
            keys.push((SecretOwner::Installation, key));
        }
        if let Some(connection) = connection {
            let owner = if is_bound {
                SecretOwner::Connection
            } else {
                SecretOwner::Unbound
            };
            keys.push((owner, &connection.key));
        }
        for key in &self.application {
            keys.push((SecretOwner::Application, key));
        }
        let tried = keys
            .iter()
            .map(|(owner, key)| (*owner, key.begin(&headers.timestamp)))
            .collect();
        let bound_otherwise = known.is_some() && !is_bound;
        let meant = keys
            .iter()
            .any(|(owner, _)| !(bound_otherwise && *owner == SecretOwner::Unbound));
        Proof {
            tried,
            meant,
            signature: headers.signature,
        }
    }
}

/// A delivery that is being verified.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The secrets that can have signed the delivery, the likeliest first.
    tried: Vec<(SecretOwner, Signing)>,
    /// `true` if a signature by none of these secrets is forged. `false` if there is no secret, or
    /// only that of our connection, which is known to be another installation. The right secret can
    /// then be missing here.
    meant: bool,
    signature: Signature,
}

impl Proof {
    /// Adds the next piece of the request body to the signature check.
    pub fn add(&mut self, piece: &[u8]) {
        for (_, signing) in &mut self.tried {
            signing.add(piece);
        }
    }

    /// Returns the owner of the secret that made the signature. Returns `None` if the right secret
    /// can be missing, and `Some(None)` if the signature is forged.
    pub fn find_owner(self) -> Option<Option<SecretOwner>> {
        for (owner, signing) in self.tried {
            if signing.makes(&self.signature) {
                return Some(Some(owner));
            }
        }
        if self.meant { Some(None) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::from(text)
    }

    fn prove(keyring: &Keyring, installation: &str, by: &str) -> Option<Option<SecretOwner>> {
        let signature = Key::new(&secret(by)).sign("1", b"{}");
        let headers = Headers {
            id: "e".to_owned(),
            installation: installation.to_owned(),
            timestamp: "1".to_owned(),
            signed_at: 1,
            signature: Signature::parse(signature.as_bytes()).expect("a signature"),
        };
        let mut proof = keyring.begin(&headers);
        proof.add(b"{");
        proof.add(b"}");
        proof.find_owner()
    }

    fn keys(texts: &[&str]) -> Vec<Key> {
        texts.iter().map(|text| Key::new(&secret(text))).collect()
    }

    #[test]
    fn current_or_previous_secret_signature_shows_owner() {
        let keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own", "own before"]))].into(),
            application: keys(&["app", "app before"]),
            ..Keyring::default()
        };
        for (installation, by, owner) in [
            ("9", "own", Some(SecretOwner::Installation)),
            ("9", "own before", Some(SecretOwner::Installation)),
            ("9", "app", Some(SecretOwner::Application)),
            ("9", "app before", Some(SecretOwner::Application)),
            ("9", "other", None),
            ("8", "own", None),
            ("8", "app", Some(SecretOwner::Application)),
        ] {
            assert_eq!(prove(&keyring, installation, by), Some(owner), "{by}");
        }
    }

    #[test]
    fn connection_secret_verifies_any_unlisted_installation() {
        let mut keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own"]))].into(),
            connection: Some(Connection::new(&secret("mine"), None)),
            ..Keyring::default()
        };
        assert_eq!(
            prove(&keyring, "8", "mine"),
            Some(Some(SecretOwner::Unbound))
        );
        assert_eq!(prove(&keyring, "9", "mine"), Some(None), "it has its own");
        let unbound = keyring.connection.clone().expect("a connection");
        let bound = unbound.binding("8");
        keyring.connection = Some(Connection::new(&secret("mine"), Some(&bound)));
        assert_eq!(
            prove(&keyring, "8", "mine"),
            Some(Some(SecretOwner::Connection))
        );
        assert_eq!(
            prove(&keyring, "7", "mine"),
            Some(Some(SecretOwner::Unbound)),
            "a wrong binding heals"
        );
        assert_eq!(
            prove(&keyring, "7", "another's"),
            None,
            "its secret may be missing here: it may come again"
        );
        assert_eq!(prove(&keyring, "8", "another's"), Some(None), "forged");
        keyring.connection = Some(Connection::new(&secret("a new one"), Some(&bound)));
        assert_eq!(
            prove(&keyring, "7", "a new one"),
            Some(Some(SecretOwner::Unbound))
        );
    }

    #[test]
    fn empty_keyring_returns_no_verdict() {
        assert!(Keyring::default().is_empty());
        assert_eq!(prove(&Keyring::default(), "9", "any"), None);
    }
}
