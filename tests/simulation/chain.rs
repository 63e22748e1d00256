//! The whole chain under the virtual clock: collectors, their spools, a stream, the intake that
//! reads it, and the sender's world behind it. Real cores, no socket.
//!
//! ```text
//! PBX ─▶ spool ─▶ message ─▶ stream ─▶ intake ─▶ spool ─▶ sender ─▶ CRM
//!        └── of each collector ──┘       └────── of the one sender ──────┘
//! ```
//! Each may die at each step; [`ChainPath`] lists the ways, each of which a run has to meet.

use crate::calls::{self, Dice};
use crate::disk::Disk;
use crate::strikes::{Blow, Moment, Trap};
use crate::way::TIME_OUT;
use crate::world::World;
use callbridge_call::EventTime;
use callbridge_forward::message;
use callbridge_intake::{Intake, Memory, Settings as IntakeSettings, SourceSettings};
use callbridge_mapping::journal::Rules;
use callbridge_mapping::people::People;
use callbridge_mapping::trunk::{Defaults, Trunks, parse};
use callbridge_model::CallUuid;
use callbridge_sandbox as sandbox;
use callbridge_sender::Settings;
use callbridge_source::url::SourceUrl;
use callbridge_source::{Frame, Position, Publisher, SourceId, StreamPosition};
use callbridge_spool::elsewhere::STREAM_BEGAN;
use callbridge_spool::{self as spool, Finished, Op, Row, Step, Store, tables};
use callbridge_testbed::expected;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const SOURCE: &str = "amqp://sender@mq1,mq2,mq3/calls?stream=calls&format=call";
const READ: SourceId = SourceId(0);
/// Messages that a sender has in hand at once.
const DELIVERED_MAX: usize = 100;
/// Of a hundred batches that are read so many times more meet a death than of other steps.
const READ_HARDER: u64 = 5;
/// A turn of the chain.
const TURN: Duration = Duration::from_secs(1);
/// How long a new holder of the lease keeps silent: the old permission, the request that left with
/// the last of it, and the window that this one fell into.
pub const SILENCE: Duration = Duration::from_secs(10 + TIME_OUT.as_secs() + 60);

/// What befalls one step of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChainPath {
    /// The collector died before its message reached the broker.
    PublishLost,
    /// It died when the broker had it, and no confirm had come.
    PublishKept,
    /// It died with the confirm, which was not written.
    ConfirmUnwritten,
    /// The line was lost with the confirm on it.
    ConfirmLost,
    /// No broker answered.
    BrokerAway,
    /// The same call was read a second time from the stream.
    ReadTwice,
    /// The sender died with messages that were delivered, nothing of them written.
    DeliveredUnwritten,
    /// It died while calls and offset were written: none is there.
    CommitLost,
    /// The same, and all are there.
    CommitKept,
    /// It died with a request that was chosen.
    SendChosen,
    /// It died when the request was written down, before it left.
    SendWritten,
    /// It died while requests were under way.
    UnderWay,
    /// It died with an answer that was not written.
    AnswerUnwritten,
    /// Its state was gone.
    StateLost,
    /// Its ticks ended, and the standby sends from a state of its own.
    TickEnded,
}

impl ChainPath {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::PublishLost,
        Self::PublishKept,
        Self::ConfirmUnwritten,
        Self::ConfirmLost,
        Self::BrokerAway,
        Self::ReadTwice,
        Self::DeliveredUnwritten,
        Self::CommitLost,
        Self::CommitKept,
        Self::SendChosen,
        Self::SendWritten,
        Self::UnderWay,
        Self::AnswerUnwritten,
        Self::StateLost,
        Self::TickEnded,
    ];

    const fn of(moment: Moment) -> Self {
        match moment {
            Moment::Chosen => Self::SendChosen,
            Moment::Writing | Moment::Committed | Moment::Started => Self::SendWritten,
            Moment::Answered => Self::AnswerUnwritten,
        }
    }
}

