//! Compares the PBX's endpoints with the trunks. Finds trunks without an endpoint, and endpoints
//! without a trunk.

use super::release::short;
use super::{CheckFinding, advice, fault, well};
use crate::config::{Config, SourceConfig};
use callbridge_asterisk::survey::{Account, EndpointFact};
use callbridge_call::Extension;
use callbridge_formats::Format;
use callbridge_mapping::{People, Trunk};
use callbridge_model::Code;
use callbridge_source::Transport;
use std::collections::BTreeSet;

/// Names shown on one line.
const NAMES_MAX: usize = 10;
/// A device whose name has more digits can be an outside line named by its number.
const EXTENSION_DIGITS_MAX: usize = 5;
/// If more letters differ, the name is a different one and not a misspelling.
const LETTERS_APART_MAX: usize = 2;

/// The endpoints and rights that one PBX has reported to its manager account.
pub(crate) struct PbxEndpoints<'a> {
    /// The source that was asked.
    pub flag: &'a SourceConfig,
    pub account: Account,
}

/// Returns the findings of all trunks and of endpoints that no trunk takes.
pub(crate) fn judge(
    config: &Config,
    shown: &[PbxEndpoints<'_>],
    people: &People,
) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    let is_silent = |it: &&PbxEndpoints<'_>| it.account.endpoints.is_empty();
    let (silent, asked): (Vec<_>, Vec<_>) = shown.iter().partition(is_silent);
    for it in silent {
        let message = "not known: the account has no right to list endpoints with \
                       PJSIPShowEndpoints, SIPpeers, IAXpeers (write = system) or DeviceStateList \
                       (write = reporting)";
        found.push(well(format!("endpoints of {}", short(it.flag)), message));
    }
    let asked_otherwise = |it: &SourceConfig| matches!(it.url.transport, Transport::Esl { .. });
    let unknown = |it: &SourceConfig| !it.catch_up && !asked_otherwise(it);
    if shown.is_empty() && config.sources.iter().any(unknown) {
        let is_freeswitch = config
            .sources
            .iter()
            .all(|it| matches!(it.url.format(), Format::Freeswitch | Format::FreeswitchCdr));
        let line = if is_freeswitch {
            "an event socket (esl://)"
        } else {
            "a manager account (ami://)"
        };
        let message = format!("the PBX was not asked for its endpoints: that needs {line}");
        found.push(well("endpoints", message));
    }
    for trunk in config.rules.trunks.iter() {
        let of_trunk = asked.iter().filter(|it| it.flag.serves(trunk));
        let of_trunk: Vec<&&PbxEndpoints<'_>> = of_trunk.collect();
        if !of_trunk.is_empty() {
            found.push(trunk_found(config, trunk, &of_trunk, people));
        }
    }
    found.extend(asked.iter().filter_map(|it| untaken(config, it, people)));
    found
}

/// Returns `true` if the endpoint belongs to the trunk. A trunk can also be a part of an endpoint:
/// `DAHDI/i1/998712000000`.
fn is_of(trunk: &Trunk, endpoint: &str) -> bool {
    let mut parts = trunk.endpoints().filter_map(|it| it.strip_prefix(endpoint));
    trunk.takes_in(endpoint) || parts.any(|rest| rest.starts_with('/'))
}

fn trunk_found(
    config: &Config,
    trunk: &Trunk,
    shown: &[&&PbxEndpoints<'_>],
    people: &People,
) -> CheckFinding {
    let name = format!("endpoint {}", trunk.endpoint);
    let endpoints = || shown.iter().flat_map(|it| it.account.endpoints.names());
    let own = endpoints().filter(|it| is_of(trunk, it));
    let own: BTreeSet<&str> = own.map(String::as_str).collect();
    let own: Vec<&str> = own.into_iter().collect();
    let is_phone = |it: &&str| (shown.iter()).any(|pbx| is_telephone(config, pbx, it, people));
    let phones: Vec<&str> = own.iter().copied().filter(is_phone).collect();
    if !phones.is_empty() && trunk.endpoint.contains('*') {
        let fix = "name only the outside lines, each with its own --trunk: calls between these \
                   telephones would be logged as calls with customers";
        let message = format!("it also matches telephones: {}", listed(&phones));
        return advice(name, message, fix);
    }
    if let Some(reason) = own
        .iter()
        .find_map(|it| telephone_reason(config, shown, it, people))
    {
        let message =
            format!("{reason}: calls of this phone would be logged as calls with a customer");
        let fix = "give --trunk the line to the carrier instead";
        return fault(Code::Configuration, name, message, fix);
    }
    if !own.is_empty() {
        return well(name, format!("the PBX has {}", listed(&own)));
    }
    let of = &trunk.name;
    let wrong =
        format!("the PBX has no endpoint of this name: calls over trunk {of} would be internal");
    let near = shown.iter().filter_map(|it| near(trunk, &it.account));
    if let Some(near) = near.min_by_key(|it| apart(trunk, it)) {
        let fix = format!("did you mean {near}? Give --trunk {}={near},…", trunk.name);
        return fault(Code::Configuration, name, wrong, fix);
    }
    // chan_sip names a channel of an unknown peer by the peer's address.
    if !shown.iter().any(|it| is_whole(trunk, &it.account)) || trunk.endpoint.contains('.') {
        let message = "not known: the PBX does not list this endpoint, but can still have it";
        return well(name, message);
    }
    let others = endpoints().filter(|it| !is_number(it)).map(String::as_str);
    let others: Vec<&str> = others.collect();
    let has = match others.is_empty() {
        true => "its endpoints are numbers".to_owned(),
        false => format!("it has {}", listed(&others)),
    };
    let fix = "give the part of the trunk's channel names before the suffix (run `core show \
               channels` during a call)";
    fault(Code::Configuration, name, format!("{wrong}; {has}"), fix)
}

/// Returns the endpoint that a misspelled trunk probably means.
fn near<'a>(trunk: &Trunk, account: &'a Account) -> Option<&'a String> {
    let endpoints = account.endpoints.names().filter(|it| !is_number(it));
    let near = endpoints.min_by_key(|it| apart(trunk, it))?;
    (apart(trunk, near) <= LETTERS_APART_MAX).then_some(near)
}

