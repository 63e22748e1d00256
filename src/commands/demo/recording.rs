//! The recorded calls that are built into the binary, and functions that shift their times to the
//! present. Each was recorded both on Asterisk 22 and on FreeSWITCH 1.10.

use crate::config::DemoPbx;
use std::borrow::Cow;

/// A recorded call, both as AMI frames and as event socket events, with one JSON frame per line.
pub(crate) struct Recording {
    /// A short description of the call for the demo's list.
    pub story: &'static str,
    asterisk: &'static str,
    freeswitch: &'static str,
}

macro_rules! recordings {
    ($($name:literal: $story:literal,)*) => {
        &[$(Recording {
            story: $story,
            asterisk: include_str!(concat!("../../../tests/recordings/", $name, "/amiws.jsonl")),
            freeswitch: include_str!(concat!(
                "../../../tests/recordings/freeswitch/",
                $name,
                "/esl.jsonl"
            )),
        }),*]
    };
}

/// The recordings that the demo plays in parallel.
pub(crate) const RECORDINGS: &[Recording] = recordings! {
    "inbound_answered": "a customer calls, 101 answers",
    "blind_transfer": "101 transfers the customer to 102",
    "inbound_no_answer": "a missed call",
    "ring_group": "three phones ring, one answers",
    "unknown_customer": "a caller whom the CRM does not know",
    "click_to_call": "101 calls out; the CRM no longer has that lead",
    "outbound_answered": "101 calls a customer",
    "internal_call": "two colleagues talk: not journaled",
};

/// A frame, along with when it's sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedFrame {
    /// Microseconds after the first frame.
    pub after_micros: i64,
    pub text: String,
}

/// Shifts a time or unique ID by `by` seconds, or returns `None` for any other text. Times are in
/// seconds, with or without a fraction, or in microseconds.
fn shift_time(text: &str, by: i64) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (time, rest) = text.split_at(end.unwrap_or(text.len()));
    let unit = match time.len() {
        10 if rest.is_empty() || rest.starts_with('.') => 1,
        16 if rest.is_empty() => 1_000_000,
        _ => return None,
    };
    let time: i64 = time.strip_prefix("17").and(time.parse().ok())?;
    Some(format!("{}{rest}", time + by * unit))
}

/// Shifts every quoted time and unique ID in a frame by `by` seconds.
fn shift(frame: &str, by: i64) -> String {
    let parts = frame.split('"').map(|part| match shift_time(part, by) {
        Some(moved) => Cow::Owned(moved),
        None => Cow::Borrowed(part),
    });
    parts.collect::<Vec<_>>().join("\"")
}

/// Returns a frame's time in microseconds.
fn timestamp(pbx: DemoPbx, frame: &str) -> Option<i64> {
    match pbx {
        DemoPbx::Asterisk => {
            let time = quoted_after(frame, "\"Timestamp\": \"")?;
            let (seconds, micros) = time.split_once('.')?;
            Some(seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?)
        }
        DemoPbx::Freeswitch => quoted_after(frame, "\"Event-Date-Timestamp\":\"")?
            .parse()
            .ok(),
    }
}

/// Returns the text between the key and the next quotation mark.
fn quoted_after<'a>(frame: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = frame.split_once(key)?;
    rest.split('"').next()
}

impl Recording {
    /// Returns every frame with its time in microseconds.
    fn frames(&self, pbx: DemoPbx) -> impl Iterator<Item = (i64, &'static str)> {
        let text = match pbx {
            DemoPbx::Asterisk => self.asterisk,
            DemoPbx::Freeswitch => self.freeswitch,
        };
        text.lines()
            .filter_map(move |line| Some((timestamp(pbx, line)?, line)))
    }

    /// Returns the frames with their times shifted so that the first one is sent at `begin` (in
    /// whole seconds since the epoch).
    pub(crate) fn frames_from(&self, pbx: DemoPbx, begin: i64) -> Vec<TimedFrame> {
        let first = self.frames(pbx).next().map_or(0, |(at, _)| at);
        let by = begin - first.div_euclid(1_000_000);
        // A heartbeat only counts the channels in its own recording, but several recordings are
        // played at the same time.
        let heartbeat = "\"Event-Name\":\"HEARTBEAT\"";
        self.frames(pbx)
            .filter(|(_, line)| !line.contains(heartbeat))
            .map(|(at, line)| TimedFrame {
                after_micros: at - first,
                text: shift(line, by),
            })
            .collect()
    }
}

/// Returns the length of the longest recording in seconds, rounded up.
pub(crate) fn longest_recording_sec(pbx: DemoPbx) -> i64 {
    let mut longest = 0;
    for recording in RECORDINGS {
        let times: Vec<i64> = recording.frames(pbx).map(|(at, _)| at).collect();
        if let (Some(first), Some(last)) = (times.first(), times.iter().max()) {
            longest = longest.max(last - first);
        }
    }
    (longest + 999_999).div_euclid(1_000_000)
}

/// Returns the frames of all recordings in parallel, ordered by time. All recordings end by `end`
/// (in seconds since the epoch). Unique IDs remain distinct, because each recording keeps the
/// counters in its IDs and is shifted by a different amount.
pub(crate) fn schedule(pbx: DemoPbx, end: i64) -> Vec<TimedFrame> {
    let longest = longest_recording_sec(pbx);
    let mut all = Vec::new();
    // Starts are a quarter of a second apart, which makes them easier to follow.
    for (late, recording) in (0..).step_by(250_000).zip(RECORDINGS) {
        let mut frames = recording.frames_from(pbx, end - longest);
        for frame in &mut frames {
            frame.after_micros += late;
        }
        all.extend(frames);
    }
    all.sort_by_key(|frame| frame.after_micros);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ami_frame(seconds: &str) -> String {
        format!(r#"{{"Timestamp": "{seconds}.8","Uniqueid": "{seconds}.146","Num": "9989011100"}}"#)
    }

    fn switch_event(seconds: &str) -> String {
        format!(
            r#"{{"Event-Date-Timestamp":"{seconds}500000","No":"9989011100","at":"{seconds}"}}"#
        )
    }

    #[test]
    fn shift_changes_times_and_ids_but_not_numbers() {
        assert_eq!(shift(&ami_frame("1795151317"), 3), ami_frame("1795151320"));
        assert_eq!(
            shift(&switch_event("1795151317"), 3),
            switch_event("1795151320")
        );
    }

    #[test]
    fn demo_schedule_is_ordered_and_ends_after_8_to_25_seconds() {
        for pbx in [DemoPbx::Asterisk, DemoPbx::Freeswitch] {
            let frames = schedule(pbx, 1_800_000_000);
            assert!(frames.len() > 100);
            assert!(
                frames
                    .windows(2)
                    .all(|pair| pair[0].after_micros <= pair[1].after_micros)
            );
            let last = frames.last().map_or(0, |frame| frame.after_micros);
            assert!((8_000_000..25_000_000).contains(&last), "{last}");
        }
    }
}
