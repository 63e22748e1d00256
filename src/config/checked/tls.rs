//! What the two listeners for other machines share: their certificate, and flags that do nothing
//! without an address.

use crate::config::Faults;
use crate::values;
use callbridge_webhook::tls::Certificate;

/// The certificate and its key: both, or neither. `of` begins their flags, `holds` says what is in
/// their files.
pub(super) fn certificate(
    of: &str,
    (chain, key): (&Option<String>, &Option<String>),
    holds: &str,
    faults: &mut Faults,
) -> Option<Certificate> {
    let (cert_flag, key_flag) = (format!("--{of}-cert"), format!("--{of}-key"));
    let path = |text: &str| values::path(text).map_err(|words| format!("{words}{holds}"));
    let files = (
        faults.read(&cert_flag, chain, path),
        faults.read(&key_flag, key, path),
    );
    match (chain, key) {
        (Some(_), None) => faults.add(&cert_flag, format!("needs {key_flag}, its private key")),
        (None, Some(_)) => faults.add(&key_flag, format!("needs {cert_flag}, its certificate")),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let (Some(chain), Some(key)) = files else {
        return None;
    };
    Some(Certificate { chain, key })
}

/// Without an address the other flags do nothing, which nobody wants who gives them.
pub(super) fn alone(needed: &str, given: &[(&str, bool)], faults: &mut Faults) {
    for (flag, _) in given.iter().filter(|(_, given)| *given) {
        faults.add(flag, format!("does nothing without {needed} ADDR"));
    }
}
