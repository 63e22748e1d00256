//! The flags of `connect`, as typed and as checked.

use super::crm::{address, proxy};
use super::place::state_place;
use crate::config::Faults;
use crate::values;
use callbridge_crm::{Address, Setup};
use callbridge_model::{Environment, SecretKind, SecretPlace};
use callbridge_oauth::{consent::Redirect, scope};
use callbridge_spool::StatePlace;
use clap::Args;
use std::time::Duration;
use url::Url;

/// Flags that confirm a company in advance, and the time limit for the consent.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The value of `--company`: only this company can be bound.
    pub company: Option<i64>,
    /// The flag `--yes`: any company can be bound.
    pub yes: bool,
    /// The value of `--within`: how long to wait for the consent.
    pub within: Duration,
}

/// The checked flags of `connect`.
#[derive(Debug)]
pub struct Connect {
    /// The CRM of `--crm-url`, with `--crm-ca-file` and `--crm-proxy`.
    pub setup: Setup,
    /// The OAuth host of `--auth-url`.
    pub auth: Address,
    /// The consent page of `--consent-url`, with its query.
    pub consent: Url,
    /// The address of `--redirect-uri`, exactly as it is registered.
    pub redirect: Redirect,
    /// The application of `--client-id`: `svc_app_…`.
    pub client_id: String,
    /// The place of the application's secret: `--client-secret-file`, the credential, or the
    /// variable.
    pub secret: SecretPlace,
    /// The grants of `--scope`, or the default grants.
    pub scope: String,
    /// The state of `--state`, in which the connection is kept.
    pub state: StatePlace,
    /// The values of `--company`, `--yes`, and `--within`.
    pub wanted: Wanted,
}

/// Default time to wait for the consent. A code is valid for the same time (§5.6.3).
const WITHIN: Duration = Duration::from_secs(600);

/// Returns the checked command, or all errors in its flags.
pub(crate) fn check(
    flags: &ConnectFlags,
    environment: &Environment,
    mut faults: Faults,
) -> Result<Connect, Faults> {
    match read(flags, environment, &mut faults) {
        Some(connect) => faults.into_result(connect),
        None => Err(faults),
    }
}

/// Reads all values. For each missing value, it adds an error.
fn read(flags: &ConnectFlags, environment: &Environment, faults: &mut Faults) -> Option<Connect> {
    let crm_url = required_text("--crm-url", &flags.crm_url, faults);
    let crm = crm_url.and_then(|text| address(text, "--crm-url", faults));
    let auth_url = required_text("--auth-url", &flags.auth_url, faults);
    let auth = auth_url.and_then(|text| address(text, "--auth-url", faults));
    let consent_url = required_text("--consent-url", &flags.consent_url, faults);
    let consent = consent_url.and_then(|text| faults.take("--consent-url", page(text)));
    let redirect_uri = required_text("--redirect-uri", &flags.redirect_uri, faults);
    let redirect =
        redirect_uri.and_then(|text| faults.take("--redirect-uri", Redirect::parse(text)));
    let client_id = required_text("--client-id", &flags.client_id, faults);
    let secret_flag = &flags.client_secret_file;
    let secret_file = faults.read("--client-secret-file", secret_flag, values::path);
    let secret_place = SecretPlace::find(SecretKind::Client, secret_file.as_deref(), environment);
    let secret = faults.take("--client-secret-file", secret_place);
    let grants = match flags.scope.as_deref() {
        Some(text) => scope::parse(text),
        None => Ok(scope::default_scope()),
    };
    let scope = faults.take("--scope", grants);
    let within = faults.read("--within", &flags.within, values::duration);
    let state = faults.take("--state", state_place(flags.state.as_deref(), environment));
    let ca_file = faults.read("--crm-ca-file", &flags.crm_ca_file, values::path);
    let proxy = faults.read("--crm-proxy", &flags.crm_proxy, proxy);
    let in_clear = proxy.is_some() && crm.iter().chain(&auth).any(Address::is_plain);
    let message = "would receive secrets unencrypted: remove it, because it cannot be used with an \
                 http:// address";
    faults.add_if(in_clear, "--crm-proxy", message);
    let wanted = Wanted {
        company: faults.read("--company", &flags.company, company),
        yes: flags.yes,
        within: within.unwrap_or(WITHIN),
    };
    Some(Connect {
        setup: Setup {
            ca_file,
            proxy,
            ..Setup::new(crm?)
        },
        auth: auth?,
        consent: consent?,
        redirect: redirect?,
        client_id: client_id?.to_owned(),
        secret: secret?,
        scope: scope?,
        state: state?,
        wanted,
    })
}

fn required_text<'a>(flag: &str, text: &'a Option<String>, faults: &mut Faults) -> Option<&'a str> {
    match text.as_deref().map(str::trim) {
        Some("") => faults.add(flag, "is empty"),
        Some(text) => return Some(text),
        None => faults.add(flag, "is missing"),
    }
    None
}

fn company(text: &str) -> Result<i64, String> {
    let id = text.trim().parse().ok().filter(|id| *id > 0);
    id.ok_or_else(|| format!("`{text}` is not a company id: give the digits that `connect` shows"))
}

