//! A certificate authority for tests, and the certificates that a client has to refuse.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use std::path::PathBuf;
use std::time::Duration;

/// What is wrong with a certificate for `localhost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The certificate is valid.
    None,
    /// It is for another name.
    WrongName,
    /// It has expired.
    Expired,
    /// It is signed only by itself.
    SelfSigned,
}

impl Flaw {
    /// The three flaws that must be refused, each with words that the refusal must contain.
    pub const REFUSED: [(Self, &'static str); 3] = [
        (Self::WrongName, "is for another name"),
        (Self::Expired, "has expired"),
        (Self::SelfSigned, "is self-signed"),
    ];
}

/// A certificate and its key, as PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// An authority. Its files are removed when it is dropped.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Makes an authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = "callbridge test authority";
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a root");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
        Self { issuer, folder }
    }

    /// Returns the path of its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a server's certificate for `localhost` that expires at this time since the epoch.
    pub fn identity_until(&self, expiry: Duration) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_after = date_time_ymd(1970, 1, 1) + expiry;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Issues a server's certificate for `localhost` with this flaw.
    pub fn identity(&self, flaw: Flaw) -> Identity {
        let name = match flaw {
            Flaw::WrongName => "pbx.example",
            Flaw::None | Flaw::Expired | Flaw::SelfSigned => "localhost",
        };
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        if flaw == Flaw::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = match flaw {
            Flaw::SelfSigned => params.self_signed(&key),
            Flaw::None | Flaw::WrongName | Flaw::Expired => params.signed_by(&key, &self.issuer),
        };
        Identity {
            certificate: certificate.expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }
}
