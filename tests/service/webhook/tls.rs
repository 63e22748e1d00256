//! Tests the receiver's own HTTPS, and a certificate that is renewed while in use.

use super::line::soon;
use super::place::{Delivery, Place};
use callbridge_webhook::tls;
use callbridge_webhook::tls::Certificate;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Writes a new certificate and its key. Returns the certificate.
fn renew(folder: &Path) -> CertificateDer<'static> {
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let own = params.self_signed(&key).expect("a certificate");
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).expect("written");
    std::fs::write(folder.join("cert.pem"), own.pem()).expect("written");
    own.der().clone()
}

/// Posts over TLS and trusts only this certificate. Returns the status, or `None` if TLS fails.
async fn post(addr: SocketAddr, trusted: &CertificateDer<'static>, request: &[u8]) -> Option<u16> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let posting = async {
        let stream = TcpStream::connect(addr).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(Arc::new(client));
        let mut stream = connector.connect(name, stream).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.ok()?;
        String::from_utf8_lossy(&head)
            .split(' ')
            .nth(1)?
            .parse()
            .ok()
    };
    soon("an answer", posting).await
}

#[tokio::test]
async fn certificate_is_renewed_without_restart_unless_broken() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = renew(folder.path());
    let files = Certificate {
        chain: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    let (current, keeping) = tls::keep("webhooks", files.clone()).expect("it serves");
    let mut changes = current.server.clone();
    let keeping = tokio::spawn(keeping);
    let place = Place::start_with(Some(current.server)).await;
    let request = Delivery::for_call(1).request();
    assert_eq!(post(place.addr, &first, &request).await, Some(200));
    std::fs::write(&files.key, "torn").expect("written");
    let second = renew(folder.path());
    soon("the new certificate", changes.changed())
        .await
        .expect("kept");
    assert_eq!(post(place.addr, &first, &request).await, None);
    assert_eq!(post(place.addr, &second, &request).await, Some(200));
    let mut plain = place.line().await;
    plain.send(&request).await;
    plain.wait_for_end().await;
    keeping.abort();
    place.stop().await;
}

#[tokio::test]
async fn missing_certificate_key_error_names_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    renew(folder.path());
    let files = Certificate {
        chain: folder.path().join("cert.pem"),
        key: folder.path().join("none.pem"),
    };
    let error = tls::keep("webhooks", files).map(drop).expect_err("no key");
    assert!(error.to_string().contains("none.pem"), "{error}");
}
