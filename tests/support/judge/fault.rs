//! What the way to the CRM does to requests and answers, and how often.

use super::seen::Purpose;
use std::collections::BTreeMap;
use std::time::Duration;

/// What happens to one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Not passed on; this status with the service's envelope.
    Status(u16),
    /// Not passed on; a proxy's page with this status.
    Page(u16),
    /// Passed on; then this status all the same.
    StatusAfter(u16),
    /// Reset, not passed on.
    Reset,
    /// Passed on, then reset without an answer.
    Lost,
    /// Reset, and passed on a while later all the same.
    Straggler(Duration),
    /// Passed on, answered later.
    Late(Duration),
    /// Passed on; the answer comes in small pieces.
    Drip(Duration),
    /// Passed on; the connection ends in the middle of the answer.
    Cut,
    /// Passed on; the answer has its length, and a part of it is no JSON any more.
    Garbled,
    /// Passed on; 200 with an empty body.
    Empty,
    /// Passed on; 200 without its requestId. Submissions alone.
    NoRequestId,
    /// Not passed on; 200 that does not accept. Submissions alone.
    NotAccepted,
    /// Not passed on; sent to another host.
    Redirect,
    /// Not passed on; 200 with the first half of a body that something in between began.
    Torn,
    /// Not passed on; no answer for so long, and then the connection ends.
    Hang(Duration),
}

/// The faults of bad weather. None takes longer than what a person would wait for.
pub const WEATHER: [Fault; 17] = [
    Fault::Status(500),
    Fault::Status(503),
    Fault::Page(502),
    Fault::Page(504),
    Fault::StatusAfter(500),
    Fault::Reset,
    Fault::Lost,
    Fault::Lost,
    Fault::Straggler(Duration::from_millis(700)),
    Fault::Late(Duration::from_millis(400)),
    Fault::Late(Duration::from_secs(2)),
    Fault::Drip(Duration::from_millis(300)),
    Fault::Cut,
    Fault::Garbled,
    Fault::Empty,
    Fault::NoRequestId,
    Fault::NotAccepted,
];

/// What a token endpoint may do that says nothing of the refresh token. None of it reaches the
/// service: an answer to a refresh that was done is the only one there will ever be (§5.6.6), and
/// whoever loses that needs a new consent.
pub const TOKEN_TROUBLE: [Fault; 9] = [
    Fault::Status(500),
    Fault::Status(503),
    Fault::Page(400),
    Fault::Page(401),
    Fault::Page(429),
    Fault::Page(502),
    Fault::Reset,
    Fault::Torn,
    Fault::Hang(Duration::from_secs(3)),
];

/// Small pseudo-random numbers (splitmix64): the same seed, the same weather.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to `end`, without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end.max(1)
    }
}

/// Which faults strike now.
#[derive(Clone, Debug)]
pub struct Weather {
    dice: Dice,
    /// Of a hundred requests so many are struck.
    percent: u64,
    kinds: Vec<Fault>,
    /// Of the token endpoint, each in its turn; none while it is well.
    token: Vec<Fault>,
    /// How often each struck.
    pub struck: BTreeMap<Fault, u64>,
}

impl Weather {
    pub fn fair(seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            percent: 0,
            kinds: Vec::new(),
            token: Vec::new(),
            struck: BTreeMap::new(),
        }
    }

    pub fn set(&mut self, percent: u64, kinds: &[Fault]) {
        self.percent = percent;
        self.kinds = kinds.to_vec();
    }

    /// The token endpoint does these from now on, one after the other.
    pub fn set_token(&mut self, kinds: &[Fault]) {
        self.token = kinds.to_vec();
    }

    /// What happens to the next request.
    pub fn strike(&mut self, purpose: Purpose) -> Option<Fault> {
        if purpose == Purpose::Exchange {
            let fault = *self.token.first()?;
            self.token.rotate_left(1);
            *self.struck.entry(fault).or_default() += 1;
            return Some(fault);
        }
        let struck = self.dice.below(100) < self.percent;
        let which = self.dice.below(self.kinds.len() as u64);
        let fault = *self.kinds.get(usize::try_from(which).ok()?)?;
        let for_submissions = matches!(fault, Fault::NoRequestId | Fault::NotAccepted);
        if !struck || (for_submissions && purpose != Purpose::Submit) {
            return None;
        }
        *self.struck.entry(fault).or_default() += 1;
        Some(fault)
    }
}
