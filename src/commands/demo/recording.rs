//! The recorded calls built into the binary, moved in time.

use std::sync::LazyLock;

/// Recorded frames of an Asterisk 22 as AMI JSON, one a line.
pub(crate) struct Recording {
    name: &'static str,
    /// Its story, in a few words.
    pub story: &'static str,
}

/// Names and frames by turns, each with a zero behind it, as `build.rs` packed them.
static PACKED: LazyLock<String> = LazyLock::new(|| {
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/recordings.packed"));
    callbridge_packed::unpack(packed).unwrap_or_default()
});

macro_rules! recordings {
    ($($name:literal: $story:literal,)*) => {
        &[$(Recording { name: $name, story: $story }),*]
    };
}

/// What the demo plays.
pub(crate) const RECORDINGS: &[Recording] = recordings! {
    "inbound_answered": "a customer calls, 101 answers",
    "blind_transfer": "101 transfers the customer to 102",
    "inbound_no_answer": "a missed call",
    "ring_group": "three phones ring, one answers",
    "unknown_customer": "a caller whom the CRM does not know",
    "click_to_call": "101 calls out; the CRM no longer has that lead",
    "outbound_answered": "101 calls a customer",
    "internal_call": "two colleagues: not for the journal",
};

/// A frame and when it is told, in microseconds after the recording's first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedFrame {
    /// Microseconds after the first frame.
    pub after_micros: i64,
    pub text: String,
}

/// Seconds of the number that begins `text`, when it is `1795151317.…`: a time or a unique id.
fn epoch(text: &str) -> Option<(i64, &str)> {
    let (seconds, rest) = text.split_at_checked(10)?;
    let id_or_time = rest
        .strip_prefix('.')?
        .starts_with(|c: char| c.is_ascii_digit());
    (id_or_time && seconds.bytes().all(|b| b.is_ascii_digit()))
        .then(|| seconds.parse().ok().map(|seconds| (seconds, rest)))?
}

/// Every time and unique id of a frame moved by `by` seconds.
fn shift(frame: &str, by: i64) -> String {
    let mut moved = String::with_capacity(frame.len());
    for (at, part) in frame.split('"').enumerate() {
        if at > 0 {
            moved.push('"');
        }
        match epoch(part) {
            Some((seconds, rest)) => moved.push_str(&format!("{}{rest}", seconds + by)),
            None => moved.push_str(part),
        }
    }
    moved
}

/// The microseconds of a frame's `Timestamp`.
fn timestamp(frame: &str) -> Option<i64> {
    let (_, after) = frame.split_once("\"Timestamp\": \"")?;
    let (seconds, micros) = after.split('"').next()?.split_once('.')?;
    Some(seconds.parse::<i64>().ok()? * 1_000_000 + micros.parse::<i64>().ok()?)
}

impl Recording {
    fn frames(&self) -> &'static str {
        let mut parts = PACKED.split('\0');
        let frames = parts.find(|name| *name == self.name).and(parts.next());
        frames.unwrap_or_default()
    }

    /// The frames with their times moved so that the first is told at `begin` (whole seconds
    /// since the epoch).
    pub(crate) fn moved_to(&self, begin: i64) -> Vec<TimedFrame> {
        let Some(first) = self.frames().lines().find_map(timestamp) else {
            return Vec::new();
        };
        let by = begin - first.div_euclid(1_000_000);
        let frame = |line: &str| TimedFrame {
            after_micros: timestamp(line).map_or(0, |at| at - first),
            text: shift(line, by),
        };
        self.frames()
            .lines()
            .filter(|line| timestamp(line).is_some())
            .map(frame)
            .collect()
    }

    /// Seconds from the first frame to the last, rounded up.
    pub(crate) fn seconds(&self) -> i64 {
        let mut times = self.frames().lines().filter_map(timestamp);
        let first = times.next().unwrap_or(0);
        (times.max().unwrap_or(first) - first + 999_999).div_euclid(1_000_000)
    }
}

/// All recordings side by side, ordered by time; they all end by `end` (seconds since the epoch).
/// Unique ids stay apart: each recording keeps its own counters and moves by its own span.
pub(crate) fn schedule(end: i64) -> Vec<TimedFrame> {
    let longest = RECORDINGS.iter().map(Recording::seconds).max().unwrap_or(0);
    let mut all: Vec<TimedFrame> = RECORDINGS
        .iter()
        .enumerate()
        .flat_map(|(at, recording)| {
            // Not all in the same instant: a quarter of a second apart reads better.
            let late = 250_000 * i64::try_from(at).unwrap_or(0);
            recording
                .moved_to(end - longest)
                .into_iter()
                .map(move |frame| TimedFrame {
                    after_micros: frame.after_micros + late,
                    ..frame
                })
        })
        .collect();
    all.sort_by_key(|frame| frame.after_micros);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recording_is_built_in_whole() {
        for recording in RECORDINGS {
            let name = recording.name;
            let file = format!(
                "{}/tests/recordings/{name}/amiws.jsonl",
                env!("CARGO_MANIFEST_DIR")
            );
            let text = std::fs::read_to_string(file).expect("a recording");
            assert_eq!(recording.frames(), text, "{name}: build.rs has its name?");
        }
    }

    #[test]
    fn times_and_ids_move_and_numbers_stay() {
        let frame = |seconds: &str| {
            format!(
                r#"{{"Timestamp": "{seconds}.8","Uniqueid": "{seconds}.146","Num": "9989011100"}}"#
            )
        };
        assert_eq!(shift(&frame("1795151317"), 3), frame("1795151320"));
    }

    #[test]
    fn the_schedule_is_in_order_and_as_long_as_the_longest_call() {
        let frames = schedule(1_800_000_000);
        assert!(frames.len() > 300);
        assert!(
            frames
                .windows(2)
                .all(|pair| pair[0].after_micros <= pair[1].after_micros)
        );
        let last = frames.last().map_or(0, |frame| frame.after_micros);
        assert!((8_000_000..15_000_000).contains(&last), "{last}");
    }
}
