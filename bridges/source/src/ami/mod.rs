//! AMI over TCP and TLS: the login, and what proves that events of calls come.

mod survey;

use crate::Item;
use crate::connect::Target;
use crate::error::{Error, LineError};
use crate::line::SourceFeed;
use crate::live::{LiveLine, TcpLine, listen};
use crate::session::{Access, Context};
use crate::url::TcpEndpoint;
use bytes::Bytes;
use callbridge_asterisk::hearing::{Hearing, MissingRight};
use callbridge_asterisk::login::{Action, Login, LoginError, Settings};
use callbridge_call::framing::Outgoing;
use callbridge_formats::{Format, Frame, Framer};
use std::time::Duration;

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

/// A line to it.
struct AmiLine {
    tcp: TcpLine,
    framer: Framer,
    login: Login,
    outgoing: Outgoing,
    /// The answer that accepted the login: the decoder wants it, too.
    accepted: Bytes,
    hearing: Hearing,
    unfiltered: bool,
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
        let error = match self.open(&context.access, Purpose::Listen).await {
            Ok(mut line) => listen(&mut line, context).await,
            Err(error) => error,
        };
        if let Error::Line { error, .. } = &error {
            let torn = matches!(error, LineError::Ami(LoginError::FilterTorn { .. }));
            self.unfiltered |= torn || matches!(error, LineError::Deaf);
        }
        error
    }

    /// A line that is logged in.
    async fn open(&self, access: &Access, purpose: Purpose) -> Result<AmiLine, Error> {
        let target = access.target(&self.endpoint);
        let secret = access.secret.read("CALLBRIDGE_AMI_SECRET")?;
        let settings = Settings {
            plain_allowed: self.endpoint.tls || self.endpoint.is_loopback(),
            filter: purpose == Purpose::Listen && !self.unfiltered,
        };
        let login = Login::new(&self.user, secret, settings);
        let login = login.map_err(|error| target.error(LineError::Ami(error)))?;
        let mut line = AmiLine {
            tcp: TcpLine::open(target).await?,
            framer: Framer::new(Format::Ami),
            login,
            outgoing: Outgoing::default(),
            accepted: Bytes::new(),
            hearing: Hearing::default(),
            unfiltered: self.unfiltered,
        };
        line.tcp.target.clone().in_time(line.log_in()).await?;
        Ok(line)
    }
}

impl AmiLine {
    async fn log_in(&mut self) -> Result<(), Error> {
        loop {
            while let Some(frame) = self.framer.next() {
                let Frame::Message(frame) = frame else {
                    continue;
                };
                match self.login.hear(frame) {
                    Action::Wait | Action::Pass => {}
                    Action::Send(bytes) => self.outgoing.extend(bytes),
                    Action::Failed(error) => {
                        return Err(self.tcp.target.error(LineError::Ami(error)));
                    }
                    Action::LoggedIn { send } => {
                        self.accepted = Bytes::copy_from_slice(frame);
                        self.outgoing.extend(send.unwrap_or_default());
                        return Ok(());
                    }
                }
            }
            self.send(self.tcp.target.within).await?;
            self.receive().await?;
        }
    }
}

impl LiveLine for AmiLine {
    fn target(&self) -> &Target {
        &self.tcp.target
    }

    async fn begin(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        feed.offer(self.accepted.clone())?;
        if self.unfiltered {
            feed.notice(Item::Lacks(MissingRight::Filter));
        }
        self.hearing = Hearing::new(self.login.banner());
        self.outgoing.extend(self.hearing.list(&mut self.login));
        self.outgoing.extend(self.hearing.event(&mut self.login));
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Error> {
        self.tcp.receive(self.framer.buffer()).await
    }

    /// A frame is for the login, for what proves that calls are heard, and for the decoder.
    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        while let Some(frame) = self.framer.next() {
            let Frame::Message(bytes) = frame else {
                feed.counts.too_long();
                continue;
            };
            // Also after the login: what became of the filters is heard of here.
            match self.login.hear(bytes) {
                Action::Failed(error) => return Err(self.tcp.target.error(LineError::Ami(error))),
                Action::Wait => continue,
                Action::Pass | Action::Send(_) | Action::LoggedIn { .. } => {}
            }
            let finding = self.hearing.hear(bytes);
            if !finding.ours {
                feed.offer(Bytes::copy_from_slice(bytes))?;
            }
            if let Some(lack) = finding.lack {
                feed.notice(Item::Lacks(lack));
            }
            if finding.comes {
                feed.notice(Item::Comes);
            }
        }
        Ok(())
    }

    fn ping(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        self.outgoing.extend(self.login.ping());
        let (question, lack) = self.hearing.ask(&mut self.login);
        self.outgoing.extend(question.unwrap_or_default());
        if let Some(lack) = lack {
            feed.notice(Item::Lacks(lack));
        }
        let missed = self.hearing.misses_own_event();
        if (missed || lack.is_some()) && self.login.is_filtered() {
            return Err(self.tcp.target.error(LineError::Deaf));
        }
        if missed {
            feed.notice(Item::Lacks(MissingRight::Echo));
        }
        Ok(())
    }

    async fn send(&mut self, within: Duration) -> Result<(), Error> {
        let outgoing = std::mem::take(&mut self.outgoing);
        self.tcp.send(outgoing, within).await
    }
}
