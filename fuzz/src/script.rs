//! Events made from any bytes.

use crate::{NOW, assembler, finish};
use arbitrary::{Arbitrary, Result, Unstructured};
use callbridge_call::{
    Cdr, ChannelEvent, ChannelRef, ChannelState, EventTime, FinishedCall, Kind, Mark, Origin,
    PbxEvent,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// Names of channels, by the channel's number.
const NAMES: [&str; 8] = [
    "PJSIP/city-0000000",
    "PJSIP/gsm-0000000",
    "PJSIP/101-0000000",
    "SIP/102-0000000",
    "Local/in@x-0000000c;1",
    "Local/in@x-0000000c;2",
    "Snoop/1-0000000",
    "DAHDI/i1/",
];

/// A change, and the channels that it affects.
#[derive(Debug)]
pub struct Step {
    what: ChangeKind,
    channel: u8,
    other: u8,
    linkedid: u8,
    wait_ms: u16,
    cel: bool,
    timeless: bool,
    /// `true` if only the channel's name is reported.
    name_only: bool,
}

#[derive(Debug)]
enum ChangeKind {
    Born(u8),
    State(u8),
    Dial(Box<str>),
    Originate,
    DialEnd,
    App(Box<str>),
    Enter(u8),
    EnterLot,
    Leave(u8),
    Joined,
    Hangup,
    Gone,
    LinkedidEnd,
    Seen,
    Cdr(Box<str>),
    Mark,
    /// The program is restarted.
    Restart,
    Tick,
}

/// A sequence of events.
#[derive(Debug)]
pub struct Script {
    steps: Vec<Step>,
    /// Seconds from an event to its arrival.
    behind_sec: u16,
}

// `Arbitrary` is not derived, because its macro enables another feature of syn. Nearly all crates
// would then be compiled twice.
impl Arbitrary<'_> for Step {
    fn arbitrary(bytes: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            what: bytes.arbitrary()?,
            channel: bytes.arbitrary()?,
            other: bytes.arbitrary()?,
            linkedid: bytes.arbitrary()?,
            wait_ms: bytes.arbitrary()?,
            cel: bytes.arbitrary()?,
            timeless: bytes.arbitrary()?,
            name_only: bytes.arbitrary()?,
        })
    }
}

impl Arbitrary<'_> for ChangeKind {
    fn arbitrary(bytes: &mut Unstructured<'_>) -> Result<Self> {
        Ok(match bytes.int_in_range(0..=17)? {
            0 => Self::Born(bytes.arbitrary()?),
            1 => Self::State(bytes.arbitrary()?),
            2 => Self::Dial(bytes.arbitrary()?),
            3 => Self::Originate,
            4 => Self::DialEnd,
            5 => Self::App(bytes.arbitrary()?),
            6 => Self::Enter(bytes.arbitrary()?),
            7 => Self::EnterLot,
            8 => Self::Leave(bytes.arbitrary()?),
            9 => Self::Joined,
            10 => Self::Hangup,
            11 => Self::Gone,
            12 => Self::LinkedidEnd,
            13 => Self::Seen,
            14 => Self::Cdr(bytes.arbitrary()?),
            15 => Self::Mark,
            16 => Self::Restart,
            _ => Self::Tick,
        })
    }
}

impl Arbitrary<'_> for Script {
    fn arbitrary(bytes: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            behind_sec: bytes.arbitrary()?,
            steps: bytes.arbitrary()?,
        })
    }
}

fn state(number: u8) -> ChannelState {
    use ChannelState::{Down, PreRing, Ring, Ringing, Unknown, Up};
    [Down, Ring, PreRing, Ringing, Up, Unknown][usize::from(number) % 6]
}

fn id(number: u8) -> String {
    format!("{NOW}.{}", number % 16)
}

/// Returns the text, or an empty text if only the channel's name is reported.
fn unless_name_only(step: &Step, text: String) -> Cow<'static, str> {
    if step.name_only {
        Cow::Borrowed("")
    } else {
        Cow::Owned(text)
    }
}

fn channel(step: &Step, number: u8) -> ChannelRef<'static> {
    let name = NAMES[usize::from(number) % NAMES.len()];
    let name = if name.ends_with("0000000") {
        format!("{name}{:x}", number % 16)
    } else {
        name.to_owned()
    };
    ChannelRef {
        name: Cow::Owned(name),
        uniqueid: unless_name_only(step, id(number)),
        linkedid: unless_name_only(step, id(step.linkedid.min(number))),
        caller_number: Cow::Borrowed("998901110001"),
        variables: vec![(Cow::Borrowed("LEAD_ID"), Cow::Owned(step.other.to_string()))],
        ..ChannelRef::default()
    }
}

