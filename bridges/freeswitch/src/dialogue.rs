//! The dialogue with a live event socket, without I/O. A transport passes in the frames that it
//! reads, sends the queued commands, and passes on the events.
//!
//! ```text
//! ◀ auth/request
//! ▶ auth SECRET                       there is no other login: the secret is sent in the clear
//! ◀ command/reply +OK accepted        FrameMeaning::LoggedIn
//! ▶ event json CHANNEL_CREATE …       the events on which a call can depend (`subscription`)
//! ▶ api uptime ms                     a switch that started later has no older calls
//! ▶ api show channels as json         the live channels, and then for each, a few at a time:
//! ▶ api uuid_dump ID json             its variables and times, as a separate event
//! ◀ HEARTBEAT, every 20 s             with the number of live channels (`sessions`)
//! ▶ api uptime ms                     the keep-alive: its answer shows that the switch is there
//! ```
//! Events and answers arrive in any order. The dialogue never waits for an answer, so events are
//! read even if the switch answers no question. Each event names the process of the switch
//! (`Core-UUID`). If the process differs from the last one, all earlier calls are over.

use crate::block::header_of_event;
use crate::reader::SocketFrame;
use crate::rule;
use crate::sessions::LiveSessions;
use callbridge_call::framing::Outgoing;
use callbridge_call::peer_text::redacted_peer_text;
use callbridge_call::redact::Redactor;
use secrecy::{ExposeSecret, SecretString};
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of channels that are requested at the same time.
const DUMPS_UNDER_WAY: usize = 8;
/// Maximum number of channels that are requested from one list.
const LISTED_MAX: usize = 20_000;
/// Maximum bytes of a channel's id in a question. Ids that the switch makes have 36 bytes.
const ID_BYTES_MAX: usize = 128;
/// Maximum number of unanswered questions. At this number, no keep-alive is sent.
const ASKED_MAX: usize = 32;
/// Maximum bytes of an event. Longer events are reported as [`FrameMeaning::TooLong`] and are not
/// read.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// The reason why a connection cannot be used. The error message contains the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketRefusal {
    /// The switch refused the password: `-ERR invalid`.
    #[error(
        "the switch refused the password; give the password of event_socket.conf.xml (param \
         password)"
    )]
    Password,
    /// The switch refuses connections from callbridge's address: `text/rude-rejection`.
    #[error(
        "the switch refuses connections from this address; add it to an ACL, and name the ACL for \
         the event socket: <param name=\"apply-inbound-acl\" value=\"callbridge\"/> in \
         event_socket.conf.xml, then `reload mod_event_socket`"
    )]
    Address,
    /// The switch refused the subscription to its events.
    #[error("the switch refused the subscription ({said}); run `reload mod_event_socket`")]
    Subscription {
        /// The reply of the switch, from `Reply-Text`.
        said: String,
    },
    /// The server at this address is not FreeSWITCH.
    #[error(
        "this is not an event socket of FreeSWITCH: it sent {line:?}; check the port (normally \
         8021)"
    )]
    NotEventSocket {
        /// The beginning of what the server sent.
        line: String,
    },
    /// The secret is empty, or contains a line end, which would begin another command.
    #[error("the secret is empty or contains a line end")]
    BadSecret,
}

/// Meaning of a frame for the transport, which reads from the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameMeaning<'a> {
    /// There is nothing to do. Continue reading.
    Nothing,
    /// The login was accepted. A new stream of events begins.
    LoggedIn,
    /// The subscription was accepted, so events arrive from now on.
    Listening,
    /// The switch has been up for this long. Reported only if no event has arrived yet.
    UpFor(Duration),
    /// The frame is an event, or a channel of the list of live channels. Pass it to the decoder.
    Message {
        /// The event or the channel, unchanged.
        bytes: &'a [u8],
        /// `true` for the first event after the switch was restarted (another `Core-UUID`). All
        /// earlier calls are over.
        restarted: bool,
        /// `true` if the list of live channels ends with this message.
        last_of_list: bool,
    },
    /// The list of live channels is complete, and this frame contains no channel.
    ListEnd,
    /// The list of live channels shows that events were missed. The channels of the list follow.
    Missed {
        /// Describes the missed channels.
        message: String,
        /// `true` if the list is empty, so no channel follows.
        list_ends: bool,
    },
    /// The answer to the next question of the survey.
    Answer(&'a [u8]),
    /// The response to the oldest unanswered keep-alive ([`Dialogue::ping`]).
    Pong,
    /// An event that is longer than the limit.
    TooLong,
    /// The switch closes the connection, with this text. The text does not show whether the switch
    /// stops or only reloads the event socket. On the next connection, `restarted` of the first
    /// message shows this.
    Closing(String),
    /// The connection cannot be used.
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

/// A question that the switch has not answered yet. The switch answers questions in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketQuestion {
    Uptime,
    Ping,
    Channels,
    Channel,
    /// A question of a survey. The answer is passed on as [`FrameMeaning::Answer`].
    Other,
}

