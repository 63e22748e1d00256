//! Facts about a manager account and its PBX, which `check` requests on a separate connection. They
//! include the allowed actions, the endpoints, the live channels, and the events received. There is
//! no I/O: a transport sends the actions returned by [`Survey::ask`] and passes in the frames it
//! reads.
//!
//! ```text
//! ▶ ListCommands                     which of the following actions are allowed
//! ▶ UserEvent                        our own events, which must come back
//! ▶ CoreSettings, before 12 QueueSummary    which release it is, and whether it has queues
//! ▶ PJSIPShowEndpoints, SIPpeers, IAXpeers, DeviceStateList
//! ▶ ExtensionStateList               hints: which endpoints are phones
//! ▶ CoreShowChannels, and again later: channels only in the second list are new
//! ```
//! None of these actions changes anything on the PBX. `GetConfig` would show more, but it's never
//! sent because it can read every secret on the PBX. `PJSIPShowRegistrationsOutbound` isn't sent
//! either, because its response contains the passwords of the registrations.

mod bridges;
#[cfg(test)]
mod tests;

pub use bridges::BridgeProof;

use crate::ami::Pairs;
use crate::login::{Login, is_error};
use bridges::{BRIDGE_EVENTS, Sample};
use callbridge_call::framing::Outgoing;
use callbridge_call::{ClockDifference, EventTime};
use std::collections::{BTreeMap, BTreeSet};

/// The actions to send besides `ListCommands` and `CoreShowChannels`, along with the kind of
/// response. Each list of endpoints contains all endpoints with its technology.
const QUESTIONS: [(&str, Question); 10] = [
    ("UserEvent", Question::Sample(Sample::Bridge)),
    ("UserEvent", Question::Sample(Sample::Channel)),
    ("UserEvent", Question::Echo),
    ("CoreSettings", Question::Settings),
    ("QueueSummary", Question::Queues),
    ("PJSIPShowEndpoints", Question::Endpoints("PJSIP")),
    ("SIPpeers", Question::Endpoints("SIP")),
    ("IAXpeers", Question::Endpoints("IAX2")),
    ("DeviceStateList", Question::Endpoints("")),
    ("ExtensionStateList", Question::Hints),
];
/// Maximum number of endpoints to keep. Others are dropped.
const ENDPOINTS_MAX: usize = 20_000;
/// Maximum number of channels to keep from a list.
const CHANNELS_MAX: usize = 20_000;

/// Evidence of whether the account receives call events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallProof {
    /// No evidence so far, either way.
    #[default]
    None,
    /// A channel event has arrived.
    Heard,
    /// This many channels were created between two lists without any event reporting them.
    Unheard(usize),
}

/// Facts about a manager account and its PBX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The AMI version in the banner, such as `11.0.0`.
    pub version: String,
    /// The PBX's release, such as `11.25.3`, or `None` if the PBX doesn't report it.
    pub release: Option<String>,
    /// Number of queues on the PBX, or `None` if it wasn't asked, which is the case from Asterisk
    /// 12 on.
    pub queues: Option<usize>,
    /// Actions that the account may use, or `None` if the PBX didn't list them.
    pub actions: Option<BTreeSet<String>>,
    /// The PBX's endpoints, with what has been reported about each one.
    pub endpoints: EndpointList,
    /// Whether `FullyBooted` has arrived, which the PBX sends after the login to accounts that may
    /// read `system`.
    pub booted: bool,
    /// Whether the event that callbridge sent to itself came back, or `None` if the account may not
    /// send it.
    pub echoed: Option<bool>,
    /// Evidence of whether call events arrive.
    pub calls: CallProof,
    /// Evidence of whether bridge events arrive.
    pub bridges: BridgeProof,
    /// Number of channels in the last list, or `None` if no list was received.
    pub channels: Option<usize>,
    /// Whether events have timestamps, or `None` before the first event that can have one.
    pub timed: Option<bool>,
    /// The PBX's own time in its last event with a timestamp.
    pub clock: Option<EventTime>,
    /// Offset between the PBX's clock and our boot clock when the last event with a timestamp
    /// arrived.
    pub clock_ahead: Option<ClockDifference>,
    /// Names of the variables that the PBX reports with channels, or `None` before the first
    /// channel.
    pub variables: Option<BTreeSet<String>>,
}

