//! Tests amqps with a real broker, and certificates that must be refused.

use super::stage::{Stage, settings};
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

fn url(host: &str, port: u16, queue: &str, ca_file: &Path) -> String {
    let (ca_file, vhost) = (ca_file.display(), Broker::shared().vhost());
    format!(
        "amqps://{ADMINISTRATOR}@{host}:{port}/{vhost}?queue={queue}&format=asterisk-cel\
         &ca-file={ca_file}"
    )
}

#[tokio::test]
async fn amqps_connects_to_a_broker_with_the_given_ca() {
    let broker = Broker::shared();
    broker.declare("tls").await;
    broker.publish("tls", &["a"]).await;
    let url = url("localhost", broker.tls_port(), "tls", &broker.ca_file());
    let mut stage = Stage::start(&url, settings());
    stage.expect_up().await;
    assert_eq!(stage.expect_texts(1).await, ["a"]);
}

#[tokio::test]
async fn broker_certificate_for_another_name_is_refused() {
    let broker = Broker::shared();
    let url = url("127.0.0.1", broker.tls_port(), "tls", &broker.ca_file());
    let why = Stage::start(&url, settings()).expect_down().await;
    assert!(why.contains("is for another name"), "{why}");
}

#[tokio::test]
async fn amqps_refuses_flawed_certificates_and_names_flaw() {
    let authority = Authority::new();
    for (flaw, word) in Flaw::REFUSED {
        let identity = authority.identity(flaw);
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.expect("a certificate")], key)
            .expect("they fit");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let listening = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                assert!(acceptor.accept(tcp).await.is_err(), "{flaw:?} was accepted");
            }
        });
        let url = url("localhost", port, "q", &authority.ca_file());
        let why = Stage::start(&url, settings()).expect_down().await;
        assert!(
            why.contains("localhost") && why.contains(word),
            "{flaw:?}: {why}"
        );
        listening.abort();
        assert!(!listening.await.is_err_and(|error| error.is_panic()));
    }
}
