//! Simulates a call without timestamps on a line that stalls. Apart from the simulated clock,
//! pings, stall detection, and the assembler work together as they do on a live connection.

use super::Stall;
use crate::live::pings::Pings;
use callbridge_call::{
    Assembler, Endpoints, EventTime, FinishedCall, Line, Settings, Timing, TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format};
use std::collections::VecDeque;
use std::time::Duration;

/// A 17-second call with 16 seconds of talk time.
const RECORDING: &str =
    include_str!("../../../../../tests/recordings/field/asterisk-stalled-line/ami.raw");
const LENGTH: f64 = 17.0;
const TALK: f64 = 16.0;
/// Time of the call's first event.
const RECORDED_AT: f64 = 1_795_706_937.990_989;
const LINE: Line = Line {
    source: 0,
    connection: 1,
};
const STEP_MS: i64 = 20;
const LOGIN_MS: i64 = -47_300;

/// A time span during which the line doesn't deliver anything, in seconds after the call's first
/// event.
#[derive(Clone, Copy, Debug)]
struct Standstill {
    from: f64,
    length: f64,
}

impl Standstill {
    fn holds(self, ms: i64) -> bool {
        let second = ms as f64 / 1e3;
        (self.from..self.from + self.length).contains(&second)
    }
}

enum Message {
    Event(String),
    Pong { number: u64, ms: i64 },
}

struct PlayedLine {
    /// Events that the PBX has yet to send, each with its time in milliseconds.
    events: VecDeque<(i64, String)>,
    /// Messages that the PBX has sent but the line hasn't delivered yet.
    held: VecDeque<Message>,
    pings: Pings,
    sent: u64,
    next_ping_ms: i64,
    in_call: bool,
    stall: Stall,
    assembler: Assembler,
    decoder: Decoder,
    has_pong_times: bool,
}

fn time_at(ms: i64) -> EventTime {
    EventTime::from_micros((RECORDED_AT * 1e6) as i64 + ms * 1_000)
}

fn recorded_events() -> VecDeque<(i64, String)> {
    let mut events = VecDeque::new();
    let mut last = 0;
    for text in RECORDING
        .split("\r\n\r\n")
        .filter(|text| !text.trim().is_empty())
    {
        let time = text
            .lines()
            .find_map(|line| line.strip_prefix("Timestamp: "))
            .map(|time| time.parse::<f64>().expect("a time") - RECORDED_AT);
        last = time.map_or(last, |time| (time * 1e3) as i64);
        let lines = text.lines().filter(|line| !line.starts_with("Timestamp: "));
        events.push_back((last, lines.collect::<Vec<_>>().join("\r\n")));
    }
    events
}

impl PlayedLine {
    fn new(has_pong_times: bool) -> Self {
        let endpoints = vec![TrunkEndpoint::new("city", "PJSIP/city")];
        let endpoints = Endpoints::new(endpoints).expect("no conflict");
        let mut assembler = Assembler::new(Settings::new(endpoints));
        assembler.timing(Timing {
            line: Some(LINE),
            ..Timing::default()
        });
        Self {
            events: recorded_events(),
            held: VecDeque::new(),
            pings: Pings::default(),
            sent: 0,
            next_ping_ms: LOGIN_MS,
            in_call: false,
            stall: Stall::new(time_at(LOGIN_MS)),
            assembler,
            decoder: Decoder::new(Format::Ami, DecoderSettings::default()),
            has_pong_times,
        }
    }

    fn ping(&mut self, ms: i64) {
        self.sent += 1;
        self.pings.note_sent(self.sent, time_at(ms));
        let number = self.sent;
        self.held.push_back(Message::Pong { number, ms });
    }