impl Account {
    /// Returns `true` up to Asterisk 11 (AMI 1.x), which doesn't have all actions and events.
    pub fn is_old(&self) -> bool {
        self.version.starts_with("1.")
    }
}

/// The questions and responses on one connection, and the resulting facts.
#[derive(Debug, Default)]
pub struct Survey {
    account: Account,
    /// The IDs of questions that haven't been answered yet.
    waiting: Vec<(String, Question)>,
    /// Unique IDs of the channels in the first list. `listing` has those in the list currently
    /// being received.
    first: Option<BTreeSet<Vec<u8>>>,
    listing: BTreeSet<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Commands,
    Echo,
    Sample(Sample),
    Settings,
    Queues,
    Endpoints(&'static str),
    Hints,
    Channels,
}

impl Question {
    /// Returns `true` if the question is an event that callbridge sends to itself.
    const fn is_own_event(self) -> bool {
        matches!(self, Self::Echo | Self::Sample(_))
    }
}

impl Survey {
    /// Creates a survey for a connection that has just logged in.
    pub fn new(banner: &str) -> Self {
        let version = banner.rsplit('/').next().unwrap_or_default();
        let mut survey = Self::default();
        version.trim().clone_into(&mut survey.account.version);
        survey
    }

    /// Asks the first question, which is what actions the account may use.
    pub fn begin(&mut self, login: &mut Login) -> Outgoing {
        self.ask_question(login, "ListCommands", Question::Commands)
    }

    /// Asks the remaining questions once the first one has been answered, skipping those that the
    /// account isn't allowed to ask. If the PBX didn't list its actions, its responses will show
    /// whether they're allowed.
    pub fn ask(&mut self, login: &mut Login) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        for (action, asked) in QUESTIONS {
            // Later releases report a queue's phones without being asked.
            let is_told = asked == Question::Queues && !self.account.is_old();
            if !is_told && self.is_allowed(action) {
                outgoing.push(self.ask_question(login, action, asked));
            }
        }
        outgoing.extend(self.list(login));
        outgoing
    }

    /// Requests the live channels for the first or second list, returning `None` if that isn't
    /// allowed.
    pub fn list(&mut self, login: &mut Login) -> Option<Outgoing> {
        self.listing.clear();
        let action = "CoreShowChannels";
        self.is_allowed(action)
            .then(|| self.ask_question(login, action, Question::Channels))
    }

    /// Returns `true` if an action is allowed. If the PBX didn't list any actions, everything
    /// except `UserEvent` is considered allowed.
    fn is_allowed(&self, action: &str) -> bool {
        match &self.account.actions {
            Some(actions) => actions.contains(&action.to_ascii_lowercase()),
            None => action != "UserEvent",
        }
    }

    fn ask_question(&mut self, login: &mut Login, action: &str, asked: Question) -> Outgoing {
        let mut pairs = vec![("Action", action)];
        if asked.is_own_event() {
            pairs.push((action, "CallbridgeCheck"));
        }
        match asked {
            Question::Echo => self.account.echoed = Some(false),
            Question::Sample(sample) => {
                pairs.push(("Sample", sample.text(self.account.is_old())));
            }
            _ => {}
        }
        let (id, outgoing) = login.ask(&pairs);
        self.waiting.push((id, asked));
        outgoing
    }

    /// Returns `true` if all questions have been answered. callbridge's own event may still be in
    /// transit.
    pub fn is_answered(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.all(|(_, asked)| asked.is_own_event())
    }

    /// Returns `true` if all of callbridge's own events have come back, or none were sent.
    pub fn is_echoed(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.all(|(_, asked)| !asked.is_own_event())
    }

    /// Returns `true` once it's proven that the account does or doesn't receive channel events.
    pub fn is_settled(&self) -> bool {
        self.account.calls != CallProof::None
    }

