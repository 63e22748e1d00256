//! Checks the two listeners that other machines reach: the receiver of webhooks (its address,
//! certificate, and secrets), and the page (its address, certificate, and who can log in).

use super::place::unusable_address;
use super::{CheckFinding, advice, fault, well};
use crate::config::{Config, PageConfig, Webhooks};
use crate::daemon::webhooks::is_open_to_readers;
use callbridge_model::status::CERTIFICATE_SOON_SEC;
use callbridge_model::{
    Code, ExitCode as _, ExposeSecret as _, Secret, SecretKind, SecretPlace, clock,
};
use callbridge_oauth::store;
use callbridge_page::{passwords::Passwords, settings::Settings};
use callbridge_spool::StatePlace;
use callbridge_webhook::tls::{self, Certificate, expiry, refusal_at};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, server::ParsedCertificate};
use std::time::Duration;

/// Length of a secret that the CRM generates (§6.4.5).
const SECRET_DIGITS: usize = 64;

/// Returns all findings about the receiver. Empty without `--webhook-listen`.
pub(crate) async fn check(config: &Config, daemon: bool) -> Vec<CheckFinding> {
    let Some(webhooks) = &config.webhooks else {
        return Vec::new();
    };
    let mut found = vec![address(webhooks, daemon).await];
    if let Some(files) = &webhooks.tls {
        found.push(certificate(
            "webhook-cert",
            files,
            now(),
            internal_names_finding,
        ));
    }
    found.extend(secrets(webhooks, config.state.as_ref()));
    found
}

async fn address(webhooks: &Webhooks, daemon: bool) -> CheckFinding {
    let name = "webhook-listen";
    let addr = webhooks.listen;
    if let Some(fault) = unusable_address(name, addr, daemon).await {
        return fault;
    }
    if is_open_to_readers(webhooks) {
        let fix = "the CRM sends only to HTTPS: put a proxy with TLS on this machine and listen on \
                   127.0.0.1, or give --webhook-cert and --webhook-key; if the proxy is another \
                   machine, let only that machine reach this port";
        let message = format!("{addr} accepts plain HTTP from other machines");
        return advice(name, message, fix);
    }
    let how = match webhooks.tls {
        Some(_) => "HTTPS",
        None => "plain HTTP for a proxy on this machine, which receives HTTPS from the CRM",
    };
    well(name, format!("{addr}, {how}"))
}

pub(super) fn now() -> UnixTime {
    let now = u64::try_from(clock::now().wall.floor_seconds().get()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_secs(now))
}

/// Reports a certificate without a public name, because the CRM sends only to public names.
fn internal_names_finding(name: &str, names: &[String], message: &str) -> Option<CheckFinding> {
    let fix = "the CRM sends only to names in the public DNS (§6.9.7): give a certificate for the \
               public name in the webhook's targetUrl";
    let ends = [".local", ".internal", ".localdomain", "localhost"];
    let mut lower = names.iter().map(|name| name.to_ascii_lowercase());
    let inside =
        lower.all(|name| ends.iter().any(|end| name.ends_with(end)) || !name.contains('.'));
    inside.then(|| fault(Code::Configuration, name, message, fix))
}

/// Checks a certificate of this machine: whether it can be read and is valid at `now`. `unfit`
/// returns a finding if the certificate's names do not fit. Its parameters are the finding's name,
/// the certificate's names, and the message.
pub(super) fn certificate(
    name: &str,
    files: &Certificate,
    now: UnixTime,
    unfit: impl FnOnce(&str, &[String], &str) -> Option<CheckFinding>,
) -> CheckFinding {
    let code = Code::Configuration;
    let chain = match tls::check(files) {
        Ok(chain) => chain,
        Err(error) => {
            let fix = "give the certificate with its chain, and its key, as PEM files that \
                        callbridge's user can read";
            return fault(code, name, error, fix);
        }
    };
    let names = chain.first().map(certificate_names).unwrap_or_default();
    let message = match &names[..] {
        [] => "without a name".to_owned(),
        names => format!("for {}", names.join(", ")),
    };
    match refusal_at(&chain, now) {
        Some(CertificateError::NotValidYetContext { not_before, .. }) => {
            let message = format!("{message}, not valid before {}", date(not_before));
            return fault(code, name, message, "wait, or correct this machine's clock");
        }
        Some(CertificateError::ExpiredContext { not_after, .. }) => {
            let message = format!("{message}, expired at {}", date(not_after));
            return fault(code, name, message, "renew it");
        }
        _ => {}
    }
    let Some(until) = expiry(&chain) else {
        let unfit = unfit(name, &names, &message);
        return unfit.unwrap_or_else(|| well(name, message));
    };
    if until.as_secs() < now.as_secs() + CERTIFICATE_SOON_SEC {
        let message = format!("{message}, expires soon, at {}", date(until));
        return advice(name, message, "renew it; the new one is read automatically");
    }
    let unfit = unfit(name, &names, &message);
    unfit.unwrap_or_else(|| well(name, format!("{message}, until {}", date(until))))
}

