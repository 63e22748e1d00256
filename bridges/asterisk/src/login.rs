//! The AMI login, without any I/O. A transport passes in the frames it reads and sends the actions.
//!
//! ```text
//! ◀ Asterisk Call Manager/11.0.0
//! ▶ Action: Challenge                    MD5 first, so the secret isn't sent
//! ◀ Response: Success, Challenge: 123
//! ▶ Action: Login, Key: md5(123 + secret), Events: system
//! ◀ Response: Success                    Action::LoggedIn, with the filters to send, if wanted
//! ▶ Action: Filter, one per name         no call event can get lost in between
//! ▶ Action: Events, EventMask: call,cdr,system,agent,user
//! ```
//! If a PBX rejects `Challenge`, the secret itself is only sent if [`Settings`] allow it.
//!
//! Each name has its own filter, because Asterisk 10 to 12 treat a filter as a basic regular
//! expression, which doesn't support `(A|B)`, and respond with `Success` even to a filter that
//! doesn't let anything through.

use crate::ami::{Pairs, is_banner};
use crate::event::DECODED;
use crate::text::epoch;
use callbridge_call::EventTime;
use callbridge_call::framing::Outgoing;
use callbridge_call::peer_text::{peer_text, redacted_peer_text};
use callbridge_call::redact::Redactor;
use md5::{Digest, Md5};
use secrecy::{ExposeSecret, SecretString};

/// The event classes to request. They contain all the events that we decode (`agent` has queues'
/// phones, and `user` has callbridge's own event), but not the numerous dialplan events.
const CLASSES: &str = "call,cdr,system,agent,user";
/// The event class to request until the filters are set. It includes the start of the PBX, but no
/// call events.
const CLASSES_AT_LOGIN: &str = "system";
/// Name of the event that callbridge sends to itself to check whether events arrive at all.
const OWN_EVENT: &str = "CallbridgeHears";

/// Settings for the login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether the secret itself may be sent to a PBX without `Challenge`, as over TLS and on
    /// loopback.
    pub plain_allowed: bool,
    /// Whether to request only the events that we decode (`Action: Filter`). If a PBX rejects this,
    /// it sends all events.
    pub filter: bool,
}

/// What the transport should do after a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// There's nothing to send or pass on. Keep reading.
    Wait,
    /// Send these bytes.
    Send(Outgoing),
    /// The login was accepted. This frame and all following ones should be passed to the decoder as
    /// well.
    LoggedIn {
        /// The filters to send, if wanted, and the request for the events.
        send: Option<Outgoing>,
    },
    /// The connection can't be used.
    Failed(LoginError),
    /// The frame isn't part of the login and should be passed to the decoder.
    Pass,
}

/// Why a login can't succeed, along with the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The PBX's message, such as `Authentication failed`. Asterisk sends the same one to an
    /// address that's excluded by `permit` and `deny`.
    #[error(
        "the PBX refused the login: {0}; check the user, its secret, and its permit lines in \
         manager.conf"
    )]
    Refused(String),
    /// The PBX doesn't support a challenge, and others could read the connection.
    #[error(
        "the PBX does not support the MD5 challenge ({0}), and callbridge does not send the secret \
         in the clear over a network; use amis:// or a PBX on loopback"
    )]
    PlainNotAllowed(String),
    /// The server there isn't Asterisk's manager. Contains the first 80 bytes of its first line.
    #[error(
        "this is not an Asterisk manager: it sent {0:?} instead of … Call Manager/x.y; check \
         host and port"
    )]
    PeerIsNotAmi(String),
    /// The PBX accepted only some of the filters, which means that it would send only some of the
    /// events.
    #[error("the PBX accepted only part of the event filter ({0}); the next login sets no filter")]
    FilterTorn(String),
    /// The username or secret is empty or contains a newline, which would start another line.
    #[error("the user's name or the secret is empty or contains a line end")]
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

/// The login on one connection, starting with the banner. Once logged in, it also creates the
/// pings, the requests, and the logoff.
#[derive(Debug)]
pub struct Login {
    user: String,
    secret: SecretString,
    /// The secrets that were sent on this connection, since a rejection may repeat them.
    redactor: Redactor,
    settings: Settings,
    state: State,
    banner: String,
    actions: u64,
    filters: Filters,
}

/// Counts of the filter actions and the responses to them.
#[derive(Clone, Copy, Debug, Default)]
struct Filters {
    /// Numbers of the first and last of these actions.
    first: u64,
    last: u64,
    /// Number of responses still to come.
    left: u64,
    taken: u64,
    denied: u64,
}

