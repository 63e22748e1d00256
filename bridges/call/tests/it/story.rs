//! Describes calls as events for use in tests, e.g., `story.at(0.0).create(&city, Ring)`.

use callbridge_call::{
    Assembler, Cdr, ChannelEvent, ChannelRef, ChannelState, Endpoints, EventTime, Extension,
    FinishedCall, Kind, Origin, PbxEvent, Settings, TrunkEndpoint,
};
use std::borrow::Cow;
use std::time::Duration;

/// When all stories start, in seconds since 1970.
pub const EPOCH: i64 = 1_795_000_000;

/// Returns the time `seconds` after the start of the story.
pub fn moment(seconds: f64) -> EventTime {
    EventTime::from_micros(EPOCH * 1_000_000 + (seconds * 1e6).round() as i64)
}

/// A channel as described by its events.
#[derive(Clone, Debug)]
pub struct Channel(pub ChannelRef<'static>);

/// Returns a channel with the unique ID `1795000000.NUMBER` that starts a call.
pub fn channel(name: &str, number: u32) -> Channel {
    let id = format!("{EPOCH}.{number}");
    Channel(ChannelRef {
        name: Cow::Owned(name.to_owned()),
        uniqueid: Cow::Owned(id.clone()),
        linkedid: Cow::Owned(id),
        ..ChannelRef::default()
    })
}

impl Channel {
    /// Sets the channel's linkedid to that of `other`, so that both belong to the same call.
    pub fn join_call(mut self, other: &Channel) -> Self {
        self.0.linkedid = other.0.linkedid.clone();
        self
    }

    pub fn caller(mut self, number: &str) -> Self {
        self.0.caller_number = Cow::Owned(number.to_owned());
        self
    }

    pub fn exten(mut self, exten: &str) -> Self {
        self.0.exten = Cow::Owned(exten.to_owned());
        self
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.0
            .variables
            .push((Cow::Owned(name.to_owned()), Cow::Owned(value.to_owned())));
        self
    }

    /// Sets the application that the channel is running, as reported by CEL in every row.
    pub fn running(mut self, application: &str, data: &str) -> Self {
        self.0.application = Cow::Owned(application.to_owned());
        self.0.app_data = Cow::Owned(data.to_owned());
        self
    }

    pub fn id(&self) -> &str {
        &self.0.uniqueid
    }
}

/// Events in arrival order, along with when they arrive.
#[derive(Clone)]
pub struct Story {
    pub events: Vec<(EventTime, PbxEvent<'static>)>,
    now: EventTime,
    origin: Origin,
}

impl Story {
    /// Creates an empty story of AMI channel events.
    pub fn new() -> Self {
        Self {
            events: Vec::new(),
            now: moment(0.0),
            origin: Origin::Channel,
        }
    }

    /// Creates an empty story of CEL events.
    pub fn from_cel() -> Self {
        Self {
            origin: Origin::Cel,
            ..Self::new()
        }
    }

    /// Returns a story with these events, but with this story's clock and origin.
    pub fn with_events(&self, events: Vec<(EventTime, PbxEvent<'static>)>) -> Self {
        Self {
            events,
            now: self.now,
            origin: self.origin,
        }
    }

    /// Sets whether subsequent events come from CEL or are AMI channel events.
    pub fn set_origin(&mut self, origin: Origin) -> &mut Self {
        self.origin = origin;
        self
    }

    /// Sets the second at which subsequent events happen.
    pub fn at(&mut self, seconds: f64) -> &mut Self {
        self.now = moment(seconds);
        self
    }

    /// Adds an event of `channel` at the story's current time.
    pub fn add_event(&mut self, channel: &Channel, kind: Kind<'static>) -> &mut Self {
        let (at, origin) = (Some(self.now), self.origin);
        let event = ChannelEvent {
            at,
            origin,
            channel: channel.0.clone(),
            kind,
        };
        self.events.push((self.now, PbxEvent::Channel(event)));
        self
    }

    pub fn create(&mut self, channel: &Channel, state: ChannelState) -> &mut Self {
        self.add_event(channel, Kind::Born { state })
    }

    pub fn state(&mut self, channel: &Channel, state: ChannelState) -> &mut Self {
        self.add_event(channel, Kind::State { state })
    }

    pub fn dial(&mut self, by: &Channel, to: &Channel, string: &str) -> &mut Self {
        let by = Some(Box::new(by.0.clone()));
        self.add_event(
            to,
            Kind::DialBegin {
                by,
                dial_string: Cow::Owned(string.to_owned()),
            },
        )
    }

    /// Adds the event for `to` being dialed by a program rather than by a channel.
    pub fn originate(&mut self, to: &Channel, string: &str) -> &mut Self {
        self.add_event(
            to,
            Kind::DialBegin {
                by: None,
                dial_string: Cow::Owned(string.to_owned()),
            },
        )
    }

    pub fn app(&mut self, channel: &Channel, name: &str, data: &str) -> &mut Self {
        let (name, data) = (Cow::Owned(name.to_owned()), Cow::Owned(data.to_owned()));
        self.add_event(channel, Kind::App { name, data })
    }

    pub fn enter(&mut self, channel: &Channel, bridge: &str) -> &mut Self {
        self.enter_kind(channel, bridge, "simple_bridge")
    }

    pub fn enter_kind(&mut self, channel: &Channel, bridge: &str, technology: &str) -> &mut Self {
        let (bridge, technology) = (
            Cow::Owned(bridge.to_owned()),
            Cow::Owned(technology.to_owned()),
        );
        self.add_event(channel, Kind::BridgeEnter { bridge, technology })
    }

    pub fn leave(&mut self, channel: &Channel, bridge: &str) -> &mut Self {
        self.leave_kind(channel, bridge, "simple_bridge")
    }

    pub fn leave_kind(&mut self, channel: &Channel, bridge: &str, technology: &str) -> &mut Self {
        let (bridge, technology) = (
            Cow::Owned(bridge.to_owned()),
            Cow::Owned(technology.to_owned()),
        );
        self.add_event(channel, Kind::BridgeLeave { bridge, technology })
    }

    pub fn join(&mut self, channel: &Channel, with: &Channel) -> &mut Self {
        self.add_event(
            channel,
            Kind::Joined {
                with: vec![with.0.uniqueid.clone()],
            },
        )
    }

    /// Adds an event that merely shows the channel and its values, such as `NewCallerid`.
    pub fn mention(&mut self, channel: &Channel) -> &mut Self {
        self.add_event(channel, Kind::Seen)
    }

    pub fn hangup(&mut self, channel: &Channel) -> &mut Self {
        self.add_event(channel, Kind::Hangup { cause: Some(16) })
    }

    pub fn hangups(&mut self, channels: &[&Channel]) -> &mut Self {
        for channel in channels {
            self.hangup(channel);
        }
        self
    }

    /// Adds the CDR of `channel` with this user field.
    pub fn cdr(&mut self, channel: &Channel, userfield: &str) -> &mut Self {
        let cdr = Cdr {
            at: Some(self.now),
            uniqueid: channel.0.uniqueid.clone(),
            linkedid: channel.0.linkedid.clone(),
            userfield: Cow::Owned(userfield.to_owned()),
            ..Cdr::default()
        };
        self.events.push((self.now, PbxEvent::Cdr(Box::new(cdr))));
        self
    }

    /// Returns the story's finished calls, oldest first, after checking that they stay the same if
    /// the events come from a file a year later or if each event arrives twice.
    pub fn calls(&self) -> Vec<FinishedCall> {
        let live = run(&self.events);
        let year = Duration::from_secs(365 * 86400);
        let file = self
            .events
            .iter()
            .map(|(_, event)| (moment(0.0).plus(year), event.clone()));
        let file = run(&file.collect::<Vec<_>>());
        assert_eq!(set_live(&live), set_live(&file), "live, then from a file");
        let twice = self
            .events
            .iter()
            .flat_map(|event| [event.clone(), event.clone()]);
        assert_eq!(
            set_live(&live),
            set_live(&run(&twice.collect::<Vec<_>>())),
            "once, then twice"
        );
        live
    }

    /// Returns the call of a story that has exactly one.
    pub fn call(&self) -> FinishedCall {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "{calls:#?}");
        calls.remove(0)
    }
}

/// Returns the settings used for all stories.
pub fn settings() -> Settings {
    let trunks = [
        ("city", "PJSIP/city"),
        ("gsm", "PJSIP/gsm"),
        ("carrier", "SIP/carrier"),
        ("span", "DAHDI/i1"),
    ];
    let endpoints = trunks.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    Settings::new(Endpoints::new(endpoints.to_vec()).expect("no conflict"))
}

pub fn assembler() -> Assembler {
    Assembler::new(settings())
}

fn run(events: &[(EventTime, PbxEvent<'static>)]) -> Vec<FinishedCall> {
    let mut assembler = assembler();
    let mut now = moment(0.0);
    for (arrived, event) in events {
        now = now.max(*arrived);
        assembler.on_event(event, now);
    }
    assembler.tick(now.plus(Duration::from_secs(1)));
    assert_eq!(assembler.open_calls(), 0, "open calls");
    let mut calls = assembler.take_finished();
    calls.sort_by(|a, b| a.linkedid.age().cmp(&b.linkedid.age()));
    calls
}

/// Returns the calls with `live` set, so that live calls can be compared with those from a file.
fn set_live(calls: &[FinishedCall]) -> Vec<FinishedCall> {
    calls
        .iter()
        .cloned()
        .map(|call| FinishedCall { live: true, ..call })
        .collect()
}

/// Returns the talk time and the duration of the call, both in seconds.
pub fn seconds(call: &FinishedCall) -> (f64, f64) {
    (
        call.talk.as_secs_f64(),
        call.ended.since(call.started).as_secs_f64(),
    )
}

pub fn extensions(call: &FinishedCall) -> Vec<&str> {
    call.employees_in_order
        .iter()
        .map(Extension::as_str)
        .collect()
}

pub fn employee(call: &FinishedCall) -> Option<&str> {
    call.employee.as_ref().map(Extension::as_str)
}

/// Returns the text of the customer's number, and whether it came from a dial string.
pub fn number(call: &FinishedCall) -> Option<(&str, bool)> {
    call.number
        .as_ref()
        .map(|number| (number.text.as_str(), number.from_dial_string))
}

/// Returns a call in progress from a customer that 101 answered after one second, along with the
/// customer's channel on the trunk `city` and 101's channel.
pub fn answered_by_101() -> (Story, Channel, Channel) {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let mut story = Story::new();
    story.at(0.0).create(&city, ChannelState::Ring);
    story
        .create(&phone, ChannelState::Down)
        .dial(&city, &phone, "101");
    story
        .at(1.0)
        .state(&phone, ChannelState::Up)
        .enter(&phone, "b1")
        .enter(&city, "b1");
    (story, city, phone)
}

/// Returns a customer's channel on the trunk `city`. `number` makes its name and ID unique.
pub fn customer(number: u32) -> Channel {
    channel(&format!("PJSIP/city-{number:08x}"), number)
        .caller("+998901110001")
        .exten("7001")
}

/// Prints one event per line, so that a failing property test shows its story.
impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, pbx_event) in &self.events {
            let PbxEvent::Channel(event) = pbx_event else {
                continue;
            };
            writeln!(
                f,
                "{at} {} {} l={} {:?}",
                event.channel.name, event.channel.uniqueid, event.channel.linkedid, event.kind
            )?;
        }
        Ok(())
    }
}
