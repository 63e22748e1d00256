//! Plays random plots, which determine how calls start, ring, and end. A plot is a sequence of dice
//! rolls. Fewer rolls, or zeros, make for a simpler plot, so a failing plot shrinks to its
//! essential parts.

use crate::moves::Talk;
use crate::switch::{Br, Ch, Deeds, Micros, Role, Switch, TRUNKS};
use std::collections::BTreeSet;

/// Traits that a story can have. Each of them must occur in every run of the model.
pub const TRAITS: [&str; 62] = [
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
    "a customer is dialed after the caller left",
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

    /// Returns `true` for one in `times` rolls, or `false` if no rolls are left.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.roll(times) == times - 1
    }
}

/// The line to a party, either direct or behind the two halves of a Local channel.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub party: Ch,
    pub local: Option<(Ch, Ch)>,
}

impl Line {
    /// Creates a line without a Local channel.
    pub fn direct(party: Ch) -> Self {
        Self { party, local: None }
    }

    /// Returns the line's channel that enters the caller's bridge.
    pub fn near(&self) -> Ch {
        self.local.map_or(self.party, |(near, _)| near)
    }
}

/// A plot, with its own switchboard.
#[derive(Debug)]
pub struct Plot<'a> {
    pub switch: Switch,
    pub dice: Dice<'a>,
    pub traits: BTreeSet<&'static str>,
    /// The plot's number, which makes bridge names and phone numbers differ between plots.
    number: usize,
    /// Number of bridge names and phone numbers that the plot has used.
    names_used: usize,
}

impl<'a> Plot<'a> {
    pub fn new(number: usize, begins: Micros, dice: &'a [u16]) -> Self {
        Self {
            switch: Switch::new(begins),
            dice: Dice(dice.iter()),
            traits: BTreeSet::new(),
            number,
            names_used: 0,
        }
    }

    /// Plays the plot to its end, returning what happened and the plot's traits.
    pub fn play(mut self) -> (Deeds, BTreeSet<&'static str>) {
        match self.dice.roll(11) {
            0..=3 => self.play_inbound_call(),
            4 | 5 => self.play_outbound_call(),
            6 => self.play_internal_call(),
            7 => self.campaign(),
            8 => self.click_to_call(),
            9 => self.room(),
            _ => self.agents_room(),
        }
        self.switch.close();
        (self.switch.done, self.traits)
    }

    pub fn add_trait(&mut self, what: &'static str) {
        self.traits.insert(what);
    }

    /// Advances the clock by 0.6 to 6 seconds.
    pub fn wait(&mut self) {
        self.switch.now += 600_000 + 137_000 * self.dice.roll(40) as Micros;
    }

    /// Advances the clock by 3 to 212 ms, which is too short for a conversation to count as an
    /// answer.
    pub fn wait_briefly(&mut self) {
        self.switch.now += 3_000 + 11_000 * self.dice.roll(20) as Micros;
    }

    fn next_number(&mut self) -> usize {
        self.names_used += 1;
        100 * self.number + self.names_used
    }

    pub fn bridge(&mut self, technology: &'static str) -> Br {
        let name = format!("bridge-{}", self.next_number());
        self.switch.bridge(name, technology)
    }

    /// Returns the parking lot, where unrelated callers wait.
    pub fn parking_lot(&mut self) -> Br {
        self.switch.bridge("the-lot".to_owned(), "holding_bridge")
    }

    pub fn extension(&mut self) -> String {
        ["101", "102", "103", "104", "201", "202"][self.dice.roll(6)].to_owned()
    }

    fn trunk(&mut self) -> crate::switch::Trunk {
        let trunk = TRUNKS[[0, 0, 1, 2, 3][self.dice.roll(5)]];
        match trunk.name {
            "carrier" => self.add_trait("chan_sip"),
            "span" => self.add_trait("DAHDI"),
            _ => {}
        }
        trunk
    }

