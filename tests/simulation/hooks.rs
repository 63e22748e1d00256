//! The CRM's deliveries (§6) on their way to the receiver. Deliveries can be late, lost, or
//! doubled.

use crate::simulation::way::Event;
use crate::simulation::world::World;
use crate::support::simulated_calls::Dice;
use callbridge_call::EventTime;
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use callbridge_sandbox::webhook::{AttemptOutcome, Config, Dispatch};
use callbridge_spool::{Delivered, Done, Op};
use callbridge_webhook::headers::Headers;
use callbridge_webhook::keyring::Keyring;
use callbridge_webhook::verify::{Verified, VerifyContext, judge};
use std::time::Duration;

/// The dispatcher's cycle.
const CYCLE: Duration = Duration::from_secs(1);

/// The network between the CRM and the receiver.
pub struct Hooks {
    keyring: Keyring,
    /// Percentage of deliveries that are lost and tried again.
    pub broken: u64,
    /// Percentage of deliveries that arrive twice.
    pub doubled: u64,
    /// Percentage of deliveries that are late, and how late.
    pub late: (u64, Duration),
    /// Whether all deliveries are lost.
    pub cut: bool,
    /// Whether the program is down, so no process listens.
    down: bool,
    dice: Dice,
}

impl World {
    /// Makes the CRM report its journal from now on.
    pub fn hook(&mut self) {
        let config = Config {
            target_url: "https://crm-events.example.com/webhooks".to_owned(),
            events: vec!["CALL".to_owned(), "LEAD".to_owned()],
            enabled: true,
            secret: None,
        };
        let company = &self.sandbox.settings.company;
        let (company, application) = (company.id, company.application_id);
        callbridge_sandbox::webhook::configure_webhook(
            &mut self.sandbox,
            application,
            config,
            false,
        );
        let key =
            callbridge_sandbox::webhook::webhook_connected(&mut self.sandbox, company, application);
        let key = key.expect("an installation with a key of its own");
        let secret = Secret::from(key.expose());
        self.hooks = Some(Hooks {
            keyring: Keyring {
                connection: Some(Key::new(&secret)),
                ..Keyring::default()
            },
            broken: 0,
            doubled: 0,
            late: (0, Duration::ZERO),
            cut: false,
            down: false,
            dice: Dice::new(11),
        });
        self.event(CYCLE, Event::Cycle);
    }

    /// Sets whether the program runs and receives deliveries.
    pub(crate) fn set_receiving(&mut self, receives: bool) {
        if let Some(hooks) = &mut self.hooks {
            hooks.down = !receives;
        }
    }

    /// Sends the deliveries that the dispatcher claims.
    pub(crate) fn dispatch(&mut self) {
        self.sandbox.tick(self.truth);
        for dispatch in
            callbridge_sandbox::webhook::dispatch::deliveries(&mut self.sandbox, self.truth)
        {
            let Some(hooks) = &mut self.hooks else { return };
            let (late, by) = hooks.late;
            let slow = late > 0 && hooks.dice.chance(late);
            let twice = hooks.doubled > 0 && hooks.dice.chance(hooks.doubled);
            let way = Duration::from_millis(20) + if slow { by } else { Duration::ZERO };
            if twice {
                let again = Event::Delivery(Box::new(dispatch.clone()));
                self.event(way + way, again);
            }
            self.event(way, Event::Delivery(Box::new(dispatch)));
        }
        self.event(CYCLE, Event::Cycle);
    }

    /// Gives a delivery to the receiver, which checks and stores the delivery as the program does.
    pub(crate) fn deliver(&mut self, dispatch: &Dispatch) {
        let Some(hooks) = &mut self.hooks else { return };
        let through =
            !(hooks.cut || hooks.down || hooks.broken > 0 && hooks.dice.chance(hooks.broken));
        let outcome = if through {
            AttemptOutcome::Status(self.receive(dispatch))
        } else {
            AttemptOutcome::Broken("connection refused".to_owned())
        };
        self.log.event(
            self.truth,
            format_args!("delivery {dispatch:?} {outcome:?}"),
        );
        let took = Duration::from_millis(20);
        callbridge_sandbox::webhook::dispatch::delivered(
            &mut self.sandbox,
            self.truth,
            dispatch,
            &outcome,
            took,
        );
    }

    fn receive(&mut self, dispatch: &Dispatch) -> u16 {
        let Some(hooks) = &self.hooks else { return 503 };
        let headers = dispatch.headers(self.truth.floor_seconds());
        let headers: Vec<(String, String)> = headers
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect();
        let read = Headers::read(
            headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
        let bench = VerifyContext {
            now: self.now.wall,
            right_from: EventTime::from_seconds(0),
            country: None,
            could_be_ours: true,
        };
        let judged = read.and_then(|headers| {
            let (mut proof, body) = (hooks.keyring.begin(&headers), dispatch.body.as_bytes());
            proof.add(body);
            judge(&headers, body, proof, bench)
        });
        let delivery = match judged {
            Ok(Verified::Keep { delivery, .. }) => delivery,
            Ok(Verified::Drop { .. }) => return 200,
            Err(refusal) => return refusal.status(),
        };
        match self.disk.write(vec![Op::Delivery(delivery)], &mut self.met) {
            Ok(done) => match done.first() {
                Some(Done::Delivered(Delivered::CompanyUnknown)) => 503,
                _ => 200,
            },
            Err(_) => 503,
        }
    }
}