    /// Returns `true` if waiting may yield proof, because there are live channels and no event of
    /// any of them has arrived.
    pub fn may_receive_more(&self) -> bool {
        self.account.channels.is_some_and(|live| live > 0) && !self.is_settled()
    }

    /// Processes a frame that arrived at this time after the login.
    pub fn on_frame_at(&mut self, frame: &[u8], arrived: EventTime) {
        let before = self.account.clock;
        self.on_frame(frame);
        if let Some(clock) = self.account.clock
            && self.account.clock != before
        {
            self.account.clock_ahead = Some(ClockDifference::between(clock, arrived));
        }
    }

    /// Processes a frame that arrived after the login.
    pub fn on_frame(&mut self, frame: &[u8]) {
        let pairs = Pairs::new(frame);
        let id = pairs.get("ActionID").map(text);
        let asked = id.and_then(|id| {
            let at = self.waiting.iter().position(|(own, _)| *own == id)?;
            Some((at, self.waiting[at].1))
        });
        let event = pairs.get("Event").map(<[u8]>::to_ascii_lowercase);
        match (asked, event) {
            (Some((at, asked)), Some(event)) => self.on_item(at, asked, &event, &pairs),
            (Some((at, asked)), None) => self.on_answer(at, asked, &pairs),
            (None, Some(event)) => self.on_event(&event, &pairs),
            (None, None) => {}
        }
    }

