//! The dialogue with a live event socket, without I/O: a transport gives it the frames it reads,
//! sends what it asks to be sent, and hands on what it hears.
//!
//! ```text
//! ◀ auth/request
//! ▶ auth SECRET                       there is no other way: the secret crosses the line
//! ◀ command/reply +OK accepted        FrameMeaning::LoggedIn
//! ▶ event json CHANNEL_CREATE …       what a call can depend on (`subscription`)
//! ▶ api uptime ms                     a switch that began later knows nothing of older calls
//! ▶ api show channels as json         which channels live, and then of each, a few at a time:
//! ▶ api uuid_dump ID json             its variables and times, as an event of its own
//! ◀ HEARTBEAT, every 20 s             with the number of live channels (`sessions`)
//! ▶ api uptime ms                     the keep-alive; the answer shows that the line lives
//! ```
//! Events and answers come in between each other. Nothing waits for an answer: a switch that
//! answers no question is heard all the same. Each event names the process of the switch
//! (`Core-UUID`): with another one, all calls of before are over.

use crate::block::of_event;
use crate::reader::SocketFrame;
use crate::rule;
use crate::sessions::LiveSessions;
use callbridge_call::framing::Outgoing;
use callbridge_call::peer_text::redacted_peer_text;
use callbridge_call::redact::Redactor;
use secrecy::{ExposeSecret, SecretString};
use std::collections::VecDeque;
use std::time::Duration;

/// Channels that are asked for at the same time.
const DUMPS_UNDER_WAY: usize = 8;
/// Channels of one list that are asked for.
const LISTED_MAX: usize = 20_000;
/// Bytes of a channel's id that goes into a question; the switch's own have 36.
const ID_BYTES_MAX: usize = 128;
/// Answers awaited; a switch that owes more is not asked whether it lives.
const ASKED_MAX: usize = 32;
/// An event that is longer is not kept.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// A reason for which a line cannot be used, with its fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketRefusal {
    /// The switch refused the password: `-ERR invalid`.
    #[error(
        "the switch refused the password; give the one of event_socket.conf.xml (param password)"
    )]
    Password,
    /// The switch lets nobody in from our address: `text/rude-rejection`.
    #[error(
        "the switch lets no one in from this address; name it in an ACL and give that to the event \
         socket: <param name=\"apply-inbound-acl\" value=\"callbridge\"/> in \
         event_socket.conf.xml, then `reload mod_event_socket`"
    )]
    Address,
    /// The switch refused the subscription to its events.
    #[error("the switch refused the subscription ({said}); load mod_event_socket anew")]
    Subscription {
        /// The switch's words, from `Reply-Text`.
        said: String,
    },
    /// Another server than FreeSWITCH listens there.
    #[error(
        "the peer is not an event socket of FreeSWITCH: it says {line:?}; check the port, \
             8021"
    )]
    NotEventSocket {
        /// The beginning of what it said.
        line: String,
    },
    /// A line end in the secret would be a command of its own.
    #[error("the secret holds a line end or is empty")]
    BadSecret,
}

/// Meaning of a frame for the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameMeaning<'a> {
    /// Nothing is to be done: read on.
    Nothing,
    /// The login was accepted; what is heard from here on is told anew.
    LoggedIn,
    /// The subscription was accepted: events come.
    Listening,
    /// The switch has been up for so long; said before the first event.
    UpFor(Duration),
    /// The frame is for the decoder: an event, or a channel of the list.
    Message {
        /// The event as it came.
        bytes: &'a [u8],
        /// Set on the first event of another process of the switch: all that went on on the line
        /// before is over.
        restarted: bool,
        /// The list of live channels ends with it.
        last_of_list: bool,
    },
    /// The list of live channels ends here.
    ListEnd,
    /// The list shows that events were missed. Its channels follow.
    Missed {
        /// Numbers of channels that the events missed, in words.
        words: String,
        /// Set when no channel follows: the list ends here.
        list_ends: bool,
    },
    /// The answer to the next question of a survey.
    Answer(&'a [u8]),
    /// An event that is longer than any there is.
    TooLong,
    /// The switch closes the line, with these words. They are those of a switch that stops, too,
    /// when the module of the event socket alone is loaded anew: only its event tells them apart.
    Closing(String),
    /// The line is of no use.
    Refused(SocketRefusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    LoggingIn,
    Subscribing,
    Open,
    Ended,
}

/// A question under way, in the order in which it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketQuestion {
    Uptime,
    Ping,
    Channels,
    Channel,
    /// A question of a survey; its answer is passed on.
    Other,
}

