//! The AMI login dialogue, without I/O: a transport gives it the frames it reads and sends what
//! it answers.
//!
//! ```text
//! ◀ Asterisk Call Manager/11.0.0
//! ▶ Action: Challenge                    MD5 first: the secret does not cross the line
//! ◀ Response: Success, Challenge: 123
//! ▶ Action: Login, Key: md5(123 + secret), Events: system
//! ◀ Response: Success                    Action::LoggedIn, with the filters to send, if wanted
//! ▶ Action: Filter, a name each          no event of a call can get lost between two of them
//! ▶ Action: Events, EventMask: call,cdr,system,agent,user
//! ```
//! A PBX that refuses `Challenge` is sent the secret itself only where [`Settings`] allow it.
//!
//! Each name has a filter of its own: Asterisk 10 to 12 read a filter as a basic regular
//! expression, which knows no `(A|B)`, and say `Success` to one that lets nothing through.

use crate::ami::{Pairs, is_banner};
use crate::event::DECODED;
use crate::text::epoch;
use callbridge_call::EventTime;
use callbridge_call::framing::Outgoing;
use callbridge_call::peer_text::{peer_text, redacted_peer_text};
use callbridge_call::redact::Redactor;
use md5::{Digest, Md5};
use secrecy::{ExposeSecret, SecretString};

/// Event classes asked for: they carry all that is decoded (queues tell of their telephones in
/// `agent`, an event of our own comes in `user`), and none of the dial plan's flood.
const CLASSES: &str = "call,cdr,system,agent,user";
/// While the filters are on their way: the start of the PBX, and no event of a call.
const CLASSES_AT_LOGIN: &str = "system";
/// The event of our own that shows that events come at all.
const OWN_EVENT: &str = "CallbridgeHears";

/// Choices of a transport in the dialogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The secret itself may be sent to a PBX that knows no `Challenge`: on TLS and on loopback.
    pub plain_allowed: bool,
    /// Ask for the decoded events alone (`Action: Filter`); a PBX that denies it sends all.
    pub filter: bool,
}

/// The transport's next step, after a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is to be sent or passed on: read on.
    Wait,
    /// The transport has to send these bytes.
    Send(Outgoing),
    /// The login was accepted. This frame and all that follow are for the decoder, too.
    LoggedIn {
        /// The filters to send, if they are wanted, and what asks for the events behind them.
        send: Option<Outgoing>,
    },
    /// The connection is of no use.
    Failed(LoginError),
    /// The frame is not of the dialogue: for the decoder.
    Pass,
}

/// A reason for which no login can succeed, with its fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The PBX's message, as `Authentication failed`. Asterisk gives the same one for an address
    /// that `permit` and `deny` exclude.
    #[error(
        "the PBX refused the login: {0}; check the user, its secret, and its permit lines in \
         manager.conf"
    )]
    Refused(String),
    /// The PBX knows no challenge, and its line is open to others.
    #[error(
        "the PBX does not do an MD5 challenge ({0}), and the secret is not sent in the \
         clear over a network: use amis:// or a PBX on loopback"
    )]
    PlainNotAllowed(String),
    /// Another server than Asterisk's manager listens there; the first 80 bytes of its first line.
    #[error("the peer is not an Asterisk manager: it says {0:?} instead of … Call Manager/x.y")]
    PeerIsNotAmi(String),
    /// Some filters were taken and some were not: only part of the events would come.
    #[error("the PBX took part of the event filter alone ({0}); the next login goes without one")]
    FilterTorn(String),
    /// A line end in the user's name or the secret would be a line of its own.
    #[error("the user's name or the secret holds a line end or is empty")]
    BadCredentials,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Banner,
    Challenged,
    LoggingIn,
    Open,
    Failed,
}

/// One dialogue, from the banner on; later it makes the keep-alive and the farewell.
#[derive(Debug)]
pub struct Login {
    user: String,
    secret: SecretString,
    /// The secrets that this connection has carried: a refusal can repeat them.
    redactor: Redactor,
    settings: Settings,
    state: State,
    banner: String,
    actions: u64,
    filters: Filters,
}

/// Account of the filters' actions and of the answers to them.
#[derive(Clone, Copy, Debug, Default)]
struct Filters {
    /// The numbers of their actions.
    first: u64,
    last: u64,
    /// Number of answers still to come.
    left: u64,
    taken: u64,
    denied: u64,
}