/// A collector: what its PBX tells, and what its disk holds. All else dies with it.
struct SimCollector {
    untold: VecDeque<Finished>,
    store: Store,
}

/// One that reads the stream into a state of its own.
struct StreamReader {
    intake: Intake,
    /// The next message.
    next: usize,
    seq: u64,
}

/// See the module.
pub struct Chain {
    pub world: World,
    reader: StreamReader,
    /// The state of who stands by, with its own reader.
    standby: (Disk, StreamReader),
    collectors: Vec<SimCollector>,
    /// Bodies of the stream's messages, by offset.
    stream: Vec<String>,
    /// Every call there was.
    pub calls: BTreeMap<String, Finished>,
    pub met: BTreeMap<ChainPath, u64>,
    dice: Dice,
    broker_away: u32,
    lives: u32,
}

impl Chain {
    /// So many collectors, whose PBXs have so many calls to tell of, all at once.
    pub fn new(seed: u64, collectors: u32, calls: u32) -> Self {
        let mut world = World::new(seed, Settings::default(), sandbox::Settings::default());
        // Something is under way at most moments.
        world.network.delay = Duration::from_millis(300);
        world.network.jitter = Duration::from_millis(1_500);
        let now = world.now.wall;
        let mut chain = Self {
            reader: StreamReader::begin(&world.disk, now),
            standby: (fresh(), StreamReader::begin(&fresh(), now)),
            lives: world.lives,
            world,
            collectors: Vec::new(),
            stream: Vec::new(),
            calls: BTreeMap::new(),
            met: BTreeMap::new(),
            dice: Dice::new(seed ^ 0x5eed),
            broker_away: 0,
        };
        for n in 0..collectors {
            let told = (n..calls).step_by(usize::try_from(collectors).expect("few"));
            let untold = told.map(|call| chain.call(call, n, now)).collect();
            let store = Store::in_memory(spool::Settings::default()).expect("a store");
            chain.collectors.push(SimCollector { untold, store });
        }
        chain
    }

    fn call(&mut self, n: u32, collector: u32, now: EventTime) -> Finished {
        let mut call = calls::call(n, now, 4_001 + i64::from(n % 900), false);
        let record = &mut call.judged.record;
        record.pbx = format!("site-{collector}");
        let uuid = expected::uuid(&record.pbx, &record.linkedid);
        record.uuid = Some(CallUuid(uuid.parse().expect("a uuid")));
        let before = self.calls.insert(uuid, call.clone());
        assert!(before.is_none(), "no two calls share a uuid");
        call
    }

    fn meet(&mut self, path: ChainPath) {
        *self.met.entry(path).or_default() += 1;
    }

    /// A second of everybody's life, in which things happen with a chance of `percent`.
    pub fn turn(&mut self, percent: u64) {
        if percent > 0 && self.dice.chance(2) {
            self.broker_away = 3;
            self.meet(ChainPath::BrokerAway);
        }
        self.broker_away = self.broker_away.saturating_sub(1);
        if self.broker_away == 0 {
            self.collect(percent);
            self.follow();
            self.read(percent);
        }
        self.set_trap(percent);
        let trap = self.world.trap;
        self.world.run_for(TURN);
        if let (Some(trap), None) = (trap, self.world.trap) {
            self.meet(ChainPath::of(trap.at));
        }
        self.restarted();
        if self.dice.chance(percent) && self.world.is_under_way() {
            let down = Duration::from_secs(1 + self.dice.below(20));
            self.die(ChainPath::UnderWay, down);
        }
    }

