//! AMI over TCP and TLS, including the login, the check that call events arrive, and the questions
//! asked by `check`.

use crate::Item;
use crate::{
    Access, Clock, Context, Error, LineError, LiveLine, Pings, SourceFeed, Target, TcpEndpoint,
    TcpLine, listen, send_within,
};
use bytes::Bytes;
use callbridge_asterisk::login::{Action, Login, LoginError, Settings, pong};
use callbridge_asterisk::subscription_probe::{MissingRight, SubscriptionProbe};
use callbridge_asterisk::survey::{Account, Survey};
use callbridge_call::framing::Outgoing;
use callbridge_formats::{Format, Frame, Framer};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long `check` waits for the responses to questions that are asked together.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How long `check` waits, after all responses, for the event that callbridge sends to itself.
const ECHO_WITHIN: Duration = Duration::from_secs(1);
/// How long `check` waits for a channel event, provided that there are channels.
const EVENT_WITHIN: Duration = Duration::from_secs(3);

/// Interval between requests for the live channels. Since a channel is considered gone once it's
/// missing from two lists in a row, a call whose hangup was lost ends within twice this time.
const LIST_EVERY: Duration = Duration::from_secs(180);

/// A connection that's logged in to a PBX.
struct AmiLine {
    tcp: TcpLine,
    framer: Framer,
    login: Login,
    outgoing: Outgoing,
    /// The PBX's response that accepted the login, which is also passed to the decoder.
    accepted: Bytes,
    probe: SubscriptionProbe,
    pings: Pings,
    /// When the live channels were last requested.
    listed: Instant,
    unfiltered: bool,
}

/// Runs one connection until a stop is requested or the connection ends, in which case the reason
/// is returned. If the PBX's event filter turns out not to work, `unfiltered` is set so that later
/// connections won't request one.
pub(crate) async fn session(
    endpoint: &TcpEndpoint,
    user: &str,
    unfiltered: &mut bool,
    context: &mut Context,
) -> Result<(), Error> {
    let opening = AmiLine::open(endpoint, user, &context.access, !*unfiltered);
    let Some(line) = context.stop.interrupts(opening).await else {
        return Ok(());
    };
    let mut line = line?;
    line.unfiltered = *unfiltered;
    let ended = listen(&mut line, context).await;
    if let Err(Error::Line(_, error)) = &ended {
        let torn = matches!(error, LineError::Ami(LoginError::FilterTorn(_)));
        *unfiltered |= torn || matches!(error, LineError::Deaf);
    }
    ended
}

/// Opens a separate connection, and asks for the account's permissions and the existing endpoints.
pub(crate) async fn survey(
    endpoint: &TcpEndpoint,
    user: &str,
    access: &Access,
    clock: Clock,
) -> Result<Account, Error> {
    let mut line = AmiLine::open(endpoint, user, access, false).await?;
    let mut survey = Survey::new(line.login.banner());
    let answered = Survey::is_answered;
    line.outgoing.extend(survey.begin(&mut line.login));
    line.survey(&mut survey, ANSWERS_WITHIN, answered, clock)
        .await?;
    for question in survey.ask(&mut line.login) {
        line.outgoing.extend(question);
    }
    line.survey(&mut survey, ANSWERS_WITHIN, answered, clock)
        .await?;
    line.survey(&mut survey, ECHO_WITHIN, Survey::is_echoed, clock)
        .await?;
    if survey.may_receive_more() {
        line.survey(&mut survey, EVENT_WITHIN, Survey::is_settled, clock)
            .await?;
        if let Some(again) = survey.list(&mut line.login) {
            line.outgoing.extend(again);
            line.survey(&mut survey, ANSWERS_WITHIN, answered, clock)
                .await?;
        }
    }
    line.outgoing.extend(line.login.logoff());
    let within = line.tcp.target.within;
    send_within(&mut line, within).await?;
    Ok(survey.account())
}