impl Login {
    /// A dialogue for one new connection.
    pub fn new(user: &str, secret: SecretString, settings: Settings) -> Result<Self, LoginError> {
        let bad = |text: &str| text.is_empty() || text.contains(['\r', '\n', '\0']);
        if bad(user) || bad(secret.expose_secret()) {
            return Err(LoginError::BadCredentials);
        }
        Ok(Self {
            user: user.to_owned(),
            redactor: Redactor::new([secret.expose_secret()]),
            secret,
            settings,
            state: State::Banner,
            banner: String::new(),
            actions: 0,
            filters: Filters::default(),
        })
    }

    /// The PBX's banner; empty before it came.
    pub fn banner(&self) -> &str {
        &self.banner
    }

    /// Returns `true` from the accepted login on, until the dialogue fails.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The PBX says that it has taken the filters.
    pub const fn is_filtered(&self) -> bool {
        self.filters.taken > 0
    }

    /// Takes a frame as the framer gives it; the banner is one of its own.
    pub fn on_frame(&mut self, frame: &[u8]) -> Action {
        match self.state {
            State::Banner => self.on_banner(frame),
            State::Challenged => self.on_challenge(frame),
            State::LoggingIn => self.on_verdict(frame),
            State::Open => self.on_filter_reply(frame),
            State::Failed => Action::Wait,
        }
    }

    fn on_banner(&mut self, frame: &[u8]) -> Action {
        let line = frame.split(|&byte| byte == b'\n').next();
        let line = line.unwrap_or_default().trim_ascii_end();
        if !is_banner(line) {
            let line = peer_text(&line[..line.len().min(80)]);
            return self.fail(LoginError::PeerIsNotAmi(line));
        }
        self.banner = peer_text(line);
        self.state = State::Challenged;
        Action::Send(self.action(&[("Action", "Challenge"), ("AuthType", "MD5")]))
    }

    fn on_challenge(&mut self, frame: &[u8]) -> Action {
        let pairs = Pairs::new(frame);
        if pairs.get("Response").is_none() {
            return Action::Wait;
        }
        let user = self.user.clone();
        let classes = match self.settings.filter {
            true => CLASSES_AT_LOGIN,
            false => CLASSES,
        };
        let mut login = vec![
            ("Action", "Login"),
            ("Username", &*user),
            ("Events", classes),
        ];
        let secret = self.secret.clone();
        let key;
        match pairs.get("Challenge").filter(|_| !is_error(&pairs)) {
            Some(challenge) => {
                key = md5_key(challenge, &secret);
                self.redactor.add(&key);
                login.extend([("AuthType", "MD5"), ("Key", key.as_str())]);
            }
            None if self.settings.plain_allowed => login.push(("Secret", secret.expose_secret())),
            None => return self.fail(LoginError::PlainNotAllowed(self.message(&pairs))),
        }
        self.state = State::LoggingIn;
        Action::Send(self.action(&login))
    }

    fn on_verdict(&mut self, frame: &[u8]) -> Action {
        let pairs = Pairs::new(frame);
        if is_error(&pairs) {
            return self.fail(LoginError::Refused(self.message(&pairs)));
        }
        if pairs.get("Response").is_none() {
            return Action::Wait;
        }
        self.state = State::Open;
        let send = self.settings.filter.then(|| self.filter());
        Action::LoggedIn { send }
    }

    /// All filters in one go, and then the events that they let through.
    fn filter(&mut self) -> Outgoing {
        self.filters.first = self.actions + 1;
        let mut all = Outgoing::default();
        for filter in filters() {
            let add = [("Action", "Filter"), ("Operation", "Add")];
            all.extend(self.action(&[add[0], add[1], ("Filter", &filter)]));
        }
        all.extend(self.action(&[("Action", "Events"), ("EventMask", CLASSES)]));
        self.filters.last = self.actions;
        self.filters.left = self.filters.last - self.filters.first + 1;
        all
    }

    /// Answers to the filters, and to what asks for events, are of the dialogue.
    fn on_filter_reply(&mut self, frame: &[u8]) -> Action {
        let (first, last) = (self.filters.first, self.filters.last);
        if self.filters.left == 0 {
            return Action::Pass;
        }
        let pairs = Pairs::new(frame);
        let number = pairs.get("Response").and_then(|_| number_of(&pairs));
        let Some(number) = number.filter(|number| (first..=last).contains(number)) else {
            return Action::Pass;
        };
        self.filters.left -= 1;
        match is_error(&pairs) {
            // Of the events themselves: whoever may not hear them is found by what does not come.
            _ if number == last => {}
            true => self.filters.denied += 1,
            false => self.filters.taken += 1,
        }
        if self.filters.taken > 0 && self.filters.denied > 0 {
            return self.fail(LoginError::FilterTorn(self.message(&pairs)));
        }
        Action::Wait
    }

