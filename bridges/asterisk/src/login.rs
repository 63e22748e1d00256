//! The AMI login dialogue, without I/O: a transport gives it the frames it reads and sends what
//! it answers.
//!
//! ```text
//! ◀ Asterisk Call Manager/11.0.0
//! ▶ Action: Challenge                    MD5 first: the secret does not cross the line
//! ◀ Response: Success, Challenge: 123
//! ▶ Action: Login, Key: md5(123 + secret)
//! ◀ Response: Success                    Action::LoggedIn, with the filter to send, if wanted
//! ```
//! A PBX that refuses `Challenge` is sent the secret itself only where [`Settings`] allow it.

use crate::ami::is_banner;
use crate::event::DECODED;
use crate::pairs::Pairs;
use md5::{Digest, Md5};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;

/// Event classes asked for: they carry all that is decoded, and none of the dial plan's flood.
const CLASSES: &str = "call,cdr,system";
/// The same, and the class of an event of our own.
const CLASSES_WITH_OWN: &str = "call,cdr,system,user";

/// How the dialogue may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The secret itself may be sent to a PBX that knows no `Challenge`: on TLS and on loopback.
    pub plain_allowed: bool,
    /// Ask for the decoded events alone (`Action: Filter`); a PBX that denies it sends all.
    pub filter: bool,
    /// Ask for events of our own, too (`Action: UserEvent`).
    pub own_events: bool,
}

/// Bytes to send. They may hold the secret, so they are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Outgoing(Vec<u8>);

impl Outgoing {
    /// What goes over the line.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} bytes)", self.0.len())
    }
}

/// What a frame asks of the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: read on.
    Wait,
    /// Send this.
    Send(Outgoing),
    /// The login was accepted. This frame and all that follow are for the decoder, too.
    LoggedIn {
        /// The filter to send, if one is wanted.
        send: Option<Outgoing>,
    },
    /// The connection is of no use.
    Failed(LoginError),
    /// Not of the dialogue: for the decoder.
    Pass,
}