    /// Every collector that has something publishes it.
    fn collect(&mut self, percent: u64) {
        for n in 0..self.collectors.len() {
            let at = self.world.now.wall;
            let collector = &mut self.collectors[n];
            if collector.is_done() {
                continue;
            }
            let told = collector.untold.pop_front();
            let told = told.map(|call| Op::Finish(Box::new(call)));
            if let Some(op) = told {
                collector.store.write(vec![op]).expect("written");
            }
            let ready = tables::calls::ready(&collector.store, 500).expect("readable");
            for row in ready {
                let step = Step::Forwarded;
                if self.publish(&row, percent) {
                    let op = Op::Step {
                        row: row.id,
                        step,
                        at,
                    };
                    self.collectors[n].store.write(vec![op]).expect("written");
                }
            }
        }
    }

    /// Whether the call's confirm is on the disk at the end.
    fn publish(&mut self, row: &Row, percent: u64) -> bool {
        let death = self.dice.chance(percent).then(|| self.dice.below(4));
        if death == Some(0) {
            self.meet(ChainPath::PublishLost);
            return false;
        }
        self.stream.push(message::body(row));
        match death {
            Some(1) => self.meet(ChainPath::PublishKept),
            Some(2) => self.meet(ChainPath::ConfirmUnwritten),
            Some(_) => self.meet(ChainPath::ConfirmLost),
            None => return true,
        }
        false
    }

    /// Who sends takes messages in.
    fn read(&mut self, percent: u64) {
        let now = self.world.now.wall;
        let Some(ops) = self.reader.hear(&self.stream, now) else {
            return;
        };
        let repeats = self.world.disk.store.books().finished;
        let told = ops.iter().filter(|op| matches!(op, Op::Finish(_))).count();
        let down = Duration::from_secs(1 + self.dice.below(20));
        match self
            .dice
            .chance(percent * READ_HARDER)
            .then(|| self.dice.below(3))
        {
            Some(0) => self.die(ChainPath::DeliveredUnwritten, down),
            Some(1) => self.die(ChainPath::CommitLost, down),
            Some(_) => {
                self.world.write(ops).expect("written");
                self.die(ChainPath::CommitKept, down);
            }
            None => {
                self.world.write(ops).expect("written");
                self.reader.intake.committed();
                let new = self.world.disk.store.books().finished - repeats;
                if new < u64::try_from(told).expect("few") {
                    self.meet(ChainPath::ReadTwice);
                }
            }
        }
    }

    /// Who stands by takes the same messages into a state of its own.
    fn follow(&mut self) {
        let now = self.world.now.wall;
        let (disk, reader) = &mut self.standby;
        if let Some(ops) = reader.hear(&self.stream, now) {
            disk.write(ops, &mut self.world.met).expect("written");
            reader.intake.committed();
        }
    }

    fn die(&mut self, path: ChainPath, down: Duration) {
        self.meet(path);
        self.world.kill(down, false);
        self.restarted();
    }

    fn set_trap(&mut self, percent: u64) {
        if self.world.trap.is_none() && self.dice.chance(percent) {
            let at = [
                Moment::Chosen,
                Moment::Writing,
                Moment::Committed,
                Moment::Answered,
            ];
            let at = *self.dice.pick(&at);
            let blow = Blow::Kill(Duration::from_secs(1 + self.dice.below(20)));
            self.world.trap = Some(Trap { at, blow });
        }
    }

    /// A new life of the sender reads on from the offset that its disk holds.
    fn restarted(&mut self) {
        if self.world.lives != self.lives {
            self.lives = self.world.lives;
            self.reader = StreamReader::begin(&self.world.disk, self.world.now.wall);
        }
    }

    /// The sender's machine is gone with its disk; another begins from nothing.
    pub fn lose_state(&mut self) {
        self.meet(ChainPath::StateLost);
        self.world.lose_state(Duration::from_secs(5), fresh());
        self.restarted();
    }

    /// The holder's ticks end; who stands by sends after this silence.
    pub fn take_over(&mut self, silence: Duration) {
        self.meet(ChainPath::TickEnded);
        self.world.take_over(&mut self.standby.0, silence);
        let now = self.world.now.wall;
        self.standby.1 = StreamReader::begin(&self.standby.0, now);
        self.restarted();
    }

