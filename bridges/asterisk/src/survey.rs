//! What a manager account can show of its PBX and of itself, asked by `check` on a line of its own:
//! which actions it may do, which endpoints there are, which channels live, which events it hears.
//! Without I/O: a transport sends what [`Survey::ask`] gives and hands in what it reads.
//!
//! ```text
//! ▶ ListCommands                     which of the following may be asked
//! ▶ UserEvent                        an event of our own, which must come back
//! ▶ CoreSettings, before 12 QueueSummary    which release it is, and whether it has queues
//! ▶ PJSIPShowEndpoints, SIPpeers, IAXpeers, DeviceStateList
//! ▶ ExtensionStateList               hints: which endpoints are telephones
//! ▶ CoreShowChannels, and once more a while later: a channel that is new there was born meanwhile
//! ```
//! Nothing of it changes anything on the PBX. `GetConfig` would tell more, and is never asked: an
//! account that may do it reads every secret of the PBX. `PJSIPShowRegistrationsOutbound` is not
//! asked either: it answers with the passwords of the registrations.

#[cfg(test)]
mod tests;

use crate::ami::Pairs;
use crate::login::{Login, is_error};
use callbridge_call::framing::Outgoing;
use callbridge_call::{ClockDifference, EventTime};
use std::collections::{BTreeMap, BTreeSet};

/// Actions asked beside the list of commands and the channels. Of endpoints each list holds all of
/// its technology.
const QUESTIONS: [(&str, Question); 8] = [
    ("UserEvent", Question::Echo),
    ("CoreSettings", Question::Settings),
    ("QueueSummary", Question::Queues),
    ("PJSIPShowEndpoints", Question::Endpoints("PJSIP")),
    ("SIPpeers", Question::Endpoints("SIP")),
    ("IAXpeers", Question::Endpoints("IAX2")),
    ("DeviceStateList", Question::Endpoints("")),
    ("ExtensionStateList", Question::Hints),
];
/// Endpoints kept; a PBX with more is told of by these.
const ENDPOINTS_MAX: usize = 20_000;
/// Channels kept of one list.
const CHANNELS_MAX: usize = 20_000;

/// Evidence that the account receives events of calls, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallProof {
    /// No evidence so far, either way.
    #[default]
    None,
    /// An event of a channel was heard.
    Heard,
    /// So many channels were born between two lists, and none was heard.
    Unheard(usize),
}

/// Findings about a manager account and its PBX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// AMI's version, as the banner has it: `11.0.0`.
    pub version: String,
    /// The PBX's release, as it calls itself: `11.25.3`; `None` where it does not say.
    pub release: Option<String>,
    /// Number of the PBX's queues; `None` where it was not asked, as from Asterisk 12 on.
    pub queues: Option<usize>,
    /// Actions that it may do; `None` where the PBX did not say.
    pub actions: Option<BTreeSet<String>>,
    /// Endpoints of the PBX, with the facts that it reports of each.
    pub endpoints: EndpointList,
    /// `FullyBooted` came, which whoever may read `system` hears after the login.
    pub booted: bool,
    /// Our own event came back; `None` where it may not be sent.
    pub echoed: Option<bool>,
    /// Evidence that events of calls come over the line.
    pub calls: CallProof,
    /// Channels in the last list; `None` where it was refused.
    pub channels: Option<usize>,
    /// Events carry their time, as one of them has shown; `None` before the first that could.
    pub timed: Option<bool>,
    /// The PBX's own time, of its last event that carried it.
    pub clock: Option<EventTime>,
    /// Difference between the PBX's clock and our boot clock when that event arrived.
    pub clock_ahead: Option<ClockDifference>,
    /// Variables that channels show; `None` before the first channel was seen.
    pub variables: Option<BTreeSet<String>>,
}

impl Account {
    /// Up to Asterisk 11 (AMI 1.x) not every action is there, nor every event.
    pub fn is_old(&self) -> bool {
        self.version.starts_with("1.")
    }
}

