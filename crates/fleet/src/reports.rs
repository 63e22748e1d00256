//! The loops of a running daemon: it publishes its own reports, and a sender reads those of others.
//! Neither touches a call: what fails is logged once, and tried again.

use crate::{
    Error, PbxOwners, ReportStream, report, report::Identity, roster::Roster, schedule::Schedule,
};
use callbridge_model::status::fleet::{
    FleetMember, FleetRole, FleetStatus, Liveness, StatusReport,
};
use callbridge_model::{Status, clock, status::FleetTable};
use callbridge_source::{Backoff, Bounds, amqp::publish::ConfirmedLine, chance};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

/// Age of the oldest reports that a sender reads after its start.
pub const SINCE: Duration = Duration::from_secs(3 * 3600);
/// Seconds for which requests made before a sender's last report count: the CRM's window and the
/// longest way of a request.
const SENT_LATELY_SEC: i64 = 100;
/// Time for the last report at an orderly stop.
const END_WITHIN: Duration = Duration::from_secs(4);
/// Time between two checks for members that have fallen silent.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Pauses after a line that could not be read.
const READ_AGAIN: Bounds = Bounds {
    first: Duration::from_secs(5),
    most: Duration::from_secs(60),
    healthy: Duration::from_secs(60),
};

/// The status reports of one process, and the loops that publish and read them.
pub struct FleetReports {
    stream: Option<ReportStream>,
    identity: Identity,
    shown: watch::Sender<Option<FleetStatus>>,
    /// The owners of PBXs, where they are known.
    pub owners: PbxOwners,
}

impl FleetReports {
    /// The reports of this process, beside its stream of calls; without one nothing is published.
    pub fn new(
        role: FleetRole,
        stream: Option<ReportStream>,
        [version, commit]: [&'static str; 2],
    ) -> Self {
        let system = rustix::system::uname();
        let status = stream.as_ref().map(|stream| FleetStatus {
            stream: stream.name(),
            ..FleetStatus::default()
        });
        Self {
            stream,
            identity: Identity {
                role,
                version,
                commit,
                hostname: system.nodename().to_string_lossy().into_owned(),
                started_at: now(),
            },
            shown: watch::Sender::new(status),
            owners: PbxOwners::default(),
        }
    }

    /// Checks that the stream can be written to; returns its name and the result, `None` without a
    /// stream.
    pub async fn probe(self) -> Option<(String, Result<(), Error>)> {
        let stream = self.stream?;
        Some((stream.name(), stream.probe().await))
    }

    /// Returns the senders beside this process (`state` is its folder, where it has one) that may
    /// have sent within the last window of the CRM: the one that holds the lease first.
    ///
    /// # Errors
    /// The reason for which the reports of the fleet cannot be read.
    pub async fn other_senders(self, state: Option<&str>) -> Result<Vec<FleetMember>, Error> {
        let Some(stream) = &self.stream else {
            return Ok(Vec::new());
        };
        let table = table(stream, SINCE).await?;
        let (at, hostname) = (table.at, self.identity.hostname);
        let is_us = |it: &StatusReport| it.hostname == hostname && state == Some(&it.state);
        let may_have_sent = |it: &FleetMember| match it.speech {
            Liveness::Speaking => true,
            Liveness::Stopped => at - it.heard_at <= SENT_LATELY_SEC,
            Liveness::Silent => false,
        };
        let mut others = table.members;
        others.retain(|it| it.word.role == FleetRole::Sender && !is_us(&it.word));
        others.retain(may_have_sent);
        others.sort_by_key(|it| !it.word.lease.as_ref().is_some_and(|lease| lease.held));
        Ok(others)
    }

    /// Returns a receiver of the connection to the reports and of the table; its value is `None`
    /// without a stream.
    pub fn shown(&self) -> watch::Receiver<Option<FleetStatus>> {
        self.shown.subscribe()
    }

    /// Publishes and reads reports until `shutdown`, then publishes the last one. `status` reads
    /// the daemon's status; `None` while it cannot be read.
    pub async fn run<F: Future<Output = Option<Status>> + Send>(
        self,
        status: impl Fn() -> F + Send + Sync,
        shutdown: impl Future<Output = ()>,
    ) {
        let Some(stream) = &self.stream else {
            return;
        };
        let mut publisher = ReportPublisher {
            reports: &self,
            stream,
            line: None,
            schedule: Schedule::new(clock::now().boot),
        };
        let reading = async {
            match self.identity.role {
                FleetRole::Sender => {
                    let roster = Roster::of_owners(self.owners.clone());
                    keep_reading(stream, SINCE, roster, &self.shown).await;
                }
                FleetRole::Collector => std::future::pending().await,
            }
        };
        tokio::select! {
            () = publisher.publish_each_minute(&status) => {}
            () = reading => {}
            () = shutdown => {}
        }
        let _ = timeout(END_WITHIN, publisher.end(&status)).await;
    }
}

type Shown = watch::Sender<Option<FleetStatus>>;

fn show(shown: &Shown, change: impl FnOnce(&mut FleetStatus)) {
    shown.send_modify(|shown| {
        if let Some(shown) = shown {
            change(shown);
        }
    });
}

/// Reads the reports of the time `since`, and all that come from now on, for as long as it is
/// awaited: keeps the table in `shown` up to date.
pub(crate) async fn keep_reading(
    stream: &ReportStream,
    since: Duration,
    mut roster: Roster,
    shown: &Shown,
) {
    let (mut reported, mut backoff) = (None, Backoff::new(READ_AGAIN));
    loop {
        let begun = Instant::now();
        let Err(error) = read(stream, since, &mut roster, (shown, &mut reported)).await;
        let why = error.to_string();
        show(shown, |it| it.unread = Some(why.clone()));
        if reported.as_ref() != Some(&why) {
            tracing::warn!(reason = %why, "status reports of the fleet cannot be read");
            reported = Some(why);
        }
        let again = begun.elapsed();
        tokio::time::sleep(backoff.wait(again, chance())).await;
    }
}

/// Reads until the line is lost. The table is shown once all older reports are read.
async fn read(
    stream: &ReportStream,
    since: Duration,
    roster: &mut Roster,
    (shown, reported): (&Shown, &mut Option<String>),
) -> Result<Infallible, Error> {
    let mut reading = stream.read(since).await?;
    if reported.take().is_some() {
        tracing::info!("status reports of the fleet are read again");
    }
    show(shown, |it| it.unread = None);
    let (mut caught_up, mut next_check) = (false, Instant::now() + CHECK_EVERY);
    loop {
        let next = timeout_at(next_check, reading.next()).await;
        match next.ok().transpose()? {
            Some(Some(message)) => roster.on_message(&message, now()),
            Some(None) => (caught_up, next_check) = (true, Instant::now()),
            None => {}
        }
        if Instant::now() >= next_check {
            next_check = Instant::now() + CHECK_EVERY;
            roster.forget(now());
            if caught_up {
                let table = Arc::new(roster.table(&stream.name(), now()));
                show(shown, |it| it.table = Some(table));
            }
        }
    }
}

struct ReportPublisher<'a> {
    reports: &'a FleetReports,
    stream: &'a ReportStream,
    line: Option<ConfirmedLine>,
    schedule: Schedule,
}

