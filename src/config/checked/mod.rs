//! Checks the flags of `run` and `explain`. All errors are reported at once, before anything is
//! opened. This module has the types of the results, and helpers that several checks share.
//!
//! | module | what it contains |
//! |---|---|
//! | [`typed`] | from `Flags` to a [`Config`] |
//! | `sources` | `--source` and its secrets; `--catch-up`; the PBX of each source |
//! | `trunks` | `--trunk` with its defaults, checked against each other and the sources |
//! | [`connect`](mod@connect) | the flags of `connect` |
//! | [`crm`] | `--crm-url`, its rate and field names, and the source of its token |
//! | [`hub`] | `--collect`, and `--forward` in place of the CRM |
//! | [`page`] | `--page`, its certificate, names and passwords |
//! | [`place`](mod@place) | `--state`, and where it is without the flag |
//! | [`lookup`] | `--lookup`, and who can ask |
//! | `webhooks` | `--webhook-listen`, its certificate and secrets |

pub(crate) mod connect;
pub(crate) mod crm;
pub(crate) mod hub;
pub(crate) mod lookup;
pub(crate) mod page;
pub(crate) mod place;
pub(super) mod sources;
mod trunks;
pub(crate) mod typed;
mod webhooks;

use crate::config::Faults;
use crate::values;
use callbridge_asterisk::CsvColumns;
use callbridge_crm::{Address, FieldNames, Setup};
use callbridge_leads::lead_field;
use callbridge_mapping::{Rules, Trunk};
use callbridge_model::SecretPlace;
use callbridge_ops::log::Logging;
use callbridge_sender::rate::Rate;
use callbridge_source::{BrokerUrl, SourceUrl, Transport};
use callbridge_spool::StatePlace;
use callbridge_webhook::tls::Certificate;
pub(crate) use connect::check as connect;
pub(crate) use crm::TokenFrom;
pub(crate) use hub::{CollectConfig, ForwardConfig};
use jiff::tz::TimeZone;
pub(crate) use lookup::LookupConfig;
pub(crate) use page::PageConfig;
pub(crate) use place::{STATES, state_of_daemon, state_place};
use std::{collections::BTreeMap, net::SocketAddr, path::Path, path::PathBuf};
pub(crate) use typed::{Checking, logging};

#[derive(Debug)]
pub struct Config {
    /// The sources in the order of their flags. The first source of a PBX is the PBX's primary.
    /// Catch-up files come last.
    pub sources: Vec<SourceConfig>,
    /// The value of `--pbx-id`: the PBX of sources without `pbx=`.
    pub pbx_id: Option<String>,
    /// The value of `--pbx-timezone`: the zone of times that are written without a zone.
    pub pbx_timezone: Option<TimeZone>,
    /// The columns of a CSV file without a header (`--columns`).
    pub columns: Option<CsvColumns>,
    /// The rules by which calls are judged: the trunks, `--not-before`, and `--require-employee`.
    pub rules: Rules,
    /// The flag `--lead-directory`: the CRM's leads are read for the rule `directory`.
    pub lead_directory: bool,
    /// The CRM that calls are sent to. `None` in `explain` and dry runs without `--crm-url`.
    pub crm: Option<Crm>,
    /// The listener for calls of branches. `None` without `--collect`.
    pub collect: Option<CollectConfig>,
    /// The hubs that calls are sent to in place of a CRM. `None` without `--forward`.
    pub forward: Option<ForwardConfig>,
    /// The receiver of webhooks. `None` without `--webhook-listen`.
    pub webhooks: Option<Webhooks>,
    /// The administrator's page. `None` without `--page`.
    pub page: Option<PageConfig>,
    /// The lookup that dialplans ask at ring time. `None` without `--lookup`.
    pub lookup: Option<LookupConfig>,
    /// The assembler's settings, without the trunks of a PBX.
    pub calls: callbridge_call::Settings,
    /// The place of the state. `None` only if it is not needed and has no default.
    pub state: Option<StatePlace>,
    /// The value of `--instance`: the name of this process among the processes that share a
    /// database.
    pub instance: Option<String>,
    /// The address of `--listen`, at which health and metrics are served.
    pub listen: Option<SocketAddr>,
    /// The command of `--notify-command`, with the wait of `--notify-missed`.
    pub notify: Option<callbridge_ops::notify::Settings>,
    /// The queue of `--dead-letter-queue`, to which dead letters are published.
    pub dead_letters: Option<BrokerTarget>,
    pub log: Logging,
    /// The flag `--rebind`: the state moves to another address of the CRM, or another company.
    pub rebind: bool,
    /// The flag `--until-idle`: the daemon ends when every file is read, other sources are quiet
    /// for 5 s, and the books are settled.
    pub until_idle: bool,
    /// The flag `--dry-run`: nothing is sent.
    pub dry_run: bool,
}

