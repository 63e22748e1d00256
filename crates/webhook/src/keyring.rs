//! The secrets that can have signed a delivery (§6.4.4): those of its installation or, without any,
//! the one that `connect` received, and then the application's.
//!
//! The header that names the installation isn't signed, so it only selects which secrets are tried.

use super::headers::Headers;
use callbridge_model::webhook_signature::{Key, Signature, Signing};
use std::collections::BTreeMap;

/// The current secrets that verify deliveries. Cheap to clone, because there are few.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    /// `--installation-secret ID=F`: the current and previous secret of each installation, by its
    /// id.
    pub installations: BTreeMap<String, Vec<Key>>,
    /// The secret that `connect` received, if there is a connection. No token response names its
    /// installation (§6.4.6), so it's tried for every one without a secret of its own.
    pub connection: Option<Key>,
    /// Current and previous secret of `--webhook-secret-file`.
    pub application: Vec<Key>,
}

impl Keyring {
    /// Returns `true` if there is no secret, so no delivery can be verified.
    pub fn is_empty(&self) -> bool {
        self.installations.is_empty() && self.connection.is_none() && self.application.is_empty()
    }

    /// Starts to verify the signature of a delivery, whose body arrives in pieces.
    pub fn begin(&self, headers: &Headers) -> Proof {
        let own = match self.installations.get(&headers.installation) {
            Some(own) => own.as_slice(),
            None => self.connection.as_slice(),
        };
        let keys = own.iter().chain(&self.application);
        Proof {
            tried: keys.map(|key| key.begin(&headers.timestamp)).collect(),
            signature: headers.signature,
        }
    }
}

/// A delivery that is being verified.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The secrets that can have signed the delivery, the likeliest first.
    tried: Vec<Signing>,
    signature: Signature,
}

impl Proof {
    /// Adds the next piece of the request body to the signature check.
    pub fn add(&mut self, piece: &[u8]) {
        for signing in &mut self.tried {
            signing.add(piece);
        }
    }

    /// Returns whether one of the secrets made the signature, or `None` if there's no secret for
    /// the delivery.
    pub fn verify(self) -> Option<bool> {
        let mut tried = self.tried.into_iter().peekable();
        tried.peek()?;
        Some(tried.any(|signing| signing.makes(&self.signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::Secret;

    fn prove(keyring: &Keyring, installation: &str, by: &str) -> Option<bool> {
        let signature = Key::new(&Secret::from(by)).sign("1", b"{}");
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
        proof.verify()
    }

    fn keys(texts: &[&str]) -> Vec<Key> {
        let secrets = texts.iter().map(|text| Secret::from(*text));
        secrets.map(|secret| Key::new(&secret)).collect()
    }

    #[test]
    fn current_or_previous_secret_verifies_its_installation() {
        let keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own", "own before"]))].into(),
            application: keys(&["app", "app before"]),
            ..Keyring::default()
        };
        for (installation, by, is_signed) in [
            ("9", "own", true),
            ("9", "own before", true),
            ("9", "app", true),
            ("9", "app before", true),
            ("9", "other", false),
            ("8", "own", false),
            ("8", "app", true),
        ] {
            assert_eq!(prove(&keyring, installation, by), Some(is_signed), "{by}");
        }
    }

    #[test]
    fn connection_secret_verifies_any_unlisted_installation() {
        let keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own"]))].into(),
            connection: keys(&["mine"]).pop(),
            ..Keyring::default()
        };
        assert_eq!(prove(&keyring, "8", "mine"), Some(true));
        assert_eq!(prove(&keyring, "7", "mine"), Some(true));
        assert_eq!(prove(&keyring, "7", "another's"), Some(false));
        assert_eq!(prove(&keyring, "9", "mine"), Some(false), "it has its own");
    }

    #[test]
    fn keyring_without_a_secret_returns_no_verdict() {
        assert!(Keyring::default().is_empty());
        assert_eq!(prove(&Keyring::default(), "9", "any"), None);
        let keyring = Keyring {
            installations: [("9".to_owned(), keys(&["own"]))].into(),
            ..Keyring::default()
        };
        assert_eq!(prove(&keyring, "8", "any"), None);
    }
}