/// Reads the address of a page for a browser: https, or http on this machine.
fn page(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL ({error})"))?;
    let mut bare = url.clone();
    bare.set_query(None);
    bare.set_fragment(None);
    Address::parse(bare.as_str()).map_err(|error| {
        let message = error.to_string();
        message.replace("--crm-url ", "").replace("--crm-url: ", "")
    })?;
    Ok(url)
}

/// The example at the end of `connect --help`.
pub(crate) const EXAMPLE: &str = "\
Example:
  callbridge connect --crm-url https://crm.example --auth-url https://auth.crm.example \\
    --consent-url https://app.crm.example/consent --client-id svc_app_1 \\
    --client-secret-file /etc/callbridge/client.secret \\
    --redirect-uri http://127.0.0.1:8765/back --state /var/lib/callbridge";

/// The flags of `connect`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectFlags {
    /// Address of the CRM's API; http:// only on this machine
    #[arg(long, value_name = "URL")]
    pub crm_url: Option<String>,
    /// Address of the CRM's OAuth endpoints
    #[arg(long, value_name = "URL")]
    pub auth_url: Option<String>,
    /// Address of the CRM's consent page
    #[arg(long, value_name = "URL")]
    pub consent_url: Option<String>,
    /// Id of the application: svc_app_…
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// File with only the application's secret (or use the credential `client-secret`, or
    /// CALLBRIDGE_CLIENT_SECRET)
    #[arg(long, value_name = "FILE")]
    pub client_secret_file: Option<String>,
    /// Where the browser returns to, exactly as it is registered. On this machine (127.0.0.1, ::1,
    /// localhost), `connect` receives it. Otherwise, paste the browser's address into this terminal
    #[arg(long, value_name = "URL")]
    pub redirect_uri: Option<String>,
    /// The grants to ask for [default: those that are needed or useful:
    /// PERMISSION_OPEN_API_CALL:SAVE, CALL:READ, LEAD:READ, LEAD:SAVE]
    #[arg(long, value_name = "PERMISSION:SCOPE …")]
    pub scope: Option<String>,
    /// How long to wait for the consent [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub within: Option<String>,
    /// The id of the company to connect, as `connect` shows it; other companies are refused.
    /// Without it, you are asked before a state is bound to its first company
    #[arg(long, value_name = "ID")]
    pub company: Option<String>,
    /// Bind the state to its first company without asking
    #[arg(long)]
    pub yes: bool,
    /// Where the connection is kept: the state of `run` [default: $STATE_DIRECTORY, else
    /// ~/.local/state/callbridge]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
    /// Certificates (PEM) that replace the system's roots
    #[arg(long, value_name = "FILE")]
    pub crm_ca_file: Option<String>,
    /// Proxy for the CRM; proxies of the environment are ignored
    #[arg(long, value_name = "URL")]
    pub crm_proxy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> ConnectFlags {
        ConnectFlags {
            crm_url: Some("https://crm.example".to_owned()),
            auth_url: Some("https://auth.example".to_owned()),
            consent_url: Some("https://crm.example/consent?lang=uz".to_owned()),
            client_id: Some("svc_app_1".to_owned()),
            client_secret_file: Some("/etc/secret".to_owned()),
            redirect_uri: Some("http://127.0.0.1:8765/back".to_owned()),
            state: Some("/s".to_owned()),
            ..ConnectFlags::default()
        }
    }

    fn check_flags(flags: &ConnectFlags) -> Result<Connect, Faults> {
        check(flags, &Environment::default(), Faults::default())
    }

    #[test]
    fn complete_connect_flags_are_accepted() {
        let connect = check_flags(&flags()).expect("whole");
        assert_eq!(connect.scope, scope::default_scope());
        assert_eq!(connect.wanted.within, WITHIN);
        assert_eq!(connect.consent.query(), Some("lang=uz"));
    }

    #[test]
    fn flag_errors_are_all_reported_at_once() {
        let wrong = ConnectFlags {
            crm_url: Some("http://crm.example".to_owned()),
            consent_url: Some("ftp://x".to_owned()),
            redirect_uri: Some("back".to_owned()),
            scope: Some("PERMISSION_OPEN_API_LEAD:READ".to_owned()),
            within: Some("soon".to_owned()),
            client_id: Some(" ".to_owned()),
            company: Some("Uy".to_owned()),
            ..ConnectFlags::default()
        };
        let faults = check_flags(&wrong).expect_err("faults").to_string();
        let lines = faults.lines().map(|line| {
            let cut: String = line.chars().take(70).collect();
            cut.trim_end().to_owned()
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
        10 errors in the flags. Nothing was started:
          --crm-url http://crm.example: http is allowed to a loopback address
          --auth-url: is missing
          --consent-url: ftp://x/: the scheme must be https
          --redirect-uri: `back` is not a URL (relative URL without a base)
          --client-id: is empty
          --client-secret-file: no secret: give --client-secret-file FILE, the
          --scope: lacks PERMISSION_OPEN_API_CALL:SAVE, without which no call
          --within: `soon` is not a time span: give it as 500ms, 10s, 12h or 7
          --state: is missing, and $HOME is not set: give a folder or a databa
          --company: `Uy` is not a company id: give the digits that `connect`
        ");
    }
}
