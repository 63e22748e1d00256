//! FreeSWITCH's event socket: log in, subscribe, read on without ever waiting for the intake, ask
//! what goes on, and notice when the line has died.

use crate::connect::{Stream, Target};
use crate::error::Error;
use crate::line::SourceFeed;
use crate::source::{Access, Context};
use crate::url::TcpEndpoint;
use bytes::Bytes;
use callbridge_call::Mark;
use callbridge_freeswitch::dialogue::{Dialogue, Heard, Refusal, SocketCommand};
use callbridge_freeswitch::reader::{FrameReader, Read};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

const READ_BYTES: usize = 32 << 10;

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
        let mut open = match self.open(&context.access).await {
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
        self.open(access).await.map(|_| ())
    }

    /// A line that is logged in.
    async fn open(&self, access: &Access) -> Result<SocketLine, Error> {
        let target = access.target(&self.endpoint);
        let secret = access.secret.read("CALLBRIDGE_ESL_SECRET")?;
        let dialogue = Dialogue::new(secret, self.core.clone());
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
                match heard {
                    Heard::LoggedIn => return Ok(()),
                    Heard::Refused(refusal) => return Err(refused(&self.target, refusal)),
                    Heard::Closing(words) => return Err(self.target.closed(words)),
                    // Before the login a switch says nothing else.
                    Heard::Nothing
                    | Heard::Listening
                    | Heard::UpFor(_)
                    | Heard::Message { .. }
                    | Heard::ListEnd
                    | Heard::Missed { .. }
                    | Heard::TooLong => {}
                }
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
        refused(target, Refusal::NotEventSocket { line })
    })?;
    Ok(read.map(|read| match read {
        Read::Frame(frame) => dialogue.hear(frame),
        Read::TooLong => Heard::TooLong,
    }))
}

/// What was heard goes to the intake.
async fn take_in(heard: Heard<'_>, line: &mut SourceFeed, target: &Target) -> Result<(), Error> {
    match heard {
        Heard::Nothing | Heard::LoggedIn => {}
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
        Heard::Closing(words) => return Err(target.closed(words)),
        Heard::Refused(refusal) => return Err(refused(target, refusal)),
    }
    Ok(())
}

fn refused(target: &Target, refusal: Refusal) -> Error {
    Error::Esl {
        endpoint: target.endpoint.clone(),
        refusal,
    }
}
