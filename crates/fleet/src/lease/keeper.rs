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
use callbridge_source::{Backoff, Bounds, EventTime, amqp::Login, chance};
use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{PublisherConfirm, message::Delivery};
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
    /// The name of this machine and process, for people.
    pub us: String,
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
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        Self {
            queue: LeaseQueue {
                login,
                name: name.to_owned(),
            },
            us: format!("{host} ({})", std::process::id()),
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
        line.line.close().await;
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
            self.hand_on(&line, now.boot).await;
            line.line.close().await;
        }
    }

    /// Publishes a last tick, which shows that nothing is sent any more and hands on the slots that
    /// still count, if there is a turn to hand on.
    async fn hand_on(&self, line: &LeaseLine, now: Duration) {
        if let Some(ended) = self.permit.left_behind()
            && let Some(turn) = self.claim.turn(now)
            && let Some(slots) = SlotAges::new(self.terms.window, &ended, now)
        {
            let mut last = self.tick(TickId::random(), Some(turn));
            (last.able, last.slots) = (false, Some(slots));
            let (lease, slots) = (&self.queue.name, ended.len());
            match line.publish_confirmed(&last.to_bytes(), LAST_WITHIN).await {
                Ok(()) => {
                    info!(%lease, slots, "the lease is handed on: whoever is next need not wait");
                }
                Err(reason) => warn!(
                    %lease,
                    %reason,
                    "the lease could not be handed on: whoever is next keeps silent first"
                ),
            }
        }
    }

    /// Opens one line after the other, with a pause after each that was lost.
    async fn keep(&mut self) {
        let mut backoff = Backoff::new(AGAIN);
        loop {
            let since = Instant::now();
            let (queue, turn) = (self.queue.clone(), self.turn);
            let ended = match self.looking_while(queue.open(turn)).await {
                Err(error) => Err(error),
                Ok(line) => {
                    let line: &LeaseLine = &Arc::clone(self.line.insert(Arc::new(line)));
                    self.session(line).await
                }
            };
            let (line, mut again) = (self.line.take(), Instant::now());
            if let Err(error) = ended {
                self.lost(&error);
                self.turn += 1;
                let up = line.as_ref().map_or(Duration::ZERO, |_| since.elapsed());
                again += backoff.wait(up, chance());
            }
            self.looking_while(async {
                if let Some(line) = line {
                    line.line.close().await;
                }
                sleep_until(again).await;
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
    async fn session(&mut self, line: &LeaseLine) -> Result<(), Error> {
        let mut consumer = line.consume().await?;
        self.claim.channel_opened();
        let mut confirms: FuturesUnordered<PublisherConfirm> = FuturesUnordered::new();
        let mut ticks = interval(TICK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fed = Instant::now();
        self.gives_away = false;
        while fed.elapsed() < UNFED_MAX {
            let wake = self.check();
            if self.gives_away {
                break;
            }
            tokio::select! {
                delivery = consumer.next() => match delivery {
                    Some(Ok(delivery)) => {
                        fed = Instant::now();
                        let before = self.claim.is_offered();
                        self.delivered(line, &delivery).await?;
                        if !before && self.claim.is_offered() {
                            ticks.reset_immediately();
                        }
                    }
                    Some(Err(error)) => return Err(Error::lost(error)),
                    None => return Err(Error::lost("the broker ended the consumption")),
                },
                Some(confirmation) = confirms.next() => {
                    line.confirmed(confirmation)?;
                    self.works();
                }
                _ = ticks.tick() => match confirms.len() {
                    0..UNCONFIRMED_MAX => confirms.push(self.publish(line).await?),
                    _ => return Err(Error::lost("ticks are not confirmed")),
                },
                () = sleep_until(wake) => {}
            }
        }
        Ok(())
    }

    async fn publish(&mut self, line: &LeaseLine) -> Result<PublisherConfirm, Error> {
        let id = TickId::random();
        // before the first byte leaves: leave is counted from here
        let turn = self.claim.publishing(clock::now().boot, id);
        line.publish(&self.tick(id, turn).to_bytes()).await
    }

    /// The queue can be used: a tick was confirmed.
    fn works(&self) {
        self.shown.send_if_modified(|shown| {
            if shown.why.is_some() {
                info!(lease = %shown.name, "the queue of the lease can be used again");
            }
            shown.why.take().is_some()
        });
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
        let left = |at: Duration| at.saturating_sub(now.boot);
        let (silent_for, unable_for) = match phase {
            LeasePhase::Standby => (None, None),
            LeasePhase::Silent => (self.claim.silent_until.map(left), None),
            LeasePhase::Holding => (None, self.handover.unable_for(now.boot)),
        };
        self.shown.send_if_modified(|shown| {
            let before = shown.clone();
            let seconds = |at: EventTime| at.floor_seconds().get();
            shown.others = self.others.keys().cloned().collect();
            // reckoned once, for two clocks run apart
            let known = shown.unable_since;
            shown.unable_since =
                unable_for.map(|it| known.unwrap_or_else(|| seconds(now.wall.minus(it))));
            shown.able_standby = unable_for.and_then(|_| self.able_standby());
            if shown.state != phase {
                shown.state = phase;
                shown.since = seconds(now.wall);
                shown.silent_until = silent_for.map(|it| seconds(now.wall.plus(it)));
                log_change(shown, silent_for);
            }
            *shown != before
        });
        let next = self.claim.next_change(now.boot).map_or(CHECK_EVERY, left);
        Instant::now() + next.clamp(Duration::from_millis(1), CHECK_EVERY)
    }

    /// Another process that could send, by its last tick.
    fn able_standby(&self) -> Option<String> {
        let mut others = self.others.iter();
        let able = others.find(|(_, (_, able))| *able);
        able.map(|(name, _)| name.clone())
    }

    /// Gives the turn away, where it is here, nothing can be sent from here, and another can.
    fn hand_over(&mut self, now: Duration) {
        let to = self.able_standby();
        let is_ours = self.claim.phase(now) != LeasePhase::Standby;
        if is_ours && self.handover.is_due(now, to.is_some()) {
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
fn log_change(shown: &Lease, silent_for: Option<Duration>) {
    let lease = &shown.name;
    match shown.state {
        LeasePhase::Standby => {
            warn!(%lease, "the lease is not ours any more: nothing is sent from here");
        }
        LeasePhase::Silent => info!(
            %lease,
            seconds = silent_for.unwrap_or_default().as_secs(),
            "the lease has come to us: silent until nothing of another can count any more"
        ),
        LeasePhase::Holding => info!(%lease, "the lease is ours: requests may be sent"),
    }
}