impl AmiLine {
    async fn open(
        endpoint: &TcpEndpoint,
        user: &str,
        access: &Access,
        filter: bool,
    ) -> Result<Self, Error> {
        let target = access.target(endpoint);
        let secret = access.secret.read("CALLBRIDGE_AMI_SECRET")?;
        let settings = Settings {
            plain_allowed: endpoint.tls || endpoint.is_loopback(),
            filter,
        };
        let login = Login::new(user, secret, settings)
            .map_err(|error| target.error(LineError::Ami(error)))?;
        let stream = target.open().await?;
        let mut line = Self {
            tcp: TcpLine { stream, target },
            framer: Framer::new(Format::Ami),
            login,
            outgoing: Outgoing::default(),
            accepted: Bytes::new(),
            probe: SubscriptionProbe::default(),
            pings: Pings::default(),
            listed: Instant::now(),
            unfiltered: false,
        };
        line.tcp.target.clone().in_time(line.log_in()).await?;
        Ok(line)
    }

    async fn log_in(&mut self) -> Result<(), Error> {
        loop {
            while let Some(frame) = self.framer.next() {
                let Frame::Message(frame) = frame else {
                    continue;
                };
                match self.login.on_frame(frame) {
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
            self.send().await?;
            self.receive().await?;
        }
    }

    /// Sends the queued questions, and reads until `enough` returns `true`, but no longer than
    /// `within`.
    async fn survey(
        &mut self,
        survey: &mut Survey,
        within: Duration,
        enough: fn(&Survey) -> bool,
        clock: Clock,
    ) -> Result<(), Error> {
        let asking_within = self.tcp.target.within;
        send_within(self, asking_within).await?;
        let until = Instant::now() + within;
        loop {
            while let Some(frame) = self.framer.next() {
                if let Frame::Message(frame) = frame {
                    survey.on_frame_at(frame, clock());
                }
            }
            if enough(survey) {
                return Ok(());
            }
            let Ok(received) = timeout_at(until, self.receive()).await else {
                return Ok(());
            };
            received?;
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
            feed.notice(Item::MissingRight(MissingRight::Filter));
        }
        self.probe = SubscriptionProbe::new(self.login.banner());
        self.outgoing.extend(self.probe.list(&mut self.login));
        self.outgoing.extend(self.probe.event(&mut self.login));
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Error> {
        self.tcp.receive(self.framer.buffer()).await
    }

    /// Passes each frame to the login, to the subscription probe, and to the intake's decoder.
    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        while let Some(frame) = self.framer.next() {
            let bytes = match frame {
                Frame::Message(bytes) => bytes,
                Frame::TooLong { bytes, .. } => {
                    feed.too_long(Some(bytes)).await?;
                    continue;
                }
            };
            // The login must also see the frames after it has succeeded, because that's when the
            // PBX responds to the filters.
            match self.login.on_frame(bytes) {
                Action::Failed(error) => return Err(self.tcp.target.error(LineError::Ami(error))),
                Action::Wait => continue,
                Action::Pass | Action::Send(_) | Action::LoggedIn { .. } => {}
            }
            if self.pings.are_waiting()
                && let Some(pong) = pong(bytes)
                && let Some(answer) = self.pings.note_answer(pong.action, feed.now())
            {
                feed.notice(answer.report(pong.at));
            }
            let finding = self.probe.on_frame(bytes);
            if !finding.ours {
                feed.offer(Bytes::copy_from_slice(bytes))?;
            }
            if let Some(missing) = finding.missing {
                feed.notice(Item::MissingRight(missing));
            }
            if finding.events_flow {
                feed.notice(Item::EventsFlow);
            }
        }
        Ok(())
    }

    fn ping(&mut self, feed: &mut SourceFeed) {
        let (action, ping) = self.login.ping();
        self.outgoing.extend(ping);
        self.pings.note_sent(action, feed.now());
    }

    fn ask(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        if self.listed.elapsed() >= LIST_EVERY {
            self.listed = Instant::now();
            self.outgoing.extend(self.probe.list_again(&mut self.login));
        }
        let (question, missing) = self.probe.ask(&mut self.login);
        self.outgoing.extend(question.unwrap_or_default());
        if let Some(missing) = missing {
            feed.notice(Item::MissingRight(missing));
        }
        let missed = self.probe.misses_own_event();
        if (missed || missing.is_some()) && self.login.is_filtered() {
            return Err(self.tcp.target.error(LineError::Deaf));
        }
        if missed {
            feed.notice(Item::MissingRight(MissingRight::Echo));
        }
        Ok(())
    }

    fn pings(&self) -> &Pings {
        &self.pings
    }

    async fn send(&mut self) -> Result<(), Error> {
        self.tcp.send(std::mem::take(&mut self.outgoing)).await
    }
}