/// Why a login cannot succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// `Authentication failed`, in the PBX's words.
    #[error("the PBX refused the login: {message}; check user and secret in manager.conf")]
    Refused {
        /// The PBX's `Message`.
        message: String,
    },
    /// The PBX knows no challenge, and its line is open to others.
    #[error(
        "the PBX does not do an MD5 challenge ({message}), and the secret is not sent in the \
         clear over a network: use amis:// or a PBX on loopback"
    )]
    PlainNotAllowed {
        /// The PBX's `Message`.
        message: String,
    },
    /// Something else listens there.
    #[error("the peer is no Asterisk manager: it says {line:?} instead of … Call Manager/x.y")]
    PeerIsNotAmi {
        /// The beginning of what it said.
        line: String,
    },
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
    settings: Settings,
    state: State,
    banner: String,
    actions: u64,
    filter_denied: bool,
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
            secret,
            settings,
            state: State::Banner,
            banner: String::new(),
            actions: 0,
            filter_denied: false,
        })
    }

    /// The PBX's banner; empty before it came.
    pub fn banner(&self) -> &str {
        &self.banner
    }

    /// The login was accepted.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The PBX denied the filter (it needs `write = system`), so it sends every event.
    pub const fn filter_denied(&self) -> bool {
        self.filter_denied
    }

    /// Takes a frame as [`Framer`](crate::Framer) gives it; the banner is one of its own.
    pub fn hear(&mut self, frame: &[u8]) -> Action {
        match self.state {
            State::Banner => self.hear_banner(frame),
            State::Challenged => self.hear_challenge(frame),
            State::LoggingIn => self.hear_verdict(frame),
            State::Open => {
                let pairs = Pairs::new(frame);
                if is_error(&pairs) && self.is_ours(&pairs) {
                    self.filter_denied = true;
                }
                Action::Pass
            }
            State::Failed => Action::Wait,
        }
    }

    fn hear_banner(&mut self, frame: &[u8]) -> Action {
        let line = frame
            .split(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default()
            .trim_ascii_end();
        if !is_banner(line) {
            let line = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            return self.fail(LoginError::PeerIsNotAmi { line });
        }
        self.banner = String::from_utf8_lossy(line).into_owned();
        self.state = State::Challenged;
        Action::Send(self.action(&[("Action", "Challenge"), ("AuthType", "MD5")]))
    }

    fn hear_challenge(&mut self, frame: &[u8]) -> Action {
        let pairs = Pairs::new(frame);
        if pairs.get("Response").is_none() {
            return Action::Wait;
        }
        let user = self.user.clone();
        let mut login = vec![
            ("Action", "Login"),
            ("Username", &*user),
            ("Events", self.classes()),
        ];
        let secret = self.secret.clone();
        let key;
        match pairs.get("Challenge").filter(|_| !is_error(&pairs)) {
            Some(challenge) => {
                key = md5_key(challenge, &secret);
                login.extend([("AuthType", "MD5"), ("Key", key.as_str())]);
            }
            None if self.settings.plain_allowed => login.push(("Secret", secret.expose_secret())),
            None => {
                return self.fail(LoginError::PlainNotAllowed {
                    message: message(&pairs),
                });
            }
        }
        self.state = State::LoggingIn;
        Action::Send(self.action(&login))
    }

    fn hear_verdict(&mut self, frame: &[u8]) -> Action {
        let pairs = Pairs::new(frame);
        if is_error(&pairs) {
            return self.fail(LoginError::Refused {
                message: message(&pairs),
            });
        }
        if pairs.get("Response").is_none() {
            return Action::Wait;
        }
        self.state = State::Open;
        let filter = self.settings.filter.then(filter);
        let send = filter.map(|filter| {
            self.action(&[
                ("Action", "Filter"),
                ("Operation", "Add"),
                ("Filter", &filter),
            ])
        });
        Action::LoggedIn { send }
    }

    /// The keep-alive: the answer shows that the line lives.
    pub fn ping(&mut self) -> Outgoing {
        self.action(&[("Action", "Ping")])
    }

    /// Asks which channels are live: what began or ended while nobody listened shows in it. Needs
    /// `write = system`; refused, it tells nothing.
    /// With the id under which it is answered.
    pub fn list(&mut self) -> (String, Outgoing) {
        self.asks(&[("Action", "CoreShowChannels")])
    }

    /// The farewell.
    pub fn logoff(&mut self) -> Outgoing {
        self.action(&[("Action", "Logoff")])
    }

    /// Another question, and the id under which it is answered.
    pub fn asks(&mut self, pairs: &[(&str, &str)]) -> (String, Outgoing) {
        let outgoing = self.action(pairs);
        (format!("{OURS}{}", self.actions), outgoing)
    }

    const fn classes(&self) -> &'static str {
        match self.settings.own_events {
            true => CLASSES_WITH_OWN,
            false => CLASSES,
        }
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
        Outgoing(text.into_bytes())
    }

    fn is_ours(&self, pairs: &Pairs<'_>) -> bool {
        pairs
            .get("ActionID")
            .is_some_and(|id| id.starts_with(OURS.as_bytes()))
    }
}

/// What our action ids begin with.
const OURS: &str = "callbridge-";

/// `Key`: the hash of challenge and secret, in lower-case hex.
fn md5_key(challenge: &[u8], secret: &SecretString) -> String {
    let hash = Md5::new()
        .chain_update(challenge)
        .chain_update(secret.expose_secret());
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn is_error(pairs: &Pairs<'_>) -> bool {
    pairs
        .get("Response")
        .is_some_and(|response| response.eq_ignore_ascii_case(b"Error"))
}

fn message(pairs: &Pairs<'_>) -> String {
    String::from_utf8_lossy(pairs.get("Message").unwrap_or(b"no reason given")).into_owned()
}

/// One regular expression that passes the events that are decoded. It is matched against the
/// whole event, so it is tied to the beginning.
fn filter() -> String {
    format!("^Event: ({})[[:space:]]", DECODED.join("|"))
}

#[cfg(test)]
mod tests;