    /// Does everything that's due at this millisecond.
    fn step(&mut self, ms: i64, standstill: Standstill) {
        while let Some((due, _)) = self.events.front()
            && *due <= ms
            && let Some((_, text)) = self.events.pop_front()
        {
            self.held.push_back(Message::Event(text));
        }
        let read = if standstill.holds(ms) {
            VecDeque::new()
        } else {
            std::mem::take(&mut self.held)
        };
        let now = time_at(ms);
        let checked = self.stall.check(now, &self.pings, !read.is_empty());
        let is_stalled = self.stall.is_stalled();
        if std::mem::replace(&mut self.stall.reported, is_stalled) != is_stalled {
            self.assembler.set_stalled(LINE, is_stalled);
        }
        for message in read {
            self.take_in(message, now);
        }
        let calls = self.assembler.open_calls() > 0;
        if calls != self.in_call {
            self.in_call = calls;
            self.next_ping_ms = if calls { ms } else { ms + 20_000 };
        }
        if checked.ping || ms >= self.next_ping_ms {
            self.ping(ms);
        }
        if ms >= self.next_ping_ms {
            self.next_ping_ms = ms + if calls { 2_000 } else { 20_000 };
        }
        if ms % 500 == 0 {
            self.assembler.tick(now);
        }
    }

    fn take_in(&mut self, message: Message, now: EventTime) {
        match message {
            Message::Event(text) => {
                if let Decoded::Event { received, .. } = self.decoder.decode(text.as_bytes()) {
                    self.assembler.on_event(&received.event, now);
                }
            }
            Message::Pong { number, ms } => {
                let at = self.has_pong_times.then(|| time_at(ms));
                if let Some(answer) = self.pings.note_answer(number, now) {
                    let (asked, answered) = (answer.asked, answer.answered);
                    self.assembler.on_answer(LINE, at, asked, answered);
                }
            }
        }
    }
}

fn play(standstill: Standstill, has_pong_times: bool) -> FinishedCall {
    let mut line = PlayedLine::new(has_pong_times);
    let mut ms = LOGIN_MS;
    loop {
        line.step(ms, standstill);
        if let Some(call) = line.assembler.take_finished().pop() {
            return call;
        }
        assert!(ms < 120_000, "{standstill:?}: no call");
        ms += STEP_MS;
    }
}

/// Returns `true` if the call's values are correct to within a second.
fn is_true(call: &FinishedCall) -> bool {
    let length = call.ended.since(call.started).as_secs_f64();
    let talk = call.talk.as_secs_f64();
    let start = call.started.since(time_at(0)) + time_at(0).since(call.started);
    call.answered
        && f64::abs(length - LENGTH) <= 1.0
        && f64::abs(talk - TALK) <= 1.0
        && start <= Duration::from_secs(1)
}

/// Promise: Without timestamps, a stall never yields a wrong value.
#[test]
fn stall_without_timestamps_yields_true_values_or_none() {
    let mut wrong = Vec::new();
    let mut complete = 0;
    for has_pong_times in [true, false] {
        for length in [4.0, 4.7, 6.0, 8.5, 12.0, 19.3, 20.0, 30.0] {
            for half_seconds in -70..38 {
                let from = f64::from(half_seconds) / 2.0 + 0.06;
                let standstill = Standstill { from, length };
                // If responses don't contain times, nothing reveals that the first channel is late.
                if !has_pong_times && from < 0.0 && from + length > 0.0 {
                    continue;
                }
                let call = play(standstill, has_pong_times);
                if call.incomplete.is_none() {
                    complete += 1;
                    if !is_true(&call) {
                        wrong.push((standstill, call.ended.since(call.started), call.talk));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {complete}: {wrong:?}", wrong.len());
    assert!(complete > 300, "only {complete} are complete");
}

#[test]
fn delay_under_a_second_leaves_an_untimed_call_complete() {
    for length in [0.0, 0.5, 0.9] {
        for second in -2..19 {
            let from = f64::from(second) + 0.03;
            let call = play(Standstill { from, length }, true);
            assert_eq!(call.incomplete, None, "{length} s at {from}");
            assert!(is_true(&call), "{length} s at {from}");
        }
    }
}
