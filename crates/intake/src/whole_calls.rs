//! Calls that come whole, as messages (`format=call`): whose they are, and when they are judged.
//!
//! No assembler is asked: a message is a call. It names its PBX, which belongs to the first user
//! of the broker that published for it; what another publishes under that name is a letter.
//!
//! Messages of other kinds ([`MessageKind`]) come between them, and never before the calls that
//! they are about: what is stored of them follows the calls of the same batch.

use super::owners::Owners;
use super::source::IntakeSource;
use callbridge_call::framing::MESSAGE_BYTES_MAX;
use callbridge_call::{Decoded, EventTime, FinishedCall, ReportedCall};
use callbridge_formats::message::{MessageKind, Outcomes, WebhookMessage};
use callbridge_model::Judged;
use callbridge_source::Frame;
use callbridge_spool::peer_outcomes::STREAM_BEGAN;
use callbridge_spool::{Delivery, Finished, Op, OutcomeSource, PeerOutcome, Settlement};
use std::collections::BTreeMap;
use std::time::Duration;

/// A call that ended so short a time before its message came happens now, and goes before backlog.
const LIVE_WITHIN: Duration = Duration::from_secs(60);

/// A call, until it is judged.
#[derive(Debug)]
struct WaitingCall {
    pbx: String,
    call: FinishedCall,
    /// It may have been sent by the state before this one.
    possibly_sent: bool,
}

/// Calls of messages, until they are judged.
#[derive(Debug, Default)]
pub(super) struct WholeCalls {
    waiting: Vec<WaitingCall>,
    /// What messages of other kinds mean for calls before them.
    after_calls: Vec<Op>,
    /// When this state began to read each source: calls that ended before may have been sent by the
    /// state before it.
    possibly_sent_before: BTreeMap<String, EventTime>,
    owners: Owners,
}

impl WholeCalls {
    /// With the users that an earlier run has met, and since when this state is there.
    pub(super) fn new(owners: Owners, possibly_sent_before: BTreeMap<String, EventTime>) -> Self {
        Self {
            owners,
            possibly_sent_before,
            ..Self::default()
        }
    }

    /// What ended before this moment may have been sent from here, or by another; what is to be
    /// stored of that.
    pub(super) fn may_have_been_sent(&mut self, shown: String, before: EventTime) -> Op {
        let key = format!("{STREAM_BEGAN}{shown}");
        self.possibly_sent_before.insert(shown, before);
        Op::meta(key, before.micros().to_string())
    }

    /// Takes one message in; what is to be stored with it.
    pub(super) fn take(&mut self, source: &mut IntakeSource, frame: &Frame) -> Option<Op> {
        source.note(frame);
        let cut_from = frame.publisher.as_deref().and_then(|it| it.cut_from);
        if let Some(length) = cut_from {
            return Some(source.set_aside(frame, too_long(length, frame.bytes.len())));
        }
        let content_type = frame.publisher.as_deref();
        let content_type = content_type.and_then(|it| it.content_type.as_deref());
        let kind = MessageKind::of(content_type);
        let newer = content_type.and_then(|it| kind.version_fault(it));
        match (kind, newer) {
            (MessageKind::Call, Some(why)) => Some(source.set_aside(frame, why)),
            (MessageKind::Call, None) => self.take_call(source, frame),
            (MessageKind::Outcomes, None) => self.take_outcomes(source, frame),
            (MessageKind::Webhook, None) => self.take_webhook(source, frame),
            (MessageKind::Outcomes | MessageKind::Webhook, Some(_)) => Some(ignored()),
        }
    }

    /// Whoever may publish may say anything of anybody's calls: only our own login is believed,
    /// which the broker vouches for.
    fn take_outcomes(&mut self, source: &mut IntakeSource, frame: &Frame) -> Option<Op> {
        let publisher = frame.publisher.as_deref();
        if !publisher.is_some_and(|it| it.is_own) {
            return Some(ignored());
        }
        let outcomes = match Outcomes::read(&frame.bytes) {
            Ok(reported) => reported,
            Err(why) => return Some(source.set_aside(frame, why)),
        };
        source.on_message();
        let settlement = Settlement {
            outcomes,
            source: OutcomeSource::Stream,
            at: frame.arrived,
        };
        self.after_calls
            .push(Op::PeerOutcome(PeerOutcome::Settled(settlement)));
        None
    }