impl Config {
    /// Returns the place of the state, or the working folder if none is known.
    pub(crate) fn state_place(&self) -> StatePlace {
        self.state
            .clone()
            .unwrap_or_else(|| StatePlace::Folder(PathBuf::from(".")))
    }

    /// Returns the zone of the PBX, or this machine's if none is given.
    pub(crate) fn zone(&self) -> TimeZone {
        self.pbx_timezone.clone().unwrap_or_else(TimeZone::system)
    }
}

/// A source and its secret.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// The URL of `--source`, or of `--catch-up`.
    pub url: SourceUrl,
    /// The value of `pbx=`, or else of `--pbx-id`. `None` only for `format=call`, whose messages
    /// name their PBX, and for commands that need no id, such as `explain`.
    pub pbx: Option<String>,
    /// The place of the source's secret. `None` if the transport needs no secret.
    pub secret: Option<SecretPlace>,
    /// Whether this is a `--catch-up`: a second record of the calls that another source reports.
    pub catch_up: bool,
}

impl SourceConfig {
    pub(crate) fn carries_whole_calls(&self) -> bool {
        self.url.format().carries_whole_calls()
    }

    /// Returns the file or directory that the source reads, or `None` if it's another kind of
    /// source.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.url.transport {
            Transport::File { path, .. } => Some(path.clone()),
            Transport::Ami { .. }
            | Transport::Esl { .. }
            | Transport::WebSocket { .. }
            | Transport::Amqp(_) => None,
        }
    }

    /// Returns `true` if calls of this source can come over this trunk. Returns `false` if the
    /// source and the trunk name different PBXs.
    pub(crate) fn serves(&self, trunk: &Trunk) -> bool {
        trunk.pbx.is_none() || self.pbx.is_none() || trunk.pbx == self.pbx
    }
}

#[derive(Clone, Debug)]
pub struct Crm {
    /// The address of `--crm-url`, with `--crm-ca-file` and `--crm-proxy`.
    pub setup: Setup,
    /// The OAuth host of `--auth-url`, in place of the stored connection's.
    pub auth: Option<Address>,
    /// The source of the token. `None` only in a dry run or a command that needs no token.
    pub token: Option<TokenFrom>,
    /// The requests that `--rate` allows, within the budget of the token.
    pub rate: Rate,
    /// The names of request fields that `--field` sets.
    pub fields: FieldNames,
    /// The fields of `--lead-field`, which show a lead's calls in the CRM.
    pub lead_fields: lead_field::Fields,
    /// The key of `--field-list-wrapper`, under which the CRM wants a list of fields.
    pub field_list_wrapper: Option<String>,
    /// The flag `--failed-employee drop`: a failed call is sent again without its employee.
    pub drop_employee: bool,
}

/// The receiver of webhooks, and the secrets that prove their sender.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// The address of `--webhook-listen`, for the CRM or its proxy.
    pub listen: SocketAddr,
    /// `--webhook-cert` and `--webhook-key`. `None` for plain HTTP.
    pub tls: Option<Certificate>,
    pub application: Option<SecretPlace>,
    /// The secrets of `--installation-secret`, by installation.
    pub installations: BTreeMap<String, SecretPlace>,
}

