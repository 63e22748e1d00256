//! Which secrets may have signed a delivery (§6.4.4): those of its installation first, then the
//! application's.

use super::signature::{Key, Message, Signature};
use crate::secret::{ExposeSecret as _, Secret};
use std::collections::BTreeMap;

/// The secrets in force. Cheap to clone where there are few, as there are.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    /// `--installation-secret ID=F`: current and previous of each.
    pub installations: BTreeMap<String, Vec<Key>>,
    /// The one that `connect` was given.
    pub connection: Option<Connection>,
    /// `--webhook-secret-file`: current and previous.
    pub application: Vec<Key>,
}

/// The secret of our own connection. Which installation that is, no token response tells: the
/// first delivery that it proves does (§6.4.6).
#[derive(Clone, Debug)]
pub struct Connection {
    /// The secret.
    pub key: Key,
    /// A short hash of it.
    pub print: String,
    /// The installation that it was found to belong to.
    pub installation: Option<String>,
}

impl Connection {
    /// A secret, and what is known of an earlier one: the text of [`Connection::binding`].
    pub fn new(secret: &Secret, bound: Option<&str>) -> Self {
        let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), secret.expose_secret().as_bytes());
        let print = hash.simple().to_string()[16..].to_owned();
        let bound = bound.and_then(|bound| bound.split_once(' '));
        let installation = bound
            .filter(|(known, _)| *known == print)
            .map(|(_, installation)| installation.to_owned());
        Self {
            key: Key::new(secret),
            print,
            installation,
        }
    }

    /// Under which text it is remembered that this secret is that installation's.
    pub fn binding(&self, installation: &str) -> String {
        format!("{} {installation}", self.print)
    }
}

/// Whose secret has proved a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The installation's, by its flag.
    Installation,
    /// Our connection's, known to be this installation's.
    Connection,
    /// Our connection's, and so this installation is our own.
    Unbound,
    /// The application's.
    Application,
}

impl Keyring {
    /// No secret at all.
    pub fn is_empty(&self) -> bool {
        self.installations.is_empty() && self.connection.is_none() && self.application.is_empty()
    }

    /// Whose secret made the signature. `None` when there is none to try; `Some(None)` when it was
    /// none of those.
    pub fn prove(
        &self,
        installation: &str,
        message: &Message,
        signature: &Signature,
    ) -> Option<Option<Whose>> {
        let mut tried = false;
        let mut proves = |key: &Key| {
            tried = true;
            key.proves(message, signature)
        };
        let own = self.installations.get(installation);
        let connection = self.connection.as_ref();
        let connection = connection.filter(|it| match &it.installation {
            Some(bound) => bound == installation,
            None => own.is_none(),
        });
        if own.is_some_and(|keys| keys.iter().any(&mut proves)) {
            return Some(Some(Whose::Installation));
        }
        if let Some(connection) = connection.filter(|it| proves(&it.key)) {
            let bound = connection.installation.is_some();
            return Some(Some(if bound {
                Whose::Connection
            } else {
                Whose::Unbound
            }));
        }
        if self.application.iter().any(&mut proves) {
            return Some(Some(Whose::Application));
        }
        tried.then_some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::from(text)
    }

    fn prove(keyring: &Keyring, installation: &str, by: &str) -> Option<Option<Whose>> {
        let signature = Key::new(&secret(by)).sign("1", b"{}");
        let signature = Signature::parse(signature.as_bytes()).expect("a signature");
        keyring.prove(installation, &Message::new("1", b"{}"), &signature)
    }

    fn keys(texts: &[&str]) -> Vec<Key> {
        texts.iter().map(|text| Key::new(&secret(text))).collect()
    }

    #[test]
    fn the_installations_secrets_come_before_the_applications_and_each_current_and_previous() {
        let keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own", "own before"]))].into(),
            application: keys(&["app", "app before"]),
            ..Keyring::default()
        };
        for (installation, by, whose) in [
            ("9", "own", Some(Whose::Installation)),
            ("9", "own before", Some(Whose::Installation)),
            ("9", "app", Some(Whose::Application)),
            ("9", "app before", Some(Whose::Application)),
            ("9", "other", None),
            ("8", "own", None),
            ("8", "app", Some(Whose::Application)),
        ] {
            assert_eq!(prove(&keyring, installation, by), Some(whose), "{by}");
        }
    }

    #[test]
    fn the_connections_secret_is_tried_for_an_unknown_installation_until_it_is_bound() {
        let mut keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own"]))].into(),
            connection: Some(Connection::new(&secret("mine"), None)),
            ..Keyring::default()
        };
        assert_eq!(prove(&keyring, "8", "mine"), Some(Some(Whose::Unbound)));
        assert_eq!(prove(&keyring, "9", "mine"), Some(None), "it has its own");
        let unbound = keyring.connection.clone().expect("a connection");
        let bound = unbound.binding("8");
        keyring.connection = Some(Connection::new(&secret("mine"), Some(&bound)));
        assert_eq!(prove(&keyring, "8", "mine"), Some(Some(Whose::Connection)));
        assert_eq!(
            prove(&keyring, "7", "mine"),
            None,
            "another's: nothing to try"
        );
        keyring.connection = Some(Connection::new(&secret("a new one"), Some(&bound)));
        assert_eq!(
            prove(&keyring, "7", "a new one"),
            Some(Some(Whose::Unbound))
        );
    }

    #[test]
    fn without_a_secret_nothing_is_forged_and_nothing_proved() {
        assert!(Keyring::default().is_empty());
        assert_eq!(prove(&Keyring::default(), "9", "any"), None);
    }
}