/// The channels of a list that are asked for one by one.
#[derive(Debug, Default)]
struct Listing {
    /// A list is being told.
    open: bool,
    left: VecDeque<String>,
    under_way: usize,
}

/// One dialogue, from the first frame of a line on.
#[derive(Debug)]
pub struct Dialogue {
    secret: SecretString,
    state: State,
    asked: VecDeque<SocketQuestion>,
    outbox: Outgoing,
    listing: Listing,
    sessions: LiveSessions,
    /// The process of the switch that was heard last, on an earlier line or on this one.
    core: Option<Vec<u8>>,
    /// An event was heard on this line.
    events: bool,
    /// The process that speaks on this line is known.
    introduced: bool,
    /// Asked instead of what goes on, by whoever only wants to know what the switch is.
    survey: &'static [&'static str],
}

impl Dialogue {
    /// A dialogue for one new connection, after one on which this process of the switch was heard
    /// ([`core`](Self::core)). With a survey its questions are asked after the subscription, and
    /// none of what goes on.
    ///
    /// # Errors
    /// When the secret cannot be one.
    pub fn new(
        secret: SecretString,
        core: Option<Vec<u8>>,
        survey: &'static [&'static str],
    ) -> Result<Self, SocketRefusal> {
        let text = secret.expose_secret();
        if text.is_empty() || text.contains(['\r', '\n', '\0']) {
            return Err(SocketRefusal::BadSecret);
        }
        Ok(Self {
            secret,
            state: State::Greeting,
            asked: VecDeque::new(),
            outbox: Outgoing::default(),
            listing: Listing::default(),
            sessions: LiveSessions::default(),
            core,
            events: false,
            introduced: false,
            survey,
        })
    }

    /// The process of the switch (`Core-UUID`) that was heard last.
    pub fn core(&self) -> Option<&[u8]> {
        self.core.as_deref()
    }

    /// Takes the bytes that are to be sent next, if any; to be called after each frame.
    pub fn to_send(&mut self) -> Outgoing {
        std::mem::take(&mut self.outbox)
    }

    fn send(&mut self, command: &str) {
        let command = format!("{command}\n\n").into_bytes();
        self.outbox.extend(Outgoing::new(command));
    }

    /// The keep-alive. Nothing, while so much is unanswered that silence says it, too.
    pub fn ping(&mut self) {
        if self.state == State::Open && self.asked.len() < ASKED_MAX {
            self.ask(SocketQuestion::Ping, "uptime ms");
        }
    }

    /// Takes a frame in, and queues what is to be sent in answer.
    pub fn on_frame<'a>(&mut self, frame: SocketFrame<'a>) -> FrameMeaning<'a> {
        let kind = frame.header("Content-Type").unwrap_or_default();
        if self.state == State::Ended {
            return FrameMeaning::Nothing;
        }
        match kind {
            b"text/rude-rejection" => self.refuse(SocketRefusal::Address),
            b"text/disconnect-notice" => self.closing(frame.body),
            b"auth/request" => self.log_in(),
            _ if self.state == State::Greeting => self.refuse(SocketRefusal::NotEventSocket {
                line: self.peer_text(kind),
            }),
            b"command/reply" => self.on_reply(frame),
            b"api/response" => self.on_answer(frame.body),
            b"text/event-json" | b"text/event-plain" => self.on_event(frame.body),
            _ => FrameMeaning::Nothing,
        }
    }

    fn refuse<'a>(&mut self, refusal: SocketRefusal) -> FrameMeaning<'a> {
        self.state = State::Ended;
        FrameMeaning::Refused(refusal)
    }

    /// Makes a text of the switch safe to show, without our password.
    fn peer_text(&self, text: &[u8]) -> String {
        redacted_peer_text(text, &Redactor::new([self.secret.expose_secret()]))
    }

    fn closing<'a>(&mut self, body: &[u8]) -> FrameMeaning<'a> {
        self.state = State::Ended;
        let line = body.split(|byte| *byte == b'\n').next();
        FrameMeaning::Closing(self.peer_text(line.unwrap_or_default()))
    }

    fn log_in<'a>(&mut self) -> FrameMeaning<'a> {
        if self.state == State::Greeting {
            self.state = State::LoggingIn;
            self.send(&format!("auth {}", self.secret.expose_secret()));
        }
        FrameMeaning::Nothing
    }

    fn on_reply<'a>(&mut self, frame: SocketFrame<'a>) -> FrameMeaning<'a> {
        let said = frame.header("Reply-Text").unwrap_or_default();
        let well = said.starts_with(b"+OK");
        match self.state {
            State::LoggingIn if well => {
                self.state = State::Subscribing;
                self.send(&rule::subscription());
                for words in self.survey {
                    self.ask(SocketQuestion::Other, words);
                }
                if self.survey.is_empty() {
                    self.ask(SocketQuestion::Uptime, "uptime ms");
                    self.ask_list();
                }
                FrameMeaning::LoggedIn
            }
            State::LoggingIn => self.refuse(SocketRefusal::Password),
            State::Subscribing if well => {
                self.state = State::Open;
                FrameMeaning::Listening
            }
            State::Subscribing => self.refuse(SocketRefusal::Subscription {
                said: self.peer_text(said),
            }),
            State::Greeting | State::Open | State::Ended => FrameMeaning::Nothing,
        }
    }

    fn ask(&mut self, question: SocketQuestion, words: &str) {
        self.asked.push_back(question);
        self.send(&format!("api {words}"));
    }

    fn on_answer<'a>(&mut self, body: &'a [u8]) -> FrameMeaning<'a> {
        match self.asked.pop_front() {
            None | Some(SocketQuestion::Ping) => FrameMeaning::Nothing,
            // After an event it would seem to have come between that one and the next.
            Some(SocketQuestion::Uptime) if !self.events => {
                let uptime = number(body).map(Duration::from_millis);
                uptime.map_or(FrameMeaning::Nothing, FrameMeaning::UpFor)
            }
            Some(SocketQuestion::Uptime) => FrameMeaning::Nothing,
            Some(SocketQuestion::Other) => FrameMeaning::Answer(body),
            Some(SocketQuestion::Channels) => self.on_list(body),
            Some(SocketQuestion::Channel) => {
                self.listing.under_way = self.listing.under_way.saturating_sub(1);
                // `-ERR No such channel!`: it has hung up meanwhile.
                let is_reported = body.starts_with(b"{") && body.len() <= EVENT_BYTES_MAX;
                self.ask_channels();
                match self.list_ends() {
                    last_of_list if is_reported => FrameMeaning::Message {
                        bytes: body,
                        restarted: self.is_restarted(body),
                        last_of_list,
                    },
                    true => FrameMeaning::ListEnd,
                    false => FrameMeaning::Nothing,
                }
            }
        }
    }

    fn on_list<'a>(&mut self, body: &[u8]) -> FrameMeaning<'a> {
        let Some(ids) = listed(body) else {
            self.sessions.unlisted();
            return FrameMeaning::Nothing;
        };
        let first = !self.sessions.known;
        let difference = self.sessions.listed(&ids);
        if !first && difference == Default::default() {
            return FrameMeaning::Nothing;
        }
        self.listing.open = true;
        self.listing.left.extend(ids);
        self.ask_channels();
        let list_ends = self.list_ends();
        if !first {
            let words = format!(
                "the switch's list of channels shows {} that were not known, and {} of the known \
                 ones are gone",
                difference.births, difference.ends
            );
            return FrameMeaning::Missed { words, list_ends };
        }
        match list_ends {
            true => FrameMeaning::ListEnd,
            false => FrameMeaning::Nothing,
        }
    }

    fn ask_list(&mut self) {
        self.sessions.ask();
        self.ask(SocketQuestion::Channels, "show channels as json");
    }

    fn ask_channels(&mut self) {
        while self.listing.under_way < DUMPS_UNDER_WAY {
            let Some(id) = self.listing.left.pop_front() else {
                return;
            };
            self.listing.under_way += 1;
            self.ask(SocketQuestion::Channel, &format!("uuid_dump {id} json"));
        }
    }

    /// Nothing of the list is left to be told; once.
    fn list_ends(&mut self) -> bool {
        let ends = self.listing.open && self.listing.under_way == 0 && self.listing.left.is_empty();
        self.listing.open &= !ends;
        ends
    }

    fn on_event<'a>(&mut self, event: &'a [u8]) -> FrameMeaning<'a> {
        if event.len() > EVENT_BYTES_MAX {
            return FrameMeaning::TooLong;
        }
        self.events = true;
        let id = of_event(event, "Unique-ID").filter(|id| is_askable(id));
        match (of_event(event, "Event-Name"), id) {
            (Some(b"CHANNEL_CREATE"), Some(id)) => {
                self.sessions.born(id);
                // What is born while the list is told is told with it: what is missing at its end
                // is taken for gone.
                if self.listing.open && self.listing.left.len() < LISTED_MAX {
                    let id = String::from_utf8_lossy(id).into_owned();
                    self.listing.left.push_back(id);
                    self.ask_channels();
                }
            }
            (Some(b"CHANNEL_DESTROY"), Some(id)) => self.sessions.gone(id),
            (Some(b"HEARTBEAT"), _) => {
                let count = of_event(event, "Session-Count").and_then(number);
                if count.is_some_and(|count| self.sessions.counted(count)) && !self.listing.open {
                    self.ask_list();
                }
            }
            _ => {}
        }
        FrameMeaning::Message {
            bytes: event,
            restarted: self.is_restarted(event),
            last_of_list: false,
        }
    }

    /// Returns `true` for the first event on the line, if it is of another process than the line
    /// before.
    fn is_restarted(&mut self, event: &[u8]) -> bool {
        if self.introduced {
            return false;
        }
        let core = of_event(event, "Core-UUID").filter(|core| is_askable(core));
        core.is_some_and(|core| {
            self.introduced = true;
            let before = self.core.replace(core.to_vec());
            before.is_some_and(|before| before != core)
        })
    }
}

/// A question with this id in it is one command.
fn is_askable(id: &[u8]) -> bool {
    !id.is_empty() && id.len() <= ID_BYTES_MAX && id.iter().all(u8::is_ascii_graphic)
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// The ids in `{"row_count":2,"rows":[{"uuid":…},…]}`; without channels there are no rows.
fn listed(body: &[u8]) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Rows {
        row_count: u64,
        #[serde(default)]
        rows: Vec<Row>,
    }
    #[derive(serde::Deserialize)]
    struct Row {
        uuid: String,
    }
    let list: Rows = serde_json::from_slice(body).ok()?;
    if list.row_count > 0 && list.rows.is_empty() {
        return None;
    }
    let ids = list.rows.into_iter().map(|row| row.uuid);
    let ids = ids.filter(|id| is_askable(id.as_bytes()));
    Some(ids.take(LISTED_MAX).collect())
}

#[cfg(test)]
mod tests;