/// Listed channels whose details are requested with `uuid_dump`. `left` holds those still to be
/// requested, and `under_way` those waiting for a response.
#[derive(Debug, Default)]
struct Listing {
    /// `true` while details of the list's channels are missing.
    open: bool,
    left: VecDeque<String>,
    under_way: VecDeque<String>,
}

/// The dialogue on one connection, from the first frame on.
#[derive(Debug)]
pub struct Dialogue {
    secret: SecretString,
    state: State,
    asked: VecDeque<SocketQuestion>,
    outbox: Outgoing,
    listing: Listing,
    sessions: LiveSessions,
    /// The last known process of the switch (`Core-UUID`), from this or an earlier connection.
    core: Option<Vec<u8>>,
    /// `true` if an event has arrived on this connection.
    events: bool,
    /// `true` if an event on this connection has named the process of the switch.
    introduced: bool,
    /// Questions of a survey, asked in place of reading the live calls. Empty if the connection is
    /// not for a survey.
    survey: &'static [&'static str],
}

impl Dialogue {
    /// Makes a dialogue for a new connection. `core` is the process of the switch on the earlier
    /// connection ([`core`](Self::core)). If `survey` is not empty, its questions are asked in
    /// place of those about live calls.
    ///
    /// # Errors
    /// The secret is empty or contains a line end or a NUL.
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

    /// Returns the last known process of the switch (`Core-UUID`).
    pub fn core(&self) -> Option<&[u8]> {
        self.core.as_deref()
    }

    /// Returns the bytes to send next, and empties the queue. Call it after each frame and each
    /// ping.
    pub fn to_send(&mut self) -> Outgoing {
        std::mem::take(&mut self.outbox)
    }

    fn send(&mut self, command: &str) {
        let command = format!("{command}\n\n").into_bytes();
        self.outbox.extend(Outgoing::new(command));
    }

    /// Queues a keep-alive, or returns `false` without queuing one if too many responses are
    /// outstanding, which already shows that the switch isn't responding.
    pub fn ping(&mut self) -> bool {
        let may_ask = self.state == State::Open && self.asked.len() < ASKED_MAX;
        if may_ask {
            self.ask(SocketQuestion::Ping, "uptime ms");
        }
        may_ask
    }

    /// Processes a frame, and queues the bytes to send in response.
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

