//! Judges a manager account by its permissions, by whether it receives call events, and by what
//! these contain. Observed facts take precedence. If there are none, `manager.conf` is consulted,
//! provided that it's on this machine and readable.

use super::manager_conf::ManagerConf;
use super::release::{self, short_url};
use super::{CheckFinding, advice, fault, well};
use crate::config::{Config, SourceConfig};
use callbridge_asterisk::survey::{Account, BridgeProof, CallProof};
use callbridge_mapping::LeadRule;
use callbridge_model::Code;
use callbridge_model::status::clock_difference;
use callbridge_source::Transport;
use std::collections::{BTreeMap, BTreeSet};

/// The permissions that `manager.conf` should give the account.
const READ: &str = "set read = call,cdr,system,agent,user for it in manager.conf, then `manager \
                    reload`";
const WRITE: &str = "set write = reporting,user for it in manager.conf, then `manager reload`";

/// Returns all findings about the account.
pub(crate) fn judge(config: &Config, flag: &SourceConfig, account: &Account) -> Vec<CheckFinding> {
    let local_conf = find_local_conf(flag);
    let conf = local_conf.as_ref();
    let url = short_url(flag);
    let wanted = needed_variables(config, flag);
    let names: Vec<&str> = wanted.keys().map(String::as_str).collect();
    let mut found = release::judge(config, flag, account, conf, &names);
    found.extend([
        rights(&url, account),
        filter(&url, account, conf).unwrap_or_else(|| events(&url, account, conf)),
        bridges(&url, account, conf),
        times(&url, account, conf),
    ]);
    found.extend(clock(&url, account));
    found.extend(variables(&url, &wanted, account, conf));
    found
}

/// Returns the finding about a gateway or a broker, whose permissions can't be read, or `None` for
/// any other source.
pub(crate) fn unknown_rights(flag: &SourceConfig) -> Option<CheckFinding> {
    let message = match &flag.url.transport {
        Transport::WebSocket { .. } => {
            "not known: a gateway reports nothing about the account behind it. The first event \
             shows that events of calls arrive; until then, `status` shows connected"
        }
        Transport::Amqp(_) => {
            "not known: the first message shows that the PBX writes into the queue; until then, \
             `status` shows connected"
        }
        Transport::Ami { .. } | Transport::Esl { .. } | Transport::File { .. } => return None,
    };
    Some(well(format!("events of {}", short_url(flag)), message))
}

/// Reports if the PBX's clock and this machine's differ by more than 5 s.
fn clock(url: &str, account: &Account) -> Option<CheckFinding> {
    let ahead = account.clock_ahead?;
    let message = clock_difference(ahead.micros() / 1_000)?;
    let fix = "set both clocks by NTP";
    Some(advice(format!("clock of {url}"), message, fix))
}

/// Returns this account's settings in `manager.conf`, if the PBX is running on this machine.
pub(crate) fn find_local_conf(flag: &SourceConfig) -> Option<ManagerConf> {
    match &flag.url.transport {
        Transport::Ami { endpoint, user } if endpoint.is_loopback() => {
            ManagerConf::find(user, endpoint.port)
        }
        _ => None,
    }
}

fn rights(url: &str, account: &Account) -> CheckFinding {
    let name = format!("rights of {url}");
    let Some(actions) = &account.actions else {
        let message = "not known: the PBX does not report the rights of the account (ListCommands)";
        return well(name, message);
    };
    // The Filter and GetConfig actions both need `write = system`, so an account that can filter
    // events can also read the configuration.
    let lists_channels = actions.contains("coreshowchannels");
    let reads_configuration = actions.contains("getconfig");
    match (lists_channels, reads_configuration) {
        (true, true) => {
            let message = "the account can list channels, but has more rights than it needs: it \
                           can read the PBX's configuration with all secrets (GetConfig)";
            advice(name, message, WRITE)
        }
        (false, _) if !account.is_old() => {
            let message = "the account has no right to list channels (CoreShowChannels): a call \
                           whose end was missed could not be closed";
            fault(Code::NoPermission, name, message, WRITE)
        }
        (false, _) => {
            let message = "this release cannot list channels (CoreShowChannels)";
            well(name, message)
        }
        (true, false) => well(
            name,
            "the account can list channels, and has no more rights than it needs",
        ),
    }
}

