//! The shell around a [`Claim`]: connection, consumer, confirms, reconnects.
//!
//! That the line is up says nothing: a consumer that is cut off goes on for minutes without a
//! sign. Leave rests on ticks that came back alone.

use crate::lease::claim::{Claim, Delivered, TICK_EVERY, Terms};
use crate::lease::handover::{Handover, Patience};
use crate::lease::queue::{Error, LeaseLine, LeaseQueue};
use crate::lease::tick::{SlotAges, Tick, TickId, TurnId};
use callbridge_model::status::{Lease, LeasePhase};
use callbridge_model::{Heartbeat, Permit, clock, clock::ClockOffset};
use callbridge_source::{Backoff, Bounds, amqp::Login, chance};
use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{Confirmation, PublisherConfirm, message::Delivery};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{info, warn};

/// Seconds between two heartbeats: a machine that died is found out in some ten seconds.
const HEARTBEAT: u16 = 4;
/// Time for the broker's answers: a holder that has to go to another node has ten seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A line on which nothing came for so long is opened anew: the broker may have lost its consumer,
/// and a standby has no other sign of that.
const UNFED_MAX: Duration = Duration::from_secs(600);
/// Ticks that wait for their confirms; a line on which more wait is given up.
const UNCONFIRMED_MAX: usize = 3;
/// Time for the confirm of the last tick: a process that is stopped has ten seconds for all.
const LAST_WITHIN: Duration = Duration::from_secs(1);
/// Others whose ticks are shown, and for how long after the last one.
const OTHERS_MAX: usize = 16;
const OTHERS_FOR: Duration = Duration::from_secs(10);
/// Longest time between two checks, when nothing happens.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Pauses before the next node is tried: short, for a holder that lost its line has ten seconds.
const AGAIN: Bounds = Bounds {
    first: Duration::from_millis(500),
    most: Duration::from_secs(5),
    healthy: Duration::from_secs(10),
};

/// Keeps the lease of a process, or waits for it.
pub struct LeaseKeeper {
    queue: LeaseQueue,
    us: String,
    terms: Terms,
    claim: Claim,
    permit: Permit,
    shown: watch::Sender<Lease>,
    /// Other processes by name: the time since boot of their last tick, and their ability to send
    /// by that tick.
    others: BTreeMap<String, (Duration, bool)>,
    /// The ability of this machine to send, reported by its sender.
    able: watch::Receiver<bool>,
    handover: Handover,
    /// The line is to be ended, so that the next process is fed and may send.
    gives_away: bool,
    /// Beats with each turn of the loop.
    pub pulse: Heartbeat,
    /// The offset of the clocks at the last check, to find jumps.
    offset: ClockOffset,
    /// The line in use; `None` between two.
    line: Option<Arc<LeaseLine>>,
    /// Lines that were lost or not had: the next one begins with the next node.
    turn: usize,
}

impl LeaseKeeper {
    /// A keeper for the queue `name` on this broker; leave goes to `permit`.
    pub fn new(mut login: Login, name: &str, terms: Terms, permit: Permit) -> Self {
        let lease = Lease {
            name: name.to_owned(),
            since: clock::now().wall.floor_seconds().get(),
            ..Lease::default()
        };
        login.broker.heartbeat = HEARTBEAT;
        login.within = login.within.min(ANSWER_WITHIN);
        Self {
            queue: LeaseQueue {
                login,
                name: name.to_owned(),
            },
            us: us(),
            terms,
            claim: Claim::new(terms),
            permit,
            shown: watch::channel(lease).0,
            others: BTreeMap::new(),
            able: watch::channel(true).1,
            handover: Handover::default(),
            gives_away: false,
            pulse: Heartbeat::new("the lease"),
            offset: clock::now().offset(),
            line: None,
            turn: 0,
        }
    }

    /// The same under this name, for people, in place of its machine's and process's.
    #[must_use]
    pub fn named(mut self, us: &str) -> Self {
        us.clone_into(&mut self.us);
        self
    }

