//! TLS for PostgreSQL, using rustls with ring, with the system's root certificates or those from
//! `ca-file=`. The certificate must be valid for the host, and no check can be turned off.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Creates a TLS connector that trusts the roots in `ca_file`, or else the system's roots.
pub(super) fn connector(ca_file: Option<&Path>) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => add_file(&mut roots, path)?,
        None => {
            let system = rustls_native_certs::load_native_certs();
            // If a root can't be read, fewer servers are trusted, never more.
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                let fix = "this machine has no CA certificates: install the package \
                           ca-certificates, or give ca-file=FILE";
                return Err(fix.to_owned());
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| error.to_string())?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    for certificate in CertificateDer::pem_file_iter(path).map_err(|why| file_error(path, &why))? {
        let certificate = certificate.map_err(|why| file_error(path, &why))?;
        roots
            .add(certificate)
            .map_err(|why| file_error(path, &why))?;
    }
    if roots.is_empty() {
        return Err(file_error(path, &"contains no PEM certificate"));
    }
    Ok(())
}

fn file_error(path: &Path, why: &dyn Display) -> String {
    format!("ca-file={}: {why}", path.display())
}
