//! The flags of the `sandbox` command, and how they become settings.

use crate::{
    ACCESS_SECONDS, Application, CALL_SAVE, Catalog, Config, DEFAULT_CONTACT, DEFAULT_EMPLOYEES,
    DEFAULT_LEADS, DEFAULT_LED, Error, FIRST_APPLICATION, FieldNames, Grant, IdSet, Lead,
    PAT_SECONDS_MAX, REFRESH_LIFE, Settings, TokenKey, faults, lead::record::parse_list,
    oauth::state::redirect_uri, server, window::parse_duration, window::parse_rate,
};
use callbridge_model::{Code, ExposeSecret, Secret};
use std::fs::OpenOptions;
use std::future::Future;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A CRM to try things on: the service of the document, held to it rule by rule, on this machine.
///
/// It counts what a client does against the document. Look at it with a browser or curl:
/// /sandbox/journal has every record, /sandbox/breaches every breach, /sandbox/requests the
/// counts. POST to /sandbox/admin/… does what a person would do in the CRM: add a lead, replace
/// the token, block the company.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where to listen; port 0 takes a free one
    ///
    /// The paths under /sandbox need no token: leave it on loopback, or in a network of your own.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8480")]
    pub listen: String,

    /// File with the token that works; made with a new token if missing
    ///
    /// Give the same file to `run --token-file`. Without this flag a new token is made and shown
    /// once.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Leads that exist, as numbers and ranges; a call for another one ends FAILED
    ///
    /// Nothing is known of them but their ids. A file with the header leadId,phone,name has leads
    /// with their phones; columns statusId and responsibleId may follow.
    #[arg(long, value_name = "IDS|FILE", default_value = DEFAULT_LEADS)]
    pub leads: String,

    /// CRM fields of leads (infoType LED), as numbers and ranges; 14, 24… are multi-selects
    #[arg(long, value_name = "IDS", default_value = DEFAULT_LED)]
    pub led_fields: String,

    /// CRM fields of contacts (infoType CONTACT): the lead field upsert skips them silently
    #[arg(long, value_name = "IDS", default_value = DEFAULT_CONTACT)]
    pub contact_fields: String,

    /// Employees that exist, as numbers and ranges
    #[arg(long, value_name = "IDS", default_value = DEFAULT_EMPLOYEES)]
    pub employees: String,

    /// What the token may do, as PERMISSION:SCOPE with commas between; `none` for nothing
    #[arg(
        long,
        value_name = "GRANTS",
        default_value = "PERMISSION_OPEN_API_CALL:SAVE,PERMISSION_OPEN_API_CALL:READ"
    )]
    pub grants: String,

    /// Requests that one window holds, and how long it lasts
    #[arg(long, value_name = "N/TIME", default_value = "60/60s")]
    pub rate: String,

    /// File that keeps journal, tokens and breaches across restarts
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// What goes wrong: a file, or the text itself
    ///
    /// One rule a line (or parted by `;`):
    /// ENDPOINT [with TEXT] [after N] [times K] [chance P%] ACTION. With TEXT it strikes only
    /// requests that have the text in their body or path.
    /// ENDPOINT is any, token-info, call-history, filter, request, lead, lead-filter, lead-fields,
    /// crm-field, oauth-token or oauth-revoke. ACTION is status N, gateway N, status-after N, lost,
    /// cut, delay TIME, slow TIME, broken, no-request-id, accept-false, redirect, failed or hold
    /// TIME. `shape status bare` and its like choose among shapes that the document leaves open.
    /// Example:
    /// 'call-history after 2 times 3 status 503'
    #[arg(long, value_name = "FILE|RULES")]
    pub faults: Option<String>,

    /// From accepting a call to its record in the journal
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub persist_after: String,

    /// A new token expires after this time, at most 365d; `never` gives it no expiry date
    #[arg(long, value_name = "TIME", default_value = "365d")]
    pub expires_in: String,

    /// Of the dice that faults and delays fall by
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: String,

    /// The company that the token belongs to
    #[arg(long, value_name = "ID", default_value = "1")]
    pub company: String,

    /// Name of a field that the document leaves unpublished: talk=NAME, phone=NAME,
    /// extension=NAME, list=NAME
    ///
    /// A field of any other name is taken and left out of the journal, as the service does.
    /// list is the key of the lead field upsert's list, which may also come as a bare array.
    #[arg(long, value_name = "WHAT=NAME")]
    pub field: Vec<String>,

    /// Deviation, for trials: webhooks may go to private and internal addresses
    ///
    /// The service itself refuses them, localhost too. They still have to be https.
    #[arg(long)]
    pub webhook_private_targets: bool,

    /// Deviation, for trials: trust these authorities (PEM) alone in deliveries of webhooks
    #[arg(long, value_name = "FILE")]
    pub webhook_ca_file: Option<PathBuf>,

    // Flags of the one application that `callbridge connect` can be tested with.
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

