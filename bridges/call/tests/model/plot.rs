//! Random plots: how calls begin, ring, and end. A plot is a sequence of dice rolls. Fewer rolls,
//! or zeros, make a simpler plot, so a failing plot shrinks to its necessary parts.

use crate::moves::Talk;
use crate::switch::{Br, Ch, Deeds, Micros, Role, Switch, TRUNKS};
use std::collections::BTreeSet;

/// Traits that a plot can have. Each must occur in every run of the model.
pub const TRAITS: [&str; 61] = [
    "came in",
    "went out",
    "internal",
    "campaign: the customer first",
    "click to call: the phone first",
    "click to call by a Local channel",
    "several calls at once",
    "caller unknown",
    "menu before ringing",
    "waits in a queue's holding bridge",
    "one phone rings",
    "a group rings",
    "a phone behind a Local channel",
    "queue: another round",
    "nobody answers",
    "customer gives up",
    "voicemail",
    "busy",
    "two pick up at once",
    "pickup",
    "forwarded out",
    "mobile does not confirm",
    "carrier failover",
    "customer does not answer",
    "answered",
    "a hand that slipped",
    "hold",
    "Local optimised away",
    "blind transfer",
    "blind transfer to a mobile",
    "attended transfer",
    "attended transfer given up",
    "blonde transfer",
    "blonde transfer: nobody answers",
    "park",
    "park: nobody fetches",
    "a hang-up overtakes all",
    "conference",
    "conference: a colleague joins",
    "conference: a second customer comes in",
    "conference: an announcer",
    "conference: colleagues go on",
    "spy",
    "after the talk, a survey",
    "two calls become one",
    "colleagues in a room before the customer",
    "an agent's room",
    "an agent's room: customers are dialed",
    "an agent's room: two customers at once",
    "an agent's room: the agent leaves first",
    "next customer on one line",
    "customer hangs up first",
    "chan_sip",
    "DAHDI",
    "system name",
    "linkedids late",
    "linkedids never told anew",
    "events doubled",
    "events shuffled",
    "CEL alone",
    "links",
];

/// A sequence of dice rolls.
#[derive(Debug)]
pub struct Dice<'a>(pub std::slice::Iter<'a, u16>);

impl Dice<'_> {
    /// Returns a number below `sides`, or 0 if no rolls are left.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0.next().map_or(0, |&roll| usize::from(roll) % sides)
    }

    /// Returns `true` once in `times` rolls.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.roll(times) == times - 1
    }
}

/// The line to a party: direct, or behind the two halves of a Local channel.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub party: Ch,
    pub local: Option<(Ch, Ch)>,
}

impl Line {
    /// Makes a line without a Local channel.
    pub fn straight(party: Ch) -> Self {
        Self { party, local: None }
    }

    /// Returns the channel that enters the caller's bridge.
    pub fn near(&self) -> Ch {
        self.local.map_or(self.party, |(near, _)| near)
    }
}

/// One plot, on its own switchboard.
#[derive(Debug)]
pub struct Plot<'a> {
    pub switch: Switch,
    pub dice: Dice<'a>,
    pub traits: BTreeSet<&'static str>,
    /// Number of the plot. It makes bridge names and phone numbers differ between plots.
    number: usize,
    named: usize,
}

impl<'a> Plot<'a> {
    pub fn new(number: usize, begins: Micros, dice: &'a [u16]) -> Self {
        Self {
            switch: Switch::new(begins),
            dice: Dice(dice.iter()),
            traits: BTreeSet::new(),
            number,
            named: 0,
        }
    }

    /// Plays the plot to its end.
    pub fn play(mut self) -> (Deeds, BTreeSet<&'static str>) {
        match self.dice.roll(11) {
            0..=3 => self.comes_in(),
            4 | 5 => self.goes_out(),
            6 => self.stays_inside(),
            7 => self.campaign(),
            8 => self.click_to_call(),
            9 => self.room(),
            _ => self.agents_room(),
        }
        self.switch.close();
        (self.switch.done, self.traits)
    }

    pub fn met(&mut self, what: &'static str) {
        self.traits.insert(what);
    }

    /// Lets 0.6 to 6 seconds pass.
    pub fn wait(&mut self) {
        self.switch.now += 600_000 + 137_000 * self.dice.roll(40) as Micros;
    }

