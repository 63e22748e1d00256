//! The flags of `run` and `explain`, checked: all their faults are told at once, and nothing is
//! opened before.
//!
//! | module | what lives there |
//! |---|---|
//! | [`typed`] | the way from [`Flags`](super::options::Flags) to a [`Config`] |
//! | `catch_up` | `--catch-up` |
//! | `sources` | `--source` and its secrets |
//! | `standby` | `--standby` and what it needs |
//! | `trunks` | `--trunk` over its defaults, against each other and the sources |
//! | `connect` | the flags of `connect` |
//! | `pbx` | the id of the PBX that nothing names |
//! | `crm` | `--crm-url`, its rate and field names; `token`: where its token comes from |
//! | `secret_files` | every secret of the flags, wherever it was given |
//! | `page` | `--page`, its certificate, names and passwords |
//! | `lookup` | `--lookup`, and who may ask |
//! | `tls` | what the page's and the receiver's listeners share |
//! | `webhooks` | `--webhook-listen`, its certificate and secrets |

mod catch_up;
pub(crate) mod connect;
mod crm;
mod lookup;
mod page;
mod pbx;
mod secret_files;
mod sources;
mod standby;
mod tls;
mod token;
mod trunks;
pub(crate) mod typed;
mod webhooks;

pub(crate) use connect::check as connect;
pub(crate) use lookup::LookupConfig;
pub(crate) use page::PageConfig;
pub(crate) use token::TokenFrom;
pub(crate) use typed::{Checking, Purpose, STATES, logging, state_folder, state_of_daemon};

use crate::privilege::Held;
use callbridge_asterisk::Columns;
use callbridge_crm::{Address, FieldNames, Setup};
use callbridge_intake::machine::Unknown;
use callbridge_leads::lead_field;
use callbridge_mapping::journal::Rules;
use callbridge_model::SecretPlace;
use callbridge_ops::log::Logging;
use callbridge_sender::rate::Rate;
use callbridge_source::StreamReading;
use callbridge_source::url::{BrokerUrl, SourceUrl};
use callbridge_webhook::tls::Certificate;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug)]
pub struct Config {
    /// In the order of their flags: the first of a PBX is its primary. Catch-up files come last.
    pub sources: Vec<SourceConfig>,
    /// `--pbx-id`
    pub pbx_id: Option<String>,
    /// The id of the PBX that nothing names, in a state that has none yet, or why there is none;
    /// `None` where every source's PBX is named.
    pub derived_pbx: Option<Result<String, Unknown>>,
    /// `--pbx-timezone`
    pub pbx_timezone: Option<TimeZone>,
    /// `--columns`
    pub cel_columns: Option<Columns>,
    /// Trunks, `--not-before`, `--require-employee`.
    pub rules: Rules,
    /// `--lead-directory`
    pub lead_directory: bool,
    /// Where calls are journaled; `None` in `explain` and dry runs without `--crm-url`.
    pub crm: Option<Crm>,
    /// Where events of the CRM are taken; `None` without `--webhook-listen`.
    pub webhooks: Option<Webhooks>,
    /// Where the page is shown; `None` without `--page`.
    pub page: Option<PageConfig>,
    /// Where a dialplan asks who calls; `None` without `--lookup`.
    pub lookup: Option<LookupConfig>,
    /// How calls are told apart, for the trunks of no PBX yet.
    pub calls: callbridge_call::Settings,
    /// The state folder; `None` only where it was not asked for and has no default.
    pub state: Option<PathBuf>,
    /// Where health and metrics are served.
    pub listen: Option<SocketAddr>,
    /// `--notify-command`, `--notify-missed`
    pub notify: Option<callbridge_ops::notify::Settings>,
    /// Where dead letters are published.
    pub dead_letters: Option<BrokerTarget>,
    /// Where calls are published in place of a CRM.
    pub forward: Option<BrokerTarget>,
    /// `--standby`: the lease that decides who sends.
    pub standby: Option<String>,
    /// `--stream-from`, `--stream-skip`
    pub streams: StreamReading,
    /// `--pbx-owner`
    pub pbx_owners: BTreeMap<String, String>,
    pub log: Logging,
    /// `--rebind`
    pub rebind: bool,
    /// `--until-idle`
    pub until_idle: bool,
    /// `--dry-run`
    pub dry_run: bool,
    /// Variables that are called as ours are, and that nothing reads.
    pub unread_variables: Vec<String>,
    pub(crate) held: Held,
}

impl Config {
    /// The zone of the PBX, else this machine's.
    pub(crate) fn zone(&self) -> TimeZone {
        self.pbx_timezone.clone().unwrap_or_else(TimeZone::system)
    }
}

/// A source and its secret.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// `--source`
    pub url: SourceUrl,
    /// `pbx=`, else `--pbx-id`; `None` for the id that is stored, or made of machine, source and
    /// trunks.
    pub pbx: Option<String>,
    /// Where its secret is; `None` where it needs none.
    pub secret: Option<SecretPlace>,
    /// `--catch-up`: a second account of what another source tells.
    pub catch_up: bool,
}

impl SourceConfig {
    /// Its messages are calls, and name their PBXs.
    pub(crate) fn tells_whole_calls(&self) -> bool {
        self.url.format().tells_whole_calls()
    }
}

#[derive(Clone, Debug)]
pub struct Crm {
    /// `--crm-url`, `--crm-ca-file`, `--crm-proxy`
    pub setup: Setup,
    /// `--auth-url`
    pub auth: Option<Address>,
    /// Where the token comes from; `None` only in a dry run.
    pub token: Option<TokenFrom>,
    /// `--rate`
    pub rate: Rate,
    /// `--field`
    pub fields: FieldNames,
    /// `--lead-field`
    pub lead_fields: lead_field::Fields,
    /// `--field-list-wrapper`
    pub field_list_wrapper: Option<String>,
    /// `--failed-employee drop`
    pub drop_employee: bool,
}

/// Where events of the CRM are taken, and what proves them.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// `--webhook-listen`
    pub listen: SocketAddr,
    /// `--webhook-cert` and `--webhook-key`; `None` for plain HTTP.
    pub tls: Option<Certificate>,
    pub application: Option<SecretPlace>,
    /// `--installation-secret`: by installation.
    pub installations: BTreeMap<String, SecretPlace>,
}

/// `--dead-letter-queue` or `--forward`, and its secret.
#[derive(Clone, Debug)]
pub struct BrokerTarget {
    pub url: BrokerUrl,
    /// Where its secret is.
    pub secret: SecretPlace,
}