/// Returns the value of a flag. If the value is invalid, adds a message to `errors` and returns a
/// default.
fn check_flag<T: Default>(errors: &mut Vec<String>, flag: &str, value: Result<T, String>) -> T {
    value.unwrap_or_else(|message| {
        errors.push(format!("--{flag}: {message}"));
        T::default()
    })
}

impl Options {
    /// Checks the flags and returns the settings. Reads or creates the token file and the client
    /// secret file.
    ///
    /// # Errors
    /// Every error in the flags, or the error of a secret file.
    pub fn check(self) -> Result<Config, Error> {
        let mut wrong = Vec::new();
        let mut config = Config::default();
        let reason = "is not an address and port such as 127.0.0.1:8480";
        let listen = self
            .listen
            .parse()
            .map(Some)
            .map_err(|_| format!("`{}` {reason}", self.listen));
        config.listen = check_flag(&mut wrong, "listen", listen).unwrap_or(config.listen);
        config.settings = self.settings(&mut wrong);
        if let Some(text) = &self.auth_listen {
            let addr = text
                .parse::<SocketAddr>()
                .map_err(|_| "no address and port such as 127.0.0.1:8481".to_owned());
            config.auth_listen = check_flag(&mut wrong, "auth-listen", addr.map(Some));
        }
        config.settings.application = self.application(&mut wrong);
        let now = callbridge_model::clock::now().wall;
        let life = check_flag(&mut wrong, "expires-in", expiry(&self.expires_in));
        config.expires_at = life.map(|time| now.plus(time).floor_seconds());
        if let Some(given) = &self.faults {
            let text = check_flag(&mut wrong, "faults", faults_text(given));
            match faults::parse(&text) {
                Ok((rules, shapes)) => {
                    config.rules = rules;
                    config.settings.shapes = shapes;
                }
                Err(lines) => wrong.extend(lines.iter().map(|line| format!("--faults: {line}"))),
            }
        }
        if !wrong.is_empty() {
            return Err(Error::new(Code::Usage, wrong.join("\n")));
        }
        let application = config.settings.application.as_mut();
        if let (Some(application), Some(path)) = (application, &self.client_secret_file) {
            let names = ["client secret file", "client-secret-file"];
            let secret = kept_secret(path, "svc_sec_", names)?;
            application.secret = TokenKey::from_value(secret.expose_secret());
        }
        config.state = self.state;
        config.webhook_ca_file = self.webhook_ca_file;
        config.token = match &self.token_file {
            Some(path) => kept_secret(path, "svc_pat_", ["token file", "token-file"])?,
            None => new_secret("svc_pat_"),
        };
        Ok(config)
    }

    fn settings(&self, wrong: &mut Vec<String>) -> Settings {
        let mut settings = Settings::default();
        match lead_file(&self.leads) {
            Some(list) => {
                settings.lead_list = check_flag(wrong, "leads", list);
                settings.company.leads = IdSet::default();
            }
            None => {
                let leads = ids(&self.leads).map_err(|message| format!("{message}, nor a file"));
                settings.company.leads = check_flag(wrong, "leads", leads);
            }
        }
        settings.catalog = Catalog {
            led: check_flag(wrong, "led-fields", ids(&self.led_fields)),
            contact: check_flag(wrong, "contact-fields", ids(&self.contact_fields)),
        };
        settings.company.employees = check_flag(wrong, "employees", ids(&self.employees));
        settings.company.grants = check_flag(wrong, "grants", grants(&self.grants));
        settings.rate = check_flag(wrong, "rate", parse_rate(&self.rate));
        settings.persist_after =
            check_flag(wrong, "persist-after", parse_duration(&self.persist_after));
        settings.persist_jitter = settings.persist_after / 4;
        settings.salt = uuid::Uuid::new_v4().as_u128();
        settings.seed = check_flag(wrong, "seed", faults::number(&self.seed));
        settings.company.id = check_flag(wrong, "company", faults::number(&self.company));
        settings.private_targets = self.webhook_private_targets;
        settings.names = check_flag(wrong, "field", names(&self.field));
        let hour = Duration::from_secs(ACCESS_SECONDS.unsigned_abs());
        settings.access_life = check_flag(wrong, "access-life", life(&self.access_life, hour));
        let refresh_life = life(&self.refresh_life, REFRESH_LIFE);
        settings.refresh_life = check_flag(wrong, "refresh-life", refresh_life);
        settings
    }

    /// Returns the OAuth application of the flags, or `None` without `--client-id`. Adds errors to
    /// `wrong`. Does not set the secret, which is in a file.
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
        application.redirect_uris = self
            .redirect_uri
            .iter()
            .map(|uri| check_flag(wrong, "redirect-uri", redirect_uri(uri)))
            .collect();
        let allowed = grants(&self.application_grants);
        application.allowed = check_flag(wrong, "application-grants", allowed);
        Some(application)
    }
}