/// The queue of `--dead-letter-queue`, and its secret.
#[derive(Clone, Debug)]
pub struct BrokerTarget {
    pub url: BrokerUrl,
    /// The place of the broker's password.
    pub secret: SecretPlace,
}

impl Config {
    /// Returns the places of all secrets, each with the part that uses it, for messages.
    pub fn places(&self) -> Vec<(String, &SecretPlace)> {
        let mut places: Vec<(String, &SecretPlace)> = Vec::new();
        for source in &self.sources {
            if let Some(secret) = &source.secret {
                places.push((source.url.public(), secret));
            }
        }
        let token = self.crm.as_ref().and_then(|crm| crm.token.as_ref());
        if let Some(TokenFrom::Place(place)) = token {
            places.push(("the CRM (token)".to_owned(), place));
        }
        let branch_token = self
            .forward
            .as_ref()
            .and_then(|forward| forward.token.as_ref());
        if let Some(place) = branch_token {
            places.push(("the hub (token)".to_owned(), place));
        }
        if let Some(webhooks) = &self.webhooks {
            let installations = webhooks.installations.values();
            for place in webhooks.application.iter().chain(installations) {
                places.push(("webhooks".to_owned(), place));
            }
        }
        if let Some(place) = self.page.as_ref().and_then(|page| page.passwords.as_ref()) {
            places.push(("the page".to_owned(), place));
        }
        if let Some(place) = self
            .lookup
            .as_ref()
            .and_then(|lookup| lookup.secret.as_ref())
        {
            places.push(("the lookup".to_owned(), place));
        }
        if let Some(queue) = &self.dead_letters {
            places.push((queue.url.public(), &queue.secret));
        }
        places
    }

    /// Returns every file with a secret that the flags name.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for (_, place) in self.places() {
            files.extend(place.file().map(Path::to_path_buf));
        }
        let webhooks = self
            .webhooks
            .as_ref()
            .and_then(|webhooks| webhooks.tls.as_ref());
        let page = self.page.as_ref().and_then(|page| page.tls.as_ref());
        let collect = self
            .collect
            .as_ref()
            .and_then(|collect| collect.tls.as_ref());
        for certificate in [webhooks, page, collect].into_iter().flatten() {
            files.push(certificate.key.clone());
        }
        files.sort();
        files.dedup();
        files
    }
}

/// Reads the flags `--{of}-cert` and `--{of}-key`, which need each other. `holds` describes the
/// content of the files. It is the end of the error about an empty path.
pub(super) fn certificate(
    of: &str,
    (chain, key): (&Option<String>, &Option<String>),
    holds: &str,
    faults: &mut Faults,
) -> Option<Certificate> {
    let cert_flag = format!("--{of}-cert");
    let key_flag = format!("--{of}-key");
    let chain_file = faults.read(&cert_flag, chain, |text| file_path(text, holds));
    let key_file = faults.read(&key_flag, key, |text| file_path(text, holds));
    match (chain, key) {
        (Some(_), None) => faults.add(&cert_flag, format!("needs {key_flag}, its private key")),
        (None, Some(_)) => faults.add(&key_flag, format!("needs {cert_flag}, its certificate")),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let (chain, key) = chain_file.zip(key_file)?;
    Some(Certificate { chain, key })
}

/// Reads a path. `holds` describes the content of the file. It is the end of the error about an
/// empty path.
pub(super) fn file_path(text: &str, holds: &str) -> Result<PathBuf, String> {
    values::path(text).map_err(|message| format!("{message}{holds}"))
}

/// Adds an error for each given flag that has no effect without `needed`, which is not given.
pub(super) fn report_unused(needed: &str, given: &[(&str, bool)], faults: &mut Faults) {
    for (flag, _) in given.iter().filter(|(_, given)| *given) {
        faults.add(flag, format!("has no effect without {needed} ADDR"));
    }
}