    /// Makes a ping, and the id under which [`pong`] finds its answer. The answer shows that the
    /// line is alive.
    pub fn ping(&mut self) -> (String, Outgoing) {
        self.asks(&[("Action", "Ping")])
    }

    /// Asks which channels are live: what began or ended while nobody listened shows in it. Needs
    /// `write = reporting`; refused, it tells nothing.
    /// With the id under which it is answered.
    pub fn list(&mut self) -> (String, Outgoing) {
        self.asks(&[("Action", "CoreShowChannels")])
    }

    /// Makes the farewell, the action `Logoff`.
    pub fn logoff(&mut self) -> Outgoing {
        self.action(&[("Action", "Logoff")])
    }

    /// An event of our own (`write = user`): it must come back, through the filters, too. With the
    /// id under which it is answered.
    pub fn event(&mut self) -> (String, Outgoing) {
        self.asks(&[("Action", "UserEvent"), ("UserEvent", OWN_EVENT)])
    }

    /// Another question, and the id under which it is answered.
    pub fn asks(&mut self, pairs: &[(&str, &str)]) -> (String, Outgoing) {
        let outgoing = self.action(pairs);
        (format!("{OURS}{}", self.actions), outgoing)
    }

    fn message(&self, pairs: &Pairs<'_>) -> String {
        let message = pairs.get("Message").unwrap_or(b"no reason given");
        redacted_peer_text(message, &self.redactor)
    }

    fn fail(&mut self, error: LoginError) -> Action {
        self.state = State::Failed;
        Action::Failed(error)
    }

    /// Each action has an id of its own, `callbridge-1` and on.
    fn action(&mut self, pairs: &[(&str, &str)]) -> Outgoing {
        self.actions += 1;
        let mut text = String::new();
        for (key, value) in pairs {
            text.extend([key, ": ", value, "\r\n"]);
        }
        text.push_str(&format!("ActionID: {OURS}{}\r\n\r\n", self.actions));
        Outgoing::new(text.into_bytes())
    }
}

/// The number in one of our action ids.
fn number_of(pairs: &Pairs<'_>) -> Option<u64> {
    let number = pairs.get("ActionID")?.strip_prefix(OURS.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The PBX's time of the answer, if it has one.
    pub at: Option<EventTime>,
}

/// Reads the answer to the ping with this id; `None` for any other frame.
pub fn pong(frame: &[u8], id: &str) -> Option<Pong> {
    let pairs = Pairs::new(frame);
    let is_answer = pairs.get("Response").is_some() && pairs.get("ActionID") == Some(id.as_bytes());
    if !is_answer {
        return None;
    }
    Some(Pong {
        at: pairs.get("Timestamp").and_then(epoch),
    })
}

/// Returns `true` for an event of our own, as [`Login::event`] has it made.
pub(crate) fn is_own_event(pairs: &Pairs<'_>) -> bool {
    pairs.get("UserEvent") == Some(OWN_EVENT.as_bytes())
}

/// Prefix of our action ids; the action's number follows.
const OURS: &str = "callbridge-";

/// `Key`: the hash of challenge and secret, in lower-case hex.
fn md5_key(challenge: &[u8], secret: &SecretString) -> String {
    let hash = Md5::new().chain_update(challenge);
    let hash = hash.chain_update(secret.expose_secret()).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn is_error(pairs: &Pairs<'_>) -> bool {
    let response = pairs.get("Response");
    response.is_some_and(|it| it.eq_ignore_ascii_case(b"Error"))
}

/// Regular expressions, basic and extended alike, one for each event that is decoded and one for
/// our own. They are matched against the whole event, so they are tied to its beginning.
fn filters() -> impl Iterator<Item = String> {
    let decoded = DECODED
        .split(' ')
        .map(|name| format!("^Event: {name}[[:space:]]"));
    decoded.chain([format!("^Event: UserEvent.*{OWN_EVENT}")])
}

#[cfg(test)]
mod tests;
