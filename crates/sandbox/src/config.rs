//! What a sandbox is set to, checked.

use crate::{
    ACCESS_SECONDS, Application, CALL_READ, CALL_SAVE, Catalogue, Company, Grant, IdSet, Lead,
    REFRESH_LIFE, Rate, Rule, Shapes,
};
use callbridge_call::EpochSeconds;
use callbridge_model::Secret;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the core: with the same settings and requests it answers the same.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Size and length of the request window of each token (Limits).
    pub rate: Rate,
    /// Time from accepting a write to its record.
    pub persist_after: Duration,
    /// Up to this much is added, by the dice.
    pub persist_jitter: Duration,
    /// The seed of the dice and the requestIds.
    pub seed: u64,
    /// Names that the document does not publish.
    pub names: FieldNames,
    /// Shapes that the document does not publish.
    pub shapes: Shapes,
    /// The company that the token belongs to.
    pub company: Company,
    /// Deliveries of webhooks may go to private addresses: a deviation from §6.9.7, for trials.
    pub private_targets: bool,
    /// Lifetime of an access token (`expires_in`); an hour, or less for trials.
    pub access_life: Duration,
    /// Lifetime of a refresh token.
    pub refresh_life: Duration,
    /// Salt of minted values, so that another start mints others.
    pub salt: u128,
    /// The application that exists from the first start.
    pub application: Option<Application>,
    /// The CRM fields of every company.
    pub catalogue: Catalogue,
    /// Leads of the first company that are there from the first start, with what is known of them.
    pub lead_list: Vec<Lead>,
}

impl Default for Settings {
    fn default() -> Self {
        let grants = [CALL_SAVE, CALL_READ].into_iter().filter_map(Grant::parse);
        let ids = |text| IdSet::parse(text).unwrap_or_default();
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
                leads: ids(DEFAULT_LEADS),
                employees: ids(DEFAULT_EMPLOYEES),
                blocked: false,
                disconnected: false,
            },
            private_targets: false,
            access_life: Duration::from_secs(ACCESS_SECONDS.unsigned_abs()),
            refresh_life: REFRESH_LIFE,
            salt: 0,
            application: None,
            catalogue: Catalogue::default(),
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
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that serves the token and the revoke endpoint, and them alone; `None`: they are
    /// served with the rest.
    pub auth_listen: Option<SocketAddr>,
    /// The token that works from the first start.
    pub token: Secret,
    /// Expiry of the token; `None`: it has none.
    pub expires_at: Option<EpochSeconds>,
    /// Settings of the core, which decide its answers.
    pub settings: Settings,
    /// Rules of the faults that are in force from the start.
    pub rules: Vec<Rule>,
    /// The file that keeps the state across restarts; `None`: the state is lost at the end.
    pub state: Option<PathBuf>,
    /// The authorities that deliveries of webhooks trust; `None`: the system's.
    pub webhook_ca_file: Option<PathBuf>,
}

impl Default for Config {
    /// A free port on loopback, the token `svc_pat_sandbox`, nothing kept.
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

/// Names that the document does not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNames {
    /// The field of the talk time in seconds.
    pub talk: String,
    /// The customer's number; `None`: no such field.
    pub phone: Option<String>,
    /// The field of the operator's extension.
    pub extension: String,
    /// The key of the lead field upsert's list, where it is wrapped (§4.4).
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