    /// Lets 3 to 212 ms pass, too short for an answered call.
    pub fn moment(&mut self) {
        self.switch.now += 3_000 + 11_000 * self.dice.roll(20) as Micros;
    }

    fn fresh(&mut self) -> usize {
        self.named += 1;
        100 * self.number + self.named
    }

    pub fn bridge(&mut self, technology: &'static str) -> Br {
        let name = format!("bridge-{}", self.fresh());
        self.switch.bridge(name, technology)
    }

    /// Returns the parking lot, in which unrelated callers wait.
    pub fn lot(&mut self) -> Br {
        self.switch.bridge("the-lot".to_owned(), "holding_bridge")
    }

    pub fn extension(&mut self) -> String {
        ["101", "102", "103", "104", "201", "202"][self.dice.roll(6)].to_owned()
    }

    fn trunk(&mut self) -> crate::switch::Trunk {
        let trunk = TRUNKS[[0, 0, 1, 2, 3][self.dice.roll(5)]];
        match trunk.name {
            "carrier" => self.met("chan_sip"),
            "span" => self.met("DAHDI"),
            _ => {}
        }
        trunk
    }

    fn customers_number(&mut self) -> String {
        format!("99890{:07}", 1_110_000 + self.fresh())
    }

    pub fn customer_calls(&mut self) -> Ch {
        let (trunk, number) = (self.trunk(), self.customers_number());
        let known = !self.dice.one_in(8);
        if !known {
            self.met("caller unknown");
        }
        let number = known.then_some(number);
        self.switch.comes(Role::CameIn { trunk, number })
    }

    pub fn phone_calls(&mut self) -> Ch {
        let extension = self.extension();
        let placed = true;
        self.switch.comes(Role::Phone { extension, placed })
    }

    fn phone(&mut self) -> Role {
        Role::Phone {
            extension: self.extension(),
            placed: false,
        }
    }

    pub fn outside(&mut self, number: String) -> Role {
        let trunk = self.trunk();
        Role::DialedOut { trunk, number }
    }

    /// Lets `by` dial a phone, sometimes behind a Local channel.
    pub fn ring_phone(&mut self, by: Ch) -> Line {
        let role = self.phone();
        self.ring(by, role)
    }

    fn ring(&mut self, by: Ch, role: Role) -> Line {
        if !self.dice.one_in(4) {
            return Line::straight(self.switch.dial(Some(by), role));
        }
        self.met("a phone behind a Local channel");
        let (near, far) = self.switch.dial_local(by);
        Line {
            party: self.switch.dial(Some(far), role),
            local: Some((near, far)),
        }
    }

    /// Lets the dialed party answer. Behind a Local channel, this makes a separate bridge.
    pub fn picks_up(&mut self, line: Line) {
        self.switch.answer(line.party);
        self.switch.dial_ends(line.party);
        if let Some((near, far)) = line.local {
            let bridge = self.bridge("simple_bridge");
            self.switch.enter(line.party, bridge);
            self.switch.enter(far, bridge);
            self.switch.answer(near);
            self.switch.dial_ends(near);
        }
    }

    pub fn drop_line(&mut self, line: Line) {
        if let Some((near, far)) = line.local {
            self.switch.hangup(near);
            self.switch.hangup(far);
        }
        self.switch.hangup(line.party);
    }

    fn comes_in(&mut self) {
        self.met("came in");
        let customer = self.customer_calls();
        if self.dice.one_in(4) {
            self.met("menu before ringing");
            self.switch.answer(customer);
            self.wait();
        }
        if self.dice.one_in(4) {
            self.met("waits in a queue's holding bridge");
            let lot = self.lot();
            self.switch.enter(customer, lot);
            self.wait();
            self.wait();
            self.wait();
            if self.dice.roll(2) == 0 {
                self.switch.leave(customer);
            }
        }
        for round in 0..=self.dice.roll(3) {
            if round > 0 {
                self.met("queue: another round");
            }
            if let Some(line) = self.ring_somebody(customer) {
                self.talk(Line::straight(customer), line);
                return;
            }
        }
        match self.dice.roll(3) {
            0 => self.met("nobody answers"),
            1 => self.met("customer gives up"),
            _ => {
                self.met("voicemail");
                self.switch.answer(customer);
                self.wait();
            }
        }
        self.switch.hangup(customer);
    }

