//! A PBX's finished calls, the spool, the sender, a network and the CRM, under one virtual clock.

use crate::calls;
use callbridge::clock::Now;
use callbridge::crm::{Address, Answer, Heard, Request, read};
use callbridge::sandbox::{self, Delivery, Kind, Sandbox};
use callbridge::sender::core::Core;
use callbridge::sender::plan::{Decision, Known, Launch, Plan, Settings};
use callbridge::sender::status::SenderStatus;
use callbridge::spool::{self, Op, Store, TokenPrint};
use callbridge_call::EventTime;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The client's own limit of one exchange.
const TIME_OUT: Duration = Duration::from_secs(30);

/// How the way to the CRM is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network {
    /// Nobody answers the door.
    pub refuses: bool,
    /// Bytes vanish.
    pub silent: bool,
    /// The least that each way takes.
    pub delay: Duration,
    /// Up to so much more.
    pub jitter: Duration,
}

/// The two worst moments for a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The slot and the step are committed, the request is not sent.
    BeforeSending,
    /// The answer came, what it means is not committed.
    BeforeCommit,
}

/// What happens next on the way.
#[derive(Debug)]
enum Event {
    /// A request reaches the CRM; its number.
    Arrives(u64, sandbox::Request),
    /// An answer, or the end of waiting, reaches the sender.
    Answered(u64, Heard),
}

/// A request whose answer the sender waits for.
#[derive(Debug)]
struct Waits {
    slot: u32,
    request: Request,
    until: Duration,
}

/// Everything, at one moment.
pub struct World {
    pub now: Now,
    pub store: Store,
    pub core: Core,
    pub sandbox: Sandbox,
    pub network: Network,
    pub token: String,
    /// When requests arrived at the CRM.
    pub arrivals: Vec<EventTime>,
    /// When requests left, with what they were.
    pub sent: Vec<(EventTime, &'static str)>,
    /// Every verdict there was, over all restarts.
    pub verdicts: BTreeSet<&'static str>,
    /// What happened, as a number: two runs of a seed must have the same.
    pub hash: u64,
    pub dice: calls::Dice,
    /// Submissions with this in their body are answered 500.
    pub poison: Option<&'static str>,
    /// Where the process is killed next.
    pub trap: Option<Trap>,
    settings: Settings,
    boot_id: u32,
    numbered: u64,
    events: BTreeMap<(Duration, u64), Event>,
    waits: BTreeMap<u64, Waits>,
    address: Address,
}

impl World {
    /// A fresh state and a CRM with one token.
    pub fn new(seed: u64, settings: Settings, sandbox: sandbox::Settings) -> Self {
        let now = Now {
            wall: calls::epoch(),
            boot: Duration::from_secs(1000),
        };
        let mut sandbox = Sandbox::new(sandbox);
        let token = "svc_pat_one".to_owned();
        sandbox.issue_pat(now.wall, &token, None);
        let store = Store::in_memory(spool::Settings::default()).expect("a store in memory");
        let (core, _) = Core::start(settings.clone(), Known::default(), now);
        let mut world = Self {
            now,
            store,
            core,
            sandbox,
            network: Network {
                delay: Duration::from_millis(20),
                ..Network::default()
            },
            token,
            arrivals: Vec::new(),
            sent: Vec::new(),
            verdicts: BTreeSet::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            dice: calls::Dice::new(seed),
            poison: None,
            trap: None,
            settings,
            boot_id: 1,
            numbered: 0,
            events: BTreeMap::new(),
            waits: BTreeMap::new(),
            address: Address::parse("http://127.0.0.1:1").expect("loopback"),
        };
        world.start();
        world
    }

    /// A call finishes.
    pub fn finish(&mut self, call: spool::Finished) {
        self.write(vec![Op::Finish(Box::new(call))]);
    }

    /// Stores, and checks the books.
    pub fn write(&mut self, ops: Vec<Op>) {
        if !ops.is_empty() {
            self.store.write(ops).expect("the store takes it");
        }
        let books = self.store.books();
        assert!(books.balance(), "books: {books:?}");
    }

    /// Runs until `until`, or until nothing is left to happen.
    pub fn run(&mut self, until: EventTime) {
        while self.now.wall < until {
            if !self.step(until) {
                break;
            }
        }
    }