impl ReportPublisher<'_> {
    async fn publish_each_minute<F: Future<Output = Option<Status>> + Send>(
        &mut self,
        status: &(impl Fn() -> F + Sync),
    ) {
        loop {
            tokio::time::sleep(self.schedule.wait(clock::now().boot)).await;
            let Some(status) = status().await else {
                self.failed("the books cannot be read");
                continue;
            };
            match self.publish(&status, false).await {
                Ok(()) => {
                    if self.schedule.said(clock::now().boot) {
                        tracing::info!("status reports reach the broker again");
                    }
                    show(&self.reports.shown, |it| {
                        it.last_word_at = Some(now());
                        it.why = None;
                    });
                }
                Err(error) => self.failed(&error.to_string()),
            }
        }
    }

    fn failed(&mut self, why: &str) {
        self.line.take_if(|line| !line.is_blocked());
        if self.schedule.failed(clock::now().boot, why) {
            tracing::warn!(
                reason = why,
                "status reports do not reach the broker: nobody sees that this process works; \
                 calls are not affected"
            );
        }
        show(&self.reports.shown, |it| it.why = Some(why.to_owned()));
    }

    async fn publish(&mut self, status: &Status, ends: bool) -> Result<(), Error> {
        let line = match &mut self.line {
            Some(line) => line,
            closed => closed.insert(self.stream.open().await?),
        };
        // A report that waits for the end of an alarm is out of date then.
        if line.is_blocked() {
            let reason = "the broker blocks the connection because of an alarm".to_owned();
            return Err(Error::Lost(reason));
        }
        let report = report::of(&self.reports.identity, status, now(), ends);
        self.stream.publish(line, &report).await
    }

    /// Publishes the very last report, also of a process that ends before its first was due;
    /// nothing where reports are not taken.
    async fn end<F: Future<Output = Option<Status>> + Send>(
        &mut self,
        status: &(impl Fn() -> F + Sync),
    ) {
        if self.schedule.why.is_none()
            && let Some(status) = status().await
            && self.publish(&status, true).await.is_ok()
            && let Some(line) = self.line.take()
        {
            line.close().await;
        }
    }
}

/// Reads the reports of the time `since`, and returns their table.
pub(crate) async fn table(stream: &ReportStream, since: Duration) -> Result<FleetTable, Error> {
    let mut reading = stream.read(since).await?;
    let mut roster = Roster::default();
    while let Some(message) = reading.next().await? {
        roster.on_message(&message, now());
    }
    Ok(roster.table(&stream.name(), now()))
}

/// Returns the wall clock's time in epoch seconds.
pub(crate) fn now() -> i64 {
    clock::now().wall.floor_seconds().get()
}
