//! Who publishes as a thousand PBXs, and is never tired of it: what has no confirm is published
//! again, at the next broker.

use crate::cluster::{COLLECTOR, connect};
use crate::company::LEADS;
use crate::expected;
use crate::ledger::{GivenCall, Ledger};
use crate::line::Cabling;
use crate::random::SeededRandom;
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use serde_json::json;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Calls under way at once.
const BATCH: usize = 100;
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// For a login, and for the confirms of a batch.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// So many calls in a hundred are published twice, as after a lost confirm.
const TWICE: u64 = 2;

/// Calls of one company that are given in so much time, by PBXs of their own.
pub struct StreamDriver {
    pub company: usize,
    stream: String,
    pbxs: u64,
    planned: u64,
    within: Duration,
    lines: Arc<Cabling>,
    ledger: Arc<Ledger>,
    /// Given at once, beside the plan.
    hurried: AtomicU64,
    paused: AtomicBool,
    made: AtomicU64,
    confirmed: AtomicU64,
}

struct Published {
    uuid: String,
    body: String,
}

impl StreamDriver {
    /// Gives `planned` calls of `pbxs` PBXs `within` this time.
    pub fn new(
        (company, stream): (usize, String),
        (pbxs, planned): (u64, u64),
        within: Duration,
        lines: Arc<Cabling>,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            company,
            stream,
            pbxs,
            planned,
            within,
            lines,
            ledger,
            hurried: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            made: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
        }
    }

    /// So many more calls at once.
    pub fn hurry(&self, calls: u64) {
        self.hurried.fetch_add(calls, Ordering::Relaxed);
    }

    /// Gives no more calls, whatever is due, or gives them again.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Calls that were given so far.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Those that a broker has confirmed.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// Everything that it will ever give is confirmed.
    pub fn is_done(&self) -> bool {
        let all = self.planned + self.hurried.load(Ordering::Relaxed);
        self.confirmed() >= all
    }

    /// Publishes until it is dropped.
    pub async fn run(&self, seed: u64) {
        let mut random = SeededRandom::new(seed);
        let begun = Instant::now();
        let mut waiting = VecDeque::new();
        let mut line: Option<(Connection, Channel)> = None;
        let mut node = self.company;
        let mut looks = interval(CHECK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let share = begun.elapsed().as_secs_f64() / self.within.as_secs_f64();
            let due = (self.planned as f64 * share.min(1.0)) as u64;
            let due = due + self.hurried.load(Ordering::Relaxed);
            while self.made() < due && !self.paused.load(Ordering::Relaxed) {
                waiting.push_back(self.make(&mut random));
            }
            if waiting.is_empty() {
                continue;
            }
            if line.is_none() {
                line = open(self.lines.addr(node)).await;
            }
            let Some((_, channel)) = &line else {
                node += 1;
                continue;
            };
            if !self.publish(channel, &mut waiting, &mut random).await {
                line = None;
                node += 1;
            }
        }
    }

    /// A call that was over just now.
    fn make(&self, random: &mut SeededRandom) -> Published {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let pbx = format!("site-{}-{}", self.company, n % self.pbxs);
        let duration = 3 + i64::try_from(random.below(300)).expect("small");
        let answered = random.below(3) > 0;
        let call = GivenCall {
            company: self.company,
            lead: 4_001 + i64::try_from(random.below(LEADS as u64)).expect("small"),
            started_at: crate::calls::now() - duration,
            answered,
            duration,
            talk: if answered { duration - 2 } else { 0 },
        };
        let id = format!("{}.{n}", call.started_at);
        let talk = answered.then_some(call.talk);
        let body = json!({
            "pbx": pbx, "id": id, "direction": "INBOUND", "phone": "+998901110001",
            "startedAt": call.started_at, "durationSec": duration, "answered": answered,
            "talkSec": talk, "leadId": call.lead,
        });
        let uuid = expected::uuid(&pbx, &id);
        self.ledger.give(uuid.clone(), call);
        Published {
            uuid,
            body: body.to_string(),
        }
    }

    /// Publishes the first of those that wait; false when the line is no good. What was confirmed
    /// until then is over: a cluster that was cut may keep the last confirms for long.
    async fn publish(
        &self,
        channel: &Channel,
        waiting: &mut VecDeque<Published>,
        random: &mut SeededRandom,
    ) -> bool {
        let batch = waiting.len().min(BATCH);
        let taken = AtomicUsize::new(0);
        let publishing = async {
            let mut confirms = Vec::new();
            for call in waiting.iter().take(batch) {
                if random.below(100) < TWICE {
                    self.send(channel, call).await?;
                }
                confirms.push(self.send(channel, call).await?);
            }
            for confirm in confirms {
                if !matches!(confirm.await?, Confirmation::Ack(None)) {
                    break;
                }
                taken.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), lapin::Error>(())
        };
        let _ = timeout(ANSWERS_WITHIN, publishing).await;
        let taken = taken.into_inner();
        waiting.drain(..taken);
        let confirmed = u64::try_from(taken).expect("few");
        self.confirmed.fetch_add(confirmed, Ordering::Relaxed);
        taken == batch
    }

    async fn send(
        &self,
        channel: &Channel,
        call: &Published,
    ) -> Result<lapin::PublisherConfirm, lapin::Error> {
        let properties = BasicProperties::default()
            .with_content_type("application/vnd.callbridge.call+json; version=1".into())
            .with_message_id(call.uuid.as_str().into())
            .with_user_id(COLLECTOR.into())
            .with_delivery_mode(2);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let (exchange, key) = ("".into(), self.stream.as_str().into());
        let sent = channel.basic_publish(exchange, key, options, call.body.as_bytes(), properties);
        sent.await
    }
}

async fn open(addr: SocketAddr) -> Option<(Connection, Channel)> {
    timeout(ANSWERS_WITHIN, connect(addr, COLLECTOR))
        .await
        .ok()?
        .ok()
}
