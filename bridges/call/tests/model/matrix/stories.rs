//! The matrix's fixed stories. Each one is played on the simulated switchboard, so the model knows
//! the true calls.

use crate::switch::{Act, Br, Ch, Deeds, Role, Switch, TRUNKS, Trunk};

const CITY: Trunk = TRUNKS[0];
const GSM: Trunk = TRUNKS[1];
pub const CUSTOMER: &str = "998901110001";
const SECOND_CUSTOMER: &str = "998901110002";
const MOBILE: &str = "998935550000";

/// A story in the matrix.
#[derive(Clone, Copy)]
pub struct Story {
    /// The story's name in the docs' table.
    pub name: &'static str,
    play: fn(&mut Switch),
}

pub const STORIES: [Story; 22] = [
    Story::new("answered", inbound),
    Story::new("missed", missed),
    Story::new("outbound", outbound),
    Story::new("outbound unanswered", outbound_unanswered),
    Story::new("queue", queue),
    Story::new("queue given up", queue_given_up),
    Story::new("ring group", ring_group),
    Story::new("blind transfer", blind_transfer),
    Story::new("attended transfer", attended_transfer),
    Story::new("blonde transfer", blonde_transfer),
    Story::new("pickup", pickup),
    Story::new("parking", parking),
    Story::new("conference", conference),
    Story::new("conference of two customers", conference_of_two),
    Story::new("dialer room", dialer_room),
    Story::new("agent login", agent_login),
    Story::new("agent login through a queue", agent_queue),
    Story::new("click-to-call", click_to_call),
    Story::new("forwarding", forwarding),
    Story::new("failover", failover),
    Story::new("voicemail", voicemail),
    Story::new("callback", callback),
];

impl Story {
    const fn new(name: &'static str, play: fn(&mut Switch)) -> Self {
        Self { name, play }
    }

    pub fn deeds(&self) -> Deeds {
        let mut switch = Switch::new(0);
        (self.play)(&mut switch);
        switch.close();
        switch.done
    }
}

fn wait(switch: &mut Switch, seconds: f64) {
    switch.now += (seconds * 1e6) as i64;
}

fn phone_role(extension: &str, placed: bool) -> Role {
    let extension = extension.to_owned();
    Role::Phone { extension, placed }
}

fn outside(trunk: Trunk, number: &str) -> Role {
    let number = number.to_owned();
    Role::DialedOut { trunk, number }
}

fn call_in(switch: &mut Switch, number: &str) -> Ch {
    let (trunk, number) = (CITY, Some(number.to_owned()));
    switch.begin_call(Role::CameIn { trunk, number })
}

/// Makes the caller ring a phone with a single `Dial`, and returns the phone's channel.
fn ring(switch: &mut Switch, caller: Ch, extension: &str) -> Ch {
    switch.run(caller, "Dial");
    switch.dial(Some(caller), phone_role(extension, false))
}

fn meet(switch: &mut Switch, channels: [Ch; 2]) -> Br {
    let name = format!("bridge-{}", switch.done.bridges.len());
    let bridge = switch.bridge(name, "simple_bridge");
    for channel in channels {
        switch.enter(channel, bridge);
    }
    bridge
}

/// Makes the dialed party answer, followed by the caller's channel, and returns their bridge.
fn answer(switch: &mut Switch, caller: Ch, dialed: Ch) -> Br {
    switch.answer(dialed);
    switch.end_dial(dialed);
    let mut deeds = switch.done.deeds.iter();
    if !deeds.any(|deed| deed.channel == caller && deed.act == Act::Up) {
        switch.answer(caller);
    }
    meet(switch, [dialed, caller])
}

/// Ends the dialing of a party that didn't answer.
fn give_up(switch: &mut Switch, dialed: Ch) {
    switch.end_dial(dialed);
    switch.hangup(dialed);
}