/// Returns the names that the certificate is for.
fn certificate_names(own: &CertificateDer<'_>) -> Vec<String> {
    let Ok(nobody) = ServerName::try_from("nobody.invalid") else {
        return Vec::new();
    };
    let read = ParsedCertificate::try_from(own);
    match read.map(|own| verify_server_name(&own, &nobody)) {
        Ok(Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        }))) => {
            // `DnsName("crm.example.com")` is `crm.example.com`.
            presented
                .iter()
                .map(|name| name.split('"').nth(1).unwrap_or(name).to_owned())
                .collect()
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

fn date(at: UnixTime) -> String {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let read = jiff::Timestamp::from_second(seconds);
    read.map_or_else(|_| "the end of time".to_owned(), |at| at.to_string())
}

fn secrets(webhooks: &Webhooks, state: Option<&StatePlace>) -> Vec<CheckFinding> {
    let name = "webhook-secret";
    let mut found = Vec::new();
    if let Some(place) = &webhooks.application {
        found.push(secret(name.to_owned(), place));
    }
    for (id, place) in &webhooks.installations {
        found.push(secret(format!("installation-secret {id}"), place));
    }
    let connection = state.and_then(|state| store::read_in(state).ok().flatten());
    if connection.is_some_and(|connection| connection.webhook_secret.is_some()) {
        found.push(well(name, "that of the stored connection"));
    }
    if found.is_empty() {
        let message = "no secret is given: until there is one, events are answered with 503";
        let fix = format!(
            "give --webhook-secret-file, the credential {} or --installation-secret, or let \
             `connect` store the one of the connection",
            SecretKind::Webhook.credential()
        );
        found.push(advice(name, message, fix));
    }
    found
}

fn secret(name: String, place: &SecretPlace) -> CheckFinding {
    let secrets = match place.read_lines() {
        Ok(secrets) => secrets,
        Err(error) => {
            let fix = "put the secret into the file as the CRM shows it, and the previous one on \
                       the next line";
            return fault(error.exit_code(), name, error.to_string(), fix);
        }
    };
    if !secrets.iter().all(is_crm_secret) {
        let message = "a line is not a secret of the CRM, which has 64 lowercase hex digits";
        return advice(
            name,
            message,
            "compare it with the secret that the CRM showed",
        );
    }
    let message = match secrets.len() {
        1 => "one secret".to_owned(),
        several => format!("{several} secrets: current and previous"),
    };
    well(name, message)
}

fn is_crm_secret(secret: &Secret) -> bool {
    let text = secret.expose_secret();
    let is_hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_hex && text.len() == SECRET_DIGITS
}

/// Returns all findings about the page. Empty without `--page`.
pub(crate) async fn page(config: &Config, daemon: bool) -> Vec<CheckFinding> {
    let Some(page) = &config.page else {
        return Vec::new();
    };
    let mut found = vec![page_address(page, daemon).await];
    if let Some(files) = &page.tls {
        found.push(certificate("page-cert", files, now(), |_, _, _| None));
    }
    found.extend(page.passwords.as_ref().map(passwords));
    found
}

async fn page_address(page: &PageConfig, daemon: bool) -> CheckFinding {
    let name = "page";
    let addr = page.listen;
    // The content of the certificate is checked separately. Only its presence counts here.
    let loopback = addr.ip().to_canonical().is_loopback();
    let asked = Settings::new(addr, None, page.behind_proxy.as_deref(), &page.names);
    if let Err(error) = asked
        && (page.tls.is_none() || loopback)
    {
        let fix = "correct it: callbridge run does not start with these flags";
        return fault(Code::Usage, name, error, fix);
    }
    if let Some(fault) = unusable_address(name, addr, daemon).await {
        return fault;
    }
    let how = match (&page.tls, page.behind_proxy.is_some()) {
        (Some(_), _) => "HTTPS",
        (None, true) => "plain HTTP for a proxy that speaks TLS to browsers",
        (None, false) => "only from this machine, or through an SSH tunnel",
    };
    let who = match page.passwords {
        Some(_) => "a password or a link of `callbridge page`",
        None => "a link of `callbridge page`",
    };
    well(name, format!("{addr}, {how}; opened with {who}"))
}

fn passwords(place: &SecretPlace) -> CheckFinding {
    let name = "page-password-file";
    let fix = "`callbridge page password NAME ROLE` prints a line for this file";
    let code = Code::Configuration;
    match place.text() {
        Err(error) => fault(code, name, error, fix),
        Ok(text) => match Passwords::parse(text.expose_secret()) {
            Err(error) => fault(code, name, error, fix),
            Ok(people) if people.is_empty() => advice(name, "the file has no person", fix),
            Ok(_) => well(name, "every line is valid"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn time(text: &str) -> UnixTime {
        let seconds = text.parse::<jiff::Timestamp>().expect("a time").as_second();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().expect("after 1970")))
    }

    /// Writes a self-signed certificate for `name`, valid in 2026, and its key.
    fn write_certificate(folder: &std::path::Path, name: &str) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        let files = Certificate {
            chain: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        };
        std::fs::write(&files.chain, own.pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        files
    }

    #[test]
    fn certificate_is_reported_with_its_names_and_expiry() {
        let folder = tempfile::tempdir().expect("a folder");
        let public = write_certificate(folder.path(), "crm.example.com");
        let mut shown = Vec::new();
        for when in [
            "2025-11-20T00:00:00Z",
            "2026-11-20T00:00:00Z",
            "2026-12-20T00:00:00Z",
            "2027-01-01T00:00:00Z",
        ] {
            let found = certificate("webhook-cert", &public, time(when), internal_names_finding);
            shown.push(format!("{} {}", found.fault.is_none(), found.message));
        }
        insta::assert_snapshot!(shown.join("\n"), @"
        false for crm.example.com, not valid before 2026-01-01T00:00:00Z
        true for crm.example.com, until 2026-12-31T00:00:00Z
        true for crm.example.com, expires soon, at 2026-12-31T00:00:00Z
        false for crm.example.com, expired at 2026-12-31T00:00:00Z
        ");
    }

    #[test]
    fn invalid_certificate_files_and_internal_names_are_problems() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = time("2026-11-20T00:00:00Z");
        let inside = certificate(
            "webhook-cert",
            &write_certificate(folder.path(), "pbx.local"),
            now,
            internal_names_finding,
        );
        assert_eq!(inside.fault, Some(Code::Configuration), "{inside:?}");
        let good = write_certificate(folder.path(), "crm.example.com");
        assert_eq!(
            certificate("webhook-cert", &good, now, internal_names_finding).fault,
            None
        );
        let other = KeyPair::generate().expect("a key");
        for bytes in [other.serialize_pem(), String::new()] {
            std::fs::write(&good.key, bytes).expect("written");
            let found = certificate("webhook-cert", &good, now, internal_names_finding);
            assert_eq!(found.fault, Some(Code::Configuration), "{found:?}");
        }
        std::fs::remove_file(&good.chain).expect("removed");
        assert_eq!(
            certificate("webhook-cert", &good, now, internal_names_finding).fault,
            Some(Code::Configuration)
        );
    }

    /// Writes this text to the file of a secret, and checks the secret. Asserts that the message
    /// does not show the secret `abc`. Returns the fault, and `true` if there is no fix.
    fn check_secret(file: &std::path::Path, text: &str) -> (Option<Code>, bool) {
        std::fs::write(file, text).expect("written");
        let place = SecretPlace::File(file.to_owned());
        let found = secret("webhook-secret".into(), &place);
        assert!(!found.message.contains("abc"), "{found:?}");
        (found.fault, found.fix.is_empty())
    }

    #[test]
    fn secrets_are_read_and_never_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(
            check_secret(&file, &format!("{good}\n{good}\n")),
            (None, true)
        );
        assert_eq!(
            check_secret(&file, "abc"),
            (None, false),
            "a short secret is reported and accepted"
        );
        assert_eq!(check_secret(&file, "\n").0, Some(Code::Configuration));
        std::fs::remove_file(&file).expect("removed");
        let gone = secret("webhook-secret".into(), &SecretPlace::File(file));
        assert_eq!(gone.fault, Some(Code::NoInput));
    }
}