/// Questions and answers on one line, up to the findings.
#[derive(Debug, Default)]
pub struct Survey {
    account: Account,
    /// Under which id each is asked, until it has answered.
    waiting: Vec<(String, Question)>,
    /// Ids of channels in the first list and in the one under way.
    first: Option<BTreeSet<Vec<u8>>>,
    listing: BTreeSet<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Commands,
    Echo,
    Settings,
    Queues,
    Endpoints(&'static str),
    Hints,
    Channels,
}

impl Survey {
    /// On a line that has just been let in.
    pub fn new(banner: &str) -> Self {
        let version = banner.rsplit('/').next().unwrap_or_default();
        let mut survey = Self::default();
        version.trim().clone_into(&mut survey.account.version);
        survey
    }

    /// Asks the first question: the actions that the account may do.
    pub fn begin(&mut self, login: &mut Login) -> Outgoing {
        self.asks(login, "ListCommands", Question::Commands)
    }

    /// Asks all else, once the first question is answered: only what the account may do. Where the
    /// PBX did not say, the answer to each shows.
    pub fn ask(&mut self, login: &mut Login) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        for (action, asked) in QUESTIONS {
            // Later releases tell of a queue's telephones by themselves.
            let is_told = asked == Question::Queues && !self.account.is_old();
            if !is_told && self.may(action) {
                outgoing.push(self.asks(login, action, asked));
            }
        }
        outgoing.extend(self.list(login));
        outgoing
    }

    /// Asks for the channels (again).
    pub fn list(&mut self, login: &mut Login) -> Option<Outgoing> {
        self.listing.clear();
        let action = "CoreShowChannels";
        self.may(action)
            .then(|| self.asks(login, action, Question::Channels))
    }

    /// Returns `true` when an action may be asked. All are where the PBX listed none, but for an
    /// event of our own.
    fn may(&self, action: &str) -> bool {
        match &self.account.actions {
            Some(actions) => actions.contains(&action.to_ascii_lowercase()),
            None => action != "UserEvent",
        }
    }

    fn asks(&mut self, login: &mut Login, action: &str, asked: Question) -> Outgoing {
        let mut pairs = vec![("Action", action)];
        if asked == Question::Echo {
            self.account.echoed = Some(false);
            pairs.push((action, "CallbridgeCheck"));
        }
        let (id, outgoing) = login.asks(&pairs);
        self.waiting.push((id, asked));
        outgoing
    }

    /// All that was asked has answered; our own event may still be on its way.
    pub fn is_answered(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.all(|(_, asked)| *asked == Question::Echo)
    }

    /// Our own event came back, or was not sent.
    pub fn is_echoed(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.all(|(_, asked)| *asked != Question::Echo)
    }

    /// Returns `true` once there is proof that the account receives events of channels, or that it
    /// does not.
    pub fn is_settled(&self) -> bool {
        self.account.calls != CallProof::None
    }

    /// Returns `true` when waiting may bring proof: channels live, and no event of one came yet.
    pub fn may_receive_more(&self) -> bool {
        self.account.channels.is_some_and(|live| live > 0) && !self.is_settled()
    }

    /// Takes in a frame that arrived at this moment after the login.
    pub fn on_frame_at(&mut self, frame: &[u8], arrived: EventTime) {
        let before = self.account.clock;
        self.on_frame(frame);
        if let Some(clock) = self.account.clock
            && self.account.clock != before
        {
            self.account.clock_ahead = Some(ClockDifference::between(clock, arrived));
        }
    }

