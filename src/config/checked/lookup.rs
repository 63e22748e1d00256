//! The flags of the lookup at ring time: where it listens, and who can ask.

use super::{Checking, report_unused};
use crate::values;
use callbridge_lookup::network::Network;
use callbridge_model::{SecretKind, SecretPlace};
use clap::Args;
use serde::Serialize;
use std::net::SocketAddr;

/// The checked flags of the lookup.
#[derive(Clone, Debug)]
pub struct LookupConfig {
    /// The address of `--lookup`, at which dialplans ask.
    pub listen: SocketAddr,
    /// The networks of `--lookup-allow`. If empty, every program on this machine can ask.
    pub allow: Vec<Network>,
    /// The place of the password that dialplans send. `None` if lookups need no password.
    pub secret: Option<SecretPlace>,
}

/// Checks the flags of the lookup. `None` without `--lookup`, or if its address is wrong. An
/// address outside loopback needs both a network and a password. Otherwise anyone could read the
/// names and extensions of customers.
pub(super) fn check(flags: &LookupFlags, checking: &mut Checking<'_>) -> Option<LookupConfig> {
    let faults = &mut checking.faults;
    let secret_flag = &flags.lookup_secret_file;
    let secret_file = faults.read("--lookup-secret-file", secret_flag, values::path);
    let allow = faults.read("--lookup-allow", &flags.lookup_allow, networks);
    if flags.lookup.is_none() {
        let given = [
            ("--lookup-allow", flags.lookup_allow.is_some()),
            ("--lookup-secret-file", flags.lookup_secret_file.is_some()),
        ];
        report_unused("--lookup", &given, faults);
    }
    let listen = faults.read("--lookup", &flags.lookup, |text| {
        values::address(text, ", such as 127.0.0.1:4573")
    })?;
    let environment = checking.environment;
    let secret = SecretPlace::find(SecretKind::Lookup, secret_file.as_deref(), environment).ok();
    let is_open = !listen.ip().to_canonical().is_loopback();
    for (is_missing, flag) in [
        (flags.lookup_allow.is_none(), "--lookup-allow CIDR"),
        (secret.is_none(), "--lookup-secret-file FILE"),
    ] {
        let message = format!("other machines reach {listen}: give {flag}, or 127.0.0.1");
        faults.add_if(is_open && is_missing, "--lookup", message);
    }
    Some(LookupConfig {
        listen,
        allow: allow.unwrap_or_default(),
        secret,
    })
}

fn networks(text: &str) -> Result<Vec<Network>, String> {
    let networks = text.split(',').map(str::trim).map(Network::parse);
    networks.collect()
}

/// The flags of the lookup at ring time, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Lookup")]
pub struct LookupFlags {
    /// Answer a dialplan's lookups here, such as 127.0.0.1:4573: who calls, and whose lead it is:
    /// GET /caller?phone=…&trunk=… [default: off]
    #[arg(long, value_name = "ADDR")]
    pub lookup: Option<String>,
    /// Networks whose dialplans can ask, if other machines reach the address: such as
    /// 192.168.1.0/24, separated by commas
    #[arg(long, value_name = "CIDR,…")]
    pub lookup_allow: Option<String>,
    /// File with the password that dialplans send (or the credential `lookup-secret`, or
    /// CALLBRIDGE_LOOKUP_SECRET): one line each for the current and the previous one; read again
    /// when the file changes
    #[arg(long, value_name = "FILE")]
    pub lookup_secret_file: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::faults::Faults;
    use callbridge_model::Environment;

    fn check_lookup(
        address: &str,
        allow: Option<&str>,
        secret: bool,
    ) -> (Option<LookupConfig>, String) {
        let environment = if secret {
            Environment::from_pairs([("CALLBRIDGE_LOOKUP_SECRET", "hidden")])
        } else {
            Environment::default()
        };
        let flags = LookupFlags {
            lookup: Some(address.to_owned()),
            lookup_allow: allow.map(str::to_owned),
            ..LookupFlags::default()
        };
        let mut checking = Checking::new(&environment, Faults::default());
        let lookup = check(&flags, &mut checking);
        (lookup, checking.faults.to_string())
    }

    #[test]
    fn lookup_off_loopback_needs_network_and_password() {
        for loopback in ["127.0.0.1:4573", "[::1]:4573", "[::ffff:127.0.0.1]:4573"] {
            let (lookup, faults) = check_lookup(loopback, None, false);
            assert!(
                lookup.is_some() && faults.starts_with("0 errors"),
                "{faults}"
            );
        }
        let (lookup, faults) = check_lookup("10.0.0.2:4573", Some("10.0.0.0/24, 10.1.0.7"), true);
        assert!(faults.starts_with("0 errors"), "{faults}");
        let lookup = lookup.expect("a lookup");
        assert_eq!(lookup.allow.len(), 2);
        assert!(!format!("{lookup:?}").contains("hidden"));
        for open in ["0.0.0.0:4573", "[::]:4573", "192.0.2.1:4573"] {
            assert!(
                check_lookup(open, None, false).1.starts_with("2 errors"),
                "{open}"
            );
            assert!(
                check_lookup(open, Some("10.0.0.0/8"), false)
                    .1
                    .starts_with("1 error "),
                "{open}"
            );
            assert!(
                check_lookup(open, None, true).1.starts_with("1 error "),
                "{open}"
            );
        }
    }

    #[test]
    fn flag_errors_are_all_reported_at_once() {
        insta::assert_snapshot!(check_lookup("0.0.0.0:4573", Some("office"), false).1, @"
        2 errors in the flags. Nothing was started:
          --lookup-allow: `office` is not a network such as 192.168.1.0/24
          --lookup: other machines reach 0.0.0.0:4573: give --lookup-secret-file FILE, or 127.0.0.1
        ");
        insta::assert_snapshot!(check_lookup("everywhere", Some(""), false).1, @"
        2 errors in the flags. Nothing was started:
          --lookup-allow: `` is not a network such as 192.168.1.0/24
          --lookup: `everywhere` is not IP:PORT, such as 127.0.0.1:4573
        ");
        let flags = LookupFlags {
            lookup_allow: Some("10.0.0.0/8".into()),
            lookup_secret_file: Some("/etc/secret".into()),
            ..LookupFlags::default()
        };
        let environment = Environment::default();
        let mut checking = Checking::new(&environment, Faults::default());
        assert!(check(&flags, &mut checking).is_none());
        insta::assert_snapshot!(checking.faults.to_string(), @"
        2 errors in the flags. Nothing was started:
          --lookup-allow: has no effect without --lookup ADDR
          --lookup-secret-file: has no effect without --lookup ADDR
        ");
    }
}
