//! The signature of a delivery (§6.4): `sha256=` and the lowercase hex HMAC-SHA256 over
//! `timestamp.raw-body`. The key is the text of the secret, which is not decoded.

use crate::secret::{ExposeSecret as _, Secret};
use data_encoding::HEXLOWER;
use ring::hmac;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// The name of the algorithm before the hex digits.
const PREFIX: &str = "sha256=";
/// Length of an HMAC-SHA256 in bytes.
const BYTES: usize = 32;

/// A secret that is ready to sign and verify. It cannot be printed.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key([REDACTED])")
    }
}

impl Key {
    /// Makes the key of a secret: its UTF-8 bytes.
    pub fn new(secret: &Secret) -> Self {
        let text = secret.expose_secret().as_bytes();
        Self(hmac::Key::new(hmac::HMAC_SHA256, text))
    }

    /// Returns the header's value for a body. `timestamp` is the text of `X-Webhook-Timestamp`.
    pub fn sign(&self, timestamp: &str, body: &[u8]) -> String {
        let mut signing = self.begin(timestamp);
        signing.add(body);
        format!("{PREFIX}{}", HEXLOWER.encode(signing.0.sign().as_ref()))
    }

    /// Begins a signature over a body that arrives in pieces. `timestamp` is the text of
    /// `X-Webhook-Timestamp`.
    pub fn begin(&self, timestamp: &str) -> Signing {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(timestamp.as_bytes());
        context.update(b".");
        Signing(context)
    }
}

/// A signature over the part of a body that has arrived. It cannot be printed.
#[derive(Clone)]
pub struct Signing(hmac::Context);

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signing([REDACTED])")
    }
}

impl Signing {
    /// Adds the next piece, exactly as it arrived.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns `true` if the body has this signature. Compares in constant time.
    pub fn makes(self, signature: &Signature) -> bool {
        self.0.sign().as_ref().ct_eq(&signature.0).into()
    }
}

/// A syntactically valid header value, not verified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature([u8; BYTES]);

impl Signature {
    pub const fn bytes(&self) -> [u8; BYTES] {
        self.0
    }

    /// Reads `sha256=` and 64 lowercase hex digits. `None` for anything else, including other
    /// algorithms.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits: &[u8; 2 * BYTES] = text.strip_prefix(PREFIX.as_bytes())?.try_into().ok()?;
        let bytes = HEXLOWER.decode(digits).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "4f1a0c9d2b7e6058a3c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829";

    fn key(secret: &str) -> Key {
        Key::new(&Secret::from(secret))
    }

    fn is_valid(key: &Key, timestamp: &str, body: &[u8], signature: &str) -> bool {
        let Some(signature) = Signature::parse(signature.as_bytes()) else {
            return false;
        };
        let mut signing = key.begin(timestamp);
        // The result is the same, however the body is split.
        let (first, rest) = body.split_at(body.len() / 3);
        signing.add(first);
        signing.add(rest);
        signing.makes(&signature)
    }

    /// Signatures made with `printf '%s' 'TIMESTAMP.BODY' | openssl dgst -sha256 -hmac SECRET`.
    const VECTORS: [(&str, &str, &str, &str); 3] = [
        (
            SECRET,
            "1795151317",
            r#"{"eventId":"7d0c5bb4-5d3f-4a57-9f0b-3a1c2f1d8e10","companyId":77}"#,
            "sha256=bb5332294d5289f75a6bbbbd2a167aa3f80ecf9310a3bf67dc69cfb86a597422",
        ),
        (
            SECRET,
            "0",
            "",
            "sha256=4581d2ad073a3505de404ece92441d1fd7f0a0f876e69cc771019fdc082e0884",
        ),
        (
            "ключ",
            "1795151317",
            "тело\n",
            "sha256=66e63839fc68783b2b205a1735e3106079dfa7a4ba37a5cea4df8baa5628d500",
        ),
    ];

    #[test]
    fn signatures_match_those_of_openssl() {
        for (secret, timestamp, body, expected) in VECTORS {
            let key = key(secret);
            assert_eq!(key.sign(timestamp, body.as_bytes()), expected);
            assert!(is_valid(&key, timestamp, body.as_bytes(), expected));
        }
    }

    #[test]
    fn signature_needs_prefix_lowercase_hex_and_exact_length() {
        let good = key(SECRET).sign("1", b"x");
        assert!(Signature::parse(good.as_bytes()).is_some());
        for wrong in [
            String::new(),
            "sha256=".into(),
            good.replace("sha256=", ""),
            good.replace("sha256=", "sha512="),
            good.replace("sha256=", "SHA256="),
            good.to_uppercase().replace("SHA256", "sha256"),
            good[..good.len() - 1].to_owned(),
            format!("{good}0"),
            format!("{good} "),
            format!("{good},{good}"),
            format!("sha256={}", "g".repeat(64)),
        ] {
            assert!(Signature::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn key_is_never_printed() {
        assert_eq!(format!("{:?}", key(SECRET)), "Key([REDACTED])");
        let signing = key(SECRET).begin("1");
        assert_eq!(format!("{signing:?}"), "Signing([REDACTED])");
    }

    proptest! {
        #[test]
        fn signature_is_valid_only_for_its_key_body_and_time(
            secret in "[0-9a-f]{64}", timestamp in "[0-9]{1,10}", body in any::<Vec<u8>>(),
            other in any::<Vec<u8>>(),
        ) {
            let (own, body) = (key(&secret), body.as_slice());
            let signature = own.sign(&timestamp, body);
            prop_assert!(is_valid(&own, &timestamp, body, &signature));
            let (another, later) = (key(&format!("{secret}0")), format!("{timestamp}0"));
            prop_assert!(!is_valid(&another, &timestamp, body, &signature));
            prop_assert!(!is_valid(&own, &later, body, &signature));
            prop_assert_eq!(is_valid(&own, &timestamp, &other, &signature), other == body);
        }

        #[test]
        fn signature_parser_never_panics_on_arbitrary_bytes(text in any::<Vec<u8>>()) {
            let read = Signature::parse(&text);
            prop_assert!(read.is_none() || text.len() == PREFIX.len() + 2 * BYTES);
        }
    }
}
