//! The network between the sender and the CRM, and the time that a request or an answer needs.

use crate::simulation::paths::Hardship;
use crate::simulation::world::World;
use crate::support::simulated_calls::Dice;
use callbridge_call::EventTime;
use callbridge_crm::{Address, ApiError, ApiResponse, Endpoint, Request, read};
use callbridge_model::Now;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::webhook::Dispatch;
use callbridge_sandbox::{Delivery, Response};
use callbridge_sender::queue::Lane;
use std::time::Duration;

/// The client's time limit for one exchange.
pub const TIME_OUT: Duration = Duration::from_secs(30);

/// The condition of the network to the CRM.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network {
    /// Whether connections are refused.
    pub refuses: bool,
    /// Whether the certificate is wrong.
    pub mistrusted: bool,
    /// Whether all bytes are lost.
    pub silent: bool,
    /// The shortest time in each direction.
    pub delay: Duration,
    /// The longest additional time.
    pub jitter: Duration,
    /// The time that the CRM needs to handle a request. It refuses one at once.
    pub handling: Duration,
    /// Percentage of connections that end before the request arrives.
    pub broken: u64,
    /// Percentage of answers whose body is changed.
    pub mangled: u64,
}

/// An event on the network.
#[derive(Debug)]
pub enum Event {
    /// A request with this number reaches the CRM.
    Arrives(u64, sandbox::Request),
    /// An answer, or a timeout, reaches the sender's machine.
    Answered(u64, ApiResponse),
    /// The sender reads the token file.
    Look,
    /// The CRM's dispatcher claims the deliveries that are due (§6.9).
    Cycle,
    /// A delivery reaches the receiver.
    Delivery(Box<Dispatch>),
}

/// A request that the sender waits for.
#[derive(Debug)]
pub struct PendingRequest {
    pub slot: u32,
    pub lane: Lane,
    /// The uuid of the request's call.
    pub uuid: Option<String>,
    pub request: Request,
    /// The token in the request.
    pub token: String,
    until: EventTime,
}

impl World {
    /// Sends a request, unless its slot is too old. Returns the request's number.
    pub(crate) fn fly(
        &mut self,
        slot: u32,
        lane: Lane,
        uuid: Option<String>,
        request: Request,
        secret: &str,
        too_late: bool,
    ) -> u64 {
        let endpoint = request.endpoint();
        self.numbered += 1;
        let number = self.numbered;
        self.log.event(
            self.truth,
            format_args!("sends {number} in slot {slot}: {endpoint}"),
        );
        if !too_late {
            self.sent.push((self.truth, endpoint.word()));
        }
        let until = self.truth.plus(TIME_OUT);
        let Network {
            refuses,
            mistrusted,
            silent: vanishes,
            broken,
            ..
        } = self.network;
        if too_late {
            self.answer_at(self.truth, number, Err(ApiError::TooLate).into());
        } else if refuses {
            let why = "connection refused".to_owned();
            self.answer_at(self.truth, number, Err(ApiError::NotConnected(why)).into());
        } else if mistrusted {
            let why = "the certificate has expired".to_owned();
            self.answer_at(self.truth, number, Err(ApiError::TlsRefused(why)).into());
        } else if vanishes {
            self.answer_at(until, number, Err(ApiError::TimedOut).into());
        } else if broken > 0 && self.dice.chance(broken) {
            let at = self.truth.plus(self.delay()).min(until);
            self.answer_at(at, number, lost_answer());
        } else {
            let asked = to_sandbox(&request, &self.address, secret);
            let at = self.truth.plus(self.delay());
            self.events
                .insert((at, number), Event::Arrives(number, asked));
            self.answer_at(until, number, Err(ApiError::TimedOut).into());
        }
        self.witness
            .record_departure(number, self.truth, format!("{request:?}"));
        let waits = PendingRequest {
            slot,
            lane,
            uuid,
            request,
            token: secret.to_owned(),
            until,
        };
        self.waits.insert(number, waits);
        number
    }

