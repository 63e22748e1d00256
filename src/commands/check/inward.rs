//! Checks the sources, the trunks, the lists, and the queue to which dead letters are published.
//!
//! For a file, this reads the text at which `run` would start, checks the format of that text, and
//! reports the time of its last event.
//!
//! For FreeSWITCH, it reads the version, compares the gateways with the trunks, and checks what
//! mod_amqp publishes. The findings themselves come from `bridges/freeswitch`.

use super::account;
use super::manager_conf::ManagerConf;
use super::release::short_url;
use super::{CheckFinding, advice, fault, well};
use crate::config::trunk_problem::{self, TrunkProblem};
use crate::config::{Config, SourceConfig};
use crate::daemon::open::source_of;
use crate::daemon::outward::queue;
use callbridge_asterisk::survey::Account;
use callbridge_call::EventTime;
use callbridge_formats::{DecoderSettings, Format, FormatFit};
use callbridge_freeswitch::{module_conf, survey::Severity};
use callbridge_intake::written;
use callbridge_mapping::People;
use callbridge_model::Code;
use callbridge_model::status::FreeSpace;
use callbridge_source::{Fix, Transport};
use std::net::{IpAddr, Ipv4Addr};
use std::{fmt::Display, io::ErrorKind, path::Path};

/// Converts a test's result to a finding. `good` is the message if the test was successful. `code`
/// returns an error's exit status, or `None` if the error is merely advice.
fn probe_finding<E: Display>(
    name: String,
    result: Result<(), E>,
    good: &str,
    code: impl FnOnce(&E) -> Option<Code>,
) -> CheckFinding {
    let Err(error) = result else {
        return well(name, good);
    };
    let text = error.to_string();
    let usual = "correct it there; callbridge tries again automatically";
    let (message, fix) = text.split_once("; ").unwrap_or((&text, usual));
    match code(&error) {
        Some(code) => fault(code, name, message, fix),
        None => advice(name, message, fix),
    }
}

/// Opens the source once, without consuming a message from it.
///
/// For a manager account, also returns the account's permissions and the events it receives.
pub(crate) async fn source(flag: &SourceConfig) -> (CheckFinding, Option<Account>) {
    let name = format!("source {}", flag.url.public());
    let source = source_of(0, flag, None);
    let (opened, account) = match source.probe().await {
        Ok(account) => (Ok(()), account),
        Err(error) => (Err(error), None),
    };
    if let Err(error) = &opened
        && error.fix() == Fix::Secret
        && let Some(conf) = account::find_local_conf(flag)
        && let Some(finding) = excluded_address(&name, flag, &conf)
    {
        return (finding, None);
    }
    let finding = probe_finding(name, opened, "can be read", |error| {
        match &flag.url.transport {
            // Only a missing file has an exit status of its own.
            Transport::File { path, .. } if is_missing(path) => Some(Code::NoInput),
            _ => Some(code_of(error.fix())),
        }
    });
    (finding, account)
}

/// Reports that the account's `permit` lines exclude a login from this machine, which Asterisk
/// reports as `Authentication failed`, just like a wrong secret.
fn excluded_address(name: &str, flag: &SourceConfig, conf: &ManagerConf) -> Option<CheckFinding> {
    let host = &flag.url.endpoint()?.host;
    let address = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if conf.permits(address) {
        return None;
    }
    let path = conf.path.display();
    let message =
        format!("the PBX refused the login: {path} does not permit the address {address}");
    let fix = format!(
        "add `permit = {address}` after the account's deny line in {path}, then run \
         `manager reload`"
    );
    Some(fault(Code::NoPermission, name, message, fix))
}

/// Checks the dead letter queue, i.e., whether the broker accepts the login and the queue exists.
pub(crate) async fn dead_letters(config: &Config) -> Option<CheckFinding> {
    let flag = config.dead_letters.as_ref()?;
    let name = format!("dead letters {}", flag.url.public());
    let probed = queue(flag).probe().await;
    Some(probe_finding(name, probed, "the queue exists", |error| {
        Some(error.fix().map_or(Code::Unreachable, code_of))
    }))
}

/// Returns `true` if the file is missing. A file in an inaccessible directory is treated as
/// present.
fn is_missing(path: &Path) -> bool {
    path.metadata()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn code_of(fix: Fix) -> Code {
    match fix {
        Fix::Remote => Code::Unreachable,
        Fix::Secret => Code::NoPermission,
        Fix::Settings => Code::Configuration,
    }
}

/// Reports each trunk, along with any problem in its flags and lists.
pub(crate) fn trunks(config: &Config, people: &People) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    for trunk in config.rules.trunks.iter() {
        let name = format!("trunk {}", trunk.name);
        if let Some(TrunkProblem { message, fix }) = trunk_problem::find(config, trunk, people) {
            found.push(fault(Code::Configuration, name, message, fix));
        } else if trunk.has_channels() {
            found.push(well(name, format!("channels of {}", trunk.endpoint)));
        } else {
            found.push(well(name, "takes calls whose message names it"));
        }
    }
    found
}

