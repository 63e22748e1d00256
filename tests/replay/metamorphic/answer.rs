//! The calls that result from a sequence of messages, as text.

use super::recording::{Message, Recording};
use callbridge_call::{
    Assembler, Endpoints, EventTime, FinishedCall, Origin, PbxEvent, Settings, TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

/// The kinds of events to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKinds {
    Both,
    Channel,
    Cel,
}

/// A call, consisting of the text that's compared exactly, and its start, end, and talk time in
/// microseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    pub text: String,
    pub times: [i64; 3],
}

/// How messages are received, and which of their calls' values are compared.
#[derive(Clone, Debug)]
pub struct PlayOptions {
    /// Whether a file is read long after the calls.
    pub late: bool,
    /// Whether messages arrive in their original order.
    pub in_order: bool,
    pub connections: usize,
    /// The `city` trunk's endpoint.
    pub city: String,
    pub numbers: bool,
    pub variables: bool,
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self {
            late: false,
            in_order: true,
            connections: 1,
            city: "PJSIP/city".to_owned(),
            numbers: true,
            variables: true,
        }
    }
}

impl PlayOptions {
    /// Returns the unchanged recording's calls. If the recording is received live over a single
    /// connection, the result is cached.
    pub fn unchanged_calls(&self, recording: &Recording, kinds: EventKinds) -> Vec<Answer> {
        static KNOWN: Mutex<BTreeMap<String, Vec<Answer>>> = Mutex::new(BTreeMap::new());
        if self.late || self.connections > 1 {
            return self.calls_of(recording, kinds, &recording.messages);
        }
        let (numbers, variables, city) = (self.numbers, self.variables, &self.city);
        let key = format!("{} {numbers} {variables} {city}", recording.name(kinds));
        let known = KNOWN
            .lock()
            .expect("no test fails while it writes")
            .get(&key)
            .cloned();
        known.unwrap_or_else(|| {
            let calls = self.calls_of(recording, kinds, &recording.messages);
            let mut known = KNOWN.lock().expect("no test fails while it writes");
            known.insert(key, calls.clone());
            calls
        })
    }

    /// Returns the calls that result from these messages, which are in the recording's format.
    /// `hear` selects the kinds of events.
    pub fn calls_of(
        &self,
        recording: &Recording,
        kinds: EventKinds,
        messages: &[Message],
    ) -> Vec<Answer> {
        let mut decoders: Vec<Decoder> = (0..self.connections)
            .map(|_| Decoder::new(recording.format, DecoderSettings::default()))
            .collect();
        let endpoints = vec![
            TrunkEndpoint::new("city", self.city.clone()),
            TrunkEndpoint::new("gsm", "PJSIP/gsm"),
        ];
        let endpoints = Endpoints::new(endpoints).expect("no conflict");
        let mut assembler = Assembler::new(Settings::new(endpoints));
        let off = Duration::from_secs(if self.late { 400 * 86_400 } else { 0 });
        let mut now = EventTime::from_seconds(0);
        for message in messages {
            let arrives = message.at.plus(off);
            now = if self.in_order {
                now.max(arrives)
            } else {
                arrives
            };
            let Decoded::Event { received, .. } =
                decoders[message.connection].decode(&message.bytes)
            else {
                continue;
            };
            let wanted = match (&received.event, kinds) {
                (PbxEvent::Channel(event), EventKinds::Channel) => event.origin == Origin::Channel,
                (PbxEvent::Channel(event), EventKinds::Cel) => event.origin == Origin::Cel,
                (PbxEvent::Channel(_) | PbxEvent::Cdr(_) | PbxEvent::Mark(_), _) => true,
            };
            if wanted {
                assembler.on_event(&received.event, now);
            }
        }
        if self.late {
            assembler.finish_all(now.plus(Duration::from_secs(3600)));
        } else {
            assembler.tick(now.plus(Duration::from_secs(2)));
        }
        let mut calls: Vec<Answer> = assembler
            .take_finished()
            .iter()
            .map(|call| self.answer(call))
            .collect();
        if assembler.open_calls() > 0 {
            let text = format!("{} calls left open", assembler.open_calls());
            calls.push(Answer {
                text,
                times: [0; 3],
            });
        }
        calls.sort();
        calls
    }

    /// Returns a call, with extensions in the form used in messages.
    fn answer(&self, call: &FinishedCall) -> Answer {
        let mut text = format!(
            "{} {:?} answered={} trunk={:?}",
            call.linkedid, call.direction, call.answered, call.trunk
        );
        let employees = call.employee.iter().chain(&call.employees_in_order);
        let _ = write!(text, " employee={}", call.employee.is_some());
        for extension in employees {
            let _ = write!(text, " PJSIP/{extension}-");
        }
        let _ = write!(text, " incomplete={:?}", call.incomplete);
        if self.numbers {
            let _ = write!(text, " number={:?}", call.number);
        }
        if self.variables {
            let _ = write!(text, " {:?}", call.variables);
        }
        let talk = i64::try_from(call.talk.as_micros()).expect("some hours");
        Answer {
            text,
            times: [call.started.micros(), call.ended.micros(), talk],
        }
    }
}

fn is_near(a: &Answer, b: &Answer, near: i64) -> bool {
    let mut times = a.times.iter().zip(&b.times);
    a.text == b.text && times.all(|(a, b)| (a - b).abs() <= near)
}

/// Returns the differences between two lists of calls as text, which is empty if there are none.
/// Times may differ by `near` microseconds.
pub fn difference(name: &str, before: &[Answer], after: &[Answer], near: i64) -> String {
    let mut pairs = before.iter().zip(after);
    if before.len() == after.len() && pairs.all(|(a, b)| is_near(a, b, near)) {
        return String::new();
    }
    let mut text = format!("{name}\n");
    for (mark, calls, others) in [("-", before, after), ("+", after, before)] {
        for call in calls.iter().filter(|call| !others.contains(call)) {
            let _ = writeln!(text, "  {mark} {} {:?}", call.text, call.times);
        }
    }
    text
}