    /// Rings one or more lines for this caller. Returns the one that answered, if any.
    fn ring_somebody(&mut self, caller: Ch) -> Option<Line> {
        let many = self.dice.one_in(3);
        self.met(if many {
            "a group rings"
        } else {
            "one phone rings"
        });
        let count = if many { 2 + self.dice.roll(2) } else { 1 };
        let mut ringing: Vec<Line> = (0..count).map(|_| self.ring_phone(caller)).collect();
        if self.dice.one_in(5) {
            self.met("forwarded out");
            let number = self.customers_number();
            let mobile = self.outside(number);
            ringing.push(self.ring(caller, mobile));
        }
        self.wait();
        let last = ringing[ringing.len() - 1];
        let answers = match self.dice.roll(7) {
            0..=3 => Some(ringing[self.dice.roll(ringing.len())]),
            4 => {
                self.met("busy");
                None
            }
            5 => return self.pickup(caller, &ringing),
            _ => {
                self.met("mobile does not confirm");
                self.switch.answer(last.party);
                self.wait();
                None
            }
        };
        if let Some(line) = answers {
            self.picks_up(line);
            let late = ringing.iter().find(|other| other.party != line.party);
            if let Some(late) = late.filter(|_| self.dice.one_in(3)) {
                self.met("two pick up at once");
                self.switch.answer(late.party);
            }
        }
        for line in ringing {
            if answers.is_none_or(|answers| answers.party != line.party) {
                self.drop_line(line);
            }
        }
        answers
    }

    /// Lets a colleague pick up the call at another phone.
    fn pickup(&mut self, caller: Ch, ringing: &[Line]) -> Option<Line> {
        self.met("pickup");
        let colleague = self.phone_calls();
        self.switch.answer(colleague);
        self.moment();
        self.switch.join(colleague, ringing[0].party);
        for line in ringing {
            self.drop_line(*line);
        }
        self.switch.answer(caller);
        Some(Line::straight(colleague))
    }

    fn goes_out(&mut self) {
        self.met("went out");
        let phone = self.phone_calls();
        let number = self.customers_number();
        let line = self.call_out(phone, &number);
        match line {
            Some(customer) => self.talk(customer, Line::straight(phone)),
            None => self.met("customer does not answer"),
        }
    }

    /// Dials a customer, over another trunk if the first one refuses.
    pub fn call_out(&mut self, by: Ch, number: &str) -> Option<Line> {
        let role = self.outside(number.to_owned());
        let mut line = self.ring(by, role);
        self.wait();
        if self.dice.one_in(4) {
            self.met("carrier failover");
            self.drop_line(line);
            let role = self.outside(number.to_owned());
            line = self.ring(by, role);
            self.wait();
        }
        if self.dice.one_in(4) {
            self.drop_line(line);
            return None;
        }
        self.picks_up(line);
        Some(line)
    }

    fn stays_inside(&mut self) {
        self.met("internal");
        let phone = self.phone_calls();
        if let Some(line) = self.ring_somebody(phone) {
            let bridge = self.meet(&[phone, line.near()]);
            self.wait();
            self.switch.hangup(phone);
            self.drop_line(line);
            let _ = bridge;
        }
    }

    /// Plays a campaign: a program dials the customer, and then a phone.
    fn campaign(&mut self) {
        self.met("campaign: the customer first");
        let number = self.customers_number();
        let role = self.outside(number);
        let customer = self.switch.dial(None, role);
        self.wait();
        if self.dice.one_in(4) {
            self.met("customer does not answer");
            return;
        }
        self.switch.answer(customer);
        self.switch.dial_ends(customer);
        let phone = self.ring_phone(customer);
        self.wait();
        if self.dice.one_in(4) {
            self.drop_line(phone);
            return;
        }
        self.picks_up(phone);
        self.talk(Line::straight(customer), phone);
    }