/// Reports a filter in `manager.conf` that Asterisk 10 to 12 treat as literal text, so that it
/// blocks everything.
fn filter(url: &str, account: &Account, conf: Option<&ManagerConf>) -> Option<CheckFinding> {
    let versions = ["1.2", "1.3", "2.0", "2.1", "2.2", "2.3", "2.4"];
    let is_literal = versions.iter().any(|version| {
        let rest = account.version.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    let is_unheard = is_literal && account.calls != CallProof::Heard;
    let conf = conf.filter(|conf| is_unheard && conf.is_deafened())?;
    let message = format!(
        "this release reads `(A|B)` in the account's eventfilter in {} as text, so it blocks all \
         events",
        conf.path.display()
    );
    let fix = "use one eventfilter line per event, as in deploy/asterisk/manager.conf, then \
               `manager reload`";
    let name = format!("events of {url}");
    Some(fault(Code::NoPermission, name, message, fix))
}

fn events(url: &str, account: &Account, conf: Option<&ManagerConf>) -> CheckFinding {
    let name = format!("events of {url}");
    if account.calls == CallProof::Heard {
        if account.booted || account.is_old() {
            return well(name, "events of calls are received");
        }
        let message = "events of calls are received, but FullyBooted (the PBX has started) was \
                       not: the PBX is still starting, or the account has no right to receive it";
        return advice(name, message, READ);
    }
    let may_not = "the account has no right to receive events of calls";
    if let CallProof::Unheard(born) = account.calls {
        let channels = match born {
            1 => "a channel was created during the check, and its events".to_owned(),
            born => format!("{born} channels were created during the check, and their events"),
        };
        let message = format!("{channels} were not received: {may_not}");
        return fault(Code::NoPermission, name, message, READ);
    }
    if let Some(conf) = conf {
        let path = conf.path.display();
        if conf.receives("call") {
            let message = format!("events of calls are received, according to {path}");
            return well(name, message);
        }
        let message = format!("{may_not}: {path} gives it no read = call");
        return fault(Code::NoPermission, name, message, READ);
    }
    // Without a call, there are no call events. However, an event that the account sends to itself
    // may still prove that some events arrive.
    let own = match (account.echoed, account.booted) {
        (Some(true), _) => {
            "an event that the account sent came back, but it is not known yet whether events of \
             calls arrive"
        }
        // Filters don't block FullyBooted, because it's a response to the login.
        (Some(false), true) => {
            "FullyBooted arrived (the PBX runs), but an event that the account sent did not come \
             back: its read lacks user, or its eventfilter blocks all events. It is not known yet \
             whether events of calls arrive"
        }
        (None, true) => {
            "FullyBooted arrived (the PBX runs), but it is not known yet whether events of calls \
             arrive"
        }
        (Some(false) | None, false) if account.is_old() => {
            "it is not known yet whether events of calls arrive"
        }
        (Some(false) | None, false) => {
            "no event arrived: neither FullyBooted (the PBX runs; read = system) nor an event that \
             the account sent (read and write = user). It is not known yet whether events of calls \
             arrive"
        }
    };
    let why = match account.channels {
        Some(0) => "no call is active",
        Some(_) => "nothing happened in the active calls",
        None => "the account has no right to list channels",
    };
    let until = match (account.echoed, account.channels) {
        (Some(true), Some(_)) => "",
        _ => "; until then, `status` shows connected",
    };
    let message = format!("{own}: {why}. The first call shows it{until}");
    let fix = "place a call while this command runs, or make sure that manager.conf gives the \
               account read = call,cdr,system,agent,user and write = reporting,user";
    advice(name, message, fix)
}

/// Reports whether the account receives bridge events, without which no call would appear to be
/// answered.
fn bridges(url: &str, account: &Account, conf: Option<&ManagerConf>) -> CheckFinding {
    let name = format!("bridge events of {url}");
    let by_conf = conf.and_then(|conf| conf.passes(&format!("Event: {}", bridge_event(account))));
    let reason = match (account.bridges, by_conf) {
        (BridgeProof::Heard, _) => return well(name, "are received"),
        (BridgeProof::Dropped, _) => "a test event that looks like one didn't come back",
        (BridgeProof::Unknown, Some(false)) => "its eventfilter in manager.conf says so",
        (BridgeProof::Unknown, Some(true)) => {
            return well(name, "pass the eventfilter in manager.conf");
        }
        (BridgeProof::Unknown, None) => {
            let message = "unknown until the first answered call, which shows whether the \
                           account's eventfilter lets them pass";
            return well(name, message);
        }
    };
    let message = format!(
        "the account's eventfilter drops them ({reason}), so callbridge can't tell who answered a \
         call"
    );
    let fix = "let Bridge events pass, as in deploy/asterisk/manager.conf, then `manager reload`";
    fault(Code::NoPermission, name, message, fix)
}

/// Returns the name of the event that reports that two channels were connected.
fn bridge_event(account: &Account) -> &'static str {
    if account.is_old() {
        "Bridge"
    } else {
        "BridgeEnter"
    }
}

fn times(url: &str, account: &Account, conf: Option<&ManagerConf>) -> CheckFinding {
    let name = format!("times of {url}");
    match account.timed.or(conf.map(|conf| conf.timed)) {
        Some(true) => well(name, "events have the PBX's own timestamps"),
        Some(false) => {
            let message = "events have no timestamps, so their arrival times are used, and calls \
                           become incomplete if the connection stalls";
            let fix = "set timestampevents = yes in [general] of manager.conf, then `manager \
                        reload`";
            fault(Code::Configuration, name, message, fix)
        }
        None => well(name, "not known before the first event"),
    }
}

/// Reports variables that this PBX's trunks take leads from but that no channel has.
fn variables(
    url: &str,
    wanted: &BTreeMap<String, bool>,
    account: &Account,
    conf: Option<&ManagerConf>,
) -> Option<CheckFinding> {
    let names: Vec<&str> = wanted.keys().map(String::as_str).collect();
    if names.is_empty() {
        return None;
    }
    let name = format!("variables of {url}");
    let of_conf = conf.map(|conf| &conf.variables);
    let Some(shown) = account.variables.as_ref().or(of_conf) else {
        let message = format!("{}: not known before the first channel", names.join(", "));
        return Some(well(name, message));
    };
    let mut missing = wanted.clone();
    missing.retain(|name, _| !shown.contains(name));
    if missing.is_empty() {
        return Some(well(name, format!("channels show {}", names.join(", "))));
    }
    let missed = Vec::from_iter(missing.keys().cloned()).join(", ");
    let message = format!("channels do not show {missed}, from which leads are taken");
    let shown = shown.iter().map(String::as_str);
    let all: BTreeSet<&str> = names.into_iter().chain(shown).collect();
    let all = Vec::from_iter(all).join(",");
    let fix = format!(
        "add {missed} to channelvars in [general] of manager.conf (`channelvars = {all}`; a second \
         line would replace the first), then `manager reload`"
    );
    // If another rule can find the lead, nothing is lost.
    let is_lost = missing.into_values().any(|is_only_rule| is_only_rule);
    Some(if is_lost {
        fault(Code::Configuration, name, message, fix)
    } else {
        advice(name, message, fix)
    })
}

/// Returns each channel variable that contains leads for this source's trunks. The value is `true`
/// if a trunk has no other lead rule.
fn needed_variables(config: &Config, flag: &SourceConfig) -> BTreeMap<String, bool> {
    let mut wanted = BTreeMap::new();
    let trunks = config.rules.trunks.iter();
    for trunk in trunks.filter(|trunk| flag.serves(trunk)) {
        for name in trunk.leads.iter().filter_map(LeadRule::variable) {
            *wanted.entry(name.clone()).or_default() |= trunk.leads.len() == 1;
        }
    }
    wanted
}
