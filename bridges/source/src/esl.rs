//! FreeSWITCH's event socket, including the login, the subscription, and what its dialogue reports.

use crate::Item;
use crate::{
    Access, Context, Error, LineError, LiveLine, Pings, SourceFeed, Target, TcpEndpoint, TcpLine,
    listen,
};
use bytes::Bytes;
use callbridge_call::Mark;
use callbridge_freeswitch::dialogue::{Dialogue, FrameMeaning, SocketRefusal};
use callbridge_freeswitch::reader::{FrameRead, FrameReader};
use callbridge_freeswitch::survey::{QUESTIONS, Survey, SwitchFacts};
use secrecy::ExposeSecret;
use tokio::time::timeout;

const SECRET: &str = "CALLBRIDGE_ESL_SECRET";

/// A connection to a switch's event socket.
struct SocketLine {
    tcp: TcpLine,
    reader: FrameReader,
    dialogue: Dialogue,
    pings: Pings,
}

/// Runs one connection until a stop is requested or the connection ends, in which case the reason
/// is returned. `core` is the switch's last known process (`Core-UUID`), which is updated at the
/// end.
pub(crate) async fn session(
    endpoint: &TcpEndpoint,
    core: &mut Option<Vec<u8>>,
    context: &mut Context,
) -> Result<(), Error> {
    let opening = SocketLine::open(endpoint, &context.access, core.clone(), &[]);
    let Some(line) = context.stop.interrupts(opening).await else {
        return Ok(());
    };
    let mut line = line?;
    let ended = listen(&mut line, context).await;
    *core = line.dialogue.core().map(<[u8]>::to_vec);
    ended
}

/// Logs in to the event socket, and then closes the connection.
pub(crate) async fn probe(endpoint: &TcpEndpoint, access: &Access) -> Result<(), Error> {
    let line = SocketLine::open(endpoint, access, None, &[]).await;
    line.map(drop)
}

/// Logs in, asks for facts about the switch, and returns those that it reported in time.
pub(crate) async fn survey(endpoint: &TcpEndpoint, access: &Access) -> Result<SwitchFacts, Error> {
    let mut survey = Survey::new(access.secret.read(SECRET)?.expose_secret());
    let mut line = SocketLine::open(endpoint, access, None, &QUESTIONS).await?;
    let answered = line.read_until(|meaning| {
        if let FrameMeaning::Answer(body) = meaning {
            survey.on_answer(body);
        }
        survey.is_answered()
    });
    // Any facts that weren't reported in time stay unknown.
    match timeout(access.settings.connect_within, answered).await {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Ok(survey.facts()),
    }
}

impl SocketLine {
    /// Opens a connection and logs in. If `survey` has questions, they're asked instead of
    /// subscribing to events.
    async fn open(
        endpoint: &TcpEndpoint,
        access: &Access,
        core: Option<Vec<u8>>,
        survey: &'static [&'static str],
    ) -> Result<Self, Error> {
        let target = access.target(endpoint);
        let secret = access.secret.read(SECRET)?;
        let dialogue = Dialogue::new(secret, core, survey)
            .map_err(|refusal| target.error(LineError::Esl(refusal)))?;
        let stream = target.open().await?;
        let mut line = Self {
            tcp: TcpLine { stream, target },
            reader: FrameReader::default(),
            dialogue,
            pings: Pings::default(),
        };
        let target = line.tcp.target.clone();
        let logged_in = line.read_until(|meaning| meaning == FrameMeaning::LoggedIn);
        target.in_time(logged_in).await?;
        Ok(line)
    }

    /// Interprets the next complete frame, or returns `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error if the frame ends the connection.
    fn next(&mut self) -> Result<Option<FrameMeaning<'_>>, Error> {
        let target = &self.tcp.target;
        let meaning = match self.reader.next() {
            Ok(None) => return Ok(None),
            Ok(Some(FrameRead::Frame(frame))) => self.dialogue.on_frame(frame),
            Ok(Some(FrameRead::TooLong)) => FrameMeaning::TooLong,
            Err(no_frame) => FrameMeaning::Refused(SocketRefusal::NotEventSocket {
                line: no_frame.line,
            }),
        };
        match meaning {
            FrameMeaning::Closing(message) => Err(target.closed_error(message)),
            FrameMeaning::Refused(refusal) => Err(target.error(LineError::Esl(refusal))),
            meaning => Ok(Some(meaning)),
        }
    }

    /// Reads until `enough` returns `true`.
    async fn read_until(
        &mut self,
        mut enough: impl FnMut(FrameMeaning<'_>) -> bool,
    ) -> Result<(), Error> {
        loop {
            while let Some(meaning) = self.next()? {
                if enough(meaning) {
                    return Ok(());
                }
            }
            self.send().await?;
            self.receive().await?;
        }
    }
}

impl LiveLine for SocketLine {
    fn target(&self) -> &Target {
        &self.tcp.target
    }

    async fn begin(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        Ok(feed.mark(Mark::LoggedIn).await?)
    }

    async fn receive(&mut self) -> Result<(), Error> {
        self.tcp.receive(self.reader.buffer()).await
    }

    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        while let Some(meaning) = self.next()? {
            let mut list_ended = false;
            match meaning {
                FrameMeaning::Nothing | FrameMeaning::LoggedIn | FrameMeaning::Answer(_) => {}
                FrameMeaning::Closing(_) | FrameMeaning::Refused(_) => {}
                FrameMeaning::Listening => feed.notice(Item::EventsFlow),
                FrameMeaning::Pong => {
                    if let Some(answer) = self.pings.note_answer_to_oldest(feed.now()) {
                        feed.notice(answer.report(None));
                    }
                }
                FrameMeaning::UpFor(uptime) => {
                    let uptime = Some(uptime);
                    feed.mark(Mark::FullyBooted { uptime }).await?;
                }
                FrameMeaning::Message {
                    bytes,
                    restarted,
                    last_of_list,
                } => {
                    if restarted {
                        feed.mark(Mark::Restarted { began: None }).await?;
                    }
                    feed.offer(Bytes::copy_from_slice(bytes))?;
                    list_ended = last_of_list;
                }
                FrameMeaning::ListEnd => list_ended = true,
                FrameMeaning::Missed { message, list_ends } => {
                    feed.gap(format!("events are missing: {message}")).await?;
                    list_ended = list_ends;
                }
                FrameMeaning::TooLong => feed.too_long(None).await?,
            }
            if list_ended {
                feed.mark(Mark::ListEnd { channels: None }).await?;
            }
        }
        Ok(())
    }

    fn ping(&mut self, feed: &mut SourceFeed) {
        if self.dialogue.ping() {
            self.pings.note_sent(0, feed.now());
        }
    }

    fn pings(&self) -> &Pings {
        &self.pings
    }

    async fn send(&mut self) -> Result<(), Error> {
        self.tcp.send(self.dialogue.to_send()).await
    }
}
