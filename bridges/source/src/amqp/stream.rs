//! What is a stream's alone: where it is read from, which message it was, who published it.

use crate::{MessageMark, Publisher, StreamFrom, StreamPosition, item::hash};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Queue, options::QueueDeclareOptions};
use smol_str::SmolStr;
use std::{collections::BTreeMap, time::Duration};

/// Name of the offset in the messages' headers, and in the consumer's arguments.
const OFFSET: &str = "x-stream-offset";

/// A stream that gives nothing for so long is consumed again: it costs two short exchanges.
pub(super) const QUIET_MAX: Duration = Duration::from_secs(30);

/// Retention (`x-max-age`) of a stream that we make: long enough for a state to be made anew.
pub(super) const KEPT: &str = "30D";
/// Bytes that such a stream keeps at most, for whoever may publish may flood it: some 15 million
/// calls.
pub(super) const KEPT_BYTES: i64 = 10_000_000_000;

/// The arguments of a consumer that begins with this message, or where a stream is begun.
pub(super) fn from(first: Option<u64>, otherwise: StreamFrom) -> FieldTable {
    let text = |text: String| AMQPValue::LongString(text.into());
    let first = first.and_then(|first| i64::try_from(first).ok());
    let offset = match (first, otherwise) {
        (Some(first), _) => AMQPValue::LongLongInt(first),
        (None, StreamFrom::First) => text("first".to_owned()),
        (None, StreamFrom::Ago(time)) => text(format!("{}s", time.as_secs().max(1))),
        (None, StreamFrom::At(at)) => {
            let seconds = u64::try_from(at.floor_seconds().get()).unwrap_or(0);
            AMQPValue::Timestamp(seconds)
        }
    };
    FieldTable::from(BTreeMap::from([(OFFSET.into(), offset)]))
}

/// Returns the offset of a message and the hash of its body; `None` where its headers have no
/// offset.
pub fn place(stream: &str, properties: &BasicProperties, body: &[u8]) -> Option<StreamPosition> {
    let headers = properties.headers().as_ref()?;
    let offset = match headers.inner().get(OFFSET)? {
        AMQPValue::LongLongInt(offset) => u64::try_from(*offset).ok()?,
        _ => return None,
    };
    let (id, hash) = (text(properties.message_id()), hash(body));
    Some(StreamPosition {
        stream: SmolStr::from(stream),
        offset,
        message: Some(MessageMark { id, hash }),
    })
}

fn text(text: &Option<ShortString>) -> Option<SmolStr> {
    text.as_ref().map(|it| SmolStr::from(it.as_str()))
}

/// Reads the publisher's properties of a message; `login` is the user that we log in as.
pub fn publisher(properties: &BasicProperties, login: &str) -> Publisher {
    let user = text(properties.user_id());
    Publisher {
        is_own: user.as_deref() == Some(login),
        user,
        content_type: text(properties.content_type()),
    }
}

/// The arguments that make a queue a stream which keeps so much, for so long.
pub fn arguments(kept: &str, bytes: i64) -> FieldTable {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("stream"));
    arguments.insert("x-max-age".into(), text(kept));
    arguments.insert("x-max-length-bytes".into(), AMQPValue::LongLongInt(bytes));
    arguments
}

/// A queue or stream that is there; a refusal closes the channel.
pub(super) async fn find(channel: &Channel, name: &str) -> Result<Queue, lapin::Error> {
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let found = channel.queue_declare(name.into(), passive, FieldTable::default());
    found.await
}

/// Makes a durable queue or stream that is missing; a refusal closes the channel.
pub(super) async fn declare(
    channel: &Channel,
    name: &str,
    arguments: FieldTable,
) -> Result<(), lapin::Error> {
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let made = channel.queue_declare(name.into(), durable, arguments);
    made.await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::EventTime;

    fn offset(first: Option<u64>, otherwise: StreamFrom) -> AMQPValue {
        from(first, otherwise).inner()[OFFSET].clone()
    }

    #[test]
    fn reading_begins_with_a_message_or_where_it_is_said() {
        let text = |text: &str| AMQPValue::LongString(text.into());
        assert_eq!(
            offset(Some(41), StreamFrom::First),
            AMQPValue::LongLongInt(41)
        );
        assert_eq!(offset(None, StreamFrom::First), text("first"));
        let days = StreamFrom::Ago(Duration::from_secs(30 * 86_400));
        assert_eq!(offset(None, days), text("2592000s"));
        let at = StreamFrom::At(EventTime::from_seconds(1_795_151_317));
        assert_eq!(offset(None, at), AMQPValue::Timestamp(1_795_151_317));
    }

    #[test]
    fn a_message_says_which_one_it_is() {
        let mut headers = FieldTable::default();
        headers.insert(OFFSET.into(), AMQPValue::LongLongInt(7));
        let properties = BasicProperties::default()
            .with_headers(headers)
            .with_message_id("a".into());
        let place = |properties: &BasicProperties| place("calls", properties, b"body");
        let seventh = place(&properties).expect("an offset");
        let mark = seventh.message.expect("a mark");
        assert_eq!((seventh.offset, mark.id.as_deref()), (7, Some("a")));
        assert_eq!(mark.hash, hash(b"body"));
        assert_eq!(place(&BasicProperties::default()), None);
    }
}