    /// Takes in a frame that came after the login.
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
                // A PBX that only says "done" has told nothing.
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
            Question::Echo if !refused => return,
            _ => {}
        }
        self.waiting.remove(at);
    }

    /// A row of a list, or its end.
    fn on_item(&mut self, at: usize, asked: Question, event: &[u8], pairs: &Pairs<'_>) {
        match asked {
            Question::Echo => {
                self.account.echoed = Some(true);
                self.note_time(pairs);
                self.waiting.remove(at);
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
                let id = pairs.get("Uniqueid");
                let id = id.filter(|_| self.listing.len() < CHANNELS_MAX);
                self.listing.extend(id.map(<[u8]>::to_vec));
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

    /// Some events never carry a time: one that does proves that the PBX gives it.
    fn note_time(&mut self, pairs: &Pairs<'_>) {
        let time = pairs.get("Timestamp");
        self.account.timed = Some(time.is_some() || self.account.timed == Some(true));
        let seconds = time.and_then(|time| std::str::from_utf8(time).ok()?.parse::<f64>().ok());
        let seconds = seconds.filter(|it| it.is_finite());
        let time = seconds.map(|it| EventTime::from_seconds(it as i64));
        self.account.clock = time.or(self.account.clock);
    }

    fn on_event(&mut self, event: &[u8], pairs: &Pairs<'_>) {
        if event == b"fullybooted" {
            self.account.booted = true;
            return;
        }
        // A row of a list, which is no event of its own, carries none.
        if pairs.get("Privilege").is_some() && pairs.get("ActionID").is_none() {
            self.note_time(pairs);
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

    /// Ends the survey, and returns the findings so far.
    pub fn account(self) -> Account {
        self.account
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// `EventList: start`; old releases say in words that peers or channels will follow.
fn list_follows(pairs: &Pairs<'_>) -> bool {
    let said = pairs.get("Message").map(<[u8]>::to_ascii_lowercase);
    let said = said.is_some_and(|said| said.windows(6).any(|word| word == b"follow"));
    said || pairs.get("EventList").is_some()
}

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
    /// The endpoint is recognized by this address (`identify`).
    Identified(String),
    /// The PBX logs in there, and nobody here (outbound authentication).
    LogsInThere,
    /// The address is the one that it registers with.
    Dynamic,
    /// One who calls from it logs in here (inbound authentication).
    LogsInHere,
    /// Calls to it are sent to this extension at its address: a trunk's go to the number dialed.
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
        // A peer is listed with its login behind a slash, in old releases.
        let object = object.split('/').next().unwrap_or_default();
        let name = format!("{technology}/{object}");
        self.add(&name, None);
        let get = |key| pairs.get(key).map(text).filter(|it| !it.is_empty());
        if technology == "PJSIP" && pairs.get("Auths").is_some() {
            let (here, there) = (get("Auths").is_some(), get("OutboundAuths").is_some());
            self.add(&name, here.then_some(EndpointFact::LogsInHere));
            self.add(&name, there.then_some(EndpointFact::LogsInThere));
            self.add(&name, (!here && !there).then_some(EndpointFact::NoLogin));
        }
        let extension = get("Contacts").as_deref().and_then(extension_of);
        self.add(&name, extension.map(EndpointFact::CalledAs));
        let address = match get("Dynamic").as_deref() {
            Some("yes") => Some(EndpointFact::Dynamic),
            Some("no") => Some(EndpointFact::Fixed(get("IPaddress").unwrap_or_default())),
            Some(_) | None => None,
        };
        self.add(&name, address);
    }

    /// A row of the dialplan's hints: `PJSIP/101&Custom:DND101`.
    fn add_hint(&mut self, pairs: &Pairs<'_>) {
        let exten = pairs.get("Exten").map(text).unwrap_or_default();
        let hint = pairs.get("Hint").map(text).unwrap_or_default();
        // Behind a comma stands a presence.
        let devices = hint.split(',').next().unwrap_or_default();
        for device in devices.split('&').filter(|it| it.contains('/')) {
            self.add(device, Some(EndpointFact::Hint(exten.clone())));
        }
    }

    /// A live channel. Its caller id is that of who speaks there: a number from outside on a trunk.
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

/// The user of `101/sip:101@10.0.0.7:5060`, where it is an extension's number.
pub fn extension_of(contact: &str) -> Option<String> {
    let secure = || contact.split_once("sips:");
    let (_, after) = contact.split_once("sip:").or_else(secure)?;
    let (user, _) = after.split_once('@')?;
    let digits = !user.is_empty() && user.bytes().all(|b| b.is_ascii_digit());
    (digits && user.len() < OUTSIDE_DIGITS_MIN).then(|| user.to_owned())
}

/// The host of `sip:user@host:port;…`, of `aor/sip:host`, and of `host:port`.
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