    fn on_answer(&mut self, at: usize, asked: Question, pairs: &Pairs<'_>) {
        let refused = is_error(pairs);
        match asked {
            Question::Commands if !refused => {
                let names = pairs.clone().map(|(name, _)| name);
                let names = names.filter(|name| {
                    let own = [&b"response"[..], b"actionid", b"message"];
                    !own.iter().any(|own| name.eq_ignore_ascii_case(own))
                });
                let names = names.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase());
                let names: BTreeSet<String> = names.collect();
                // A PBX that merely responds with "done" hasn't listed any actions.
                self.account.actions = Some(names).filter(|names| !names.is_empty());
            }
            Question::Settings => self.account.release = pairs.get("AsteriskVersion").map(text),
            Question::Endpoints(_) | Question::Hints | Question::Channels | Question::Queues
                if !refused && list_follows(pairs) =>
            {
                if asked == Question::Queues {
                    self.account.queues = Some(0);
                }
                return;
            }
            Question::Echo | Question::Sample(_) if !refused => return,
            _ => {}
        }
        self.waiting.remove(at);
    }

    /// Processes a row in a list, or its end.
    fn on_item(&mut self, at: usize, asked: Question, event: &[u8], pairs: &Pairs<'_>) {
        match asked {
            Question::Echo | Question::Sample(_) => {
                if asked == Question::Echo {
                    self.account.echoed = Some(true);
                }
                self.note_time(pairs);
                self.waiting.remove(at);
                self.note_lost_sample(asked);
            }
            _ if event.ends_with(b"complete") => self.on_end(at, asked),
            Question::Queues => {
                let count = self.account.queues.get_or_insert_default();
                *count = count.saturating_add(1);
            }
            Question::Endpoints(technology) => self.account.endpoints.add_row(technology, pairs),
            Question::Hints => self.account.endpoints.add_hint(pairs),
            Question::Channels => {
                self.account.endpoints.add_channel(pairs);
                if let Some(id) = pairs.get("Uniqueid")
                    && self.listing.len() < CHANNELS_MAX
                {
                    self.listing.insert(id.to_vec());
                }
                self.note_variables(pairs);
            }
            Question::Commands | Question::Settings => {}
        }
    }

    fn on_end(&mut self, at: usize, asked: Question) {
        self.waiting.remove(at);
        match asked {
            Question::Endpoints("") => {}
            Question::Endpoints(technology) => {
                self.account.endpoints.whole.insert(technology.to_owned());
            }
            Question::Channels => {
                let listed = std::mem::take(&mut self.listing);
                self.account.channels = Some(listed.len());
                let Some(first) = &self.first else {
                    self.first = Some(listed);
                    return;
                };
                let born = listed.difference(first).count();
                if born > 0 && self.account.calls == CallProof::None {
                    self.account.calls = CallProof::Unheard(born);
                }
            }
            _ => {}
        }
    }

    /// Records that the sample bridge event was dropped if `came_back` was sent after it, since our
    /// own events come back in the order we sent them.
    fn note_lost_sample(&mut self, came_back: Question) {
        let sample = Question::Sample(Sample::Bridge);
        let is_lost = self.waiting.iter().any(|(_, asked)| *asked == sample);
        if is_lost && came_back != sample && self.account.bridges == BridgeProof::Unknown {
            self.account.bridges = BridgeProof::Dropped;
        }
    }

    /// Records whether an event has a timestamp. Some events never do, so a single event with one
    /// proves that the PBX sends timestamps.
    fn note_time(&mut self, pairs: &Pairs<'_>) {
        let time = pairs.get("Timestamp");
        self.account.timed = Some(time.is_some() || self.account.timed == Some(true));
        let seconds = time.and_then(|time| std::str::from_utf8(time).ok()?.parse::<f64>().ok());
        if let Some(seconds) = seconds
            && seconds.is_finite()
        {
            self.account.clock = Some(EventTime::from_seconds(seconds as i64));
        }
    }

    fn on_event(&mut self, event: &[u8], pairs: &Pairs<'_>) {
        if event == b"fullybooted" {
            self.account.booted = true;
            return;
        }
        // A row in a list isn't an event, and has no timestamp.
        if pairs.get("Privilege").is_some() && pairs.get("ActionID").is_none() {
            self.note_time(pairs);
        }
        if BRIDGE_EVENTS.contains(&event) {
            self.account.bridges = BridgeProof::Heard;
        }
        if pairs.get("Uniqueid").is_some() && pairs.get("ActionID").is_none() {
            self.account.calls = CallProof::Heard;
            self.note_variables(pairs);
        }
    }

    fn note_variables(&mut self, pairs: &Pairs<'_>) {
        let shown = self.account.variables.get_or_insert_default();
        for (key, value) in pairs.clone() {
            if key.eq_ignore_ascii_case(b"ChanVariable")
                && let Some(end) = value.iter().position(|byte| *byte == b'=')
            {
                shown.insert(String::from_utf8_lossy(&value[..end]).into_owned());
            }
        }
    }

    /// Ends the survey, and returns what has been learned so far.
    pub fn account(self) -> Account {
        self.account
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Returns `true` if a list follows, as indicated by `EventList: start` or, in old releases, by a
/// message saying that peers or channels will follow.
fn list_follows(pairs: &Pairs<'_>) -> bool {
    let said = pairs.get("Message").map(<[u8]>::to_ascii_lowercase);
    let said = said.is_some_and(|said| said.windows(6).any(|word| word == b"follow"));
    said || pairs.get("EventList").is_some()
}

/// Minimum number of digits in an outside number. Anything shorter is an extension.
const OUTSIDE_DIGITS_MIN: usize = 7;

/// A fact about an endpoint. Earlier variants say more about its purpose than later ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointFact {
    /// The PBX registers with the endpoint at this host (an outbound registration).
    Registers(String),
    /// The dialplan shows the endpoint's state at this extension (a hint).
    Hint(String),
    /// The endpoint has this voicemail mailbox.
    Mailbox(String),
    /// The endpoint is recognized by this address (`identify`).
    Identified(String),
    /// The PBX logs in there, and the endpoint doesn't log in here (outbound authentication).
    LogsInThere,
    /// The endpoint registers its address.
    Dynamic,
    /// The endpoint logs in here to call (inbound authentication).
    LogsInHere,
    /// Calls to the endpoint are sent to this extension at its address, whereas calls over a trunk
    /// go to the dialed number.
    CalledAs(String),
    /// The endpoint's address is this fixed host, or empty if the PBX doesn't specify one.
    Fixed(String),
    /// No authentication is configured for either side.
    NoLogin,
    /// The endpoint has a live channel with this outside number at the other end.
    Outside(String),
}

/// The PBX's endpoints that the account can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointList {
    /// The endpoints by name, such as `PJSIP/city`, with what's known about each.
    pub facts: BTreeMap<String, BTreeSet<EndpointFact>>,
    /// Technologies whose endpoints have all been listed.
    pub whole: BTreeSet<String>,
}

