//! The flags of one application, so that `callbridge connect` can be tried by hand.

use super::application::Application;
use super::state::{FIRST_APPLICATION, REFRESH_LIFE};
use crate::config::Config;
use crate::duration::parse_duration;
use crate::error::Error;
use crate::options::{checked, grants, kept_secret};
use crate::token::{ACCESS_SECONDS, TokenKey};
use callbridge_model::secret::ExposeSecret;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use url::{Host, Url};

/// Flags of one application that companies connect by consent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ApplicationOptions {
    /// Registers an application for `connect`, with this client id (svc_app_…)
    ///
    /// Its consent page is /consent. Needs --client-secret-file and --redirect-uri.
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,

    /// File with the application's client secret; made with a new one if missing
    #[arg(long, value_name = "FILE")]
    pub client_secret_file: Option<PathBuf>,

    /// Where the browser may return to after consent; may be repeated
    #[arg(long, value_name = "URI")]
    pub redirect_uri: Vec<String>,

    /// The most that the application may ask for, as PERMISSION:SCOPE with commas between
    #[arg(
        long,
        value_name = "GRANTS",
        default_value = "PERMISSION_OPEN_API_CALL:SAVE,PERMISSION_OPEN_API_CALL:READ,\
                         PERMISSION_OPEN_API_LEAD:READ,PERMISSION_OPEN_API_LEAD:SAVE"
    )]
    pub application_grants: String,

    /// The application has an embedded page: the first exchange gives an embedded_secret
    #[arg(long)]
    pub application_embedded: bool,

    /// How long an access token lives, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub access_life: String,

    /// How long a refresh token lives, up to 30d
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub refresh_life: String,

    /// Serve the token and the revoke endpoint here, and here alone
    ///
    /// As the real service does: each endpoint is 404 at the other address, and counted. Without
    /// this flag --listen serves all of them.
    #[arg(long, value_name = "ADDR")]
    pub auth_listen: Option<String>,
}

impl ApplicationOptions {
    /// Puts the checked flags into a configuration; what is wrong goes to `wrong`.
    pub(crate) fn check(&self, config: &mut Config, wrong: &mut Vec<String>) {
        let oauth = &mut config.settings.oauth;
        let hour = Duration::from_secs(ACCESS_SECONDS.unsigned_abs());
        oauth.access_life = checked(wrong, "access-life", life(&self.access_life, hour));
        oauth.refresh_life = checked(
            wrong,
            "refresh-life",
            life(&self.refresh_life, REFRESH_LIFE),
        );
        if let Some(addr) = &self.auth_listen {
            let addr = addr.parse::<SocketAddr>();
            let addr = addr.map_err(|_| "no address and port such as 127.0.0.1:8481".to_owned());
            config.auth_listen = checked(wrong, "auth-listen", addr.map(Some));
        }
        oauth.application = self.application(wrong);
    }

    /// The application without its secret, which stands in a file.
    fn application(&self, wrong: &mut Vec<String>) -> Option<Application> {
        let Some(client_id) = &self.client_id else {
            let orphans = [
                ("client-secret-file", self.client_secret_file.is_some()),
                ("redirect-uri", !self.redirect_uri.is_empty()),
                ("application-embedded", self.application_embedded),
            ];
            for (flag, _) in orphans.iter().filter(|(_, given)| *given) {
                wrong.push(format!("--{flag}: needs --client-id svc_app_…"));
            }
            return None;
        };
        let mut application = Application {
            id: FIRST_APPLICATION,
            embedded: self.application_embedded,
            ..Application::new(client_id.clone())
        };
        if !client_id.starts_with("svc_app_") {
            wrong.push("--client-id: begins with svc_app_".to_owned());
        }
        if self.client_secret_file.is_none() {
            wrong.push("--client-id: needs --client-secret-file FILE".to_owned());
        }
        if self.redirect_uri.is_empty() {
            wrong.push("--client-id: needs --redirect-uri URI".to_owned());
        }
        let uris = self.redirect_uri.iter().map(|uri| redirect_uri(uri));
        let uris = uris.map(|uri| checked(wrong, "redirect-uri", uri));
        application.redirect_uris = uris.collect();
        let allowed = grants(&self.application_grants);
        application.allowed = checked(wrong, "application-grants", allowed);
        Some(application)
    }

    /// Reads, or makes, the file of the client secret.
    ///
    /// # Errors
    /// It cannot be read or made.
    pub(crate) fn secret(&self, config: &mut Config) -> Result<(), Error> {
        let (Some(application), Some(path)) = (
            config.settings.oauth.application.as_mut(),
            &self.client_secret_file,
        ) else {
            return Ok(());
        };
        let names = ["client secret file", "client-secret-file"];
        let secret = kept_secret(path, "svc_sec_", names)?;
        application.secret = TokenKey::of(secret.expose_secret());
        Ok(())
    }
}

/// How long a token lives.
fn life(text: &str, most: Duration) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.subsec_nanos() > 0 || time.is_zero() || time > most {
        return Err(format!("whole seconds, from 1s to {}s", most.as_secs()));
    }
    Ok(time)
}

/// An address that a browser may be sent back to: absolute, without a fragment, HTTPS or on this
/// machine.
///
/// # Errors
/// What is wrong, in words.
pub fn redirect_uri(text: &str) -> Result<String, String> {
    let wrong = |words: &str| Err(format!("`{text}`: {words}"));
    let Ok(url) = Url::parse(text) else {
        return wrong("no absolute address");
    };
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        None => false,
    };
    if url.fragment().is_some() {
        return wrong("a fragment");
    }
    match url.scheme() {
        "https" => Ok(text.to_owned()),
        "http" if loopback => Ok(text.to_owned()),
        _ => wrong("neither https:// nor http:// on loopback"),
    }
}
