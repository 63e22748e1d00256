//! The faults between callbridge and the CRM, and how often they strike.

use super::seen::Purpose;
use std::collections::BTreeMap;
use std::time::Duration;

/// A fault that strikes one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The CRM does not get the request. The answer has this status and the CRM's envelope.
    Status(u16),
    /// The CRM does not get the request. The answer is a proxy's page with this status.
    Page(u16),
    /// The CRM gets the request, but the answer has this status.
    StatusAfter(u16),
    /// The connection is reset. The CRM does not get the request.
    Reset,
    /// The CRM gets the request. The connection is reset without an answer.
    Lost,
    /// The connection is reset. The CRM gets the request after this time.
    Straggler(Duration),
    /// The CRM gets the request. The answer is delayed.
    Late(Duration),
    /// The CRM gets the request. The answer comes in small pieces.
    Drip(Duration),
    /// The CRM gets the request. The connection ends in the middle of the answer.
    Cut,
    /// The CRM gets the request. The answer has the right length, but is not valid JSON.
    Garbled,
    /// The CRM gets the request. The answer is 200 with an empty body.
    Empty,
    /// The CRM gets the request. The answer is 200 without its requestId. Only for submissions.
    NoRequestId,
    /// The CRM does not get the request. The answer is 200 and does not accept the call. Only for
    /// submissions.
    NotAccepted,
    /// The CRM does not get the request. The answer redirects to another host.
    Redirect,
    /// The CRM does not get the request. The answer is 200 with the first half of a body that a
    /// proxy wrote.
    Torn,
    /// The CRM does not get the request. The connection ends after this time without an answer.
    Hang(Duration),
    /// The CRM gets the request after this time, even if the client has left by then.
    Stalled(Duration),
}

/// The faults of bad weather. Each fault is over before a person would stop waiting.
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

/// Failures of the token endpoint that do not make the refresh token invalid. No request reaches
/// the CRM, because the CRM answers each refresh only once (§5.6.6). A lost answer would require
/// a new consent.
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

/// Pseudo-random numbers (splitmix64). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to `end - 1`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end.max(1)
    }
}

/// Number of faults that can strike the submissions of one call. After a third failure, callbridge
/// waits ten minutes, which is longer than a test waits for a call.
const FAULTS_OF_A_CALL: u32 = 2;

/// Chooses the fault of each request.
#[derive(Clone, Debug)]
pub struct Weather {
    dice: Dice,
    /// Percentage of requests that get a fault.
    percent: u64,
    kinds: Vec<Fault>,
    /// Faults of the token endpoint, in turn. Empty if the endpoint works.
    token: Vec<Fault>,
    /// How often each fault has struck.
    pub struck: BTreeMap<Fault, u64>,
    /// Number of faults that struck the submissions of each call, by its uuid.
    of_calls: BTreeMap<String, u32>,
}

impl Weather {
    pub fn without_faults(seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            percent: 0,
            kinds: Vec::new(),
            token: Vec::new(),
            struck: BTreeMap::new(),
            of_calls: BTreeMap::new(),
        }
    }

    pub fn set(&mut self, percent: u64, kinds: &[Fault]) {
        self.percent = percent;
        self.kinds = kinds.to_vec();
    }

    /// Makes the token endpoint answer with these faults in turn.
    pub fn set_token(&mut self, kinds: &[Fault]) {
        self.token = kinds.to_vec();
    }

    /// Returns the fault of the next request, which submits the call `uuid` if it is a submission.
    /// If only some requests get a fault, each call gets at most [`FAULTS_OF_A_CALL`].
    pub fn strike(&mut self, purpose: Purpose, uuid: Option<String>) -> Option<Fault> {
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
        if purpose == Purpose::Submit && self.percent < 100 {
            let of_call = self.of_calls.entry(uuid?).or_default();
            if *of_call >= FAULTS_OF_A_CALL {
                return None;
            }
            *of_call += 1;
        }
        *self.struck.entry(fault).or_default() += 1;
        Some(fault)
    }
}
