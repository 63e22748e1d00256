//! What is known of an endpoint beside its name: by this a line to the outside is told from a
//! telephone, whatever the two are called.

use super::{ENDPOINTS_MAX, text};
use crate::pairs::Pairs;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer digits are an extension.
const OUTSIDE_DIGITS_MIN: usize = 7;

/// One thing that is known of an endpoint. Of two the one that stands first says more about what it
/// is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointFact {
    /// The PBX registers with it at this host (an outbound registration).
    Registers(String),
    /// The dialplan shows its state at this extension (a hint).
    Hint(String),
    /// The endpoint has this voicemail mailbox.
    Mailbox(String),
    /// The endpoint is recognised by this address (`identify`).
    Identified(String),
    /// The PBX logs in there, and nobody here (outbound authentication).
    LogsInThere,
    /// The address is the one that it registers with.
    Dynamic,
    /// One who calls from it logs in here (inbound authentication).
    LogsInHere,
    /// Calls to it are sent to this extension at its address: a trunk's go to the number dialled.
    CalledAs(String),
    /// The address is this fixed host; empty where the PBX names none.
    Fixed(String),
    /// No authentication is configured, for either side.
    NoLogin,
    /// A channel of it lives, and at its other end is this number from outside.
    Outside(String),
}

/// The endpoints of a PBX, as far as the account may see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointList {
    /// `PJSIP/city` each, with what is known of it.
    pub facts: BTreeMap<String, BTreeSet<EndpointFact>>,
    /// Technologies of which all endpoints were told.
    pub whole: BTreeSet<String>,
}

impl EndpointList {
    /// Iterates over the endpoints' names alone, `PJSIP/city` each.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.facts.keys()
    }

    /// Returns `true` when no endpoint is known.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Adds an endpoint, or a fact of one. A name with control characters is none of Asterisk's.
    pub fn add(&mut self, name: &str, fact: Option<EndpointFact>) {
        if name.contains(char::is_control) {
            return;
        }
        let room = self.facts.len() < ENDPOINTS_MAX;
        let named = callbridge_call::trunk::extension(name).is_some();
        if named && (room || self.facts.contains_key(name)) {
            self.facts.entry(name.to_owned()).or_default().extend(fact);
        }
    }

    /// A row of a list of this technology; of devices where it is empty.
    pub(super) fn add_row(&mut self, technology: &str, pairs: &Pairs<'_>) {
        if technology.is_empty() {
            if let Some(device) = pairs.get("Device") {
                self.add(&text(device), None);
            }
            return;
        }
        let Some(object) = pairs.get("ObjectName").map(text) else {
            return;
        };
        // A peer is listed with its login behind a slash, in old releases.
        let object = object.split('/').next().unwrap_or_default();
        let name = format!("{technology}/{object}");
        self.add(&name, None);
        let get = |key| pairs.get(key).map(text).filter(|it| !it.is_empty());
        if technology == "PJSIP" && pairs.get("Auths").is_some() {
            let (here, there) = (get("Auths").is_some(), get("OutboundAuths").is_some());
            for (is_so, fact) in [
                (here, EndpointFact::LogsInHere),
                (there, EndpointFact::LogsInThere),
                (!here && !there, EndpointFact::NoLogin),
            ] {
                if is_so {
                    self.add(&name, Some(fact));
                }
            }
        }
        if let Some(extension) = get("Contacts").as_deref().and_then(extension_of) {
            self.add(&name, Some(EndpointFact::CalledAs(extension)));
        }
        match get("Dynamic").as_deref() {
            Some("yes") => self.add(&name, Some(EndpointFact::Dynamic)),
            Some("no") => {
                let host = get("IPaddress").unwrap_or_default();
                self.add(&name, Some(EndpointFact::Fixed(host)));
            }
            Some(_) | None => {}
        }
    }

    /// A row of the dialplan's hints: `PJSIP/101&Custom:DND101`.
    pub(super) fn add_hint(&mut self, pairs: &Pairs<'_>) {
        let exten = pairs.get("Exten").map(text).unwrap_or_default();
        let hint = pairs.get("Hint").map(text).unwrap_or_default();
        // Behind a comma stands a presence.
        let devices = hint.split(',').next().unwrap_or_default();
        for device in devices.split('&').filter(|it| it.contains('/')) {
            self.add(device, Some(EndpointFact::Hint(exten.clone())));
        }
    }

    /// A live channel. Its caller id is that of who speaks there: a number from outside on a trunk.
    pub(super) fn add_channel(&mut self, pairs: &Pairs<'_>) {
        let name = pairs.get("Channel").map(text).unwrap_or_default();
        let number = pairs.get("CallerIDNum").map(text).unwrap_or_default();
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        let Some((name, _)) = name.rsplit_once('-') else {
            return;
        };
        if digits >= OUTSIDE_DIGITS_MIN && !name.starts_with("Local/") {
            self.add(name, Some(EndpointFact::Outside(number)));
        }
    }
}

/// The user of `101/sip:101@10.0.0.7:5060`, where it is an extension's number.
pub fn extension_of(contact: &str) -> Option<String> {
    let (_, after) = contact
        .split_once("sip:")
        .or_else(|| contact.split_once("sips:"))?;
    let (user, _) = after.split_once('@')?;
    let digits = !user.is_empty() && user.bytes().all(|b| b.is_ascii_digit());
    (digits && user.len() < OUTSIDE_DIGITS_MIN).then(|| user.to_owned())
}

/// The host of `sip:user@host:port;…`, of `aor/sip:host`, and of `host:port`.
pub fn host_of(uri: &str) -> Option<String> {
    let uri = match uri.find("sip") {
        Some(at) => uri[at..]
            .split_once(':')
            .map_or(&uri[at..], |(_, rest)| rest),
        None => uri,
    };
    let end = uri.find([';', '?', '>']).unwrap_or(uri.len());
    let host = uri[..end].rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split([':', '/']).next().unwrap_or_default(),
    };
    let host = host.trim().to_ascii_lowercase();
    (!host.is_empty()).then_some(host)
}
