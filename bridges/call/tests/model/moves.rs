//! Plays random continuations of a conversation, such as transfers, parking, conferences, and
//! spying.

use crate::plot::{Line, Plot};
use crate::switch::{Br, Role};

/// A customer and a colleague in the same bridge.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    pub customer: Line,
    pub colleague: Line,
    pub bridge: Br,
}

impl Plot<'_> {
    /// Plays up to four random continuations of the conversation, after which the parties hang up.
    pub fn play_moves(&mut self, mut talk: Talk) {
        for _ in 0..self.dice.roll(5) {
            let next = match self.dice.roll(12) {
                0 => Some(self.hold(talk)),
                1 => Some(self.optimize_local(talk)),
                2 | 3 => self.blind_transfer(talk),
                4 | 5 => self.attended_transfer(talk),
                6 => self.park(talk),
                7 => Some(self.spy(talk)),
                8 => self.next_customer(talk),
                9 => self.survey(talk),
                10 => self.join_two_calls(talk),
                _ => self.conference(talk),
            };
            let Some(next) = next else { return };
            talk = next;
            self.wait();
        }
        if self.dice.roll(2) == 0 {
            self.add_trait("customer hangs up first");
            self.drop_line(talk.customer);
            self.drop_line(talk.colleague);
        } else {
            self.drop_line(talk.colleague);
            self.drop_line(talk.customer);
        }
    }

    fn hold(&mut self, talk: Talk) -> Talk {
        self.add_trait("hold");
        self.switch.add_sign_of_life(talk.customer.near());
        self.wait();
        self.switch.add_sign_of_life(talk.customer.near());
        talk
    }

    /// Optimizes Local channels away by moving the party behind one into the conversation's bridge.
    fn optimize_local(&mut self, mut talk: Talk) -> Talk {
        for line in [&mut talk.customer, &mut talk.colleague] {
            if let Some((near, far)) = line.local.take() {
                self.add_trait("Local optimised away");
                self.switch.enter(line.party, talk.bridge);
                self.switch.hangup(near);
                self.switch.hangup(far);
            }
        }
        talk
    }

    /// Plays a blind transfer, in which the colleague sends the customer to another party and hangs
    /// up. Returns the new conversation if the other party answers.
    fn blind_transfer(&mut self, talk: Talk) -> Option<Talk> {
        let customer = talk.customer.near();
        self.switch.leave(talk.colleague.near());
        self.switch.leave(customer);
        let to_mobile = self.dice.one_in(4);
        self.add_trait(if to_mobile {
            "blind transfer to a mobile"
        } else {
            "blind transfer"
        });
        self.drop_line(talk.colleague);
        let target = if to_mobile {
            let role = self.outside_role("998935550000".to_owned());
            Line::direct(self.switch.dial(Some(customer), role))
        } else {
            self.ring_phone(customer)
        };
        self.wait();
        if self.dice.one_in(4) {
            self.drop_line(target);
            self.drop_line(talk.customer);
            return None;
        }
        self.answer_line(target);
        let bridge = self.meet(&[target.near(), customer]);
        Some(Talk {
            customer: talk.customer,
            colleague: target,
            bridge,
        })
    }

    /// Plays an attended transfer, in which the colleague calls another colleague on a second line
    /// and joins the two calls. Returns the conversation that continues, if any.
    fn attended_transfer(&mut self, talk: Talk) -> Option<Talk> {
        let Role::Phone { extension, .. } =
            self.switch.done.channels[talk.colleague.party].role.clone()
        else {
            return Some(talk);
        };
        let placed = true;
        let consult = self.switch.begin_call(Role::Phone { extension, placed });
        let target = self.ring_phone(consult);
        self.wait();
        match self.dice.roll(4) {
            0 => {
                self.add_trait("attended transfer given up");
                self.drop_line(target);
                self.switch.hangup(consult);
                return Some(talk);
            }
            1 => {
                self.add_trait("blonde transfer");
                self.switch.join(consult, talk.customer.near());
                self.switch.hangup(consult);
                self.drop_line(talk.colleague);
                self.wait();
                if self.dice.one_in(3) {
                    self.add_trait("blonde transfer: nobody answers");
                    self.drop_line(talk.customer);
                    self.drop_line(target);
                    return None;
                }
                self.answer_line(target);
            }
            _ => {
                self.add_trait("attended transfer");
                self.answer_line(target);
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

    /// Parks the customer in the shared parking lot until a colleague retrieves the call, if one
    /// does.
    fn park(&mut self, talk: Talk) -> Option<Talk> {
        let lot = self.parking_lot();
        let customer = talk.customer.near();
        self.switch.leave(customer);
        self.drop_line(talk.colleague);
        self.switch.enter(customer, lot);
        self.wait();
        if self.dice.one_in(4) {
            self.add_trait("park: nobody fetches");
            self.drop_line(talk.customer);
            return None;
        }
        self.add_trait("park");
        let colleague = self.begin_phone_call();
        self.wait_briefly();
        let bridge = self.meet(&[customer, colleague]);
        Some(Talk {
            customer: talk.customer,
            colleague: Line::direct(colleague),
            bridge,
        })
    }

    /// Makes a supervisor listen in through a Snoop channel. The two are in a separate bridge.
    fn spy(&mut self, talk: Talk) -> Talk {
        self.add_trait("spy");
        let supervisor = self.begin_phone_call();
        let technology = "Snoop";
        let snoop = self.switch.begin_call(Role::Plumbing { technology });
        self.meet(&[supervisor, snoop]);
        self.wait();
        self.switch.hangup(supervisor);
        self.switch.hangup(snoop);
        talk
    }

    /// Ends the conversation with a survey for the customer and a separate message for the
    /// colleague.
    fn survey(&mut self, talk: Talk) -> Option<Talk> {
        self.add_trait("after the talk, a survey");
        self.switch.leave(talk.colleague.near());
        self.switch.leave(talk.customer.near());
        self.wait();
        self.drop_line(talk.colleague);
        self.drop_line(talk.customer);
        None
    }

    /// Joins two calls. Another customer is talking to another colleague, who connects the two
    /// customers and hangs up. Then the first colleague hangs up.
    fn join_two_calls(&mut self, talk: Talk) -> Option<Talk> {
        self.add_trait("two calls become one");
        let second = self.begin_customer_call();
        let other = self.ring_phone(second);
        self.wait();
        self.answer_line(other);
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

    /// Makes the customer hang up and the colleague call the next customer on the same line.
    fn next_customer(&mut self, talk: Talk) -> Option<Talk> {
        if talk.colleague.local.is_some() {
            return Some(talk);
        }
        let customer = &self.switch.done.channels[talk.customer.party].role;
        self.add_trait(match customer {
            Role::CameIn { .. } => "a customer is dialed after the caller left",
            _ => "next customer on one line",
        });
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

    /// Moves both parties to a room that other channels can join and leave. No conversation
    /// continues.
    fn conference(&mut self, talk: Talk) -> Option<Talk> {
        self.add_trait("conference");
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
                    self.add_trait("conference: a colleague joins");
                    self.begin_phone_call()
                }
                1 => {
                    self.add_trait("conference: a second customer comes in");
                    self.begin_customer_call()
                }
                _ => {
                    self.add_trait("conference: an announcer");
                    let technology = "CBAnn";
                    self.switch.begin_call(Role::Plumbing { technology })
                }
            };
            self.wait_briefly();
            self.switch.enter(channel, room);
            inside.push(Line::direct(channel));
            self.wait();
        }
        while !inside.is_empty() {
            let leaver = inside.remove(self.dice.roll(inside.len()));
            self.drop_line(leaver);
            if leaver.party == talk.customer.party && !inside.is_empty() {
                self.add_trait("conference: colleagues go on");
            }
            self.wait();
        }
        None
    }
}