    fn customers_number(&mut self) -> String {
        format!("99890{:07}", 1_110_000 + self.next_number())
    }

    /// Makes a customer call in, and returns the customer's channel.
    pub fn begin_customer_call(&mut self) -> Ch {
        let (trunk, number) = (self.trunk(), self.customers_number());
        let known = !self.dice.one_in(8);
        if !known {
            self.add_trait("caller unknown");
        }
        let number = known.then_some(number);
        self.switch.begin_call(Role::CameIn { trunk, number })
    }

    /// Makes a company phone start a call, and returns the phone's channel.
    pub fn begin_phone_call(&mut self) -> Ch {
        let extension = self.extension();
        let placed = true;
        self.switch.begin_call(Role::Phone { extension, placed })
    }

    fn phone_role(&mut self) -> Role {
        Role::Phone {
            extension: self.extension(),
            placed: false,
        }
    }

    pub fn outside_role(&mut self, number: String) -> Role {
        let trunk = self.trunk();
        Role::DialedOut { trunk, number }
    }

    /// Makes the channel `by` dial a phone, sometimes through a Local channel.
    pub fn ring_phone(&mut self, by: Ch) -> Line {
        let role = self.phone_role();
        self.ring(by, role)
    }

    fn ring(&mut self, by: Ch, role: Role) -> Line {
        if !self.dice.one_in(4) {
            return Line::direct(self.switch.dial(Some(by), role));
        }
        self.add_trait("a phone behind a Local channel");
        let (near, far) = self.switch.dial_local(by);
        Line {
            party: self.switch.dial(Some(far), role),
            local: Some((near, far)),
        }
    }

    /// Makes the dialed party answer. If it's behind a Local channel, it enters a bridge with the
    /// Local channel's far half.
    pub fn answer_line(&mut self, line: Line) {
        self.switch.answer(line.party);
        self.switch.end_dial(line.party);
        if let Some((near, far)) = line.local {
            let bridge = self.bridge("simple_bridge");
            self.switch.enter(line.party, bridge);
            self.switch.enter(far, bridge);
            self.switch.answer(near);
            self.switch.end_dial(near);
        }
    }

    pub fn drop_line(&mut self, line: Line) {
        if let Some((near, far)) = line.local {
            self.switch.hangup(near);
            self.switch.hangup(far);
        }
        self.switch.hangup(line.party);
    }