    /// An event of the CRM that one of several machines was sent, this one or another. It was
    /// proved there: only our own login is believed.
    fn take_webhook(&mut self, source: &mut IntakeSource, frame: &Frame) -> Option<Op> {
        let publisher = frame.publisher.as_deref();
        if !publisher.is_some_and(|it| it.is_own) {
            return Some(ignored());
        }
        let reported = WebhookMessage::read(&frame.bytes);
        let delivery = match reported.and_then(|it| Delivery::of_message(&it, frame.arrived)) {
            Ok(delivery) => delivery,
            Err(why) => return Some(source.set_aside(frame, why)),
        };
        source.on_message();
        self.after_calls.push(Op::Delivery(Box::new(delivery)));
        None
    }

    fn take_call(&mut self, source: &mut IntakeSource, frame: &Frame) -> Option<Op> {
        let publisher = frame.publisher.as_deref();
        let reported = match read(source, frame) {
            Ok(reported) => reported,
            Err(why) => return Some(source.set_aside(frame, why)),
        };
        let ReportedCall { pbx, mut call } = reported;
        // A file is whose folder it is.
        let owned = publisher.map(|it| self.owners.owned(&pbx, it.user.as_deref()));
        let owned = match owned.transpose() {
            Ok(owned) => owned.flatten(),
            Err(why) => return Some(source.set_aside(frame, why)),
        };
        source.status.read += 1;
        source.on_message();
        call.live = frame.arrived.since(call.ended) <= LIVE_WITHIN && !source.settings.file;
        let began = self.possibly_sent_before.get(&source.settings.shown);
        self.waiting.push(WaitingCall {
            possibly_sent: began.is_some_and(|began| call.ended < *began),
            pbx,
            call,
        });
        owned
    }

    /// Whose the PBXs are.
    pub(super) fn owners(&self) -> Owners {
        self.owners.clone()
    }

    /// The calls that came since the last time, judged, and what follows them.
    pub(super) fn judged(&mut self, judge: impl Fn(&FinishedCall, &str) -> Judged) -> Vec<Op> {
        let mut ops = Vec::with_capacity(self.waiting.len() + self.after_calls.len());
        for waiting in std::mem::take(&mut self.waiting) {
            let WaitingCall {
                pbx,
                call,
                possibly_sent,
            } = waiting;
            let judged = judge(&call, &pbx);
            let uuid = judged.record.uuid.filter(|_| possibly_sent);
            ops.push(Op::Finish(Box::new(Finished::new(judged, call))));
            ops.extend(uuid.map(|uuid| Op::PeerOutcome(PeerOutcome::PossiblySent { uuid })));
        }
        ops.append(&mut self.after_calls);
        ops
    }

    /// What came while our clock was wrong came now.
    pub(super) fn clock_is_right(&mut self, now: EventTime) {
        for WaitingCall { call, .. } in &mut self.waiting {
            call.live = now.since(call.ended) <= LIVE_WITHIN;
        }
        for op in &mut self.after_calls {
            match op {
                Op::Delivery(delivery) => delivery.at = now,
                Op::PeerOutcome(PeerOutcome::Settled(settlement)) => settlement.at = now,
                _ => {}
            }
        }
    }
}

fn too_long(length: u64, kept: usize) -> String {
    format!(
        "the message has {length} bytes, and at most {MESSAGE_BYTES_MAX} are read: it is skipped, \
         and its first {kept} bytes are kept; let the broker refuse such (max_message_size)"
    )
}

/// A message that is not for us, or that a later version understands.
fn ignored() -> Op {
    Op::count("messages_ignored", 1)
}

/// The call of a message, or why it is none.
fn read(source: &mut IntakeSource, frame: &Frame) -> Result<ReportedCall, String> {
    match source.decoder.decode(&frame.bytes) {
        Decoded::Call(Ok(reported)) => Ok(*reported),
        Decoded::Call(Err(wrong)) => Err(wrong.words),
        Decoded::Event { .. } | Decoded::Skipped | Decoded::Unreadable(_) => {
            Err("the message is not a finished call".to_owned())
        }
    }
}
