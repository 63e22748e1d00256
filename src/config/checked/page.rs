//! The flags of the page: where it listens, its names in browsers, and who can log in.

use super::{Checking, certificate, file_path, report_unused};
use crate::values;
use callbridge_model::{SecretKind, SecretPlace};
use callbridge_webhook::tls::Certificate;
use clap::Args;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};

/// The flags of the administrator's page, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Page")]
pub struct PageFlags {
    /// Serve the administrator's page here, such as 127.0.0.1:9470: calls, dead letters, missed
    /// customers. `callbridge page` prints a link that opens it [default: off]
    #[arg(long, value_name = "ADDR")]
    pub page: Option<String>,
    /// File of the users who can log in with a password, one NAME:ROLE:HASH per line (or the
    /// credential `page-password`). `callbridge page password NAME ROLE` prints a line. Read again
    /// when the file changes
    #[arg(long, value_name = "FILE")]
    pub page_password_file: Option<String>,
    /// Another host name of the page in browsers, without a port, in addition to its address and
    /// this machine's names. Can be repeated
    #[arg(long, value_name = "HOST")]
    pub page_name: Vec<String>,
    /// Address of a lead in the CRM, such as 'https://HOST/lead/{id}', to which the page links each
    /// lead [default: no link]
    #[arg(long, value_name = "URL")]
    pub lead_url: Option<String>,
    /// Certificate and chain (PEM) for a page that other machines reach; read again when the file
    /// changes
    #[arg(long, value_name = "FILE")]
    pub page_cert: Option<String>,
    /// Private key (PEM) of --page-cert
    #[arg(long, value_name = "FILE")]
    pub page_key: Option<String>,
    /// The page is behind a proxy that terminates TLS and sends the addresses of browsers in
    /// X-Forwarded-For. The header is trusted only from these addresses [default: loopback]
    #[arg(long, value_name = "ADDRESS,…", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub page_behind_proxy: Option<String>,
}

/// The checked flags of the page.
#[derive(Clone, Debug)]
pub struct PageConfig {
    /// The address of `--page`, at which the page is served.
    pub listen: SocketAddr,
    /// The certificate of `--page-cert` with `--page-key`. `None` for plain HTTP.
    pub tls: Option<Certificate>,
    /// The host names of `--page-name`, in addition to the address and this machine's names.
    pub names: Vec<String>,
    /// The address of `--lead-url`, with one `{id}`.
    pub lead_url: Option<String>,
    /// The proxies of `--page-behind-proxy`, in addition to those on loopback.
    pub behind_proxy: Option<Vec<IpAddr>>,
    /// The place of the password file. `None` if login is only possible with links.
    pub passwords: Option<SecretPlace>,
}

/// Checks the flags of the page. `None` without `--page`, or if its address is wrong.
pub(super) fn check(flags: &PageFlags, checking: &mut Checking<'_>) -> Option<PageConfig> {
    let faults = &mut checking.faults;
    let password_flag = &flags.page_password_file;
    let password_file = faults.read("--page-password-file", password_flag, |text| {
        file_path(text, "; it holds lines NAME:ROLE:HASH")
    });
    let files = (&flags.page_cert, &flags.page_key);
    let tls = certificate("page", files, "; it holds PEM", faults);
    let names: Vec<String> = values::flag_values(&flags.page_name)
        .map(str::to_owned)
        .collect();
    if flags.page.is_none() {
        let given = [
            ("--page-cert", flags.page_cert.is_some()),
            ("--page-key", flags.page_key.is_some()),
            ("--page-password-file", flags.page_password_file.is_some()),
            ("--page-name", !names.is_empty()),
            ("--page-behind-proxy", flags.page_behind_proxy.is_some()),
            ("--lead-url", flags.lead_url.is_some()),
        ];
        report_unused("--page", &given, faults);
    }
    let kind = SecretKind::PagePassword;
    let passwords = SecretPlace::find(kind, password_file.as_deref(), checking.environment);
    let listen = faults.read("--page", &flags.page, |text| {
        values::address(text, ", such as 127.0.0.1:9470")
    })?;
    Some(PageConfig {
        listen,
        tls,
        names,
        lead_url: faults.read("--lead-url", &flags.lead_url, lead_url),
        behind_proxy: faults.read("--page-behind-proxy", &flags.page_behind_proxy, proxies),
        passwords: passwords.ok(),
    })
}

