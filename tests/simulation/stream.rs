//! The stream of calls and outcomes, and the reader that takes it into a state.

use crate::disk::Disk;
use callbridge_call::EventTime;
use callbridge_intake::{Intake, Memory, Settings as IntakeSettings, SourceSettings};
use callbridge_mapping::journal::Rules;
use callbridge_mapping::people::People;
use callbridge_mapping::trunk::{Defaults, Trunks, parse};
use callbridge_message::kind::MessageKind;
use callbridge_source::url::SourceUrl;
use callbridge_source::{Frame, Position, Publisher, SourceId, StreamPosition};
use callbridge_spool::elsewhere::STREAM_BEGAN;
use callbridge_spool::{self as spool, Op, tables};
use std::time::Duration;

const SOURCE: &str = "amqp://sender@mq1,mq2,mq3/calls?stream=calls&format=call";
const READ: SourceId = SourceId(0);
/// Messages that a sender has in hand at once.
const DELIVERED_MAX: usize = 100;

/// A message of the stream.
pub struct StreamMessage {
    pub kind: MessageKind,
    pub body: String,
}

/// One that reads the stream into a state of its own.
pub struct StreamReader {
    pub intake: Intake,
    /// The next message.
    next: usize,
    seq: u64,
}

fn source() -> SourceSettings {
    let url = SourceUrl::parse(SOURCE).expect("a URL");
    SourceSettings::new(&url, String::new(), false)
}

/// The state of a sender that begins to read the stream now, and has sent nothing yet.
pub fn fresh(now: EventTime) -> Disk {
    let mut disk = Disk::with(spool::Settings {
        outcomes: true,
        ..spool::Settings::default()
    });
    let began = Op::Meta {
        key: format!("{STREAM_BEGAN}{}", source().shown),
        value: now.micros().to_string(),
    };
    disk.store.write(vec![began]).expect("written");
    disk
}

impl StreamReader {
    /// As the daemon starts it: with what the disk holds.
    pub fn begin(disk: &Disk, now: EventTime) -> Self {
        let trunk = parse("city=,country=UZ", &Defaults::default()).expect("a trunk");
        let settings = IntakeSettings {
            settle: Duration::from_millis(500),
            cdr_wait: Duration::from_secs(10),
            max_call: Duration::from_secs(3_600),
            max_open_calls: 100,
            zone: None,
            cel_columns: None,
            clock_right_from: EventTime::from_seconds(1_700_000_000),
            rules: Rules {
                trunks: Trunks::new(vec![trunk]).expect("trunks"),
                ..Rules::default()
            },
        };
        let source = source();
        let kept = tables::positions::position(&disk.store, &source.shown).expect("readable");
        let next = kept.map_or(0, |json| match serde_json::from_value(json) {
            Ok(Position::Stream(place)) => usize::try_from(place.offset).expect("few") + 1,
            other => panic!("no place of a stream: {other:?}"),
        });
        let below = |prefix| tables::meta::meta_below(&disk.store, prefix).expect("readable");
        let began = below(STREAM_BEGAN).into_iter().map(|(shown, micros)| {
            let micros = micros.parse().expect("a number");
            (shown, EventTime::from_micros(micros))
        });
        let memory = Memory {
            owners: below(callbridge_intake::owners::OWNER_PREFIX).into(),
            remade_before: began.collect(),
            ..Memory::default()
        };
        let mut intake = Intake::new(settings, vec![source], memory).expect("no conflict");
        intake.tick(now);
        intake.up(READ, now);
        Self {
            intake,
            next,
            seq: 0,
        }
    }

    /// There is nothing more for it.
    pub fn has_read(&self, stream: &[StreamMessage]) -> bool {
        self.next == stream.len()
    }

    /// Takes what is delivered; one transaction, where there is anything.
    pub fn hear(&mut self, stream: &[StreamMessage], now: EventTime) -> Option<Vec<Op>> {
        let delivered = stream
            .iter()
            .enumerate()
            .skip(self.next)
            .take(DELIVERED_MAX);
        let mut last = None;
        self.intake.tick(now);
        for (offset, message) in delivered {
            self.seq += 1;
            let is_own = message.kind == MessageKind::Outcomes;
            let user = if is_own { "sender" } else { "collector" };
            let frame = Frame {
                seq: self.seq,
                arrived: now,
                bytes: message.body.clone().into(),
                position: Some(Position::Stream(StreamPosition {
                    stream: "calls".into(),
                    offset: u64::try_from(offset).expect("few"),
                    message: None,
                })),
                publisher: Some(Box::new(Publisher {
                    user: Some(user.into()),
                    content_type: Some(message.kind.content_type().into()),
                    is_own,
                    cut_from: None,
                })),
            };
            let heard = self.intake.frame(READ, &frame, &mut |_, _| None);
            heard.expect("no conflict");
            last = Some(offset);
        }
        self.next = last? + 1;
        Some(self.intake.take(&People::default(), now).ops)
    }
}