    fn play_inbound_call(&mut self) {
        self.add_trait("came in");
        let customer = self.begin_customer_call();
        if self.dice.one_in(4) {
            self.add_trait("menu before ringing");
            self.switch.answer(customer);
            self.wait();
        }
        if self.dice.one_in(4) {
            self.add_trait("waits in a queue's holding bridge");
            let lot = self.parking_lot();
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
                self.add_trait("queue: another round");
            }
            if let Some(line) = self.ring_lines(customer) {
                self.talk(Line::direct(customer), line);
                return;
            }
        }
        match self.dice.roll(3) {
            0 => self.add_trait("nobody answers"),
            1 => self.add_trait("customer gives up"),
            _ => {
                self.add_trait("voicemail");
                self.switch.answer(customer);
                self.wait();
            }
        }
        self.switch.hangup(customer);
    }

    /// Rings one or more lines for this caller, and returns the one that answered, if any.
    fn ring_lines(&mut self, caller: Ch) -> Option<Line> {
        let many = self.dice.one_in(3);
        self.add_trait(if many {
            "a group rings"
        } else {
            "one phone rings"
        });
        let count = if many { 2 + self.dice.roll(2) } else { 1 };
        let mut ringing: Vec<Line> = (0..count).map(|_| self.ring_phone(caller)).collect();
        if self.dice.one_in(5) {
            self.add_trait("forwarded out");
            let number = self.customers_number();
            let mobile = self.outside_role(number);
            ringing.push(self.ring(caller, mobile));
        }
        self.wait();
        let last = ringing[ringing.len() - 1];
        let answered = match self.dice.roll(7) {
            0..=3 => Some(ringing[self.dice.roll(ringing.len())]),
            4 => {
                self.add_trait("busy");
                None
            }
            5 => return self.pickup(caller, &ringing),
            _ => {
                self.add_trait("mobile does not confirm");
                self.switch.answer(last.party);
                self.wait();
                self.switch.refuse(last.party);
                None
            }
        };
        if let Some(line) = answered {
            self.answer_line(line);
            let late = ringing.iter().find(|other| other.party != line.party);
            if let Some(late) = late
                && self.dice.one_in(3)
            {
                self.add_trait("two pick up at once");
                self.switch.answer(late.party);
            }
        }
        for line in ringing {
            if answered.is_none_or(|other| other.party != line.party) {
                self.drop_line(line);
            }
        }
        answered
    }

    /// Makes a colleague pick up the call from another phone.
    fn pickup(&mut self, caller: Ch, ringing: &[Line]) -> Option<Line> {
        self.add_trait("pickup");
        let colleague = self.begin_phone_call();
        self.switch.answer(colleague);
        self.wait_briefly();
        self.switch.join(colleague, ringing[0].party);
        for line in ringing {
            self.drop_line(*line);
        }
        self.switch.answer(caller);
        Some(Line::direct(colleague))
    }

    fn play_outbound_call(&mut self) {
        self.add_trait("went out");
        let phone = self.begin_phone_call();
        let number = self.customers_number();
        let line = self.call_out(phone, &number);
        match line {
            Some(customer) => self.talk(customer, Line::direct(phone)),
            None => self.add_trait("customer does not answer"),
        }
    }

    /// Makes the channel `by` dial a customer, over a second trunk if the first one refuses.
    /// Returns the customer's line if the customer answers.
    pub fn call_out(&mut self, by: Ch, number: &str) -> Option<Line> {
        let role = self.outside_role(number.to_owned());
        let mut line = self.ring(by, role);
        self.wait();
        if self.dice.one_in(4) {
            self.add_trait("carrier failover");
            self.drop_line(line);
            let role = self.outside_role(number.to_owned());
            line = self.ring(by, role);
            self.wait();
        }
        if self.dice.one_in(4) {
            self.drop_line(line);
            return None;
        }
        self.answer_line(line);
        Some(line)
    }

    fn play_internal_call(&mut self) {
        self.add_trait("internal");
        let phone = self.begin_phone_call();
        if let Some(line) = self.ring_lines(phone) {
            let bridge = self.meet(&[phone, line.near()]);
            self.wait();
            self.switch.hangup(phone);
            self.drop_line(line);
            let _ = bridge;
        }
    }

    /// Plays a campaign, in which a program dials the customer and then a phone.
    fn campaign(&mut self) {
        self.add_trait("campaign: the customer first");
        let number = self.customers_number();
        let role = self.outside_role(number);
        let customer = self.switch.dial(None, role);
        self.wait();
        if self.dice.one_in(4) {
            self.add_trait("customer does not answer");
            return;
        }
        self.switch.answer(customer);
        self.switch.end_dial(customer);
        let phone = self.ring_phone(customer);
        self.wait();
        if self.dice.one_in(4) {
            self.drop_line(phone);
            return;
        }
        self.answer_line(phone);
        self.talk(Line::direct(customer), phone);
    }

    /// Plays click-to-call, in which a program dials a phone and then the customer.
    fn click_to_call(&mut self) {
        self.add_trait("click to call: the phone first");
        let role = self.phone_role();
        let by_local = self.dice.one_in(3);
        let colleague = if by_local {
            self.add_trait("click to call by a Local channel");
            self.originate_local(role)
        } else {
            Line::direct(self.switch.dial(None, role))
        };
        self.wait();
        self.answer_line(colleague);
        let number = self.customers_number();
        if let Some(customer) = self.call_out(colleague.near(), &number) {
            self.talk(customer, colleague);
        }
    }

    fn originate_local(&mut self, role: Role) -> Line {
        let (near, far) = self.switch.make_local(None);
        Line {
            party: self.switch.dial(Some(far), role),
            local: Some((near, far)),
        }
    }

    /// Plays a room where colleagues are waiting for a customer.
    fn room(&mut self) {
        self.add_trait("colleagues in a room before the customer");
        let room = self.bridge("softmix");
        let mut inside = Vec::new();
        for _ in 0..1 + self.dice.roll(2) {
            let phone = self.begin_phone_call();
            self.switch.enter(phone, room);
            inside.push(phone);
            self.wait();
        }
        let customer = self.begin_customer_call();
        self.wait_briefly();
        self.switch.enter(customer, room);
        inside.push(customer);
        while !inside.is_empty() {
            self.wait();
            let leaver = inside.remove(self.dice.roll(inside.len()));
            self.switch.hangup(leaver);
        }
    }

    /// Plays a room where an agent stays while customers come and go.
    fn agents_room(&mut self) {
        self.add_trait("an agent's room");
        let room = self.bridge("softmix");
        let agent = self.begin_phone_call();
        self.switch.enter(agent, room);
        let mut customers: Vec<Line> = Vec::new();
        for _ in 0..1 + self.dice.roll(4) {
            self.wait();
            if !self.dice.one_in(3) {
                customers.drain(..).for_each(|line| self.drop_line(line));
            } else if !customers.is_empty() {
                self.add_trait("an agent's room: two customers at once");
            }
            self.wait();
            if self.dice.one_in(3) {
                let customer = self.begin_customer_call();
                self.wait_briefly();
                self.switch.enter(customer, room);
                customers.push(Line::direct(customer));
            } else {
                customers.extend(self.dial_into_room(room));
            }
        }
        self.wait();
        if self.dice.one_in(4) {
            self.add_trait("an agent's room: the agent leaves first");
            self.switch.hangup(agent);
            self.wait();
        }
        customers.drain(..).for_each(|line| self.drop_line(line));
    }

    /// Makes a dialer call a customer with one half of a Local channel while the other half is in
    /// the room. Returns the customer's line if the customer answers.
    fn dial_into_room(&mut self, room: Br) -> Option<Line> {
        self.add_trait("an agent's room: customers are dialed");
        let (one, two) = self.switch.make_local(None);
        let (dialing_half, room_half) = match self.dice.roll(2) {
            0 => (one, two),
            _ => (two, one),
        };
        self.switch.enter(room_half, room);
        let number = self.customers_number();
        let role = self.outside_role(number);
        let line = Line {
            party: self.switch.dial(Some(dialing_half), role),
            local: Some((dialing_half, room_half)),
        };
        self.wait();
        if self.dice.one_in(4) {
            self.switch.end_dial(line.party);
            self.drop_line(line);
            return None;
        }
        self.switch.answer(line.party);
        self.switch.end_dial(line.party);
        self.meet(&[line.party, dialing_half]);
        Some(line)
    }

    /// Puts the channels into a new bridge, and returns it.
    pub fn meet(&mut self, channels: &[Ch]) -> Br {
        let bridge = self.bridge("simple_bridge");
        for &channel in channels {
            self.switch.enter(channel, bridge);
        }
        bridge
    }

    /// Plays a conversation between the customer and a colleague, and what comes after it.
    fn talk(&mut self, customer: Line, colleague: Line) {
        self.add_trait("answered");
        let bridge = self.meet(&[customer.near(), colleague.near()]);
        if self.dice.one_in(12) {
            self.add_trait("a hand that slipped");
            self.wait_briefly();
            return;
        }
        self.wait();
        let talk = Talk {
            customer,
            colleague,
            bridge,
        };
        self.play_moves(talk);
    }
}