/// Reads an address with one `{id}`. It must be http or https, because a `javascript:` link would
/// run in the page.
fn lead_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(&text.replace("{id}", "1"));
    let of_web = url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if of_web && text.matches("{id}").count() == 1 {
        return Ok(text.to_owned());
    }
    let message = "is not an address with one {id}, such as 'https://crm.example.com/lead/{id}'";
    Err(format!("`{text}` {message}"))
}

fn proxies(text: &str) -> Result<Vec<IpAddr>, String> {
    let given = text
        .split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty());
    let addresses = given.map(|address| {
        let read = address.parse::<IpAddr>();
        read.map_err(|_| format!("`{address}` is not the address of a proxy, such as 10.0.0.5"))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::faults::Faults;
    use callbridge_model::Environment;

    fn check_flags(flags: &PageFlags) -> (Option<PageConfig>, String) {
        let environment = Environment::default();
        let mut checking = Checking::new(&environment, Faults::default());
        let page = check(flags, &mut checking);
        (page, checking.faults.to_string())
    }

    #[test]
    fn page_flags_require_only_the_address() {
        let flags = PageFlags {
            page: Some("127.0.0.1:9470".into()),
            page_name: vec!["calls.example.uz".into(), String::new()],
            ..PageFlags::default()
        };
        let (page, faults) = check_flags(&flags);
        let page = page.expect("a page");
        assert!(faults.starts_with("0 errors"), "{faults}");
        assert!(page.passwords.is_none() && page.tls.is_none());
        assert_eq!(page.names, ["calls.example.uz"]);
        assert!(check_flags(&PageFlags::default()).0.is_none());
    }

    #[test]
    fn flag_errors_are_all_reported_at_once() {
        let flags = PageFlags {
            page: Some("everywhere".into()),
            page_cert: Some("/etc/cert".into()),
            page_password_file: Some(String::new()),
            ..PageFlags::default()
        };
        insta::assert_snapshot!(check_flags(&flags).1, @"
        3 errors in the flags. Nothing was started:
          --page-password-file: is empty: give a path; it holds lines NAME:ROLE:HASH
          --page-cert: needs --page-key, its private key
          --page: `everywhere` is not IP:PORT, such as 127.0.0.1:9470
        ");
        let alone = PageFlags {
            page_key: Some("/etc/key".into()),
            page_name: vec!["a".into()],
            page_behind_proxy: Some(String::new()),
            ..PageFlags::default()
        };
        insta::assert_snapshot!(check_flags(&alone).1, @"
        4 errors in the flags. Nothing was started:
          --page-key: needs --page-cert, its certificate
          --page-key: has no effect without --page ADDR
          --page-name: has no effect without --page ADDR
          --page-behind-proxy: has no effect without --page ADDR
        ");
    }

    #[test]
    fn lead_url_must_be_web_address_with_one_id() {
        for good in [
            "https://crm.uz/lead/{id}",
            "http://10.0.0.5:8080/?lead={id}&tab=1",
        ] {
            assert_eq!(lead_url(good).as_deref(), Ok(good));
        }
        let bad = [
            "https://crm.uz/lead",
            "javascript:alert({id})",
            "crm.uz/{id}",
            "https://{id}/{id}",
        ];
        for bad in bad {
            let message = lead_url(bad).expect_err(bad);
            assert!(
                message.contains("https://crm.example.com/lead/{id}"),
                "{message}"
            );
        }
    }
}
