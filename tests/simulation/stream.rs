//! The stream of calls and outcomes, with all that may become of it, and the reader that takes it
//! into a state.

use crate::disk::Disk;
use callbridge_call::EventTime;
use callbridge_formats::message::MessageKind;
use callbridge_intake::owners::{OWNER_PREFIX, Owners};
use callbridge_intake::{Intake, Memory, Settings as IntakeSettings, SourceSettings};
use callbridge_mapping::trunk::parse;
use callbridge_mapping::{People, Rules, Trunk, Trunks};
use callbridge_source::amqp::attached::{Attached, Message, PROOF_WITHIN};
use callbridge_source::amqp::stream_place;
use callbridge_source::{Frame, Position, Publisher, SourceId, SourceUrl, StreamPosition};
use callbridge_spool::STREAM_BEGAN;
use callbridge_spool::{self as spool, Op, tables};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const STREAM: &str = "calls";
const SOURCE: &str = "amqp://sender@mq1,mq2,mq3/calls?stream=calls&format=call";
const READ: SourceId = SourceId(0);
/// Messages that a sender has in hand at once.
const DELIVERED_MAX: usize = 100;

/// A message of the stream.
pub struct StreamMessage {
    pub kind: MessageKind,
    pub body: String,
    /// When it was published.
    pub at: EventTime,
}

/// What the broker has of the stream.
#[derive(Default)]
pub struct Stream {
    messages: VecDeque<StreamMessage>,
    /// The offset of the first that is left.
    first: usize,
}

impl Stream {
    pub fn push(&mut self, message: StreamMessage) {
        self.messages.push_back(message);
    }

    /// The offset that the next message will have.
    pub fn end(&self) -> usize {
        self.first + self.messages.len()
    }

    /// It is deleted and declared again, or its last messages are gone: what comes has their
    /// offsets.
    pub fn end_at(&mut self, end: usize) {
        self.first = self.first.min(end);
        self.messages.truncate(end - self.first);
    }

    /// Where what was published from this moment on begins.
    pub fn since(&self, at: EventTime) -> usize {
        self.first + self.messages.partition_point(|it| it.at < at)
    }

    /// Retention has taken what stands before this offset.
    pub fn begin_at(&mut self, first: usize) {
        let gone = first.saturating_sub(self.first).min(self.messages.len());
        self.messages.drain(..gone);
        self.first += gone;
    }

    fn get(&self, offset: usize) -> Option<&StreamMessage> {
        self.messages.get(offset.checked_sub(self.first)?)
    }
}

/// What a broker says of a message's place.
fn position(offset: usize, body: &str) -> StreamPosition {
    let mut headers = FieldTable::default();
    let offset = i64::try_from(offset).expect("few");
    headers.insert("x-stream-offset".into(), AMQPValue::LongLongInt(offset));
    let properties = BasicProperties::default().with_headers(headers);
    stream_place(STREAM, &properties, body.as_bytes()).expect("an offset")
}

