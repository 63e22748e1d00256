//! The secrets that a delivery may have been signed with (§6.4.4), which are its installation's
//! secrets or, if there are none, the one received by `connect`, followed by the application's.
//!
//! The header that identifies the installation isn't signed, so all it does is select which secrets
//! to try.

use super::headers::Headers;
use callbridge_model::webhook_signature::{Key, Signature, Signing};
use std::collections::BTreeMap;

/// The current secrets for verifying deliveries. Cheap to clone, because there are only a few.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    /// Each installation's current and previous secret by installation ID, from
    /// `--installation-secret ID=F`.
    pub installations: BTreeMap<String, Vec<Key>>,
    /// The secret received by `connect`, if there's a connection. Since a token response doesn't
    /// identify its installation (§6.4.6), this is tried for any installation that doesn't have
    /// secrets of its own.
    pub connection: Option<Key>,
    /// Current and previous secret from `--webhook-secret-file`.
    pub application: Vec<Key>,
}

impl Keyring {
    /// Returns `true` if there are no secrets, so that no delivery can be verified.
    pub fn is_empty(&self) -> bool {
        self.installations.is_empty() && self.connection.is_none() && self.application.is_empty()
    }

    /// Starts verifying a delivery's signature. Its body is passed in pieces.
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

/// A delivery that's being verified.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The secrets that the delivery may have been signed with, most likely first.
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

    /// Returns whether the signature was made with one of the secrets, or `None` if there's no
    /// secret for the delivery.
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
