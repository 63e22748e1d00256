//! Compares the PBX's endpoints with the trunks, to find trunks without an endpoint and endpoints
//! without a trunk.

use super::release::short_url;
use super::{CheckFinding, advice, fault, well};
use crate::config::{Config, SourceConfig};
use callbridge_asterisk::survey::{Account, EndpointFact};
use callbridge_call::Extension;
use callbridge_formats::Format;
use callbridge_mapping::{People, Trunk};
use callbridge_model::Code;
use callbridge_source::Transport;

/// Maximum number of names to show on one line.
const NAMES_MAX: usize = 10;
/// If a device's name has more digits than this, it may be an outside line that's named after its
/// number.
const EXTENSION_DIGITS_MAX: usize = 5;
/// If more letters than this differ, a name isn't considered a misspelling of another one.
const LETTERS_APART_MAX: usize = 2;

/// The endpoints and permissions that a PBX reported to its manager account.
pub(crate) struct PbxEndpoints<'a> {
    /// The source through which the PBX was asked.
    pub flag: &'a SourceConfig,
    pub account: Account,
}

/// Returns the findings about all trunks and about endpoints that don't match any --trunk. `shown`
/// contains each PBX that was asked for its endpoints.
pub(crate) fn judge(
    config: &Config,
    shown: &[PbxEndpoints<'_>],
    people: &People,
) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    let mut asked = Vec::new();
    for pbx in shown {
        if !pbx.account.endpoints.is_empty() {
            asked.push(pbx);
            continue;
        }
        let message = "not known: the account has no right to list endpoints with \
                       PJSIPShowEndpoints, SIPpeers, IAXpeers (write = system) or DeviceStateList \
                       (write = reporting)";
        found.push(well(
            format!("endpoints of {}", short_url(pbx.flag)),
            message,
        ));
    }
    // An event socket is asked for its endpoints by `inward::switch`.
    let has_unasked = config
        .sources
        .iter()
        .any(|source| !source.catch_up && !matches!(source.url.transport, Transport::Esl { .. }));
    if shown.is_empty() && has_unasked {
        let is_freeswitch = config.sources.iter().all(|source| {
            matches!(
                source.url.format(),
                Format::Freeswitch | Format::FreeswitchCdr
            )
        });
        let line = if is_freeswitch {
            "an event socket (esl://)"
        } else {
            "a manager account (ami://)"
        };
        let message = format!("the PBX was not asked for its endpoints: that needs {line}");
        found.push(well("endpoints", message));
    }
    for trunk in config.rules.trunks.iter() {
        let of_trunk: Vec<&PbxEndpoints<'_>> = asked
            .iter()
            .copied()
            .filter(|pbx| pbx.flag.serves(trunk))
            .collect();
        if !of_trunk.is_empty() {
            found.push(judge_trunk(config, trunk, &of_trunk, people));
        }
    }
    for pbx in asked {
        found.extend(unmatched_endpoints(config, pbx, people));
    }
    found
}

/// Returns `true` if the endpoint belongs to the trunk, which may be just a part of it, such as
/// `i1` in `DAHDI/i1/998712000000`.
fn is_trunk_endpoint(trunk: &Trunk, endpoint: &str) -> bool {
    trunk.matches_channel(endpoint)
        || trunk
            .endpoints()
            .filter_map(|own| own.strip_prefix(endpoint))
            .any(|rest| rest.starts_with('/'))
}

fn judge_trunk(
    config: &Config,
    trunk: &Trunk,
    shown: &[&PbxEndpoints<'_>],
    people: &People,
) -> CheckFinding {
    let name = format!("endpoint {}", trunk.endpoint);
    let endpoints: Vec<&str> = shown
        .iter()
        .flat_map(|pbx| pbx.account.endpoints.names())
        .map(String::as_str)
        .collect();
    let mut own: Vec<&str> = endpoints
        .iter()
        .copied()
        .filter(|endpoint| is_trunk_endpoint(trunk, endpoint))
        .collect();
    own.sort_unstable();
    own.dedup();
    let phones: Vec<&str> = own
        .iter()
        .copied()
        .filter(|endpoint| {
            shown
                .iter()
                .any(|pbx| is_telephone(config, pbx, endpoint, people))
        })
        .collect();
    if !phones.is_empty() && trunk.endpoint.contains('*') {
        let fix = "name only the outside lines, each with its own --trunk: calls between these \
                   telephones would be logged as calls with customers";
        let message = format!("it also matches telephones: {}", name_list(&phones));
        return advice(name, message, fix);
    }
    if let Some(reason) = own
        .iter()
        .find_map(|endpoint| telephone_reason(config, shown, endpoint, people))
    {
        let message =
            format!("{reason}: calls of this phone would be logged as calls with a customer");
        let fix = "name the line to the carrier in --trunk instead";
        return fault(Code::Configuration, name, message, fix);
    }
    if !own.is_empty() {
        return well(name, format!("the PBX has {}", name_list(&own)));
    }
    let wrong = format!(
        "the PBX has no endpoint of this name: calls over trunk {} would be internal",
        trunk.name
    );
    let similar = shown
        .iter()
        .filter_map(|pbx| similar_endpoint(trunk, &pbx.account))
        .min_by_key(|endpoint| distance(trunk, endpoint));
    if let Some(similar) = similar {
        let fix = format!(
            "did you mean {similar}? Give --trunk {}={similar},…",
            trunk.name
        );
        return fault(Code::Configuration, name, wrong, fix);
    }
    let is_complete = shown.iter().any(|pbx| lists_all(trunk, &pbx.account));
    // If a peer is unknown, chan_sip names its channel after the peer's address.
    if !is_complete || trunk.endpoint.contains('.') {
        let message = "not known: the PBX does not list this endpoint, but can still have it";
        return well(name, message);
    }
    let others: Vec<&str> = endpoints
        .into_iter()
        .filter(|endpoint| !is_number(endpoint))
        .collect();
    let has = if others.is_empty() {
        "its endpoints are numbers".to_owned()
    } else {
        format!("it has {}", name_list(&others))
    };
    let fix = "give the part of the trunk's channel names before the suffix (run `core show \
               channels` during a call)";
    fault(Code::Configuration, name, format!("{wrong}; {has}"), fix)
}

/// Returns the endpoint that a misspelled trunk was probably meant to be.
fn similar_endpoint<'a>(trunk: &Trunk, account: &'a Account) -> Option<&'a String> {
    account
        .endpoints
        .names()
        .filter(|endpoint| !is_number(endpoint))
        .min_by_key(|endpoint| distance(trunk, endpoint))
        .filter(|endpoint| distance(trunk, endpoint) <= LETTERS_APART_MAX)
}

