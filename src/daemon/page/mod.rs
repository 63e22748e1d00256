//! The administrator's page, including its listener and its access to the running daemon.

pub(crate) mod backend;

use super::secret_files::SecretFiles;
use super::tasks::Tasks;
use crate::config::{Config, PageConfig};
use crate::{OrFail as _, Result};
use callbridge_admin::command_handler::PageDoor;
use callbridge_model::{Code, ExposeSecret as _, Secret, SecretPlace, Zone, clock};
use callbridge_page::{passwords::Passwords, settings::Settings};
use callbridge_webhook::tls;
use futures_util::FutureExt as _;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::watch};

/// The flag for the password file.
const PASSWORD_FILE: &str = "--page-password-file";
/// Interval between checks for changes.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Opens the page's listener before any request is served. Also returns the function that issues
/// links to the page, and the page's settings.
///
/// # Errors
/// Returns an error if the address is in use, or if the certificate can't be used or the password
/// file can't be read.
pub(crate) async fn open(
    page: &PageConfig,
    config: &Config,
    secret_files: &SecretFiles,
    tasks: &mut Tasks,
) -> Result<(TcpListener, PageDoor, Settings)> {
    let kept_tls = page.tls.clone().map(|files| tls::keep("page", files));
    let kept_tls = kept_tls.transpose();
    let tls = kept_tls.or_fail_at(Code::Configuration, "--page-cert")?;
    let (current, kept) = tls.unzip();
    let current = current.map(|current| current.server);
    if let Some(kept) = kept {
        tasks.start_until_stop(kept.map(Ok));
    }
    let (listener, addr) = super::listen_at("--page", page.listen).await?;
    let mut settings = Settings::new(addr, current, page.behind_proxy.as_deref(), &page.names)
        .or_fail(Code::Usage)?;
    settings.lead_url = page.lead_url.as_deref().map(Arc::from);
    settings.instance = instance(config);
    settings.zone = Zone::from_pbx(config.pbx_timezone.as_ref());
    if let Some(place) = &page.passwords {
        let passwords = passwords(place).or_fail_at(Code::Configuration, PASSWORD_FILE)?;
        secret_files.set(PASSWORD_FILE, empty_file_error(&passwords));
        let (people, known) = watch::channel(passwords);
        settings.people = known;
        let files = secret_files.clone();
        let follow = files.follow(place.clone(), PASSWORD_FILE, people_of, people);
        tasks.start_until_stop(follow);
    }
    let links = settings.links.clone();
    let origin = origin(page, addr, settings.scheme());
    let door: PageDoor = Arc::new(move |who, role| {
        let path = links.issue(clock::now().boot, who, role)?;
        Some(format!("{origin}{path}"))
    });
    tracing::info!(address = %addr, "the page is served");
    Ok((listener, door, settings))
}

/// Returns the origin by which a browser can reach the page, which is its address, or its name if
/// it's reached from other machines.
fn origin(page: &PageConfig, addr: SocketAddr, scheme: &str) -> String {
    let name = if addr.ip().is_loopback() {
        None
    } else {
        page.names.first()
    };
    match (name, page.behind_proxy.is_some()) {
        (Some(name), true) => format!("{scheme}://{name}"),
        (Some(name), false) => format!("{scheme}://{name}:{}", addr.port()),
        (None, _) if addr.ip().is_unspecified() => {
            format!("{scheme}://127.0.0.1:{}", addr.port())
        }
        (None, _) => format!("{scheme}://{addr}"),
    }
}

fn passwords(place: &SecretPlace) -> Result<Passwords, String> {
    let text = place.text().map_err(|error| error.to_string())?;
    let read = Passwords::parse(text.expose_secret());
    let of = place.file().map(|file| file.display().to_string());
    read.map_err(|error| format!("{}: {error}", of.unwrap_or_default()))
}

/// Returns the users in a changed file, along with the error for `status`. Only users with a valid
/// line can log in, and if the file can't be read, nobody can.
fn people_of(text: Result<&Secret, String>) -> (Passwords, Option<String>) {
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let fault =
                format!("{error}. Until that is corrected, no one can log in with a password");
            return (Passwords::default(), Some(fault));
        }
    };
    let (people, errors) = Passwords::read(text.expose_secret());
    if errors.is_empty() {
        let fault = empty_file_error(&people);
        return (people, fault);
    }
    let fault = format!(
        "{}. Only the people of its valid lines can log in",
        errors.join("; ")
    );
    (people, Some(fault))
}

fn empty_file_error(people: &Passwords) -> Option<String> {
    if people.is_empty() {
        Some("the file names no one, so no one can log in with a password".to_owned())
    } else {
        None
    }
}

/// Returns a name for the page's cookies, which is different for each instance on a host, because
/// cookies ignore the port.
fn instance(config: &Config) -> String {
    let place = config.state_place();
    let state = place.socket_folder();
    let folder = state.file_name().unwrap_or_default().to_string_lossy();
    let fit = folder
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let name: String = fit.take(40).collect();
    // Directories with the same name are told apart by a hash of the whole path.
    let path = state.display().to_string();
    let hash = ring::digest::digest(&ring::digest::SHA256, path.as_bytes());
    let print = hash.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{name}-{:08x}", u32::from_be_bytes(print))
}