/// Plays the start of most stories, in which 101 answers the customer after 2 s and they talk for 4
/// s. Returns the customer, the phone, and their bridge.
fn talk(switch: &mut Switch) -> (Ch, Ch, Br) {
    let customer = call_in(switch, CUSTOMER);
    let phone = ring(switch, customer, "101");
    wait(switch, 2.0);
    let bridge = answer(switch, customer, phone);
    wait(switch, 4.0);
    (customer, phone, bridge)
}

fn inbound(switch: &mut Switch) {
    let (customer, _, _) = talk(switch);
    switch.hangup(customer);
}

fn missed(switch: &mut Switch) {
    let customer = call_in(switch, CUSTOMER);
    let phone = ring(switch, customer, "102");
    wait(switch, 5.0);
    give_up(switch, phone);
    switch.run(customer, "Hangup");
    switch.hangup(customer);
}

fn dial_out(switch: &mut Switch, phone: Ch, trunk: Trunk) -> Ch {
    switch.run(phone, "Dial");
    let customer = switch.dial(Some(phone), outside(trunk, CUSTOMER));
    wait(switch, 2.0);
    customer
}

fn outbound(switch: &mut Switch) {
    let phone = switch.begin_call(phone_role("101", true));
    let customer = dial_out(switch, phone, CITY);
    answer(switch, phone, customer);
    wait(switch, 5.0);
    switch.hangup(phone);
}

fn outbound_unanswered(switch: &mut Switch) {
    let phone = switch.begin_call(phone_role("101", true));
    let customer = dial_out(switch, phone, CITY);
    wait(switch, 3.0);
    give_up(switch, customer);
    switch.hangup(phone);
}

/// Makes a customer call a queue whose first agent doesn't answer.
fn wait_in_queue(switch: &mut Switch) -> Ch {
    let customer = call_in(switch, CUSTOMER);
    switch.answer(customer);
    switch.run(customer, "Queue");
    let first = switch.dial(Some(customer), phone_role("102", false));
    wait(switch, 4.0);
    // A queue ends the dialing twice.
    switch.end_dial(first);
    give_up(switch, first);
    wait(switch, 2.0);
    customer
}

fn queue(switch: &mut Switch) {
    let customer = wait_in_queue(switch);
    let second = switch.dial(Some(customer), phone_role("101", false));
    wait(switch, 2.0);
    answer(switch, customer, second);
    wait(switch, 5.0);
    switch.hangup(customer);
}

fn queue_given_up(switch: &mut Switch) {
    let customer = wait_in_queue(switch);
    switch.hangup(customer);
}

fn ring_group(switch: &mut Switch) {
    let customer = call_in(switch, CUSTOMER);
    let phones = ["102", "103", "101"];
    switch.run(customer, "Dial");
    let [one, two, three] = phones.map(|name| switch.dial(Some(customer), phone_role(name, false)));
    wait(switch, 3.0);
    answer(switch, customer, three);
    for loser in [one, two] {
        give_up(switch, loser);
    }
    wait(switch, 4.0);
    switch.hangup(customer);
}

fn blind_transfer(switch: &mut Switch) {
    let (customer, first, _) = talk(switch);
    switch.leave(customer);
    switch.hangup(first);
    let second = ring(switch, customer, "102");
    wait(switch, 3.0);
    answer(switch, customer, second);
    wait(switch, 5.0);
    switch.hangup(customer);
}

/// Makes 101 call 102 on a second line, and returns the second line and 102.
fn consult(switch: &mut Switch) -> (Ch, Ch) {
    let line = switch.begin_call(phone_role("101", true));
    let colleague = ring(switch, line, "102");
    wait(switch, 2.0);
    (line, colleague)
}

fn attended_transfer(switch: &mut Switch) {
    let (customer, first, _) = talk(switch);
    let (line, second) = consult(switch);
    let bridge = answer(switch, line, second);
    wait(switch, 3.0);
    switch.join(first, line);
    switch.hangup(line);
    switch.enter(customer, bridge);
    switch.hangup(first);
    wait(switch, 5.0);
    switch.hangup(customer);
}

