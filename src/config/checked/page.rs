//! The flags of the page: where it listens, by which names it is known, who may come in.

use crate::config::faults::Faults;
use crate::config::options::page::PageFlags;
use crate::values;
use callbridge_model::environment::Environment;
use callbridge_model::secret_source::{SecretKind, SecretPlace};
use callbridge_webhook::tls::Certificate;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The page, as it was asked for.
#[derive(Clone, Debug)]
pub struct PageConfig {
    /// `--page`
    pub listen: SocketAddr,
    /// `--page-cert` and `--page-key`
    pub tls: Option<Certificate>,
    /// `--page-name`
    pub names: Vec<String>,
    /// `--page-behind-proxy`: the proxies beside those on loopback.
    pub behind_proxy: Option<Vec<IpAddr>>,
    /// Where those stand who may log in with a password.
    pub passwords: Option<SecretPlace>,
}

/// The page; `None` where it is not asked for, or wrongly.
pub(super) fn check(
    flags: &PageFlags,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<PageConfig> {
    let file = path(
        "--page-password-file",
        &flags.page_password_file,
        "lines NAME:ROLE:HASH",
        faults,
    );
    let tls = certificate(flags, faults);
    let Some(text) = flags.page.as_deref() else {
        alone(flags, faults);
        return None;
    };
    let read = text.parse::<SocketAddr>();
    let read = read.map_err(|_| format!("`{text}` is no IP:PORT, as 127.0.0.1:9470"));
    let listen = faults.take("--page", read)?;
    let names: Vec<String> = values::given(&flags.page_name).map(str::to_owned).collect();
    Some(PageConfig {
        listen,
        tls,
        names,
        behind_proxy: proxies(flags, faults),
        passwords: SecretPlace::find(SecretKind::PagePassword, file.as_deref(), environment).ok(),
    })
}

fn proxies(flags: &PageFlags, faults: &mut Faults) -> Option<Vec<IpAddr>> {
    let given = flags.page_behind_proxy.as_deref()?;
    let addresses = given.split(',').map(str::trim).filter(|it| !it.is_empty());
    let read = addresses.map(|text| {
        let read = text.parse::<IpAddr>();
        read.map_err(|_| format!("`{text}` is no address of a proxy, as 10.0.0.5"))
    });
    faults.take("--page-behind-proxy", read.collect())
}

/// Without an address the other flags do nothing, which nobody wants who gives them.
fn alone(flags: &PageFlags, faults: &mut Faults) {
    let given = [
        ("--page-cert", flags.page_cert.is_some()),
        ("--page-key", flags.page_key.is_some()),
        ("--page-password-file", flags.page_password_file.is_some()),
        (
            "--page-name",
            values::given(&flags.page_name).next().is_some(),
        ),
        ("--page-behind-proxy", flags.page_behind_proxy.is_some()),
    ];
    for (flag, _) in given.iter().filter(|(_, given)| *given) {
        faults.add(flag, "does nothing without --page ADDR");
    }
}

fn path(flag: &str, text: &Option<String>, of: &str, faults: &mut Faults) -> Option<PathBuf> {
    let text = text.as_deref()?;
    if text.is_empty() {
        faults.add(flag, format!("is empty: give a path; it holds {of}"));
        return None;
    }
    Some(PathBuf::from(text))
}

fn certificate(flags: &PageFlags, faults: &mut Faults) -> Option<Certificate> {
    let chain = path("--page-cert", &flags.page_cert, "PEM", faults);
    let key = path("--page-key", &flags.page_key, "PEM", faults);
    match (&flags.page_cert, &flags.page_key) {
        (Some(_), None) => faults.add("--page-cert", "needs --page-key, its private key"),
        (None, Some(_)) => faults.add("--page-key", "needs --page-cert, its certificate"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    Some(Certificate {
        chain: chain?,
        key: key?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(flags: &PageFlags) -> (Option<PageConfig>, String) {
        let mut faults = Faults::default();
        let page = check(flags, &Environment::default(), &mut faults);
        (page, faults.to_string())
    }

    #[test]
    fn an_address_alone_is_enough() {
        let flags = PageFlags {
            page: Some("127.0.0.1:9470".into()),
            page_name: vec!["calls.example.uz".into(), String::new()],
            ..PageFlags::default()
        };
        let (page, faults) = checked(&flags);
        let page = page.expect("a page");
        assert!(faults.starts_with("0 faults"), "{faults}");
        assert!(page.passwords.is_none() && page.tls.is_none());
        assert_eq!(page.names, ["calls.example.uz"]);
        assert!(checked(&PageFlags::default()).0.is_none());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let flags = PageFlags {
            page: Some("everywhere".into()),
            page_cert: Some("/etc/cert".into()),
            page_password_file: Some(String::new()),
            ..PageFlags::default()
        };
        insta::assert_snapshot!(checked(&flags).1, @"
        3 faults in the flags, and nothing was opened:
          --page-password-file: is empty: give a path; it holds lines NAME:ROLE:HASH
          --page-cert: needs --page-key, its private key
          --page: `everywhere` is no IP:PORT, as 127.0.0.1:9470
        ");
        let alone = PageFlags {
            page_key: Some("/etc/key".into()),
            page_name: vec!["a".into()],
            page_behind_proxy: Some(String::new()),
            ..PageFlags::default()
        };
        insta::assert_snapshot!(checked(&alone).1, @"
        4 faults in the flags, and nothing was opened:
          --page-key: needs --page-cert, its certificate
          --page-key: does nothing without --page ADDR
          --page-name: does nothing without --page ADDR
          --page-behind-proxy: does nothing without --page ADDR
        ");
    }
}