/// Returns `true` if the PBX listed all endpoints with the trunk's technology.
fn lists_all(trunk: &Trunk, account: &Account) -> bool {
    let wanted = technology(&trunk.endpoint);
    let endpoints = &account.endpoints;
    let devices = endpoints
        .names()
        .map(|endpoint| technology(endpoint))
        .filter(|technology| ["PJSIP", "SIP", "IAX2"].contains(technology));
    endpoints
        .whole
        .iter()
        .map(String::as_str)
        .chain(devices)
        .any(|technology| technology.eq_ignore_ascii_case(wanted))
}

/// Reports endpoints that may be outside lines but don't belong to any trunk.
fn unmatched_endpoints(
    config: &Config,
    shown: &PbxEndpoints<'_>,
    people: &People,
) -> Option<CheckFinding> {
    let mut left = Vec::new();
    for endpoint in shown.account.endpoints.names() {
        let is_taken = config.rules.trunks.iter().any(|trunk| {
            shown.flag.serves(trunk)
                && (is_trunk_endpoint(trunk, endpoint)
                    || is_suggested(trunk, &shown.account, endpoint))
        });
        if !is_taken && !is_telephone(config, shown, endpoint, people) {
            left.push(endpoint.as_str());
        }
    }
    if left.is_empty() {
        return None;
    }
    let name = format!("endpoints of {}", short_url(shown.flag));
    let fix = "name outside lines with --trunk, and telephones in --employees";
    Some(advice(
        name,
        format!("no --trunk matches {}", name_list(&left)),
        fix,
    ))
}

/// Returns `true` if another finding already suggests this endpoint for a misspelled trunk.
fn is_suggested(trunk: &Trunk, account: &Account, endpoint: &str) -> bool {
    let has_own = account
        .endpoints
        .names()
        .any(|own| is_trunk_endpoint(trunk, own));
    !has_own && similar_endpoint(trunk, account).is_some_and(|similar| similar == endpoint)
}

/// Returns why this endpoint must be a phone, or `None` if it may be an outside line. A
/// registration is inconclusive, because a gateway may register with the PBX just as phones do.
fn telephone_reason(
    config: &Config,
    shown: &[&PbxEndpoints<'_>],
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
    let has_employee = shown
        .iter()
        .any(|pbx| is_telephone(config, pbx, name, people));
    if is_short || has_employee && !is_number(name) {
        return Some(format!("{name} is named like a phone of an employee"));
    }
    None
}

/// Returns `true` if the endpoint's name is a number, or if the lists contain an employee with this
/// extension.
fn is_telephone(config: &Config, shown: &PbxEndpoints<'_>, name: &str, people: &People) -> bool {
    if is_number(name) {
        return true;
    }
    let device = name.split_once('/').map_or("", |(_, device)| device);
    let extension = Extension::new(device);
    config
        .rules
        .trunks
        .iter()
        .any(|trunk| shown.flag.serves(trunk) && people.employee_of(&extension, trunk).is_some())
}

fn is_number(endpoint: &str) -> bool {
    let device = endpoint.split_once('/').map_or("", |(_, device)| device);
    let number = device.strip_suffix("-WS").unwrap_or(device);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

fn technology(endpoint: &str) -> &str {
    endpoint.split_once('/').map_or(endpoint, |(tech, _)| tech)
}

/// Returns how many letters differ between the trunk's endpoint and `endpoint`, ignoring case.
fn distance(trunk: &Trunk, endpoint: &str) -> usize {
    letters_apart(&trunk.endpoint.to_lowercase(), &endpoint.to_lowercase())
}

/// Counts the letters that only one of the two texts has, regardless of their order.
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

fn name_list(names: &[&str]) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let named = names[..names.len() - more].join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
