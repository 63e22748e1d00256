//! The flags of a hub, and of a collector that sends to a hub.

use super::{Checking, certificate, crm, report_unused};
use crate::config::Faults;
use crate::config::flags::HubFlags;
use crate::values;
use callbridge_crm::Address;
use callbridge_model::{SecretKind, SecretPlace};
use callbridge_webhook::tls::Certificate;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The listener of `--collect`.
#[derive(Clone, Debug)]
pub struct CollectConfig {
    pub listen: SocketAddr,
    /// `--tls-cert` and `--tls-key`. `None` is possible only on loopback.
    pub tls: Option<Certificate>,
}

/// The connection of a collector to its hubs.
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// Addresses of the hubs, in the order in which they are tried.
    pub hubs: Vec<Address>,
    /// `None` if no token is needed, as in `explain`.
    pub token: Option<SecretPlace>,
    /// Certificates that replace the system's roots.
    pub ca_file: Option<PathBuf>,
}

/// Checks the flags of the listener. `None` without `--collect`, or if its address is wrong.
pub(super) fn collect(flags: &HubFlags, checking: &mut Checking<'_>) -> Option<CollectConfig> {
    let faults = &mut checking.faults;
    let tls = certificate("tls", (&flags.tls_cert, &flags.tls_key), "", faults);
    if !flags.collects() {
        let given = [
            ("--tls-cert", flags.tls_cert.is_some()),
            ("--tls-key", flags.tls_key.is_some()),
        ];
        report_unused("--collect", &given, faults);
        return None;
    }
    let message = "cannot be used with --forward: a hub sends to the CRM";
    faults.add_if(flags.forwards(), "--collect", message);
    let listen = faults.read("--collect", &flags.collect, listen_address)?;
    let is_open = !listen.ip().to_canonical().is_loopback();
    let without_tls = flags.tls_cert.is_none() && flags.tls_key.is_none();
    let message = format!(
        "tokens and calls could be read on the way to {listen}: give --tls-cert and --tls-key, or \
         listen on 127.0.0.1 behind a proxy with TLS"
    );
    faults.add_if(is_open && without_tls, "--collect", message);
    Some(CollectConfig { listen, tls })
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    values::address(text, ", such as 127.0.0.1:8443")
}

/// Checks the flags of the connection to the hubs. `None` without `--forward`, or if one of its
/// addresses is wrong.
pub(super) fn forward(flags: &HubFlags, checking: &mut Checking<'_>) -> Option<ForwardConfig> {
    let faults = &mut checking.faults;
    let token_file = faults.read(
        "--forward-token-file",
        &flags.forward_token_file,
        values::path,
    );
    let ca_file = faults.read("--forward-ca-file", &flags.forward_ca_file, values::path);
    if !flags.forwards() {
        for (flag, given) in [
            ("--forward-token-file", &flags.forward_token_file),
            ("--forward-ca-file", &flags.forward_ca_file),
        ] {
            faults.add_if(given.is_some(), flag, "has no effect without --forward URL");
        }
        return None;
    }
    let hubs = addresses(flags.forward.as_deref().unwrap_or_default(), faults);
    let environment = checking.environment;
    let token_place = SecretPlace::find(SecretKind::Forward, token_file.as_deref(), environment);
    let token = checking.require("--forward-token-file", token_place);
    let hubs = hubs?;
    Some(ForwardConfig {
        hubs,
        token,
        ca_file,
    })
}

fn addresses(text: &str, faults: &mut Faults) -> Option<Vec<Address>> {
    let mut hubs = Vec::new();
    for url in text.split(',') {
        hubs.push(crm::address(url.trim(), "--forward", faults)?);
    }
    Some(hubs)
}

/// Refuses flags that need a CRM in a collector, because a collector has no CRM.
pub(super) fn refuse_crm_flags(given: &[(&str, bool)], faults: &mut Faults) {
    for (flag, _) in given.iter().filter(|(_, given)| *given) {
        let message = "cannot be used with --forward: give it to the hub, which sends to the CRM";
        faults.add(flag, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::Environment;

    fn errors_of(flags: &HubFlags) -> String {
        let environment = Environment::from_pairs([("CALLBRIDGE_FORWARD_TOKEN", "hidden")]);
        let mut checking = Checking::new(&environment, Faults::default());
        checking.needs = true;
        let collect = collect(flags, &mut checking);
        let forward = forward(flags, &mut checking);
        assert!(!format!("{collect:?} {forward:?}").contains("hidden"));
        checking.faults.to_string()
    }

    #[test]
    fn hub_off_loopback_needs_tls() {
        let mut flags = HubFlags {
            collect: Some("0.0.0.0:8443".into()),
            ..HubFlags::default()
        };
        assert!(errors_of(&flags).contains("give --tls-cert and --tls-key"));
        (flags.tls_cert, flags.tls_key) = (Some("/c".into()), Some("/k".into()));
        assert!(errors_of(&flags).starts_with("0 errors"));
        let plain = HubFlags {
            collect: Some("127.0.0.1:8443".into()),
            ..HubFlags::default()
        };
        assert!(errors_of(&plain).starts_with("0 errors"));
    }

    #[test]
    fn forward_flag_accepts_several_hub_addresses() {
        let flags = HubFlags {
            forward: Some("https://hub1.example, https://hub2.example".into()),
            ..HubFlags::default()
        };
        assert!(
            errors_of(&flags).starts_with("0 errors"),
            "{}",
            errors_of(&flags)
        );
        let plain = HubFlags {
            forward: Some("http://hub.example".into()),
            collect: Some("127.0.0.1:8443".into()),
            ..HubFlags::default()
        };
        insta::assert_snapshot!(errors_of(&plain), @"
        2 errors in the flags. Nothing was started:
          --collect: cannot be used with --forward: a hub sends to the CRM
          --forward http://hub.example: http is allowed to a loopback address only; use https
        ");
    }
}
