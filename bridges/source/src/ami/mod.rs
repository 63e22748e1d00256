//! AMI over TCP and TLS: log in, read on without ever waiting for the intake, ping, and notice
//! when the line has died.

mod survey;

use crate::connect::{Stream, Target};
use crate::error::Error;
use crate::line::SourceFeed;
use crate::source::{Access, Context};
use crate::url::TcpEndpoint;
use bytes::Bytes;
use callbridge_asterisk::hearing::{Hearing, MissingRight};
use callbridge_asterisk::login::{Action, Login, LoginError, Outgoing, Settings};
use callbridge_formats::{Format, Frame, Framer};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

const READ_BYTES: usize = 32 << 10;

/// A manager user of one PBX.
pub(crate) struct Ami {
    endpoint: TcpEndpoint,
    user: String,
    /// The PBX reads filters in another way: it is asked for none any more.
    unfiltered: bool,
}

/// What a line is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To hear calls.
    Listen,
    /// To ask what the account may do and hear, and to leave.
    Survey,
}

/// A line that is logged in.
struct LoggedInLine {
    target: Target,
    stream: Stream,
    framer: Framer,
    login: Login,
    /// The answer that accepted the login: the decoder wants it, too.
    accepted: Bytes,
}

impl Ami {
    pub(crate) fn new(endpoint: TcpEndpoint, user: String) -> Self {
        Self {
            endpoint,
            user,
            unfiltered: false,
        }
    }

    /// One connection, from opening to its end; why it ended.
    pub(crate) async fn session(&mut self, context: &mut Context) -> Error {
        let error = match self.run(context).await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let torn = matches!(
            error,
            Error::Deaf { .. }
                | Error::Ami {
                    error: LoginError::FilterTorn { .. },
                    ..
                }
        );
        self.unfiltered |= torn;
        error
    }

    async fn run(&self, context: &mut Context) -> Result<Infallible, Error> {
        let mut open = self.open(&context.access, Purpose::Listen).await?;
        context.line.up(true).await?;
        context.line.offer(open.accepted.clone())?;
        if self.unfiltered {
            context.line.lacks(MissingRight::Filter);
        }
        let silent_after = context.access.settings.silent_after;
        let mut hearing = Hearing::new(open.login.banner());
        let list = hearing.list(&mut open.login);
        open.send(&list, silent_after).await?;
        let event = hearing.event(&mut open.login);
        open.send(&event, silent_after).await?;
        let mut pings = interval(context.access.settings.ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            while let Some(frame) = open.framer.next() {
                let Frame::Message(bytes) = frame else {
                    context.line.counts.too_long();
                    continue;
                };
                self.take_in(&mut open.login, &mut hearing, &mut context.line, bytes)?;
            }
            tokio::select! {
                read = open.stream.read(open.framer.space(READ_BYTES)) => {
                    let read = open.target.arrived(read)?;
                    open.framer.filled(read);
                    heard = Instant::now();
                }
                () = context.line.drop_to_tell() => {
                    context.line.tell_dropped();
                }
                _ = pings.tick() => {
                    let ping = open.login.ping();
                    open.send(&ping, silent_after).await?;
                    let (question, lack) = hearing.ask(&mut open.login);
                    if let Some(question) = question {
                        open.send(&question, silent_after).await?;
                    }
                    if let Some(lack) = lack {
                        context.line.lacks(lack);
                    }
                    let missed = hearing.misses_own_event();
                    if (missed || lack.is_some()) && open.login.is_filtered() {
                        return Err(open.target.deaf());
                    }
                    if missed {
                        context.line.lacks(MissingRight::Echo);
                    }
                }
                () = tokio::time::sleep_until(heard + silent_after) => {
                    return Err(open.target.silent(silent_after));
                }
            }
        }
    }

    /// A frame of a line that is let in: for the login, for what proves that calls are heard, and
    /// for the decoder.
    fn take_in(
        &self,
        login: &mut Login,
        hearing: &mut Hearing,
        line: &mut SourceFeed,
        bytes: &[u8],
    ) -> Result<(), Error> {
        // Also after the login: what became of the filters is heard of here.
        match login.hear(bytes) {
            Action::Failed(error) => return Err(self.refused(error)),
            Action::Wait => return Ok(()),
            Action::Pass | Action::Send(_) | Action::LoggedIn { .. } => {}
        }
        let told = hearing.hear(bytes);
        if !told.ours {
            line.offer(Bytes::copy_from_slice(bytes))?;
        }
        if let Some(lack) = told.lack {
            line.lacks(lack);
        }
        if told.comes {
            line.comes();
        }
        Ok(())
    }

    async fn open(&self, access: &Access, purpose: Purpose) -> Result<LoggedInLine, Error> {
        let target = access.target(&self.endpoint);
        let secret = access.secret.read("CALLBRIDGE_AMI_SECRET")?;
        let settings = Settings {
            plain_allowed: self.endpoint.tls || self.endpoint.is_loopback(),
            filter: purpose == Purpose::Listen && !self.unfiltered,
        };
        let login = Login::new(&self.user, secret, settings);
        let login = login.map_err(|error| self.refused(error))?;
        let stream = target.open().await?;
        let mut open = LoggedInLine {
            target,
            stream,
            framer: Framer::new(Format::Ami),
            login,
            accepted: Bytes::new(),
        };
        let within = access.settings.connect_within;
        match timeout(within, self.greet(&mut open)).await {
            Ok(Ok(())) => Ok(open),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(open.target.timed_out()),
        }
    }

    /// The dialogue of the login.
    async fn greet(&self, open: &mut LoggedInLine) -> Result<(), Error> {
        loop {
            let Some(frame) = open.framer.next() else {
                let read = open.stream.read(open.framer.space(READ_BYTES)).await;
                let read = open.target.arrived(read)?;
                open.framer.filled(read);
                continue;
            };
            let Frame::Message(frame) = frame else {
                continue;
            };
            let send = match open.login.hear(frame) {
                Action::Wait | Action::Pass => continue,
                Action::Send(bytes) => bytes,
                Action::Failed(error) => return Err(self.refused(error)),
                Action::LoggedIn { send } => {
                    open.accepted = Bytes::copy_from_slice(frame);
                    if let Some(filters) = send {
                        open.send(&filters, open.target.within).await?;
                    }
                    return Ok(());
                }
            };
            open.send(&send, open.target.within).await?;
        }
    }

    fn refused(&self, error: LoginError) -> Error {
        Error::Ami {
            endpoint: self.endpoint.clone(),
            error,
        }
    }
}

impl LoggedInLine {
    async fn send(&mut self, bytes: &Outgoing, within: Duration) -> Result<(), Error> {
        let sending = async {
            self.stream.write_all(bytes.bytes()).await?;
            self.stream.flush().await
        };
        match timeout(within, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.target.failed(&error)),
            Err(_) => Err(self.target.silent(within)),
        }
    }
}
