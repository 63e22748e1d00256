//! Calls as Asterisk 22 reports them: a recorded call with other ids, times, numbers, and leads.

use crate::expected;
use callbridge_model::clock;
use regex::{Captures, Regex};

const RECORDED: &str = include_str!("../../../tests/recordings/inbound_answered/ami.raw");
/// Time of the recording's first event, in epoch seconds.
const RECORDED_AT: i64 = 1_795_151_317;

/// A customer's call that 101 answers. It lasts five seconds, of which four are talk.
#[derive(Clone, Debug)]
pub struct Call {
    /// Number that determines the call's channels and phone number.
    pub n: u32,
    /// Start in epoch seconds.
    pub begins: i64,
    /// The value of `LEAD_ID`. `None` leaves the variable out.
    pub lead: Option<i64>,
}

/// Returns the current time in epoch seconds.
pub fn now() -> i64 {
    clock::now().wall.floor_seconds().get()
}

impl Call {
    /// Makes the `n`-th call of an hour that ends now.
    pub fn new(n: u32, lead: i64) -> Self {
        let begins = now() - 3_600 + 10 * i64::from(n);
        let lead = Some(lead);
        Self { n, begins, lead }
    }

    /// Makes the `n`-th call without a lead.
    pub fn without_lead(n: u32) -> Self {
        let mut call = Self::new(n, 1);
        call.lead = None;
        call
    }

    /// Returns its linkedid.
    pub fn linkedid(&self) -> String {
        format!("{}.{}", self.begins, 2 * self.n)
    }

    /// Returns its number.
    pub fn phone(&self) -> String {
        format!("+99890{:07}", 1_110_000 + self.n)
    }

    /// Returns its uuid on the PBX `pbx`.
    pub fn uuid(&self, pbx: &str) -> String {
        expected::uuid(pbx, &self.linkedid())
    }

    /// Returns its events, as AMI's text.
    pub fn ami(&self) -> String {
        let (_, events) = RECORDED
            .split_once("Fully Booted\r\n\r\n")
            .expect("a greeting");
        let time = Regex::new(r"Timestamp: (\d{10})\.").expect("a pattern");
        let moved = time.replace_all(events, |found: &Captures<'_>| {
            let at: i64 = found[1].parse().expect("digits");
            format!("Timestamp: {}.", at - RECORDED_AT + self.begins)
        });
        let (begins, n) = (self.begins, self.n);
        let lead = self.lead.map(|lead| lead.to_string()).unwrap_or_default();
        moved
            .replace("1795151317.146", &format!("{begins}.{}", 2 * n))
            .replace("1795151317.147", &format!("{begins}.{}", 2 * n + 1))
            .replace("city-0000004f", &format!("city-{:08x}", 2 * n))
            .replace("101-00000050", &format!("101-{:08x}", 2 * n + 1))
            .replace("aabc1d53-a423", &format!("{n:08x}-a423"))
            .replace("+998901110001", &self.phone())
            .replace("998901110001", self.phone().trim_start_matches('+'))
            .replace("LEAD_ID=4001", &format!("LEAD_ID={lead}"))
    }
}

/// Returns the events of many calls, one call after another.
pub fn recording(calls: &[Call]) -> String {
    calls.iter().map(Call::ami).collect()
}

/// Moves an Asterisk recording with all its times, and the ids made of them, so that it begins
/// then.
pub fn moved_to(recorded: &str, begins: i64) -> String {
    let second = Regex::new(r"\b(1795\d{6})\.").expect("a pattern");
    let times = second.captures_iter(recorded);
    let first = times.map(|found| found[1].parse::<i64>().expect("digits"));
    let first = first.min();
    let moved = second.replace_all(recorded, |found: &Captures<'_>| {
        let at: i64 = found[1].parse().expect("digits");
        format!("{}.", at - first.expect("a time") + begins)
    });
    moved.into_owned()
}
