//! FreeSWITCH's event socket: log in, subscribe, read on without ever waiting for the intake, ask
//! what goes on, and notice when the line has died.

use crate::connect::{Stream, Target};
use crate::error::Error;
use crate::line::SourceFeed;
use crate::source::{Access, Context};
use crate::url::TcpEndpoint;
use bytes::Bytes;
use callbridge_call::Mark;
use callbridge_freeswitch::dialogue::{Dialogue, Heard, SocketCommand, SocketRefusal};
use callbridge_freeswitch::reader::{FrameRead, FrameReader};
use callbridge_freeswitch::survey::{QUESTIONS, Survey, SwitchFacts};
use secrecy::ExposeSecret;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

const READ_BYTES: usize = 32 << 10;
const SECRET: &str = "CALLBRIDGE_ESL_SECRET";

/// The event socket of one switch.
pub(crate) struct EventSocket {
    endpoint: TcpEndpoint,
    /// The process of the switch that was heard last.
    core: Option<Vec<u8>>,
}

/// A line to it.
struct SocketLine {
    target: Target,
    stream: Stream,
    reader: FrameReader,
    dialogue: Dialogue,
}

impl EventSocket {
    pub(crate) fn new(endpoint: TcpEndpoint) -> Self {
        Self {
            endpoint,
            core: None,
        }
    }

    /// One connection, from opening to its end; why it ended.
    pub(crate) async fn session(&mut self, context: &mut Context) -> Error {
        let opened = match context.access.secret.read(SECRET) {
            Ok(secret) => {
                let dialogue = Dialogue::new(secret, self.core.clone());
                self.open(&context.access, dialogue).await
            }
            Err(error) => Err(error),
        };
        let mut open = match opened {
            Ok(open) => open,
            Err(error) => return error,
        };
        let ended = open.listen(context).await;
        self.core = open.dialogue.core().map(<[u8]>::to_vec);
        match ended {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Logs in and leaves.
    pub(crate) async fn probe(&self, access: &Access) -> Result<(), Error> {
        let secret = access.secret.read(SECRET)?;
        let dialogue = Dialogue::new(secret, None);
        self.open(access, dialogue).await.map(|_| ())
    }

    /// Logs in and asks what the switch is, as far as it answers.
    pub(crate) async fn survey(&self, access: &Access) -> Result<SwitchFacts, Error> {
        let secret = access.secret.read(SECRET)?;
        let mut survey = Survey::new(secret.expose_secret());
        let dialogue = Dialogue::of_survey(secret, &QUESTIONS);
        let mut open = self.open(access, dialogue).await?;
        // Of what is not answered in time nothing is known.
        match timeout(access.settings.connect_within, open.survey(&mut survey)).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Ok(survey.facts()),
        }
    }

    /// A line that is logged in.
    async fn open(
        &self,
        access: &Access,
        dialogue: Result<Dialogue, SocketRefusal>,
    ) -> Result<SocketLine, Error> {
        let target = access.target(&self.endpoint);
        let dialogue = dialogue.map_err(|refusal| refused(&target, refusal))?;
        let mut open = SocketLine {
            stream: target.open().await?,
            target,
            reader: FrameReader::default(),
            dialogue,
        };
        let within = access.settings.connect_within;
        match timeout(within, open.log_in()).await {
            Ok(Ok(())) => Ok(open),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(open.target.timed_out()),
        }
    }
}

impl SocketLine {
    async fn log_in(&mut self) -> Result<(), Error> {
        loop {
            while let Some(heard) = next(&mut self.reader, &mut self.dialogue, &self.target)? {
                if heard == Heard::LoggedIn {
                    return Ok(());
                }
                // Before the login a switch says nothing else.
                ended(heard, &self.target)?;
            }
            self.send(self.target.within).await?;
            let read = self.stream.read(self.reader.space(READ_BYTES)).await;
            let read = self.target.arrived(read)?;
            self.reader.filled(read);
        }
    }

    /// Reads until each question is answered.
    async fn survey(&mut self, survey: &mut Survey) -> Result<(), Error> {
        loop {
            while let Some(heard) = next(&mut self.reader, &mut self.dialogue, &self.target)? {
                if let Heard::Answer(body) = heard {
                    survey.hear(body);
                } else {
                    ended(heard, &self.target)?;
                }
            }
            if survey.is_answered() {
                return Ok(());
            }
            self.send(self.target.within).await?;
            let read = self.stream.read(self.reader.space(READ_BYTES)).await;
            let read = self.target.arrived(read)?;
            self.reader.filled(read);
        }
    }