    /// Runs for this long.
    pub fn run_for(&mut self, time: Duration) {
        self.run(self.now.wall.plus(time));
    }

    /// What the sender shows.
    pub fn status(&self) -> SenderStatus {
        let head = self.store.head(&self.core.ask(self.now)).expect("a head");
        self.core.status(self.now, &head)
    }

    /// The process is killed, and started again after `down`; with `reboot` the machine is.
    pub fn kill(&mut self, down: Duration, reboot: bool) {
        self.note("kill", u64::from(reboot));
        self.waits.clear();
        // what left before may still arrive, but nothing that comes 5 s later
        let closed = self.now.boot + Duration::from_secs(5);
        self.events.retain(|(at, _), event| match event {
            Event::Arrives(..) => *at < closed,
            Event::Answered(..) => false,
        });
        self.deliver_until(self.now.boot + down);
        if reboot {
            self.deliver_until(self.now.boot + Duration::from_secs(10));
            self.boot_id += 1;
            self.now.boot = Duration::from_secs(5);
            assert!(self.events.is_empty(), "stragglers of another boot");
        }
        self.start();
    }

    /// Starts the sender on what is stored.
    fn start(&mut self) {
        let boot_id = format!("boot-{}", self.boot_id);
        let known = Known::read(&self.store, Some(boot_id)).expect("readable");
        let (core, ops) = Core::start(self.settings.clone(), known, self.now);
        self.core = core;
        self.write(ops);
        let sending = self.store.sending().expect("rows");
        self.write(self.core.interrupted(&sending, self.now));
        self.use_token();
    }

    /// The sender takes up the token that is there.
    pub fn use_token(&mut self) {
        self.core.token(Some(TokenPrint::of(&self.token)));
    }

    /// One decision, or one event; `false` when nothing is left before `until`.
    fn step(&mut self, until: EventTime) -> bool {
        let head = self.store.head(&self.core.ask(self.now)).expect("a head");
        let wait = match self.core.next(self.now, &head) {
            Decision::Send(plan) => {
                self.send(plan);
                return true;
            }
            Decision::Revive(call) => {
                self.write(self.core.revive(&call, self.now));
                return true;
            }
            Decision::WaitUntil(at) => Some(at),
            Decision::Idle => None,
        };
        let limit = self.now.boot + until.since(self.now.wall);
        let event = self.events.keys().next().map(|(at, _)| *at);
        let next = [wait, event].into_iter().flatten().min();
        let moment = next.unwrap_or(limit).min(limit);
        assert!(
            moment > self.now.boot || event == Some(moment),
            "no progress"
        );
        self.deliver_until(moment);
        next.is_some_and(|at| at <= limit)
    }

    fn send(&mut self, plan: Plan) {
        let slot = plan.slot;
        let about = plan
            .task
            .about(&self.store, &self.core.ask(self.now))
            .expect("readable");
        let (request, ops) = match self.core.launch(self.now, plan, about) {
            Launch::Go { request, ops } => (request, ops),
            Launch::Not { ops } => return self.write(ops),
        };
        self.write(ops);
        if self.trap == Some(Trap::BeforeSending) {
            self.trap = None;
            return self.kill(Duration::from_secs(1), false);
        }
        self.note(request.endpoint().word(), u64::from(slot));
        self.sent.push((self.now.wall, request.endpoint().word()));
        self.numbered += 1;
        let number = self.numbered;
        let until = self.now.boot + TIME_OUT;
        if self.network.refuses {
            let why = "connection refused".to_owned();
            self.answer_at(self.now.boot, number, silent(Answer::NotConnected { why }));
        } else if self.network.silent {
            self.answer_at(until, number, silent(Answer::TimedOut));
        } else {
            let asked = to_sandbox(&request, &self.address, &self.token);
            let at = self.now.boot + self.way();
            self.events
                .insert((at, number), Event::Arrives(number, asked));
        }
        self.waits.insert(
            number,
            Waits {
                slot,
                request,
                until,
            },
        );
    }

