//! The changes that tests make to recordings.

use super::answer::Answer;
use super::recording::Message;
use regex::bytes::{Captures, Regex};
use std::time::Duration;

/// A fixed sequence of pseudo-random numbers.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn random_below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// Makes each message arrive up to 400 ms late.
    pub fn shuffle(&mut self, messages: &mut [Message]) {
        for message in messages.iter_mut().filter(|message| !message.is_mark()) {
            message.at = message
                .at
                .plus(Duration::from_micros(self.random_below(400_000)));
        }
        messages.sort_by_key(|message| message.at);
    }

    /// Makes each message arrive over one of two connections, one of which is slower.
    pub fn spread(&mut self, messages: &mut Vec<Message>) {
        messages.retain(|message| !message.is_mark());
        for message in messages.iter_mut() {
            message.connection = usize::from(self.random_below(2) == 1);
            let late = 180_000 * message.connection as u64;
            message.at = message.at.plus(Duration::from_micros(late));
        }
        messages.sort_by_key(|message| message.at);
    }
}

type Put = Box<dyn Fn(&Captures<'_>) -> Vec<u8>>;

/// Replaces texts in messages and in the expected calls.
pub struct Rename {
    parts: Vec<(Regex, Put)>,
    seconds: i64,
}

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("(?-u){text}")).expect("a pattern")
}

impl Rename {
    fn new(parts: Vec<(Regex, Put)>) -> Self {
        Self { parts, seconds: 0 }
    }

    /// Changes the numbers of channels, so that `PJSIP/101-00000050` becomes `PJSIP/101-00ab0050`.
    pub fn suffixes() -> Self {
        let put: Put = Box::new(|found| {
            let digits = std::str::from_utf8(&found[1]).expect("hex digits");
            let number = u32::from_str_radix(digits, 16).expect("a number");
            format!("-{:08x}", number ^ 0x00ab_0000).into_bytes()
        });
        Self::new(vec![(pattern(r"-([0-9a-f]{8})\b"), put)])
    }

    pub fn telephone(from: &str, to: &str) -> Self {
        let to = format!("PJSIP/{to}-").into_bytes();
        Self::new(vec![(
            pattern(&format!("PJSIP/{from}-")),
            Box::new(move |_| to.clone()),
        )])
    }

    /// Renames the trunk's channels, along with the dial strings that contain its name.
    pub fn trunk(from: &str, to: &str) -> Self {
        let mut this = Self::telephone(from, to);
        let to = format!("@{to}").into_bytes();
        let put: Put = Box::new(move |_| to.clone());
        this.parts.push((pattern(&format!(r"@{from}\b")), put));
        this
    }

    /// Shifts all times and unique IDs by this many seconds.
    pub fn times(seconds: i64) -> Self {
        let put: Put = Box::new(move |found| {
            let digits = std::str::from_utf8(&found[0]).expect("digits");
            let epoch: i64 = digits.parse().expect("a number");
            (epoch + seconds).to_string().into_bytes()
        });
        Self {
            parts: vec![(pattern(r"\b1795\d{6}\b"), put)],
            seconds,
        }
    }

    /// Makes all times, channels, and unique IDs different from those in another recording.
    pub fn times_and_ids(seconds: i64) -> Self {
        let mut this = Self::times(seconds);
        this.parts.extend(Self::suffixes().parts);
        // A time in microseconds has six digits after its dot, where a unique ID has a counter.
        let put: Put = Box::new(|found| [b"b-", &found[0]].concat());
        this.parts.push((pattern(r"\b1795\d{6}\.\d{1,4}\b"), put));
        this
    }

    /// Returns `true` if times change. Local times without a time zone don't.
    pub fn has_time_shift(&self) -> bool {
        self.seconds != 0
    }

    fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (pattern, put) in &self.parts {
            bytes = pattern.replace_all(&bytes, put.as_ref()).into_owned();
        }
        bytes
    }

    /// Returns the expected call after the change.
    pub fn answer(&self, call: &Answer) -> Answer {
        let text = self.bytes(call.text.as_bytes());
        let [started, ended, talk] = call.times;
        let by = 1_000_000 * self.seconds;
        Answer {
            text: String::from_utf8(text).expect("text stays text"),
            times: [started + by, ended + by, talk],
        }
    }

    pub fn message(&self, message: &Message) -> Message {
        let by = Duration::from_secs(self.seconds.unsigned_abs());
        Message {
            at: if self.seconds < 0 {
                message.at.minus(by)
            } else {
                message.at.plus(by)
            },
            bytes: self.bytes(&message.bytes),
            connection: message.connection,
        }
    }
}
