//! Whether a stream is the one that was read before. Pure.
//!
//! An offset says nothing of that: a stream that was deleted and made again, restored from a copy,
//! moved to another cluster, or that lost its end with the power, has other messages under the
//! same numbers, or none. So reading begins at the message that was taken last, and goes on when
//! it is there and the same.

use crate::{StreamPosition, settings::StreamSkip};
use std::time::Duration;

/// The message that was taken last comes at once, where the stream has it.
pub const PROOF_WITHIN: Duration = Duration::from_secs(10);
/// A broker may give what stands before it once more, which takes its time.
pub const PROOF_WITHIN_MOST: Duration = Duration::from_secs(60);

/// State of a stream's identity check, from the moment the consumer is attached to it.
#[derive(Debug)]
pub struct Attached {
    stream: String,
    /// The message that has to come first; `None` once it came, or where nothing was read yet.
    awaited: Option<StreamPosition>,
    /// The message to begin with; `None`: where the reading of a stream begins.
    pub first: Option<u64>,
}

/// Classification of one message by its offset and, for the awaited one, by its hash.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// The message was taken before: acknowledged, not given to the intake.
    Known,
    /// The message was not taken before: goes to the intake.
    New,
    /// The stream is not the one that was read: why, in words.
    Replaced(String),
}

impl Attached {
    /// Chooses the message to attach at: the one that was taken last, or, where messages to be
    /// skipped come next, the one behind them.
    pub fn at(stream: &str, place: Option<&StreamPosition>, skips: &[StreamSkip]) -> Self {
        let skipped = |offset: u64| skips.iter().any(|it| it.is_of(stream, offset));
        let first = place.map(|place| {
            let next = place.offset.saturating_add(1);
            match skipped(next) {
                // what is skipped may be what no consumer survives: it is not even asked for
                true => (next..).find(|offset| !skipped(*offset)).unwrap_or(next),
                false => place.offset,
            }
        });
        let awaited = place.filter(|place| first == Some(place.offset));
        Self {
            stream: stream.to_owned(),
            awaited: awaited.cloned(),
            first,
        }
    }

    /// The stream has not shown yet that it is the one that was read.
    pub const fn is_unproved(&self) -> bool {
        self.awaited.is_some()
    }

    /// A message came, after the last that was taken, if any was.
    pub fn came(&mut self, message: &StreamPosition, last: Option<u64>) -> Message {
        let Some(awaited) = &self.awaited else {
            return match last.is_some_and(|last| message.offset <= last) {
                true => Message::Known,
                false => Message::New,
            };
        };
        let (stream, offset) = (&self.stream, awaited.offset);
        match message.offset.cmp(&offset) {
            // a broker gives whole pieces
            std::cmp::Ordering::Less => Message::Known,
            std::cmp::Ordering::Equal => {
                if awaited.message.is_some() && awaited.message != message.message {
                    return Message::Replaced(format!(
                        "stream {stream} is not the one that was read: its message {offset} is \
                         another one; {AGAIN}"
                    ));
                }
                self.awaited = None;
                Message::Known
            }
            std::cmp::Ordering::Greater => Message::Replaced(format!(
                "stream {stream} has dropped messages before they were read: {offset} was read \
                 last, and {} is the first that is left; {AGAIN}",
                message.offset
            )),
        }
    }

    /// The awaited message did not come in time.
    pub fn overdue(&self) -> String {
        let offset = self.awaited.as_ref().map_or(0, |awaited| awaited.offset);
        format!(
            "stream {} ends before message {offset}, which was read: it was made anew, restored \
             from a copy, or lost its end; {AGAIN}",
            self.stream
        )
    }
}

const AGAIN: &str = "it is read again from its first message, and calls that are known are not \
                     taken again";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageMark;

    fn message(offset: u64, hash: u64) -> StreamPosition {
        StreamPosition {
            stream: "calls".into(),
            offset,
            message: Some(MessageMark { id: None, hash }),
        }
    }

    fn attached(place: &StreamPosition) -> Attached {
        Attached::at("calls", Some(place), &[])
    }

    #[test]
    fn reading_goes_on_behind_the_message_that_was_taken_last() {
        let place = message(41, 7);
        let mut stream = attached(&place);
        assert_eq!(stream.first, Some(41));
        for before in [39, 40] {
            assert_eq!(stream.came(&message(before, 1), Some(41)), Message::Known);
            assert!(stream.is_unproved());
        }
        assert_eq!(stream.came(&place, Some(41)), Message::Known);
        assert!(!stream.is_unproved());
        assert_eq!(stream.came(&message(42, 1), Some(41)), Message::New);
        let mut fresh = Attached::at("calls", None, &[]);
        assert_eq!((fresh.first, fresh.is_unproved()), (None, false));
        assert_eq!(fresh.came(&message(5, 1), None), Message::New);
    }

    #[test]
    fn another_message_at_the_place_or_none_is_another_stream() {
        let place = message(41, 7);
        let replaced = |came: &StreamPosition| match attached(&place).came(came, Some(41)) {
            Message::Replaced(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(replaced(&message(41, 8)).contains("message 41 is another one"));
        let mut named = message(41, 7);
        named.message.as_mut().expect("a mark").id = Some("another".into());
        assert!(replaced(&named).contains("message 41 is another one"));
        assert!(replaced(&message(50, 1)).contains("41 was read last, and 50 is the first"));
        assert!(
            attached(&place)
                .overdue()
                .contains("ends before message 41")
        );
    }

    #[test]
    fn of_an_older_version_s_place_only_the_offset_is_compared() {
        let mut place = message(41, 7);
        place.message = None;
        let mut stream = attached(&place);
        assert_eq!(stream.came(&message(41, 99), Some(41)), Message::Known);
        assert!(!stream.is_unproved());
    }

    #[test]
    fn what_is_skipped_is_not_even_asked_for_where_it_comes_next() {
        let skip = |offset| StreamSkip {
            stream: "calls".to_owned(),
            offset,
        };
        let skips = [skip(42), skip(43), skip(50)];
        let mut stream = Attached::at("calls", Some(&message(41, 7)), &skips);
        assert_eq!((stream.first, stream.is_unproved()), (Some(44), false));
        assert_eq!(stream.came(&message(44, 1), Some(41)), Message::New);
        let others = Attached::at("calls", Some(&message(30, 7)), &skips);
        assert_eq!(others.first, Some(30));
        let elsewhere = Attached::at("other", Some(&message(41, 7)), &skips);
        assert_eq!(elsewhere.first, Some(41));
    }
}