/// One that reads the stream into a state of its own.
pub struct StreamReader {
    pub intake: Intake,
    /// The message that was taken last.
    place: Option<StreamPosition>,
    /// `None` before it is attached, and after its line was lost.
    attached: Option<Attached>,
    attached_at: EventTime,
    /// The offset that the broker gives next.
    next: usize,
    seq: u64,
    /// A planted fault: it takes a stream for the one that it has read, whatever is in it.
    pub believes: bool,
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
        let trunk = parse("city=,country=UZ", &Trunk::default()).expect("a trunk");
        let settings = IntakeSettings {
            calls: callbridge_call::Settings {
                cdr_wait: Some(Duration::from_secs(10)),
                max_call: Duration::from_secs(3_600),
                max_open_calls: 100,
                ..callbridge_call::Settings::new(Default::default())
            },
            zone: None,
            columns: None,
            clock_right_from: EventTime::from_seconds(1_700_000_000),
            rules: Rules {
                trunks: Trunks::new(vec![trunk]).expect("trunks"),
                ..Rules::default()
            },
        };
        let source = source();
        let kept = tables::resume::position(&disk.store, &source.shown).expect("readable");
        let place = kept.map(|json| match serde_json::from_value(json) {
            Ok(Position::Stream(place)) => place,
            other => panic!("no place of a stream: {other:?}"),
        });
        let below = |prefix| tables::meta::meta_below(&disk.store, prefix).expect("readable");
        let began = below(STREAM_BEGAN).into_iter().map(|(shown, micros)| {
            let micros = micros.parse().expect("a number");
            (shown, EventTime::from_micros(micros))
        });
        let memory = Memory {
            owners: Owners::named(below(OWNER_PREFIX), BTreeMap::new()).0,
            possibly_sent_before: began.collect(),
            ..Memory::default()
        };
        let mut intake = Intake::new(settings, vec![source], memory).expect("no conflict");
        intake.tick(now);
        intake.up(READ, now);
        Self {
            intake,
            place,
            attached: None,
            attached_at: now,
            next: 0,
            seq: 0,
            believes: false,
        }
    }

    /// There is nothing more for it.
    pub fn has_read(&self, stream: &Stream) -> bool {
        let proved = |it: &Attached| !it.is_unproved();
        self.attached.as_ref().is_some_and(proved) && self.next == stream.end()
    }

    /// The line to the broker is lost.
    pub fn line_lost(&mut self) {
        self.attached = None;
    }

    fn attach(&mut self, stream: &Stream, now: EventTime) -> Attached {
        let attached = Attached::at(STREAM, self.place.as_ref(), &[]);
        let first = attached.first.map(|it| usize::try_from(it).expect("few"));
        // A broker that has not so many messages gives those that come.
        self.next = first.unwrap_or(0).clamp(stream.first, stream.end());
        self.attached_at = now;
        match self.believes {
            true => Attached::at(STREAM, None, &[]),
            false => attached,
        }
    }

    /// The stream is another one, and is read from its first message.
    fn replaced(&mut self, why: String, stream: &Stream, now: EventTime) {
        self.intake.replaced(READ, why, now);
        self.place = None;
        self.attached = Some(self.attach(stream, now));
    }

    /// Takes what is delivered; one transaction, where there is anything.
    pub fn on_event(&mut self, stream: &Stream, now: EventTime) -> Option<Vec<Op>> {
        self.intake.tick(now);
        if self.attached.is_none() {
            self.attached = Some(self.attach(stream, now));
        }
        let mut is_changed = false;
        for _ in 0..DELIVERED_MAX {
            let Some(message) = stream.get(self.next) else {
                break;
            };
            let place = position(self.next, &message.body);
            self.next += 1;
            let last = self.place.as_ref().map(|it| it.offset);
            let attached = self.attached.as_mut().expect("attached");
            match attached.came(&place, last) {
                Message::Known => {}
                Message::New => {
                    self.take(message, place, now);
                    is_changed = true;
                }
                Message::Replaced(why) => {
                    self.replaced(why, stream, now);
                    is_changed = true;
                }
            }
        }
        let overdue = now.since(self.attached_at) >= PROOF_WITHIN;
        let attached = self.attached.as_ref().filter(|it| it.is_unproved());
        if let Some(attached) = attached.filter(|_| overdue) {
            let why = attached.overdue();
            self.replaced(why, stream, now);
            is_changed = true;
        }
        is_changed.then(|| self.intake.take(&People::default(), now).ops)
    }

    fn take(&mut self, message: &StreamMessage, place: StreamPosition, now: EventTime) {
        self.seq += 1;
        let is_own = message.kind == MessageKind::Outcomes;
        let user = if is_own { "sender" } else { "collector" };
        let frame = Frame {
            seq: self.seq,
            arrived: now,
            bytes: message.body.clone().into(),
            position: Some(Position::Stream(place.clone())),
            publisher: Some(Box::new(Publisher {
                user: Some(user.into()),
                content_type: Some(message.kind.content_type().into()),
                is_own,
            })),
            details: None,
        };
        let received = self.intake.frame(READ, &frame, &mut |_, _| None);
        received.expect("no conflict");
        self.place = Some(place);
    }
}