impl EndpointList {
    /// Iterates over the endpoints' names, such as `PJSIP/city`.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.facts.keys()
    }

    /// Returns `true` if no endpoints are known.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Adds an endpoint, along with a fact about it if there is one. Names with control characters
    /// are ignored, because Asterisk doesn't have any.
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

    /// Adds a row from the list for this technology, or from the list of device states if
    /// `technology` is empty.
    fn add_row(&mut self, technology: &str, pairs: &Pairs<'_>) {
        if technology.is_empty() {
            if let Some(device) = pairs.get("Device") {
                self.add(&text(device), None);
            }
            return;
        }
        let Some(object) = pairs.get("ObjectName").map(text) else {
            return;
        };
        // Old releases list a peer with its login after a slash.
        let object = object.split('/').next().unwrap_or_default();
        let name = format!("{technology}/{object}");
        self.add(&name, None);
        if technology == "PJSIP" && pairs.get("Auths").is_some() {
            let here = value(pairs, "Auths").is_some();
            let there = value(pairs, "OutboundAuths").is_some();
            if here {
                self.add(&name, Some(EndpointFact::LogsInHere));
            }
            if there {
                self.add(&name, Some(EndpointFact::LogsInThere));
            }
            if !here && !there {
                self.add(&name, Some(EndpointFact::NoLogin));
            }
        }
        let contacts = value(pairs, "Contacts");
        let extension = contacts.as_deref().and_then(extension_of);
        self.add(&name, extension.map(EndpointFact::CalledAs));
        let address = match value(pairs, "Dynamic").as_deref() {
            Some("yes") => Some(EndpointFact::Dynamic),
            Some("no") => {
                let address = value(pairs, "IPaddress").unwrap_or_default();
                Some(EndpointFact::Fixed(address))
            }
            Some(_) | None => None,
        };
        self.add(&name, address);
    }

    /// Adds a row from the dialplan's hints, such as `PJSIP/101&Custom:DND101`.
    fn add_hint(&mut self, pairs: &Pairs<'_>) {
        let exten = pairs.get("Exten").map(text).unwrap_or_default();
        let hint = pairs.get("Hint").map(text).unwrap_or_default();
        // The part after a comma is about presence.
        let devices = hint.split(',').next().unwrap_or_default();
        for device in devices.split('&').filter(|device| device.contains('/')) {
            self.add(device, Some(EndpointFact::Hint(exten.clone())));
        }
    }

    /// Adds what a live channel reveals. Its caller ID is that of the person at the other end,
    /// which on a trunk is an outside number.
    fn add_channel(&mut self, pairs: &Pairs<'_>) {
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

/// Returns the value of a key, or `None` if the key is missing or its value is empty.
fn value(pairs: &Pairs<'_>, key: &str) -> Option<String> {
    let value = text(pairs.get(key)?);
    (!value.is_empty()).then_some(value)
}

/// Returns the user in `101/sip:101@10.0.0.7:5060`, if it's an extension number.
pub fn extension_of(contact: &str) -> Option<String> {
    let (_, after) = contact
        .split_once("sip:")
        .or_else(|| contact.split_once("sips:"))?;
    let (user, _) = after.split_once('@')?;
    let digits = !user.is_empty() && user.bytes().all(|b| b.is_ascii_digit());
    (digits && user.len() < OUTSIDE_DIGITS_MIN).then(|| user.to_owned())
}

/// Returns the host in `sip:user@host:port;…`, `aor/sip:host`, or `host:port`.
pub fn host_of(uri: &str) -> Option<String> {
    let uri = uri.find("sip").map_or(uri, |at| {
        let (_, rest) = uri[at..].split_once(':').unwrap_or(("", &uri[at..]));
        rest
    });
    let end = uri.find([';', '?', '>']).unwrap_or(uri.len());
    let host = uri[..end].rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split([':', '/']).next().unwrap_or_default(),
    };
    let host = host.trim().to_ascii_lowercase();
    (!host.is_empty()).then_some(host)
}
