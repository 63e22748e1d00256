//! The checked settings of a sandbox.

use crate::{
    ACCESS_SECONDS, Application, CALL_READ, CALL_SAVE, Catalog, Company, Grant, IdSet, Lead,
    REFRESH_LIFE, Rate, Rule, Shapes,
};
use callbridge_call::EpochSeconds;
use callbridge_model::Secret;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the core. The same settings and requests give the same answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Size and length of the request window of each token (Limits).
    pub rate: Rate,
    /// Time from the acceptance of a write until its record is in the journal.
    pub persist_after: Duration,
    /// Largest random addition to `persist_after`.
    pub persist_jitter: Duration,
    /// The seed of random numbers and requestIds.
    pub seed: u64,
    /// Field names that the document does not publish.
    pub names: FieldNames,
    /// Answer formats and rules that the document leaves open.
    pub shapes: Shapes,
    /// The company that the token belongs to.
    pub company: Company,
    /// `true` to allow webhooks to private addresses, a deviation from §6.9.7 for trials.
    pub private_targets: bool,
    /// Lifetime of an access token (`expires_in`): one hour, or less for trials.
    pub access_life: Duration,
    /// Lifetime of a refresh token.
    pub refresh_life: Duration,
    /// Salt of generated tokens, codes, and keys. The command draws a new salt at each start, so
    /// different starts generate different values.
    pub salt: u128,
    /// The public OAuth application that is registered at the start, if there is one.
    pub application: Option<Application>,
    /// The CRM fields of every company.
    pub catalog: Catalog,
    /// Leads of the first company that exist from the first start, with their data.
    pub lead_list: Vec<Lead>,
}

impl Default for Settings {
    fn default() -> Self {
        let grants = [CALL_SAVE, CALL_READ].into_iter().filter_map(Grant::parse);
        Self {
            rate: Rate::default(),
            persist_after: Duration::from_secs(2),
            persist_jitter: Duration::from_millis(500),
            seed: 1,
            names: FieldNames::default(),
            shapes: Shapes::default(),
            company: Company {
                id: 1,
                name: "Sandbox company".to_owned(),
                application_id: 1,
                application_name: "callbridge".to_owned(),
                grants: grants.collect(),
                leads: IdSet::parse(DEFAULT_LEADS).unwrap_or_default(),
                employees: IdSet::parse(DEFAULT_EMPLOYEES).unwrap_or_default(),
                blocked: false,
                disconnected: false,
            },
            private_targets: false,
            access_life: Duration::from_secs(ACCESS_SECONDS.unsigned_abs()),
            refresh_life: REFRESH_LIFE,
            salt: 0,
            application: None,
            catalog: Catalog::default(),
            lead_list: Vec::new(),
        }
    }
}

/// The leads that exist without `--leads`.
pub const DEFAULT_LEADS: &str = "4001-4999";
/// The employees that exist without `--employees`.
pub const DEFAULT_EMPLOYEES: &str = "501-599";

/// All settings of a sandbox that [`super::start`] needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The address that serves only the token and revoke endpoints. Without it, `listen` serves
    /// these endpoints too.
    pub auth_listen: Option<SocketAddr>,
    /// The token that is issued at the start, unless it is already known.
    pub token: Secret,
    /// Expiry of the token. `None` means that it does not expire.
    pub expires_at: Option<EpochSeconds>,
    /// Settings of the core, which decide its answers.
    pub settings: Settings,
    /// Fault rules that apply from the start.
    pub rules: Vec<Rule>,
    /// The file that keeps the state across restarts. Without it, the state is lost when the
    /// process ends.
    pub state: Option<PathBuf>,
    /// A PEM file with the only certificate authorities that webhook deliveries trust. `None` means
    /// the system's authorities.
    pub webhook_ca_file: Option<PathBuf>,
}

impl Default for Config {
    /// Uses a free port on loopback and the token `svc_pat_sandbox`, and keeps no state.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            auth_listen: None,
            token: Secret::from("svc_pat_sandbox"),
            expires_at: None,
            settings: Settings::default(),
            rules: Vec::new(),
            state: None,
            webhook_ca_file: None,
        }
    }
}

/// Field names that the document does not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames {
    /// The name of the field with the talk time in seconds.
    pub talk: String,
    /// The name of the field with the customer's number. `None` means that there is no such field.
    pub phone: Option<String>,
    /// The name of the field with the operator's extension.
    pub extension: String,
    /// The key of the list in the body of a lead field upsert (§4.4). A client can also send the
    /// list without a key, as a bare array.
    pub list: String,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self {
            talk: "talkTimeSec".to_owned(),
            phone: Some("clientPhone".to_owned()),
            extension: "operatorExtension".to_owned(),
            list: "fields".to_owned(),
        }
    }
}