    /// Lets everything happen that happens before or at `moment`, and goes there.
    fn deliver_until(&mut self, moment: Duration) {
        while let Some(entry) = self.events.first_entry() {
            let (at, _) = *entry.key();
            if at > moment {
                break;
            }
            let event = entry.remove();
            self.go_to(at.max(self.now.boot));
            match event {
                Event::Arrives(number, request) => self.arrive(number, &request),
                Event::Answered(number, heard) => {
                    self.events
                        .retain(|_, event| !matches!(event, Event::Answered(n, _) if *n == number));
                    self.answered(number, heard);
                }
            }
        }
        self.go_to(moment.max(self.now.boot));
    }

    fn go_to(&mut self, boot: Duration) {
        let wall = self.now.wall.plus(boot - self.now.boot);
        self.now = Now { wall, boot };
    }

    fn arrive(&mut self, number: u64, request: &sandbox::Request) {
        self.arrivals.push(self.now.wall);
        let mut response = self.sandbox.handle(self.now.wall, request);
        let body = String::from_utf8_lossy(&request.body);
        if self.poison.is_some_and(|poison| body.contains(poison)) {
            response.status = 500;
        }
        let back = self.way();
        let Some(waits) = self.waits.get(&number) else {
            return; // killed meanwhile
        };
        let endpoint = waits.request.endpoint();
        let late = match response.delivery {
            Delivery::Now => Some(Duration::ZERO),
            Delivery::After(time) | Delivery::Slow(time) => Some(time),
            Delivery::Lost => None,
        };
        let at = self.now.boot + back + late.unwrap_or_default();
        let heard = match late {
            Some(_) => read(endpoint, response.status, &response.body),
            None => silent(Answer::Lost {
                why: "closed".to_owned(),
            }),
        };
        let (at, heard) = if at < waits.until {
            (at, heard)
        } else {
            (waits.until, silent(Answer::TimedOut))
        };
        self.answer_at(at, number, heard);
    }

    fn answer_at(&mut self, at: Duration, number: u64, heard: Heard) {
        self.events
            .insert((at, u64::MAX - number), Event::Answered(number, heard));
    }

    fn answered(&mut self, number: u64, heard: Heard) {
        let waits = self.waits.remove(&number).expect("a request under way");
        let outcome = self
            .core
            .answered(self.now, waits.slot, heard)
            .expect("its slot");
        self.note(outcome.verdict, number);
        self.verdicts.insert(outcome.verdict);
        self.write(outcome.ops);
    }

    fn way(&mut self) -> Duration {
        let Network { delay, jitter, .. } = self.network;
        delay + jitter * u32::try_from(self.dice.below(1000)).unwrap_or(0) / 1000
    }

    /// Adds what happened to the hash.
    fn note(&mut self, word: &str, number: u64) {
        let micros = self.now.wall.micros().to_le_bytes();
        for byte in word.bytes().chain(number.to_le_bytes()).chain(micros) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// No window, wherever it opens, held more arrivals than the limit, and the CRM saw nothing
    /// that the document forbids but for `but`.
    pub fn assert_never_wrong(&self, but: &[Kind]) {
        let (limit, window) = (self.settings.rate.limit(), self.settings.rate.window());
        let limit = usize::try_from(limit).expect("small");
        for (first, opened) in self.arrivals.iter().enumerate() {
            if let Some(over) = self.arrivals.get(first + limit) {
                let apart = over.since(*opened);
                assert!(apart >= window, "{} arrivals within {apart:?}", limit + 1);
            }
        }
        let breaches = self.sandbox.breaches();
        let wrong: Vec<_> = breaches
            .all()
            .iter()
            .filter(|breach| !but.contains(&breach.kind))
            .collect();
        assert!(wrong.is_empty(), "breaches: {wrong:#?}");
        assert_eq!(
            self.store.recount().expect("readable").wrong,
            [],
            "books and rows differ"
        );
    }
}

fn silent(answer: Answer) -> Heard {
    Heard {
        answer,
        expiry: None,
    }
}

/// The bytes as the client sends them.
fn to_sandbox(request: &Request, address: &Address, token: &str) -> sandbox::Request {
    let url = request.url(address);
    let asked = match request.body() {
        Some(body) => sandbox::Request::post(url.path(), &body),
        None => sandbox::Request::get(url.path()),
    };
    asked.with_token(token)
}