    /// Advances to this moment of the CRM's clock, and handles all earlier events in order.
    /// Answers wait for the sender's next turn.
    pub(crate) fn pass_to(&mut self, moment: EventTime) {
        while let Some(entry) = self.events.first_entry() {
            let (at, _) = *entry.key();
            if at > moment {
                break;
            }
            let event = entry.remove();
            self.go_to(at);
            match event {
                Event::Arrives(number, request) => self.arrive(number, &request),
                Event::Answered(number, received) => {
                    if self.waits.contains_key(&number)
                        && !self.landed.iter().any(|(landed, _)| *landed == number)
                    {
                        self.landed.push_back((number, received));
                    }
                }
                Event::Look => self.use_token(),
                Event::Cycle => self.dispatch(),
                Event::Delivery(dispatch) => self.deliver(&dispatch),
            }
        }
        self.go_to(moment);
    }

    /// Plans an event after this time.
    pub(crate) fn event(&mut self, after: Duration, event: Event) {
        self.numbered += 1;
        let at = self.truth.plus(after);
        self.events.insert((at, self.numbered), event);
    }

    fn go_to(&mut self, truth: EventTime) {
        let passed = truth.since(self.truth);
        self.truth = self.truth.plus(passed);
        self.now = Now {
            wall: self.now.wall.plus(passed),
            boot: self.now.boot + passed,
        };
    }

    fn arrive(&mut self, number: u64, request: &sandbox::Request) {
        self.witness.record_arrival(self.truth);
        let before = self.sandbox.violations().all().len();
        let response = self.sandbox.handle(self.truth, request);
        for breach in &self.sandbox.violations().all()[before..] {
            self.witness.judge(breach, number, request);
        }
        self.witness.judge_company(&self.sandbox, request);
        self.log.event(
            self.truth,
            format_args!(
                "answers {number} {} {:?}",
                response.status, response.delivery
            ),
        );
        let back = self.delay();
        let Some(waits) = self.waits.get(&number) else {
            return; // the process was killed
        };
        let (endpoint, until) = (waits.request.endpoint(), waits.until);
        let late = match response.delivery {
            Delivery::Now if response.status == 200 => Some(self.network.handling),
            Delivery::Now => Some(Duration::ZERO),
            Delivery::After(time) | Delivery::Slow(time) => Some(time),
            Delivery::Lost => None,
        };
        let received = match late {
            Some(_) => self.read(endpoint, response),
            None => lost_answer(),
        };
        let at = self.truth.plus(back + late.unwrap_or_default());
        // If the answer is later, the timeout comes first.
        if at < until {
            self.answer_at(at, number, received);
        }
    }

    fn read(&mut self, endpoint: Endpoint, mut response: Response) -> ApiResponse {
        if self.network.mangled > 0 && self.dice.chance(self.network.mangled) {
            self.met.count_hardship(Hardship::BodyMangled);
            mangle(&mut response, &mut self.dice);
        }
        read(endpoint, response.status, &response.body)
    }

    fn answer_at(&mut self, at: EventTime, number: u64, received: ApiResponse) {
        // A timeout and an answer of the same request can have the same time.
        let place = match received.answer {
            Err(ApiError::TimedOut) => u64::MAX - number,
            _ => u64::MAX / 2 - number,
        };
        self.events
            .insert((at, place), Event::Answered(number, received));
    }

    fn delay(&mut self) -> Duration {
        let Network { delay, jitter, .. } = self.network;
        delay + jitter * u32::try_from(self.dice.below(1000)).unwrap_or(0) / 1000
    }
}

/// Changes an answer as a proxy could.
fn mangle(response: &mut Response, dice: &mut Dice) {
    match dice.below(7) {
        0 => response.body.clear(),
        1 => response.body = b"<html><body>Please log in</body></html>".to_vec(),
        2 => {
            let length = u64::try_from(response.body.len()).unwrap_or(0);
            let kept = usize::try_from(dice.below(length)).unwrap_or(0);
            response.body.truncate(kept);
        }
        3 => response.body = b"[]".to_vec(),
        4 => response.body = vec![0xff; 64],
        5 => response.status = [201, 204, 206][usize::try_from(dice.below(3)).unwrap_or(0)],
        _ => response.status = [102, 600, 999][usize::try_from(dice.below(3)).unwrap_or(0)],
    }
}

fn lost_answer() -> ApiResponse {
    let why = "closed".to_owned();
    Err(ApiError::Lost(why)).into()
}

/// Returns the request as the client sends it.
fn to_sandbox(request: &Request, address: &Address, token: &str) -> sandbox::Request {
    let url = request.url(address);
    let asked = match request.body() {
        Some(body) => sandbox::Request::post(url.path(), &body),
        None => sandbox::Request::get(url.path()),
    };
    asked.with_token(token)
}
