//! Facts about a switch, which the `check` command requests on a separate connection, and findings
//! about trunks that don't match the switch. None of the questions changes anything on the switch
//! or returns a secret.

use callbridge_call::trunk::{glob, host_and_port};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// The survey's questions, in the order the switch will respond to them.
pub const QUESTIONS: [&str; 5] = [
    "version",
    "show channels as json",
    "sofia status",
    "module_exists mod_amqp",
    "show registrations as json",
];
/// Maximum number of gateways, profiles, and phones to keep of each.
const NAMES_MAX: usize = 2_000;
/// Maximum number of names in a message.
const NAMED_MAX: usize = 10;
/// Asterisk channel technologies. An endpoint that starts with one of them can't match any
/// FreeSWITCH channel.
const OF_ASTERISK: [&str; 7] = ["PJSIP", "SIP", "IAX2", "DAHDI", "Local", "SCCP", "Motif"];
/// The default password in every FreeSWITCH distribution.
const KNOWN_PASSWORD: &str = "ClueCon";

/// A SIP profile's gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchGateway {
    /// The profile that contains the gateway, or empty if the switch doesn't show it.
    pub profile: String,
    /// The gateway's host, with its port if the switch shows one.
    pub address: String,
    /// Whether the switch registers with the gateway, which makes incoming calls carry the
    /// gateway's name.
    pub registers: bool,
}

/// Facts about a switch, taken from its responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchFacts {
    /// The release, such as `1.10.12-release~64bit`, or `None` if the switch doesn't show it.
    pub release: Option<String>,
    /// Whether the switch can list its live channels.
    pub lists_channels: bool,
    /// The switch's gateways by name, or `None` if it doesn't list them.
    pub gateways: Option<BTreeMap<String, SwitchGateway>>,
    /// Names of the switch's SIP profiles.
    pub profiles: BTreeSet<String>,
    /// Users with registered phones.
    pub extensions: BTreeSet<String>,
    /// Whether mod_amqp is loaded, or `None` if the switch doesn't show it.
    pub publishes: Option<bool>,
    /// Whether the password is FreeSWITCH's default password.
    pub known_password: bool,
    /// Number of names that were skipped because they contain control characters. A phone can
    /// choose its own name.
    pub refused_names: usize,
}

/// How severe a finding is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// There's nothing to do.
    Well,
    /// The setting works, but should be improved.
    Advice,
    /// Calls are lost or treated as something else, such as internal calls.
    Fault,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFinding {
    /// What the finding is about, such as `gateway city`.
    pub about: String,
    /// A description of what was found, for the operator.
    pub message: String,
    /// The fix, or empty if none is needed.
    pub fix: String,
    /// How severe the finding is. Every finding except [`Severity::Well`] has a fix.
    pub weight: Severity,
}

impl SwitchFinding {
    /// Creates a finding. `fix` is empty for [`Severity::Well`].
    pub fn new(
        weight: Severity,
        about: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            about: about.into(),
            message: message.into(),
            fix: fix.into(),
            weight,
        }
    }
}

/// The survey on one connection.
#[derive(Debug)]
pub struct Survey {
    left: VecDeque<&'static str>,
    facts: SwitchFacts,
}

impl Survey {
    /// Creates a survey for a connection that was logged in with `password`.
    pub fn new(password: &str) -> Self {
        Self {
            left: QUESTIONS.into(),
            facts: SwitchFacts {
                known_password: password == KNOWN_PASSWORD,
                ..SwitchFacts::default()
            },
        }
    }

    /// Stores the facts from the response to the next question.
    pub fn on_answer(&mut self, answer: &[u8]) {
        let text = String::from_utf8_lossy(answer);
        let refused = text.starts_with("-ERR");
        let facts = &mut self.facts;
        match self.left.pop_front() {
            Some("version") => facts.release = release(&text),
            Some("show channels as json") => facts.lists_channels = text.contains("\"row_count\""),
            Some("sofia status") if !refused => facts.read_sofia(&text),
            Some("module_exists mod_amqp") => facts.publishes = text.trim().parse().ok(),
            Some("show registrations as json") if !refused => facts.read_registrations(answer),
            Some(_) | None => {}
        }
    }