    /// Plays click to call: a program dials a phone, and then the customer.
    fn click_to_call(&mut self) {
        self.met("click to call: the phone first");
        let role = self.phone();
        let by_local = self.dice.one_in(3);
        let colleague = if by_local {
            self.met("click to call by a Local channel");
            self.originated_local(role)
        } else {
            Line::straight(self.switch.dial(None, role))
        };
        self.wait();
        self.picks_up(colleague);
        let number = self.customers_number();
        if let Some(customer) = self.call_out(colleague.near(), &number) {
            self.talk(customer, colleague);
        }
    }

    fn originated_local(&mut self, role: Role) -> Line {
        let next = self.switch.done.channels.len();
        let half = |other, first| Role::Local { other, first };
        let near = self.switch.make(half(next + 1, true), None, None);
        let far = self.switch.make(half(next, false), None, Some(near));
        self.switch.join(near, far);
        Line {
            party: self.switch.dial(Some(far), role),
            local: Some((near, far)),
        }
    }

    /// Plays a room in which colleagues wait for a customer.
    fn room(&mut self) {
        self.met("colleagues in a room before the customer");
        let room = self.bridge("softmix");
        let mut inside = Vec::new();
        for _ in 0..1 + self.dice.roll(2) {
            let phone = self.phone_calls();
            self.switch.enter(phone, room);
            inside.push(phone);
            self.wait();
        }
        let customer = self.customer_calls();
        self.moment();
        self.switch.enter(customer, room);
        inside.push(customer);
        while !inside.is_empty() {
            self.wait();
            let leaves = inside.remove(self.dice.roll(inside.len()));
            self.switch.hangup(leaves);
        }
    }

    /// Plays a room in which an agent stays while customers come and go.
    fn agents_room(&mut self) {
        self.met("an agent's room");
        let room = self.bridge("softmix");
        let agent = self.phone_calls();
        self.switch.enter(agent, room);
        let mut customers: Vec<Line> = Vec::new();
        for _ in 0..1 + self.dice.roll(4) {
            self.wait();
            if !self.dice.one_in(3) {
                customers.drain(..).for_each(|line| self.drop_line(line));
            } else if !customers.is_empty() {
                self.met("an agent's room: two customers at once");
            }
            self.wait();
            if self.dice.one_in(3) {
                let customer = self.customer_calls();
                self.moment();
                self.switch.enter(customer, room);
                customers.push(Line::straight(customer));
            } else {
                customers.extend(self.dials_into(room));
            }
        }
        self.wait();
        if self.dice.one_in(4) {
            self.met("an agent's room: the agent leaves first");
            self.switch.hangup(agent);
            self.wait();
        }
        customers.drain(..).for_each(|line| self.drop_line(line));
    }

    /// Lets a dialer call a customer: one half of a Local channel is in the room, the other dials.
    fn dials_into(&mut self, room: Br) -> Option<Line> {
        self.met("an agent's room: customers are dialed");
        let next = self.switch.done.channels.len();
        let half = |other, first| Role::Local { other, first };
        let one = self.switch.make(half(next + 1, true), None, None);
        let two = self.switch.make(half(next, false), None, Some(one));
        self.switch.join(one, two);
        let (dials, sits) = match self.dice.roll(2) {
            0 => (one, two),
            _ => (two, one),
        };
        self.switch.enter(sits, room);
        let number = self.customers_number();
        let role = self.outside(number);
        let line = Line {
            party: self.switch.dial(Some(dials), role),
            local: Some((dials, sits)),
        };
        self.wait();
        if self.dice.one_in(4) {
            self.switch.dial_ends(line.party);
            self.drop_line(line);
            return None;
        }
        self.switch.answer(line.party);
        self.switch.dial_ends(line.party);
        self.meet(&[line.party, dials]);
        Some(line)
    }

    /// Puts these channels into a new bridge.
    pub fn meet(&mut self, channels: &[Ch]) -> Br {
        let bridge = self.bridge("simple_bridge");
        for &channel in channels {
            self.switch.enter(channel, bridge);
        }
        bridge
    }

    /// Plays a talk between the customer and a colleague, and what follows it.
    fn talk(&mut self, customer: Line, colleague: Line) {
        self.met("answered");
        let bridge = self.meet(&[customer.near(), colleague.near()]);
        if self.dice.one_in(12) {
            self.met("a hand that slipped");
            self.moment();
            return;
        }
        self.wait();
        let talk = Talk {
            customer,
            colleague,
            bridge,
        };
        self.moves(talk);
    }
}