    async fn listen(&mut self, context: &mut Context) -> Result<Infallible, Error> {
        context.line.up(true).await?;
        context.line.mark(Mark::LoggedIn).await?;
        let silent_after = context.access.settings.silent_after;
        let mut pings = interval(context.access.settings.ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            while let Some(heard) = next(&mut self.reader, &mut self.dialogue, &self.target)? {
                take_in(heard, &mut context.line, &self.target).await?;
            }
            self.send(silent_after).await?;
            tokio::select! {
                read = self.stream.read(self.reader.space(READ_BYTES)) => {
                    let read = self.target.arrived(read)?;
                    self.reader.filled(read);
                    last = Instant::now();
                }
                () = context.line.drop_to_tell() => {
                    context.line.tell_dropped();
                }
                _ = pings.tick() => self.dialogue.ping(),
                () = tokio::time::sleep_until(last + silent_after) => {
                    return Err(self.target.silent(silent_after));
                }
            }
        }
    }

    /// Sends what the dialogue asks to be sent.
    async fn send(&mut self, within: Duration) -> Result<(), Error> {
        let commands: Vec<SocketCommand> = std::iter::from_fn(|| self.dialogue.to_send()).collect();
        if commands.is_empty() {
            return Ok(());
        }
        let sending = async {
            for command in &commands {
                self.stream.write_all(command.bytes()).await?;
            }
            self.stream.flush().await
        };
        match timeout(within, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.target.failed(&error)),
            Err(_) => Err(self.target.silent(within)),
        }
    }
}

/// What the next whole frame means; nothing until more has come in.
fn next<'a>(
    reader: &'a mut FrameReader,
    dialogue: &mut Dialogue,
    target: &Target,
) -> Result<Option<Heard<'a>>, Error> {
    let read = reader.next().map_err(|no_frame| {
        let line = no_frame.line;
        refused(target, SocketRefusal::NotEventSocket { line })
    })?;
    Ok(read.map(|read| match read {
        FrameRead::Frame(frame) => dialogue.hear(frame),
        FrameRead::TooLong => Heard::TooLong,
    }))
}

/// What was heard goes to the intake.
async fn take_in(heard: Heard<'_>, line: &mut SourceFeed, target: &Target) -> Result<(), Error> {
    match heard {
        Heard::Nothing | Heard::LoggedIn | Heard::Answer(_) => {}
        Heard::Listening => line.comes(),
        Heard::UpFor(uptime) => {
            let uptime = Some(uptime);
            line.mark(Mark::FullyBooted { uptime }).await?;
        }
        Heard::Message {
            bytes,
            restarted,
            last_of_list,
        } => {
            if restarted {
                line.mark(Mark::Restarted { began: None }).await?;
            }
            line.offer(Bytes::copy_from_slice(bytes))?;
            if last_of_list {
                line.mark(Mark::ListEnd).await?;
            }
        }
        Heard::ListEnd => line.mark(Mark::ListEnd).await?,
        Heard::Missed { words, list_ends } => {
            line.gap(format!("events are missing: {words}")).await?;
            if list_ends {
                line.mark(Mark::ListEnd).await?;
            }
        }
        Heard::TooLong => line.counts.too_long(),
        Heard::Closing(_) | Heard::Refused(_) => return ended(heard, target),
    }
    Ok(())
}

/// The end of the line, if that is what was heard.
fn ended(heard: Heard<'_>, target: &Target) -> Result<(), Error> {
    match heard {
        Heard::Closing(words) => Err(target.closed(words)),
        Heard::Refused(refusal) => Err(refused(target, refusal)),
        Heard::Nothing
        | Heard::LoggedIn
        | Heard::Listening
        | Heard::UpFor(_)
        | Heard::Message { .. }
        | Heard::ListEnd
        | Heard::Missed { .. }
        | Heard::Answer(_)
        | Heard::TooLong => Ok(()),
    }
}

fn refused(target: &Target, refusal: SocketRefusal) -> Error {
    Error::Esl {
        endpoint: target.endpoint.clone(),
        refusal,
    }
}