/// Returns `true` if the PBX listed all endpoints of the trunk's technology.
fn is_whole(trunk: &Trunk, account: &Account) -> bool {
    let wanted = technology(&trunk.endpoint);
    let sip = |it: &&str| ["PJSIP", "SIP", "IAX2"].contains(it);
    let endpoints = &account.endpoints;
    let devices = endpoints.names().map(|it| technology(it)).filter(sip);
    let mut shown = endpoints.whole.iter().map(String::as_str).chain(devices);
    shown.any(|it| it.eq_ignore_ascii_case(wanted))
}

/// Reports endpoints that can be outside lines and that belong to no trunk.
fn untaken(config: &Config, shown: &PbxEndpoints<'_>, people: &People) -> Option<CheckFinding> {
    let trunks = &config.rules.trunks;
    let of_pbx = || trunks.iter().filter(|trunk| shown.flag.serves(trunk));
    // An endpoint that was already suggested for a misspelled trunk is not reported again.
    let meant = |trunk: &Trunk, endpoint: &String| {
        let mut endpoints = shown.account.endpoints.names();
        !endpoints.any(|it| is_of(trunk, it)) && near(trunk, &shown.account) == Some(endpoint)
    };
    let left = shown.account.endpoints.names().filter(|it| {
        let taken = of_pbx().any(|trunk| is_of(trunk, it) || meant(trunk, it));
        !taken && !is_telephone(config, shown, it, people)
    });
    let left: Vec<&str> = left.map(String::as_str).collect();
    let fix = "name outside lines with --trunk, and telephones in --employees";
    (!left.is_empty()).then(|| {
        let name = format!("endpoints of {}", short(shown.flag));
        advice(name, format!("no trunk takes {}", listed(&left)), fix)
    })
}

/// Returns why this endpoint must be a phone. `None` if it can be an outside line. A gateway can
/// register at the PBX as phones do, so a registration proves nothing.
fn telephone_reason(
    config: &Config,
    shown: &[&&PbxEndpoints<'_>],
    name: &str,
    people: &People,
) -> Option<String> {
    let mut facts = shown
        .iter()
        .filter_map(|pbx| pbx.account.endpoints.facts.get(name))
        .flatten();
    let strongest = facts.next();
    let is_trunk = strongest.is_some_and(|fact| {
        use EndpointFact::{Fixed, Identified, LogsInThere, NoLogin, Outside, Registers};
        matches!(
            fact,
            Registers(_) | Identified(_) | LogsInThere | Fixed(_) | NoLogin | Outside(_)
        )
    });
    if is_trunk {
        return None;
    }
    if let Some(EndpointFact::Hint(extension)) = strongest {
        return Some(format!(
            "{name} is the phone of extension {extension} (it has a hint)"
        ));
    }
    if let Some(EndpointFact::Mailbox(mailbox)) = strongest {
        return Some(format!("{name} is a phone (it has the mailbox {mailbox})"));
    }
    let device = name.split_once('/').map_or("", |(_, device)| device);
    let is_short = is_number(name) && device.len() <= EXTENSION_DIGITS_MAX;
    let has_employee = (shown.iter()).any(|pbx| is_telephone(config, pbx, name, people));
    if is_short || has_employee && !is_number(name) {
        return Some(format!("{name} is named like a phone of an employee"));
    }
    None
}

/// Returns `true` if the endpoint is named by a number, or if the lists have an employee at it.
fn is_telephone(config: &Config, shown: &PbxEndpoints<'_>, name: &str, people: &People) -> bool {
    let device = name.split_once('/').map_or("", |(_, device)| device);
    let mut trunks = config.rules.trunks.iter();
    let extension = Extension::new(device);
    let knows = |trunk: &Trunk| people.employee_of(&extension, trunk).is_some();
    is_number(name) || trunks.any(|trunk| shown.flag.serves(trunk) && knows(trunk))
}

fn is_number(endpoint: &str) -> bool {
    let device = endpoint.split_once('/').map_or("", |(_, device)| device);
    let number = device.strip_suffix("-WS").unwrap_or(device);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

fn technology(endpoint: &str) -> &str {
    endpoint.split_once('/').map_or(endpoint, |(tech, _)| tech)
}

/// Returns how many letters differ between a trunk's endpoint and this one. Case is ignored.
fn apart(trunk: &Trunk, endpoint: &str) -> usize {
    let (one, other) = (trunk.endpoint.to_lowercase(), endpoint.to_lowercase());
    letters_apart(&one, &other)
}

/// Returns how many letters only one of the two has, in any order.
fn letters_apart(one: &str, other: &str) -> usize {
    let mut rest: Vec<char> = other.chars().collect();
    let mut missing = 0;
    for letter in one.chars() {
        match rest.iter().position(|other| *other == letter) {
            Some(at) => drop(rest.swap_remove(at)),
            None => missing += 1,
        }
    }
    missing + rest.len()
}

fn listed(names: &[&str]) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let named = names[..names.len() - more].join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