fn blonde_transfer(switch: &mut Switch) {
    let (customer, first, bridge) = talk(switch);
    let (line, second) = consult(switch);
    switch.join(line, customer);
    switch.hangup(line);
    switch.hangup(first);
    wait(switch, 3.0);
    switch.answer(second);
    switch.enter(second, bridge);
    wait(switch, 5.0);
    switch.hangup(customer);
}

fn pickup(switch: &mut Switch) {
    let customer = call_in(switch, CUSTOMER);
    let ringing = ring(switch, customer, "101");
    wait(switch, 3.0);
    let colleague = switch.begin_call(phone_role("102", true));
    switch.answer(colleague);
    switch.run(colleague, "Pickup");
    switch.join(colleague, ringing);
    switch.hangup(ringing);
    switch.end_dial_by(Some(customer), colleague);
    switch.answer(customer);
    meet(switch, [colleague, customer]);
    wait(switch, 5.0);
    switch.hangup(customer);
}

fn parking(switch: &mut Switch) {
    let (customer, first, _) = talk(switch);
    let lot = switch.bridge("the-lot".to_owned(), "holding_bridge");
    switch.leave(customer);
    switch.run(customer, "Park");
    switch.enter(customer, lot);
    switch.hangup(first);
    wait(switch, 6.0);
    let colleague = switch.begin_call(phone_role("102", true));
    switch.answer(colleague);
    switch.run(colleague, "ParkedCall");
    meet(switch, [customer, colleague]);
    wait(switch, 5.0);
    switch.hangup(customer);
}

fn enter_room(switch: &mut Switch, channel: Ch, room: Br) {
    switch.run(channel, "ConfBridge");
    switch.enter(channel, room);
}

fn conference(switch: &mut Switch) {
    let (customer, first, _) = talk(switch);
    let room = switch.bridge("600".to_owned(), "softmix");
    for channel in [customer, first] {
        switch.leave(channel);
        enter_room(switch, channel, room);
    }
    wait(switch, 2.0);
    let colleague = switch.begin_call(phone_role("102", true));
    switch.answer(colleague);
    enter_room(switch, colleague, room);
    wait(switch, 4.0);
    switch.hangup(customer);
    wait(switch, 3.0);
}

/// 101 talks to a customer who called in, dials another one on a second line, and moves everyone
/// into a room.
fn conference_of_two(switch: &mut Switch) {
    let (customer, first, _) = talk(switch);
    let line = switch.begin_call(phone_role("101", true));
    switch.run(line, "Dial");
    let second = switch.dial(Some(line), outside(CITY, SECOND_CUSTOMER));
    wait(switch, 2.0);
    answer(switch, line, second);
    wait(switch, 3.0);
    let room = switch.bridge("600".to_owned(), "softmix");
    for channel in [customer, first, second] {
        switch.leave(channel);
        enter_room(switch, channel, room);
    }
    switch.hangup(line);
    wait(switch, 4.0);
    switch.hangup(second);
    wait(switch, 3.0);
    switch.hangup(customer);
}

/// An agent stays in a room. A dialer calls two customers into it, but only the first one answers.
fn dialer_room(switch: &mut Switch) {
    let agent = switch.begin_call(phone_role("101", true));
    switch.answer(agent);
    let room = switch.bridge("600".to_owned(), "softmix");
    enter_room(switch, agent, room);
    wait(switch, 10.0);
    let first = switch.dial(None, outside(CITY, CUSTOMER));
    wait(switch, 3.0);
    switch.answer(first);
    switch.end_dial(first);
    enter_room(switch, first, room);
    wait(switch, 5.0);
    switch.hangup(first);
    wait(switch, 8.0);
    let second = switch.dial(None, outside(CITY, SECOND_CUSTOMER));
    wait(switch, 5.0);
    give_up(switch, second);
    wait(switch, 4.0);
    switch.hangup(agent);
}