/// Reports that the source's directory is almost full, or returns `None` if there's enough space.
pub(crate) fn space(flag: &SourceConfig) -> Option<CheckFinding> {
    let space = FreeSpace::of(&flag.path()?)?;
    let message = space.warning()?;
    let name = format!("disk of {}", flag.url.public());
    let fix = "delete or move old files there, or give the PBX a larger disk";
    if space.is_full() {
        return Some(fault(Code::CannotWrite, name, message, fix));
    }
    Some(advice(name, message, fix))
}

/// Checks the content of a file that can be opened, or returns `None` if the source isn't a file.
pub(crate) fn file(config: &Config, flag: &SourceConfig) -> Option<CheckFinding> {
    let Transport::File { path, format, from } = &flag.url.transport else {
        return None;
    };
    let kind = if flag.catch_up { "catch-up" } else { "source" };
    let name = format!("{kind} {}", flag.url.public());
    let bytes = match callbridge_source::sample(path, *format, from) {
        Ok(bytes) => bytes,
        Err(error) => {
            let fix = "allow the user that callbridge runs as to read the file";
            return Some(fault(Code::Input, name, error.to_string(), fix));
        }
    };
    let settings = DecoderSettings {
        zone: config.pbx_timezone.clone(),
        columns: config.columns.clone(),
        variables: None,
    };
    let fit = FormatFit::check(*format, settings, &bytes);
    if let Some(message) = written::describe_mismatch(*format, &fit, &bytes) {
        let fix = "give the format the file is written in, or the path of another file";
        return Some(fault(Code::Input, name, message, fix));
    }
    Some(match fit {
        FormatFit::Reads {
            last, unbridged, ..
        } if unbridged => advice(
            name,
            format!(
                "can be read, up to {}; it has answered calls without bridge events, so it is not \
                 known who talked: such calls become dead letters `incomplete`",
                time_text(last)
            ),
            "set events = ALL in cel.conf, or add BRIDGE_ENTER,BRIDGE_EXIT (Asterisk 12 and later) \
             or BRIDGE_START,BRIDGE_END,BRIDGE_UPDATE (1.8 to 11), then `module reload cel`",
        ),
        FormatFit::Reads {
            last,
            wrong_zone: Some(wrong),
            ..
        } => {
            let message = format!("can be read, up to {}, but {wrong}", time_text(last));
            advice(name, message, wrong.fix())
        }
        FormatFit::Reads { last, .. } => {
            let of = if flag.catch_up { "row" } else { "event" };
            let message = format!("can be read; its last {of} is from {}", time_text(last));
            well(name, message)
        }
        FormatFit::Empty => well(name, "is empty: the PBX has written no call yet"),
        FormatFit::Quiet | FormatFit::Other(_) | FormatFit::Unknown => {
            well(name, "can be read; it has no call where reading begins")
        }
    })
}

fn time_text(at: Option<EventTime>) -> String {
    let timestamp = at.and_then(|at| jiff::Timestamp::from_second(at.floor_seconds().get()).ok());
    timestamp.map_or_else(|| "an unknown time".to_owned(), |time| time.to_string())
}

/// Returns all findings about the FreeSWITCH behind this source, if there is one.
pub(crate) async fn switch(config: &Config, flag: &SourceConfig) -> Vec<CheckFinding> {
    let source = source_of(0, flag, None);
    let found = match source.survey_switch().await {
        Ok(Some(facts)) => {
            let endpoints: Vec<_> = config
                .rules
                .trunks
                .iter()
                .filter(|trunk| trunk.pbx.is_none() || trunk.pbx == flag.pbx)
                .map(|trunk| {
                    let endpoints = trunk.endpoints().map(str::to_owned);
                    (trunk.name.clone(), endpoints.collect())
                })
                .collect();
            let has_broker = config
                .sources
                .iter()
                .any(|other| other.pbx == flag.pbx && is_freeswitch_broker(other));
            Some(facts.judge(&endpoints, has_broker))
        }
        Ok(None) if is_freeswitch_broker(flag) => {
            let endpoint = flag.url.endpoint();
            if endpoint.is_some_and(|endpoint| endpoint.is_loopback()) {
                read_module_conf(module_conf::AMQP).map(|text| module_conf::judge_amqp(&text))
            } else {
                None
            }
        }
        Ok(None) if flag.url.format() == Format::FreeswitchCdr => {
            read_module_conf(module_conf::JSON_CDR).map(|text| module_conf::judge_json_cdr(&text))
        }
        // The source's finding already contains the reason.
        Ok(None) | Err(_) => None,
    };
    let mut findings = Vec::new();
    for found in found.unwrap_or_default() {
        let name = format!("{} of {}", found.about, short_url(flag));
        findings.push(match found.weight {
            Severity::Well => well(name, found.message),
            Severity::Advice => advice(name, found.message, found.fix),
            Severity::Fault => fault(Code::Configuration, name, found.message, found.fix),
        });
    }
    findings
}

/// Returns `true` if this source is a broker that passes on a FreeSWITCH's events.
fn is_freeswitch_broker(source: &SourceConfig) -> bool {
    source.url.format() == Format::Freeswitch && matches!(source.url.transport, Transport::Amqp(_))
}

/// Reads a FreeSWITCH module's configuration file on this machine, if possible.
fn read_module_conf(file: &str) -> Option<String> {
    let mut folders = module_conf::FOLDERS.iter();
    folders.find_map(|folder| std::fs::read_to_string(format!("{folder}/{file}")).ok())
}