    /// Returns `true` once every question has been answered.
    pub fn is_answered(&self) -> bool {
        self.left.is_empty()
    }

    /// Ends the survey, and returns what has been learned so far.
    pub fn facts(self) -> SwitchFacts {
        self.facts
    }
}

/// Returns the release in `FreeSWITCH Version 1.10.12-release~64bit (-release 64bit)`.
fn release(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Version ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

impl SwitchFacts {
    /// Stores the profiles and gateways in the table from `sofia status`, which has tab-separated
    /// columns for name, type, data, and state.
    fn read_sofia(&mut self, table: &str) {
        let gateways = self.gateways.get_or_insert_default();
        for row in table.lines() {
            if row.chars().any(|c| c.is_control() && c != '\t') {
                self.refused_names += 1;
                continue;
            }
            let mut cells = row.split('\t').map(str::trim);
            let [name, kind, data, state] = [(); 4].map(|()| cells.next().unwrap_or_default());
            match kind {
                "profile" if self.profiles.len() < NAMES_MAX => {
                    self.profiles.insert(name.to_owned());
                }
                "gateway" if gateways.len() < NAMES_MAX => {
                    // Before 1.6, the name doesn't include a profile.
                    let (profile, name) = name.split_once("::").unwrap_or(("", name));
                    let gateway = SwitchGateway {
                        profile: profile.to_owned(),
                        address: host(data).to_owned(),
                        registers: !state.starts_with("NOREG"),
                    };
                    gateways.insert(name.to_owned(), gateway);
                }
                _ => {}
            }
        }
    }

    /// Stores the users in `{"row_count":1,"rows":[{"reg_user":"101","realm":"pbx.lab",…}]}`. If
    /// there are no registrations, `rows` is missing.
    fn read_registrations(&mut self, list: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Registrations {
            #[serde(default)]
            rows: Vec<Registration>,
        }
        #[derive(serde::Deserialize)]
        struct Registration {
            #[serde(default)]
            reg_user: String,
        }
        let Ok(list) = serde_json::from_slice::<Registrations>(list) else {
            return;
        };
        let users = list
            .rows
            .into_iter()
            .map(|registration| registration.reg_user)
            .filter(|user| !user.is_empty());
        for user in users.take(NAMES_MAX) {
            if user.contains(char::is_control) {
                self.refused_names += 1;
            } else {
                self.extensions.insert(user);
            }
        }
    }

    /// Compares the facts about the switch with the settings, and returns the findings.
    ///
    /// `trunks` contains names and endpoints. `broker` is `true` if the switch's events are also
    /// read from a queue.
    pub fn judge(&self, trunks: &[(String, Vec<String>)], broker: bool) -> Vec<SwitchFinding> {
        let release = match &self.release {
            Some(release) => format!("FreeSWITCH {release}"),
            None => "not known: the switch does not report it (api version)".to_owned(),
        };
        let mut found = vec![SwitchFinding::new(Severity::Well, "release", release, "")];
        if self.known_password {
            let message = "it is the default password of FreeSWITCH: anyone who reaches the port \
                           can place calls";
            let fix = "set another: <param name=\"password\" value=\"…\"/> in \
                        event_socket.conf.xml, then `reload mod_event_socket`";
            found.push(SwitchFinding::new(
                Severity::Advice,
                "password",
                message,
                fix,
            ));
        }
        if self.refused_names > 0 {
            let message = format!(
                "gateways or telephones that are left out because of control characters in \
                 their names: {}",
                self.refused_names
            );
            let fix = "check `sofia status` and `show registrations`: such a name can be an attack";
            found.push(SwitchFinding::new(Severity::Advice, "names", message, fix));
        }
        if !self.lists_channels {
            let message = "the switch does not list its channels: calls that are up while \
                           callbridge is away are incomplete";
            let fix = load_module("mod_commands");
            found.push(SwitchFinding::new(
                Severity::Fault,
                "channels",
                message,
                fix,
            ));
        }
        if broker && self.publishes == Some(false) {
            let message = "it is not loaded, but a source reads the events that it publishes";
            let fix = load_module("mod_amqp");
            found.push(SwitchFinding::new(
                Severity::Fault,
                "mod_amqp",
                message,
                fix,
            ));
        }
        match &self.gateways {
            Some(gateways) => {
                for trunk in trunks {
                    found.extend(self.compare_trunk(trunk, gateways));
                }
                found.extend(unmatched_gateways(trunks, gateways));
            }
            None => {
                let message = "not known: the switch does not answer `sofia status` (mod_sofia is \
                               not loaded)";
                found.push(SwitchFinding::new(Severity::Well, "gateways", message, ""));
            }
        }
        found
    }

    /// Compares one trunk, given by its name and endpoints (`own`), with the facts about the
    /// switch.
    fn compare_trunk(
        &self,
        own: &(String, Vec<String>),
        gateways: &BTreeMap<String, SwitchGateway>,
    ) -> Vec<SwitchFinding> {
        let (trunk, endpoints) = own;
        let one_way = endpoints
            .iter()
            .all(|endpoint| endpoint.starts_with("gateway/"));
        let mut found = Vec::new();
        for endpoint in endpoints {
            let about = format!("endpoint {endpoint}");
            let (known, there): (Vec<&String>, _) = match endpoint.split_once('/') {
                Some(("gateway", wanted)) => {
                    let matching = gateways.iter().filter(|(name, _)| glob(wanted, name));
                    let unregistered = matching.clone().find(|(_, gateway)| !gateway.registers);
                    if one_way && let Some((name, gateway)) = unregistered {
                        found.push(one_way_only(trunk, endpoint, name, gateway));
                    }
                    let names = matching.map(|(name, _)| name).collect();
                    (names, list_names(gateways.keys()))
                }
                Some(("profile", wanted)) => {
                    let profiles = self.profiles.iter();
                    let names = profiles.filter(|name| glob(wanted, name)).collect();
                    (names, list_names(self.profiles.iter()))
                }
                Some(("address", address)) => {
                    found.extend(unknown_address(own, address, gateways));
                    continue;
                }
                Some((technology, _)) if OF_ASTERISK.contains(&technology) => {
                    let message = format!(
                        "{technology}/… is a channel of Asterisk, but this PBX is a FreeSWITCH: no \
                         call matches trunk {trunk}"
                    );
                    let fix = "give gateway/NAME, address/IP, context/NAME or profile/NAME; \
                                `sofia status` shows the names";
                    found.push(SwitchFinding::new(Severity::Fault, about, message, fix));
                    continue;
                }
                Some(("user", user)) => {
                    let message = format!(
                        "user/{user} is a phone, not an outside line: no call matches trunk {trunk}"
                    );
                    let fix = "give gateway/NAME, address/IP, context/NAME or profile/NAME; \
                                `sofia status` shows the names";
                    found.push(SwitchFinding::new(Severity::Fault, about, message, fix));
                    continue;
                }
                _ => continue,
            };
            found.push(if known.is_empty() {
                let message = format!(
                    "FreeSWITCH does not know this name, so calls over trunk {trunk} would be \
                     internal; it has {there}"
                );
                let fix = "give a name that `sofia status` shows";
                SwitchFinding::new(Severity::Fault, about, message, fix)
            } else {
                let message = format!("the switch has {}", list_names(known.iter()));
                SwitchFinding::new(Severity::Well, about, message, "")
            });
        }
        found
    }
}

/// Returns the instructions for loading a module, both now and at every startup.
fn load_module(name: &str) -> String {
    format!("add <load module=\"{name}\"/> to modules.conf.xml, then `load {name}`")
}

/// Returns a finding if no calls can come in from `address`, or if the trunk's gateways have
/// different addresses.
fn unknown_address(
    (trunk, endpoints): &(String, Vec<String>),
    address: &str,
    gateways: &BTreeMap<String, SwitchGateway>,
) -> Option<SwitchFinding> {
    let about = format!("endpoint address/{address}");
    let (wanted, _) = host_and_port(address);
    if ip_of(address).is_none() && !wanted.contains('*') {
        let message = format!(
            "calls carry the IP address that they come from, and this is not an IP address: calls \
             from there do not match trunk {trunk}"
        );
        let fix = "give address/IP, such as address/203.0.113.5";
        return Some(SwitchFinding::new(Severity::Fault, about, message, fix));
    }
    let mut addresses = Vec::new();
    for (name, gateway) in gateways {
        let is_of_trunk = endpoints.iter().any(|endpoint| {
            let wanted = endpoint.strip_prefix("gateway/");
            wanted.is_some_and(|wanted| glob(wanted, name))
        });
        if is_of_trunk {
            addresses.push(gateway.address.as_str());
        }
    }
    if addresses.is_empty() {
        return None;
    }
    for known in &addresses {
        // A host name can have any address.
        let ip = ip_of(known)?;
        if ip_of(address) == Some(ip) || glob(wanted, &ip.to_string()) {
            return None;
        }
    }
    let message = format!(
        "the gateways of trunk {trunk} have another address: {}",
        list_names(addresses.iter())
    );
    let fix = "calls from any other address do not match this trunk: find out which address is the \
               carrier's";
    Some(SwitchFinding::new(Severity::Advice, about, message, fix))
}

/// Returns the finding about a gateway that the switch doesn't register with. Since incoming calls
/// don't carry its name in that case, the trunk also needs the IP address.
fn one_way_only(trunk: &str, endpoint: &str, name: &str, gateway: &SwitchGateway) -> SwitchFinding {
    let about = format!("gateway {name}");
    let address = &gateway.address;
    let message = "the switch does not register with it, so incoming calls carry no gateway name \
                and would be internal";
    let fix = if ip_of(address).is_some() {
        format!("give --trunk '{trunk}={endpoint}|address/{address},…'")
    } else {
        format!(
            "find the IP addresses that {address} calls from, and give --trunk \
             '{trunk}={endpoint}|address/IP,…'"
        )
    };
    SwitchFinding::new(Severity::Advice, about, message, fix)
}

/// Returns the IP address in `IP` or `IP:PORT`, or `None` for a host name.
fn ip_of(address: &str) -> Option<IpAddr> {
    let (host, port) = host_and_port(address);
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return None;
    }
    host.parse().ok()
}