    /// Makes a text from the switch safe to show, and removes the password from it.
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
        let reply = frame.header("Reply-Text").unwrap_or_default();
        let well = reply.starts_with(b"+OK");
        match self.state {
            State::LoggingIn if well => {
                self.state = State::Subscribing;
                self.send(&rule::subscription());
                for command in self.survey {
                    self.ask(SocketQuestion::Other, command);
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
                said: self.peer_text(reply),
            }),
            State::Greeting | State::Open | State::Ended => FrameMeaning::Nothing,
        }
    }

    fn ask(&mut self, question: SocketQuestion, command: &str) {
        self.asked.push_back(question);
        self.send(&format!("api {command}"));
    }

    fn on_answer<'a>(&mut self, body: &'a [u8]) -> FrameMeaning<'a> {
        match self.asked.pop_front() {
            None => FrameMeaning::Nothing,
            Some(SocketQuestion::Ping) => FrameMeaning::Pong,
            // An uptime after the first event is ignored, because it would seem to come between two
            // events.
            Some(SocketQuestion::Uptime) if !self.events => {
                let uptime = number(body).map(Duration::from_millis);
                uptime.map_or(FrameMeaning::Nothing, FrameMeaning::UpFor)
            }
            Some(SocketQuestion::Uptime) => FrameMeaning::Nothing,
            Some(SocketQuestion::Other) => FrameMeaning::Answer(body),
            Some(SocketQuestion::Channels) => self.on_list(body),
            Some(SocketQuestion::Channel) => {
                let id = self.listing.under_way.pop_front();
                // `-ERR No such channel!`: the channel has hung up, although the list, which trails
                // the events, still had it. Its end was possibly reported before the list was.
                if let Some(id) = id
                    && body.starts_with(b"-ERR")
                {
                    self.sessions.note_not_live(id.as_bytes());
                }
                let is_reported = body.starts_with(b"{") && body.len() <= EVENT_BYTES_MAX;
                self.ask_channels();
                let last_of_list = self.list_ends();
                if is_reported {
                    FrameMeaning::Message {
                        bytes: body,
                        restarted: self.is_restarted(body),
                        last_of_list,
                    }
                } else if last_of_list {
                    FrameMeaning::ListEnd
                } else {
                    FrameMeaning::Nothing
                }
            }
        }
    }

    fn on_list<'a>(&mut self, body: &[u8]) -> FrameMeaning<'a> {
        let Some(ids) = ids_of_list(body) else {
            self.sessions.note_no_list();
            return FrameMeaning::Nothing;
        };
        let first = !self.sessions.known;
        let difference = self.sessions.compare_list(&ids);
        if !first && difference == Default::default() {
            return FrameMeaning::Nothing;
        }
        self.listing.open = true;
        self.listing.left.extend(ids);
        self.ask_channels();
        let list_ends = self.list_ends();
        if !first {
            let message = format!(
                "the switch's list of channels shows {} that were not known, and {} of the known \
                 ones are gone",
                difference.births, difference.ends
            );
            return FrameMeaning::Missed { message, list_ends };
        }
        if list_ends {
            FrameMeaning::ListEnd
        } else {
            FrameMeaning::Nothing
        }
    }

    fn ask_list(&mut self) {
        self.sessions.note_request();
        self.ask(SocketQuestion::Channels, "show channels as json");
    }

    fn ask_channels(&mut self) {
        while self.listing.under_way.len() < DUMPS_UNDER_WAY {
            let Some(id) = self.listing.left.pop_front() else {
                return;
            };
            self.ask(SocketQuestion::Channel, &format!("uuid_dump {id} json"));
            self.listing.under_way.push_back(id);
        }
    }

    /// Returns `true` once, when all channels of the list have been reported.
    fn list_ends(&mut self) -> bool {
        let ends =
            self.listing.open && self.listing.under_way.is_empty() && self.listing.left.is_empty();
        self.listing.open &= !ends;
        ends
    }

    fn on_event<'a>(&mut self, event: &'a [u8]) -> FrameMeaning<'a> {
        if event.len() > EVENT_BYTES_MAX {
            return FrameMeaning::TooLong;
        }
        self.events = true;
        let id = header_of_event(event, "Unique-ID").filter(|id| is_askable(id));
        match (header_of_event(event, "Event-Name"), id) {
            (Some(b"CHANNEL_CREATE"), Some(id)) => {
                self.sessions.note_birth(id);
                // Add a channel that is created while the list is reported to the list, because a
                // channel that is not in the list counts as gone.
                if self.listing.open && self.listing.left.len() < LISTED_MAX {
                    let id = String::from_utf8_lossy(id).into_owned();
                    self.listing.left.push_back(id);
                    self.ask_channels();
                }
            }
            (Some(b"CHANNEL_DESTROY"), Some(id)) => self.sessions.note_end(id),
            (Some(b"HEARTBEAT"), _) => {
                let count = header_of_event(event, "Session-Count").and_then(number);
                if count.is_some_and(|count| self.sessions.note_count(count)) && !self.listing.open
                {
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

    /// Returns `true` if this is the first event on the connection that names a process, and the
    /// process differs from the last one.
    fn is_restarted(&mut self, event: &[u8]) -> bool {
        if self.introduced {
            return false;
        }
        let core = header_of_event(event, "Core-UUID").filter(|core| is_askable(core));
        core.is_some_and(|core| {
            self.introduced = true;
            let before = self.core.replace(core.to_vec());
            before.is_some_and(|before| before != core)
        })
    }
}

/// Returns `true` if the id can be part of a command without ending it or beginning another one.
fn is_askable(id: &[u8]) -> bool {
    !id.is_empty() && id.len() <= ID_BYTES_MAX && id.iter().all(u8::is_ascii_graphic)
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Returns the ids in `{"row_count":2,"rows":[{"uuid":…},…]}`. If there are no channels, `rows` is
/// missing. Returns `None` if the body is not such a list.
fn ids_of_list(body: &[u8]) -> Option<Vec<String>> {
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
    let ids = list
        .rows
        .into_iter()
        .map(|row| row.uuid)
        .filter(|id| is_askable(id.as_bytes()))
        .take(LISTED_MAX)
        .collect();
    Some(ids)
}

#[cfg(test)]
mod tests;
