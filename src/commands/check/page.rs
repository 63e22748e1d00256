//! The administrator's page: its address, its certificate, who may log in.

use super::finding::{CheckFinding, advice, fault, well};
use super::webhooks::{certificate, now};
use crate::config::{Config, PageConfig};
use crate::privilege::Held;
use callbridge_model::{Code, ExposeSecret as _, SecretPlace};
use callbridge_page::passwords::Passwords;
use callbridge_page::settings::Settings;

/// Everything about the page; nothing where none is asked for.
pub(crate) async fn look(config: &Config, daemon: bool) -> Vec<CheckFinding> {
    let Some(page) = &config.page else {
        return Vec::new();
    };
    let mut found = vec![address(page, &config.held, daemon).await];
    if let Some(files) = &page.tls {
        found.push(certificate("page-cert", files, now(), |_, _| None));
    }
    found.extend(page.passwords.as_ref().map(passwords));
    found
}

async fn address(page: &PageConfig, held: &Held, daemon: bool) -> CheckFinding {
    let (name, addr) = ("page", page.listen);
    let refused = |what: String, todo: &str| fault(Code::Usage, name, what, todo);
    // What the certificate holds is looked at by itself: here it counts that there is one.
    let loopback = addr.ip().to_canonical().is_loopback();
    let asked = Settings::new(addr, None, page.behind_proxy.as_deref(), &page.names);
    if let Err(error) = asked
        && (page.tls.is_none() || loopback)
    {
        let todo = "callbridge run does not start with that";
        return refused(error.to_string(), todo);
    }
    if let Err(error) = held.listener(addr).await
        && !daemon
    {
        let todo = "give --page an address of this machine that nobody else uses";
        return refused(format!("{addr}: {error}"), todo);
    }
    let how = match (&page.tls, page.behind_proxy.is_some()) {
        (Some(_), _) => "HTTPS of its own",
        (None, true) => "plain HTTP for a proxy that speaks TLS to browsers",
        (None, false) => "from this machine alone, or by an SSH tunnel",
    };
    let who = match page.passwords {
        Some(_) => "a password or a link of `callbridge page`",
        None => "a link of `callbridge page`",
    };
    well(name, format!("{addr}, {how}; opened by {who}"))
}

fn passwords(place: &SecretPlace) -> CheckFinding {
    let name = "page-password-file";
    let todo = "`callbridge page password NAME ROLE` prints a line of it";
    let fault = |what: String| fault(Code::Configuration, name, what, todo);
    let text = match place.text() {
        Ok(text) => text,
        Err(error) => return fault(error.to_string()),
    };
    match Passwords::parse(text.expose_secret()) {
        Err(error) => fault(error.to_string()),
        Ok(people) if people.is_empty() => advice(name, "no person is in it", todo),
        Ok(_) => well(name, "every line of it is valid"),
    }
}