fn ids(text: &str) -> Result<IdSet, String> {
    IdSet::parse(text)
        .map_err(|part| format!("`{part}` is neither an id nor a range such as 4005-4010"))
}

/// Reads the lifetime of a new PAT (§5.3.2). `never` gives `None`, which means no expiry date
/// (§2.2).
fn expiry(text: &str) -> Result<Option<Duration>, String> {
    if text == "never" {
        return Ok(None);
    }
    let time = parse_duration(text)?;
    if time > Duration::from_secs(PAT_SECONDS_MAX.unsigned_abs()) {
        return Err("a PAT lives at most 365 days".to_owned());
    }
    Ok(Some(time))
}

fn names(fields: &[String]) -> Result<FieldNames, String> {
    let mut names = FieldNames::default();
    for field in fields {
        let (what, name) = field.split_once('=').unwrap_or_default();
        match what {
            "talk" if !name.is_empty() => names.talk = name.to_owned(),
            "phone" if !name.is_empty() => names.phone = Some(name.to_owned()),
            "extension" if !name.is_empty() => names.extension = name.to_owned(),
            "list" if !name.is_empty() => names.list = name.to_owned(),
            _ => {
                let reason = "is none of talk=NAME, phone=NAME, extension=NAME, list=NAME";
                return Err(format!("`{field}` {reason}"));
            }
        }
    }
    Ok(names)
}

/// Reads the leads in the file that `--leads` names. Returns `None` if there is no such file,
/// because the value can also be a list of ids.
fn lead_file(given: &str) -> Option<Result<Vec<Lead>, String>> {
    let text = match std::fs::read_to_string(given) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("`{given}`: {error}"))),
    };
    Some(parse_list(&text).map_err(|message| format!("`{given}`, {message}")))
}

fn grants(text: &str) -> Result<Vec<Grant>, String> {
    if text.trim() == "none" {
        return Ok(Vec::new());
    }
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    let grants = parts.map(|part| {
        Grant::parse(part).ok_or_else(|| format!("`{part}` is not a grant such as {CALL_SAVE}"))
    });
    grants.collect()
}

/// Returns the text of the file that `--faults` names. If the file cannot be read and the value
/// contains white space, the value itself is the text.
fn faults_text(given: &str) -> Result<String, String> {
    match std::fs::read_to_string(given) {
        Ok(text) => Ok(text),
        Err(_) if given.contains(char::is_whitespace) => Ok(given.to_owned()),
        Err(error) => Err(format!("`{given}`: {error}")),
    }
}

fn new_secret(begins: &str) -> Secret {
    Secret::from(format!("{begins}{}", uuid::Uuid::new_v4().simple()))
}

/// Reads the secret in a file, or creates the file with a new secret that starts with `begins`. For
/// errors, `names` are the kind of file, such as `token file`, and the name of its flag.
fn kept_secret(path: &Path, begins: &str, names: [&str; 2]) -> Result<Secret, Error> {
    let secret = match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Err(io::Error::other("it is empty")),
        Ok(text) => Ok(Secret::from(text.trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = new_secret(begins);
            let created = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path);
            let written = created.and_then(|mut file| writeln!(file, "{}", secret.expose_secret()));
            written.map(|()| secret)
        }
        Err(error) => Err(error),
    };
    secret.map_err(|error| Error::file(Code::Configuration, names, path, &error))
}

/// Runs the `sandbox` command: prints its address on stdout, serves until `shutdown`, then prints
/// its counts.
///
/// # Errors
/// Flags, files or the address cannot be used; see [`Error`].
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let token_file = options.token_file.clone();
    let config = options.check()?;
    let token = config.token.clone();
    let server = server::start(config).await?;
    let mut out = io::stdout();
    // The sandbox runs on if no one reads its output.
    let _ = writeln!(out, "listening: {}", server.url());
    if server.auth_url() != server.url() {
        let _ = writeln!(out, "auth: {}", server.auth_url());
    }
    let _ = match token_file {
        Some(path) => writeln!(out, "token: in {}", path.display()),
        None => writeln!(out, "token: {} (shown this once)", token.expose_secret()),
    };
    let _ = out.flush();
    shutdown.await;
    let records = server.admin(|core, _| core.records().len());
    let fullest = server.admin(|core, _| core.fullest());
    let breaches = server.admin(|core, _| core.violations().counts().clone());
    server.stop().await?;
    let _ = writeln!(out, "records: {records}");
    let _ = writeln!(out, "fullest window: {}", fullest.in_a_window);
    for (kind, count) in breaches {
        let _ = writeln!(out, "breach {kind:?}: {count}");
    }
    Ok(())
}

/// Reads the lifetime of an OAuth token, in whole seconds up to `most`.
fn life(text: &str, most: Duration) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.subsec_nanos() > 0 || time.is_zero() || time > most {
        return Err(format!("whole seconds, from 1s to {}s", most.as_secs()));
    }
    Ok(time)
}