/// Logs 101 in as an agent, who hears music, and returns the agent and the bridge with the music.
fn log_in(switch: &mut Switch) -> (Ch, Br) {
    let agent = switch.begin_call(phone_role("101", true));
    switch.answer(agent);
    switch.run(agent, "AgentLogin");
    let pool = switch.bridge("agents".to_owned(), "holding_bridge");
    switch.enter(agent, pool);
    (agent, pool)
}

/// Two customers ask for a logged-in agent, one after the other.
fn agent_login(switch: &mut Switch) {
    let (agent, pool) = log_in(switch);
    for number in [CUSTOMER, SECOND_CUSTOMER] {
        wait(switch, 6.0);
        let customer = call_in(switch, number);
        switch.answer(customer);
        switch.run(customer, "AgentRequest");
        wait(switch, 2.0);
        meet(switch, [customer, agent]);
        wait(switch, 5.0);
        switch.hangup(customer);
        switch.enter(agent, pool);
    }
    wait(switch, 6.0);
    switch.hangup(agent);
}

/// A queue connects two customers to a logged-in agent through Local channels.
fn agent_queue(switch: &mut Switch) {
    let (agent, pool) = log_in(switch);
    for number in [CUSTOMER, SECOND_CUSTOMER] {
        wait(switch, 6.0);
        let customer = call_in(switch, number);
        switch.answer(customer);
        switch.run(customer, "Queue");
        let (near, far) = switch.dial_local(customer);
        switch.run(far, "AgentRequest");
        wait(switch, 2.0);
        meet(switch, [far, agent]);
        switch.answer(far);
        answer(switch, customer, near);
        wait(switch, 5.0);
        switch.hangup(customer);
        switch.hangup(near);
        switch.hangup(far);
        switch.enter(agent, pool);
    }
    wait(switch, 6.0);
    switch.hangup(agent);
}

fn click_to_call(switch: &mut Switch) {
    let phone = switch.dial(None, phone_role("101", false));
    wait(switch, 2.0);
    switch.answer(phone);
    switch.end_dial(phone);
    let customer = dial_out(switch, phone, CITY);
    answer(switch, phone, customer);
    wait(switch, 5.0);
    switch.hangup(phone);
}

fn forwarding(switch: &mut Switch) {
    let customer = call_in(switch, CUSTOMER);
    switch.run(customer, "Dial");
    let mobile = switch.dial(Some(customer), outside(GSM, MOBILE));
    wait(switch, 3.0);
    answer(switch, customer, mobile);
    wait(switch, 5.0);
    switch.hangup(customer);
}

fn failover(switch: &mut Switch) {
    let phone = switch.begin_call(phone_role("101", true));
    switch.run(phone, "Dial");
    let refused = switch.dial(Some(phone), outside(CITY, CUSTOMER));
    give_up(switch, refused);
    let customer = dial_out(switch, phone, GSM);
    answer(switch, phone, customer);
    wait(switch, 5.0);
    switch.hangup(phone);
}

fn voicemail(switch: &mut Switch) {
    let customer = call_in(switch, CUSTOMER);
    let phone = ring(switch, customer, "102");
    wait(switch, 4.0);
    give_up(switch, phone);
    switch.run(customer, "VoiceMail");
    switch.answer(customer);
    wait(switch, 6.0);
    switch.hangup(customer);
}

fn callback(switch: &mut Switch) {
    let customer = switch.dial(None, outside(CITY, CUSTOMER));
    wait(switch, 3.0);
    switch.answer(customer);
    switch.end_dial(customer);
    let phone = ring(switch, customer, "102");
    wait(switch, 2.0);
    answer(switch, customer, phone);
    wait(switch, 5.0);
    switch.hangup(customer);
}