/// Returns a finding if some gateways don't belong to any trunk.
fn unmatched_gateways(
    trunks: &[(String, Vec<String>)],
    gateways: &BTreeMap<String, SwitchGateway>,
) -> Option<SwitchFinding> {
    let mut left = Vec::new();
    for (name, gateway) in gateways {
        let mut endpoints = trunks.iter().flat_map(|(_, endpoints)| endpoints);
        if !endpoints.any(|endpoint| matches_gateway(endpoint, name, gateway)) {
            left.push(name);
        }
    }
    let first = left.first()?;
    let fix = format!("name it with --trunk {first}=gateway/{first},… if customers call over it");
    let message = format!("no --trunk matches {}", list_names(left.iter()));
    Some(SwitchFinding::new(
        Severity::Advice,
        "gateways",
        message,
        fix,
    ))
}

/// Returns `true` if calls through the gateway `name` match a trunk's endpoint.
fn matches_gateway(endpoint: &str, name: &str, gateway: &SwitchGateway) -> bool {
    match endpoint.split_once('/') {
        Some(("gateway", wanted)) => glob(wanted, name),
        Some(("profile", wanted)) => glob(wanted, &gateway.profile),
        Some(("address", wanted)) => {
            glob(host_and_port(wanted).0, host_and_port(&gateway.address).0)
        }
        Some(("context", _)) | None => false,
        Some(_) => glob(endpoint, &format!("sofia/{}", gateway.profile)),
    }
}

/// Lists names as `a, b and 3 more`, or returns `none` if there are none.
fn list_names<T: AsRef<str>>(names: impl ExactSizeIterator<Item = T>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let named: Vec<String> = names
        .take(NAMED_MAX)
        .map(|name| name.as_ref().to_owned())
        .collect();
    match (named.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => named.join(", "),
        (false, more) => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the host and port in `sip:user@host:port;transport=udp`.
fn host(uri: &str) -> &str {
    let address = uri.split([';', '>', '?']).next().unwrap_or_default();
    let host = address.rsplit_once('@').map_or(address, |(_, host)| host);
    let without_sips = host.strip_prefix("sips:").unwrap_or(host);
    without_sips.strip_prefix("sip:").unwrap_or(without_sips)
}

#[cfg(test)]
mod tests;