    /// Nothing is under way anywhere.
    pub fn is_drained(&self) -> bool {
        let all = u64::try_from(self.calls.len()).expect("few");
        let told = self.collectors.iter().all(SimCollector::is_done);
        let books = self.world.disk.store.books();
        told && books.journaled >= all && books.settled()
    }

    /// The books of each collector.
    pub fn assert_collectors_balance(&self) {
        for collector in &self.collectors {
            let books = collector.store.books();
            assert!(
                books.balance() && books.dead + books.parked == 0,
                "{books:?}"
            );
        }
    }
}

/// The state of a sender that has begun to read the stream, and sent nothing yet.
fn fresh() -> Disk {
    let mut disk = Disk::new();
    let began = Op::Meta {
        key: format!("{STREAM_BEGAN}{SOURCE}"),
        value: "0".to_owned(),
    };
    disk.store.write(vec![began]).expect("written");
    disk
}

impl SimCollector {
    /// All that its PBX had to tell is forwarded.
    fn is_done(&self) -> bool {
        let books = self.store.books();
        self.untold.is_empty() && books.forwarded == books.finished
    }
}

impl StreamReader {
    /// As the daemon starts it: with what the disk holds.
    fn begin(disk: &Disk, now: EventTime) -> Self {
        let trunk = parse("city=,country=UZ", &Defaults::default()).expect("a trunk");
        let settings = IntakeSettings {
            settle: Duration::from_millis(500),
            cdr_wait: Duration::from_secs(10),
            max_call: Duration::from_secs(3_600),
            max_open_calls: 100,
            zone: None,
            cel_columns: None,
            clock_right_from: EventTime::from_seconds(1_700_000_000),
            rules: Rules {
                trunks: Trunks::new(vec![trunk]).expect("trunks"),
                ..Rules::default()
            },
        };
        let url = SourceUrl::parse(SOURCE).expect("a URL");
        let source = SourceSettings::new(&url, String::new(), false);
        let kept = tables::positions::position(&disk.store, &source.shown).expect("readable");
        let next = kept.map_or(0, |json| match serde_json::from_value(json) {
            Ok(Position::Stream(place)) => usize::try_from(place.offset).expect("few") + 1,
            other => panic!("no place of a stream: {other:?}"),
        });
        let owners = callbridge_intake::whole_calls::OWNER_PREFIX;
        let owners = tables::meta::meta_below(&disk.store, owners).expect("readable");
        let memory = Memory {
            owners,
            ..Memory::default()
        };
        let mut intake = Intake::new(settings, vec![source], memory).expect("no conflict");
        intake.tick(now);
        intake.up(READ, now);
        Self {
            intake,
            next,
            seq: 0,
        }
    }

    /// Takes what is delivered; one transaction, where there is anything.
    fn hear(&mut self, stream: &[String], now: EventTime) -> Option<Vec<Op>> {
        let delivered = stream
            .iter()
            .enumerate()
            .skip(self.next)
            .take(DELIVERED_MAX);
        let mut last = None;
        self.intake.tick(now);
        for (offset, body) in delivered {
            self.seq += 1;
            let frame = Frame {
                seq: self.seq,
                arrived: now,
                bytes: body.clone().into(),
                position: Some(Position::Stream(StreamPosition {
                    stream: "calls".into(),
                    offset: u64::try_from(offset).expect("few"),
                })),
                publisher: Some(Box::new(Publisher {
                    user: Some("collector".into()),
                    content_type: None,
                    is_own: false,
                })),
            };
            let heard = self.intake.frame(READ, &frame, &mut |_, _| None);
            heard.expect("no conflict");
            last = Some(offset);
        }
        self.next = last? + 1;
        Some(self.intake.take(&People::default(), now).ops)
    }
}