impl Login {
    /// Creates a login for a new connection.
    pub fn new(user: &str, secret: SecretString, settings: Settings) -> Result<Self, LoginError> {
        if is_bad_credential(user) || is_bad_credential(secret.expose_secret()) {
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

    /// Returns the PBX's banner, or an empty text before it has arrived.
    pub fn banner(&self) -> &str {
        &self.banner
    }

    /// Returns `true` once the login has been accepted, until it fails.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns `true` if the PBX has accepted any filters.
    pub const fn is_filtered(&self) -> bool {
        self.filters.taken > 0
    }

    /// Processes a frame from the framer. The banner is a separate frame.
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
        let first = frame.split(|&byte| byte == b'\n').next();
        let line = first.unwrap_or_default().trim_ascii_end();
        if !is_banner(line) {
            let start = peer_text(&line[..line.len().min(80)]);
            return self.fail(LoginError::PeerIsNotAmi(start));
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
        let classes = if self.settings.filter {
            CLASSES_AT_LOGIN
        } else {
            CLASSES
        };
        let mut login = vec![
            ("Action", "Login"),
            ("Username", &*user),
            ("Events", classes),
        ];
        let secret = self.secret.clone();
        let challenge = if is_error(&pairs) {
            None
        } else {
            pairs.get("Challenge")
        };
        let key;
        match challenge {
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

    /// Creates all filters in a single batch, followed by the request for the events that pass
    /// them.
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

    /// Processes the responses to the filters and to the request for events.
    fn on_filter_reply(&mut self, frame: &[u8]) -> Action {
        if self.filters.left == 0 {
            return Action::Pass;
        }
        let pairs = Pairs::new(frame);
        let sent = self.filters.first..=self.filters.last;
        let number = pairs.get("Response").and_then(|_| number_of(&pairs));
        let Some(number) = number.filter(|number| sent.contains(number)) else {
            return Action::Pass;
        };
        self.filters.left -= 1;
        // The last response is for the request for events. An error there isn't counted, because
        // missing permissions are detected by events not arriving.
        if number != self.filters.last {
            if is_error(&pairs) {
                self.filters.denied += 1;
            } else {
                self.filters.taken += 1;
            }
        }
        if self.filters.taken > 0 && self.filters.denied > 0 {
            return self.fail(LoginError::FilterTorn(self.message(&pairs)));
        }
        Action::Wait
    }

    /// Creates a ping and returns it with its action number, which [`pong`] will find in the
    /// response.
    pub fn ping(&mut self) -> (u64, Outgoing) {
        let ping = self.action(&[("Action", "Ping")]);
        (self.actions, ping)
    }

    /// Creates the request for the live channels, which requires `write = reporting`, and returns
    /// the response's ID and the bytes to send. The list shows channels that started or ended while
    /// there was no connection.
    pub fn list(&mut self) -> (String, Outgoing) {
        self.ask(&[("Action", "CoreShowChannels")])
    }

    /// Creates the `Logoff` action.
    pub fn logoff(&mut self) -> Outgoing {
        self.action(&[("Action", "Logoff")])
    }

    /// Creates the event that callbridge sends to itself (`write = user`), which must come back
    /// through the filters. Returns the response's ID and the bytes to send.
    pub fn event(&mut self) -> (String, Outgoing) {
        self.ask(&[("Action", "UserEvent"), ("UserEvent", OWN_EVENT)])
    }

    /// Creates an action from these keys and values, and returns its response's ID and the bytes to
    /// send.
    pub fn ask(&mut self, pairs: &[(&str, &str)]) -> (String, Outgoing) {
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

    /// Creates an action from these keys and values. Each action has its own ID, starting with
    /// `callbridge-1`.
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

fn is_bad_credential(text: &str) -> bool {
    text.is_empty() || text.contains(['\r', '\n', '\0'])
}

/// Returns the number in an action ID that we generated, or `None` for any other ID.
fn number_of(pairs: &Pairs<'_>) -> Option<u64> {
    let number = pairs.get("ActionID")?.strip_prefix(OURS.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The response to one of our actions, which may or may not have been a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The number of the action, as [`Login::ping`] returned it.
    pub action: u64,
    /// The PBX's time in the response, if it contains one.
    pub at: Option<EventTime>,
}

/// Reads the response to one of our actions, returning `None` for any other frame.
pub fn pong(frame: &[u8]) -> Option<Pong> {
    let pairs = Pairs::new(frame);
    pairs.get("Response")?;
    Some(Pong {
        action: number_of(&pairs)?,
        at: pairs.get("Timestamp").and_then(epoch),
    })
}

/// Returns `true` for the event that callbridge sends to itself ([`Login::event`]).
pub(crate) fn is_own_event(pairs: &Pairs<'_>) -> bool {
    pairs.get("UserEvent") == Some(OWN_EVENT.as_bytes())
}

/// Prefix of our action IDs, which is followed by the action's number.
const OURS: &str = "callbridge-";

/// Returns the `Key`, which is the hash of the challenge and secret in lowercase hex.
fn md5_key(challenge: &[u8], secret: &SecretString) -> String {
    let hash = Md5::new()
        .chain_update(challenge)
        .chain_update(secret.expose_secret())
        .finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn is_error(pairs: &Pairs<'_>) -> bool {
    pairs
        .get("Response")
        .is_some_and(|response| response.eq_ignore_ascii_case(b"Error"))
}

/// Returns one regular expression for each event that we decode, and one for callbridge's own
/// event. Each is valid both as a basic and as an extended expression. They're anchored at the
/// start of the event, because the PBX matches them against the whole event.
fn filters() -> impl Iterator<Item = String> {
    let decoded = DECODED
        .split(' ')
        .map(|name| format!("^Event: {name}[[:space:]]"));
    decoded.chain([format!("^Event: UserEvent.*{OWN_EVENT}")])
}

#[cfg(test)]
mod tests;
