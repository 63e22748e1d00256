//! Random ways in which a talk goes on: transfers, parking, conferences, spying.

use crate::plot::{Line, Plot};
use crate::switch::{Br, Role};

/// A customer and a colleague in one bridge.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    pub customer: Line,
    pub colleague: Line,
    pub bridge: Br,
}

impl Plot<'_> {
    /// Plays up to four moves. Then the parties hang up.
    pub fn moves(&mut self, mut talk: Talk) {
        for _ in 0..self.dice.roll(5) {
            let next = match self.dice.roll(12) {
                0 => Some(self.hold(talk)),
                1 => Some(self.optimise(talk)),
                2 | 3 => self.blind_transfer(talk),
                4 | 5 => self.attended_transfer(talk),
                6 => self.park(talk),
                7 => Some(self.spy(talk)),
                8 => self.next_customer(talk),
                9 => self.survey(talk),
                10 => self.two_become_one(talk),
                _ => self.conference(talk),
            };
            let Some(next) = next else { return };
            talk = next;
            self.wait();
        }
        if self.dice.roll(2) == 0 {
            self.met("customer hangs up first");
            self.drop_line(talk.customer);
            self.drop_line(talk.colleague);
        } else {
            self.drop_line(talk.colleague);
            self.drop_line(talk.customer);
        }
    }

    fn hold(&mut self, talk: Talk) -> Talk {
        self.met("hold");
        self.switch.sign(talk.customer.near());
        self.wait();
        self.switch.sign(talk.customer.near());
        talk
    }

    /// Optimizes Local channels away: the party behind one enters the bridge itself.
    fn optimise(&mut self, mut talk: Talk) -> Talk {
        for line in [&mut talk.customer, &mut talk.colleague] {
            if let Some((near, far)) = line.local.take() {
                self.met("Local optimised away");
                self.switch.enter(line.party, talk.bridge);
                self.switch.hangup(near);
                self.switch.hangup(far);
            }
        }
        talk
    }

    /// Plays a blind transfer: the colleague sends the customer to another party and hangs up.
    fn blind_transfer(&mut self, talk: Talk) -> Option<Talk> {
        let customer = talk.customer.near();
        self.switch.leave(talk.colleague.near());
        self.switch.leave(customer);
        let to_mobile = self.dice.one_in(4);
        self.met(if to_mobile {
            "blind transfer to a mobile"
        } else {
            "blind transfer"
        });
        self.drop_line(talk.colleague);
        let target = if to_mobile {
            let role = self.outside("998935550000".to_owned());
            Line::straight(self.switch.dial(Some(customer), role))
        } else {
            self.ring_phone(customer)
        };
        self.wait();
        if self.dice.one_in(4) {
            self.drop_line(target);
            self.drop_line(talk.customer);
            return None;
        }
        self.picks_up(target);
        let bridge = self.meet(&[target.near(), customer]);
        Some(Talk {
            customer: talk.customer,
            colleague: target,
            bridge,
        })
    }

    /// Plays an attended transfer: the colleague calls another one on a second line, and joins the
    /// two calls.
    fn attended_transfer(&mut self, talk: Talk) -> Option<Talk> {
        let Role::Phone { extension, .. } =
            self.switch.done.channels[talk.colleague.party].role.clone()
        else {
            return Some(talk);
        };
        let placed = true;
        let consult = self.switch.comes(Role::Phone { extension, placed });
        let target = self.ring_phone(consult);
        self.wait();
        match self.dice.roll(4) {
            0 => {
                self.met("attended transfer given up");
                self.drop_line(target);
                self.switch.hangup(consult);
                return Some(talk);
            }
            1 => {
                self.met("blonde transfer");
                self.switch.join(consult, talk.customer.near());
                self.switch.hangup(consult);
                self.drop_line(talk.colleague);
                self.wait();
                if self.dice.one_in(3) {
                    self.met("blonde transfer: nobody answers");
                    self.drop_line(talk.customer);
                    self.drop_line(target);
                    return None;
                }
                self.picks_up(target);
            }
            _ => {
                self.met("attended transfer");
                self.picks_up(target);
                self.meet(&[target.near(), consult]);
                self.wait();
                self.switch.join(talk.colleague.near(), consult);
            }
        }
        self.switch.enter(target.near(), talk.bridge);
        self.drop_line(talk.colleague);
        self.switch.hangup(consult);
        Some(Talk {
            colleague: target,
            ..talk
        })
    }

    /// Parks the customer in the shared lot until a colleague takes the call.
    fn park(&mut self, talk: Talk) -> Option<Talk> {
        let lot = self.lot();
        let customer = talk.customer.near();
        self.switch.leave(customer);
        self.drop_line(talk.colleague);
        self.switch.enter(customer, lot);
        self.wait();
        if self.dice.one_in(4) {
            self.met("park: nobody fetches");
            self.drop_line(talk.customer);
            return None;
        }
        self.met("park");
        let colleague = self.phone_calls();
        self.moment();
        let bridge = self.meet(&[customer, colleague]);
        Some(Talk {
            customer: talk.customer,
            colleague: Line::straight(colleague),
            bridge,
        })
    }

    /// Lets a supervisor listen through a Snoop channel, which is in a bridge with the supervisor.
    fn spy(&mut self, talk: Talk) -> Talk {
        self.met("spy");
        let supervisor = self.phone_calls();
        let technology = "Snoop";
        let snoop = self.switch.comes(Role::Plumbing { technology });
        self.meet(&[supervisor, snoop]);
        self.wait();
        self.switch.hangup(supervisor);
        self.switch.hangup(snoop);
        talk
    }

    /// Ends the talk with a survey for the customer, and a separate message for the colleague.
    fn survey(&mut self, talk: Talk) -> Option<Talk> {
        self.met("after the talk, a survey");
        self.switch.leave(talk.colleague.near());
        self.switch.leave(talk.customer.near());
        self.wait();
        self.drop_line(talk.colleague);
        self.drop_line(talk.customer);
        None
    }

    /// Joins two calls: another customer talks with another colleague, who connects the two
    /// customers and hangs up. Then the first colleague hangs up.
    fn two_become_one(&mut self, talk: Talk) -> Option<Talk> {
        self.met("two calls become one");
        let second = self.customer_calls();
        let other = self.ring_phone(second);
        self.wait();
        self.picks_up(other);
        self.meet(&[second, other.near()]);
        self.wait();
        if self.dice.roll(2) == 1 {
            self.switch.join(other.near(), talk.colleague.near());
        }
        self.switch.enter(second, talk.bridge);
        self.drop_line(other);
        self.wait();
        self.drop_line(talk.colleague);
        self.wait();
        self.switch.hangup(second);
        None
    }

    /// Lets the customer hang up, and the colleague call the next one on the same line.
    fn next_customer(&mut self, talk: Talk) -> Option<Talk> {
        let customer = &self.switch.done.channels[talk.customer.party].role;
        if matches!(customer, Role::CameIn { .. }) || talk.colleague.local.is_some() {
            return Some(talk);
        }
        self.met("next customer on one line");
        self.drop_line(talk.customer);
        self.switch.leave(talk.colleague.near());
        let number = format!("9989377{:05}", self.switch.done.channels.len());
        let customer = self.call_out(talk.colleague.near(), &number)?;
        let bridge = self.meet(&[customer.near(), talk.colleague.near()]);
        Some(Talk {
            customer,
            bridge,
            ..talk
        })
    }

    /// Moves both to a room, where others can join and leave. This ends the talk.
    fn conference(&mut self, talk: Talk) -> Option<Talk> {
        self.met("conference");
        let room = self.bridge("softmix");
        let mut inside = vec![talk.customer, talk.colleague];
        if self.dice.roll(2) == 1 {
            self.switch.leave(talk.customer.near());
        }
        for line in &inside {
            self.switch.enter(line.near(), room);
        }
        self.wait();
        for _ in 0..1 + self.dice.roll(3) {
            let channel = match self.dice.roll(3) {
                0 => {
                    self.met("conference: a colleague joins");
                    self.phone_calls()
                }
                1 => {
                    self.met("conference: a second customer comes in");
                    self.customer_calls()
                }
                _ => {
                    self.met("conference: an announcer");
                    let technology = "CBAnn";
                    self.switch.comes(Role::Plumbing { technology })
                }
            };
            self.moment();
            self.switch.enter(channel, room);
            inside.push(Line::straight(channel));
            self.wait();
        }
        while !inside.is_empty() {
            let leaves = inside.remove(self.dice.roll(inside.len()));
            self.drop_line(leaves);
            if leaves.party == talk.customer.party && !inside.is_empty() {
                self.met("conference: colleagues go on");
            }
            self.wait();
        }
        None
    }
}