fn bridge(number: u8) -> Cow<'static, str> {
    Cow::Owned(format!("b{}", number % 4))
}

fn kind(step: &Step) -> Option<Kind<'static>> {
    let other = Some(Box::new(channel(step, step.other)));
    Some(match &step.what {
        ChangeKind::Born(number) => Kind::Born {
            state: state(*number),
        },
        ChangeKind::State(number) => Kind::State {
            state: state(*number),
        },
        ChangeKind::Dial(text) => Kind::DialBegin {
            by: other,
            dial_string: Cow::Owned(text.to_string()),
        },
        ChangeKind::Originate => Kind::DialBegin {
            by: None,
            dial_string: Cow::Borrowed("1@city"),
        },
        ChangeKind::DialEnd => Kind::DialEnd {
            by: other,
            status: Cow::Borrowed("ANSWER"),
        },
        ChangeKind::App(data) => Kind::App {
            name: Cow::Borrowed("Dial"),
            data: Cow::Owned(data.to_string()),
        },
        ChangeKind::Enter(number) => Kind::BridgeEnter {
            bridge: bridge(*number),
            technology: Cow::Borrowed("simple_bridge"),
        },
        ChangeKind::EnterLot => Kind::BridgeEnter {
            bridge: Cow::Borrowed("lot"),
            technology: Cow::Borrowed("holding_bridge"),
        },
        ChangeKind::Leave(number) => Kind::BridgeLeave {
            bridge: bridge(*number),
            technology: Cow::Borrowed("simple_bridge"),
        },
        ChangeKind::Joined => Kind::Joined {
            with: vec![Cow::Owned(id(step.other))],
        },
        ChangeKind::Hangup => Kind::Hangup { cause: Some(16) },
        ChangeKind::Gone => Kind::Gone,
        ChangeKind::LinkedidEnd => Kind::LinkedidEnd,
        ChangeKind::Seen => Kind::Seen,
        ChangeKind::Cdr(_) | ChangeKind::Mark | ChangeKind::Restart | ChangeKind::Tick => {
            return None;
        }
    })
}

impl Step {
    fn event(&self, at: EventTime) -> Option<PbxEvent<'static>> {
        let at = (!self.timeless).then_some(at);
        Some(match &self.what {
            ChangeKind::Cdr(text) => PbxEvent::Cdr(Box::new(Cdr {
                at,
                uniqueid: Cow::Owned(id(self.channel)),
                linkedid: Cow::Owned(id(self.linkedid)),
                userfield: Cow::Owned(text.to_string()),
                ..Cdr::default()
            })),
            ChangeKind::Mark => PbxEvent::Mark(Mark::LoggedIn),
            ChangeKind::Restart | ChangeKind::Tick => return None,
            _ => PbxEvent::Channel(ChannelEvent {
                at,
                origin: if self.cel {
                    Origin::Cel
                } else {
                    Origin::Channel
                },
                channel: channel(self, self.channel),
                kind: kind(self)?,
            }),
        })
    }
}

impl Script {
    /// Checks for any events that nothing panics, no call stays open, all figures are valid, and
    /// every new channel to a customer is part of a call.
    pub fn play(&self) {
        let mut assembler = assembler();
        let mut at = EventTime::from_seconds(NOW);
        let behind = Duration::from_secs(u64::from(self.behind_sec));
        let mut born = BTreeSet::new();
        for step in &self.steps {
            at = at.plus(Duration::from_millis(u64::from(step.wait_ms)));
            let now = at.plus(behind);
            if matches!(step.what, ChangeKind::Tick) {
                assembler.tick(now);
            }
            if matches!(step.what, ChangeKind::Restart) {
                let changes = assembler.take_changes();
                for change in changes {
                    if let Some(snapshot) = change.snapshot {
                        assembler
                            .restore(change.key, &snapshot)
                            .expect("its own snapshot");
                    }
                }
            }
            let Some(event) = step.event(at) else {
                continue;
            };
            let received = assembler.on_event(&event, now);
            let customer = matches!(step.channel % 8, 0 | 1) && !step.name_only;
            if received && customer && matches!(step.what, ChangeKind::Born(_)) {
                born.insert(id(step.channel));
            }
        }
        let calls = finish(&mut assembler, at.plus(behind));
        for id in born {
            assert!(
                calls.iter().any(|call| has_id(call, &id)),
                "{id} is part of no call: {calls:?}"
            );
        }
    }
}

fn has_id(call: &FinishedCall, id: &str) -> bool {
    let mut ids = call.also_known_as.iter().chain([&call.linkedid]);
    ids.any(|known| known.as_str() == id)
}