    /// The same of a machine that reports by `able` whether it could send.
    #[must_use]
    pub fn able(mut self, able: watch::Receiver<bool>, patience: Patience) -> Self {
        (self.able, self.handover) = (able, Handover::new(patience));
        self
    }

    /// Returns a receiver of the lease's status, which is sent with each change.
    pub fn shown(&self) -> watch::Receiver<Lease> {
        self.shown.subscribe()
    }

    /// Tries everything that holding the lease needs, without taking anybody's turn.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = self.queue.open(0).await?;
        let tick = self.tick(TickId::random(), None).to_bytes();
        let tried = line.probe(&tick).await;
        line.close().await;
        tried
    }

    /// Keeps the lease until `shutdown`, when nothing is sent any more. Leave ends with it; slots
    /// that were left behind in the permit go to the next holder.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        info!(lease = %self.queue.name, "standing by for the lease");
        tokio::select! {
            () = self.keep() => {}
            () = shutdown => {}
        }
        let now = clock::now();
        self.permit.set(now, None);
        if let Some(line) = self.line.take() {
            if let (Some(ended), Some(turn)) =
                (self.permit.left_behind(), self.claim.turn(now.boot))
            {
                self.hand_on(&line, turn, &ended, now.boot).await;
            }
            line.close().await;
        }
    }

    /// Publishes a last tick, which shows that nothing is sent any more and hands on the slots that
    /// still count.
    async fn hand_on(&self, line: &LeaseLine, turn: TurnId, ended: &[Duration], now: Duration) {
        let slots = SlotAges::new(self.terms.window, ended, now);
        if slots.is_none() {
            return;
        }
        let last = Tick {
            able: false,
            slots,
            ..self.tick(TickId::random(), Some(turn))
        };
        match line.publish_confirmed(&last.to_bytes(), LAST_WITHIN).await {
            Ok(()) => info!(
                lease = %self.queue.name,
                slots = ended.len(),
                "the lease is handed on: whoever is next need not wait"
            ),
            Err(error) => warn!(
                lease = %self.queue.name,
                reason = %error,
                "the lease could not be handed on: whoever is next keeps silent first"
            ),
        }
    }

    /// Opens one line after the other, with a pause after each that was lost.
    async fn keep(&mut self) {
        let mut backoff = Backoff::new(AGAIN);
        loop {
            let since = Instant::now();
            let (queue, turn) = (self.queue.clone(), self.turn);
            let ended = match self.looking_while(queue.open(turn)).await {
                Err(error) => Some((error, Duration::ZERO)),
                Ok(line) => {
                    let line: &LeaseLine = &Arc::clone(self.line.insert(Arc::new(line)));
                    let ended = self.session(line).await;
                    ended.map(|error| (error, since.elapsed()))
                }
            };
            let line = self.line.take();
            let again = ended.map(|(error, up)| {
                self.lost(&error);
                self.turn += 1;
                Instant::now() + backoff.wait(up, chance())
            });
            self.looking_while(async {
                if let Some(line) = line {
                    line.close().await;
                }
                if let Some(again) = again {
                    sleep_until(again).await;
                }
            })
            .await;
        }
    }

    fn tick(&self, tick: TickId, turn: Option<TurnId>) -> Tick {
        Tick {
            tick,
            from: self.us.clone(),
            able: *self.able.borrow(),
            turn,
            slots: None,
        }
    }

    /// Goes on checking while something is waited for: leave that was proved may end meanwhile.
    async fn looking_while<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        let mut waiting = std::pin::pin!(waiting);
        loop {
            let wake = self.check();
            tokio::select! {
                done = &mut waiting => return done,
                () = sleep_until(wake) => {}
            }
        }
    }

    /// One line, until it ends: why; nothing where it is only to be opened anew.
    async fn session(&mut self, line: &LeaseLine) -> Option<Error> {
        let mut consumer = match line.consume().await {
            Ok(consumer) => consumer,
            Err(error) => return Some(error),
        };
        self.claim.channel_opened();
        let mut confirms: FuturesUnordered<PublisherConfirm> = FuturesUnordered::new();
        let mut ticks = interval(TICK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fed = Instant::now();
        self.gives_away = false;
        while fed.elapsed() < UNFED_MAX {
            let wake = self.check();
            if self.gives_away {
                return None;
            }
            let done = tokio::select! {
                delivery = consumer.next() => match delivery {
                    Some(Ok(delivery)) => {
                        fed = Instant::now();
                        let before = self.claim.is_offered();
                        let done = self.delivered(line, &delivery).await;
                        if !before && self.claim.is_offered() {
                            ticks.reset_immediately();
                        }
                        done
                    }
                    Some(Err(error)) => Err(Error::lost(error)),
                    None => Err(Error::lost("the broker ended the consumption")),
                },
                Some(confirmation) = confirms.next() => self.confirmed(line, confirmation),
                _ = ticks.tick() => match confirms.len() {
                    0..UNCONFIRMED_MAX => self.publish(line).await.map(|it| confirms.push(it)),
                    _ => Err(Error::lost("ticks are not confirmed")),
                },
                () = sleep_until(wake) => Ok(()),
            };
            if let Err(error) = done {
                return Some(error);
            }
        }
        None
    }

    async fn publish(&mut self, line: &LeaseLine) -> Result<PublisherConfirm, Error> {
        let id = TickId::random();
        // before the first byte leaves: leave is counted from here
        let turn = self.claim.publishing(clock::now().boot, id);
        line.publish(&self.tick(id, turn).to_bytes()).await
    }

    fn confirmed(
        &self,
        line: &LeaseLine,
        confirmation: Result<Confirmation, lapin::Error>,
    ) -> Result<(), Error> {
        line.confirmed(confirmation)?;
        self.shown.send_if_modified(|shown| {
            if shown.why.is_some() {
                info!(lease = %shown.name, "the queue of the lease can be used again");
            }
            shown.why.take().is_some()
        });
        Ok(())
    }

    async fn delivered(&mut self, line: &LeaseLine, delivery: &Delivery) -> Result<(), Error> {
        // before anything that waited in the line while the machine stood still counts
        self.check();
        let mut tick = Tick::read(&delivery.data);
        let now = clock::now().boot;
        let delivered = Delivered {
            tag: delivery.delivery_tag,
            tick: tick.as_ref().map(|it| it.tick),
            turn: tick.as_ref().and_then(|it| it.turn),
            slots: tick.as_mut().and_then(|it| it.slots.take()),
            redelivered: delivery.redelivered,
        };
        let is_last = delivered.slots.is_some();
        let receipt = self.claim.received(now, delivered);
        if let Some(ended) = receipt.inherited {
            info!(
                lease = %self.queue.name,
                slots = ended.len(),
                "the one before has handed the lease on, and what it has sent counts as ours"
            );
            self.permit.inherit(ended);
        }
        if let Some(round_trip) = receipt.round_trip {
            let round_trip = u64::try_from(round_trip.as_millis()).ok();
            self.shown
                .send_modify(|shown| shown.round_trip_ms = round_trip);
        } else if let Some(tick) = tick.filter(|it| it.from != self.us) {
            let is_known = self.others.contains_key(&tick.from);
            if is_last {
                self.others.remove(&tick.from);
            } else if is_known || self.others.len() < OTHERS_MAX {
                self.others.insert(tick.from, (now, tick.able));
            }
        }
        self.check();
        match receipt.ack_through {
            Some(tag) => line.acknowledge(tag).await,
            None => Ok(()),
        }
    }

    /// Gives or ends leave, updates the status, and returns the time of the next check.
    fn check(&mut self) -> Instant {
        self.pulse.beat();
        let now = clock::now();
        if self.offset.has_jumped(now.offset()) {
            self.claim.clock_jumped(now.boot);
        }
        self.offset = now.offset();
        self.claim.check(now.boot);
        self.others
            .retain(|_, (last, _)| now.boot < *last + OTHERS_FOR);
        self.handover.check(now.boot, *self.able.borrow());
        self.hand_over(now.boot);
        self.permit.set(now, self.claim.leave(now.boot));
        let phase = self.claim.phase(now.boot);
        let silent_until = self.claim.silent_until();
        let silent_until = silent_until.filter(|_| phase == LeasePhase::Silent);
        let silent_until = silent_until.map(|at| now.wall.plus(at.saturating_sub(now.boot)));
        let silent_until = silent_until.map(|at| at.floor_seconds().get());
        let others: Vec<String> = self.others.keys().cloned().collect();
        let unable_since = self.handover.unable_since(now.boot);
        let unable_since = unable_since.filter(|_| phase == LeasePhase::Holding);
        let unable_for = unable_since.map(|at| now.boot.saturating_sub(at));
        let able_standby = self.others.iter().find(|(_, (_, able))| *able);
        let able_standby = able_standby.filter(|_| unable_for.is_some());
        let able_standby = able_standby.map(|(name, _)| name.clone());
        self.shown.send_if_modified(|shown| {
            let before = shown.clone();
            shown.others = others;
            // reckoned once, for two clocks run apart
            let known = shown.unable_since;
            shown.unable_since = unable_for
                .map(|it| known.unwrap_or_else(|| now.wall.minus(it).floor_seconds().get()));
            shown.able_standby = able_standby;
            if shown.state != phase {
                shown.state = phase;
                shown.since = now.wall.floor_seconds().get();
                shown.silent_until = silent_until;
                log_change(shown, self.claim.silent_until(), now.boot);
            }
            *shown != before
        });
        let next = self.claim.next_change(now.boot);
        let wait = next.map_or(CHECK_EVERY, |at| {
            at.saturating_sub(now.boot).min(CHECK_EVERY)
        });
        Instant::now() + wait.max(Duration::from_millis(1))
    }

    /// Gives the turn away, where it is here, nothing can be sent from here, and another can.
    fn hand_over(&mut self, now: Duration) {
        let able = self.others.iter().find(|(_, (_, able))| *able);
        let is_ours = self.claim.phase(now) != LeasePhase::Standby;
        if is_ours && self.handover.is_due(now, able.is_some()) {
            let to = able.map(|(name, _)| name.as_str());
            warn!(
                lease = %self.queue.name,
                to,
                "nothing can be sent from here for two minutes, and another machine says that it \
                 could: the lease goes to it"
            );
            self.claim.give_away();
            self.gives_away = true;
        }
    }

    fn lost(&mut self, error: &Error) {
        let why = error.to_string();
        self.shown.send_if_modified(|shown| {
            let changed = shown.why.as_ref() != Some(&why);
            if changed {
                warn!(lease = %shown.name, reason = %why, "the queue of the lease cannot be used");
            }
            shown.why = Some(why);
            changed
        });
    }
}

/// The log's line of a change.
fn log_change(lease: &Lease, silent_until: Option<Duration>, now: Duration) {
    let name = &lease.name;
    match lease.state {
        LeasePhase::Standby => {
            warn!(lease = %name, "the lease is not ours any more: nothing is sent from here");
        }
        LeasePhase::Silent => {
            let seconds = silent_until.map_or(0, |at| at.saturating_sub(now).as_secs());
            info!(
                lease = %name,
                seconds,
                "the lease has come to us: silent until nothing of another can count any more"
            );
        }
        LeasePhase::Holding => info!(lease = %name, "the lease is ours: requests may be sent"),
    }
}

/// The name of this machine and process, for people.
fn us() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{host} ({})", std::process::id())
}
