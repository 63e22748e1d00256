//! Calls that come whole, as messages (`format=call`): whose they are, and when they are judged.
//!
//! No assembler is asked: a message is a call. It names its PBX, which belongs to the first user
//! of the broker that published for it; what another publishes under that name is a letter.
//!
//! Messages of other kinds ([`MessageKind`]) come between them, and never before the calls that
//! they are about: what is stored of them follows the calls of the same batch.

use crate::{IntakeSource, owners::Owners};
use callbridge_call::{ClockDifference, Decoded, EventTime, FinishedCall, ReportedCall};
use callbridge_formats::message::{MessageKind, Outcomes, WebhookMessage};
use callbridge_model::Judged;
use callbridge_source::Frame;
use callbridge_spool::{Delivery, Finished, Op, OutcomeSource, PeerOutcome, Settlement};
use std::{collections::BTreeMap, time::Duration};

/// A call that ended so short a time before its message came happens now, and goes before backlog.
const LIVE_WITHIN: Duration = Duration::from_secs(60);

/// A call, until it is judged.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pbx: String,
    call: FinishedCall,
    /// The state before this one may have sent the call.
    possibly_sent: bool,
}

/// Operation to store with a message, or the reason for which it cannot be read.
type Taken = Result<Option<Op>, String>;

/// Calls of messages, until they are judged.
#[derive(Debug, Default)]
pub(super) struct WholeCalls {
    pub(super) waiting: Vec<WaitingCall>,
    /// Operations of other kinds of messages, which follow the calls of the same batch.
    pub(super) after_calls: Vec<Op>,
    /// Moment from which this state has read each source: calls that ended before may have been
    /// sent by the state before it.
    pub(super) possibly_sent_before: BTreeMap<String, EventTime>,
    /// The PBXs' owners; clones share one table.
    pub(super) owners: Owners,
}

impl WholeCalls {
    /// Takes one message in; what is to be stored with it.
    pub(super) fn take(
        &mut self,
        source: &mut IntakeSource,
        frame: &Frame,
        wall_ahead: ClockDifference,
    ) -> Option<Op> {
        source.note(frame, wall_ahead);
        let taken = self.read(source, frame);
        taken.unwrap_or_else(|why| Some(source.set_aside(frame, why)))
    }

    fn read(&mut self, source: &mut IntakeSource, frame: &Frame) -> Taken {
        let publisher = frame.publisher.as_deref();
        if let Some(why) = source.fault_of(frame) {
            return Err(why);
        }
        let content_type = publisher.and_then(|it| it.content_type.as_deref());
        let kind = MessageKind::of(content_type);
        let newer = content_type.and_then(|it| kind.version_fault(it));
        // Whoever may publish may say anything of anybody's calls: only our own login is believed,
        // which the broker vouches for.
        let believed = newer.is_none() && publisher.is_some_and(|it| it.is_own);
        let after_call = match kind {
            MessageKind::Call => {
                return newer.map_or_else(|| self.take_call(source, frame), Err);
            }
            MessageKind::Outcomes | MessageKind::Webhook if !believed => {
                // A message that is not for us, or that a later version understands.
                return Ok(Some(Op::count("messages_ignored", 1)));
            }
            // Calls settled by the outcomes that another state has published.
            MessageKind::Outcomes => Op::PeerOutcome(PeerOutcome::Settled(Settlement {
                outcomes: Outcomes::read(&frame.bytes)?,
                source: OutcomeSource::Stream,
                at: frame.arrived,
            })),
            // An event of the CRM that one of several machines was sent, this one or another, and
            // proved there.
            MessageKind::Webhook => {
                let reported = WebhookMessage::read(&frame.bytes)?;
                let delivery = Delivery::of_message(&reported, frame.arrived)?;
                Op::Delivery(Box::new(delivery))
            }
        };
        source.on_message();
        self.after_calls.push(after_call);
        Ok(None)
    }

    fn take_call(&mut self, source: &mut IntakeSource, frame: &Frame) -> Taken {
        let ReportedCall { pbx, mut call } = match source.decoder.decode(&frame.bytes) {
            Decoded::Call(Ok(reported)) => *reported,
            Decoded::Call(Err(wrong)) => return Err(wrong.words),
            Decoded::Event { .. } | Decoded::Skipped | Decoded::Unreadable(_) => {
                return Err("the message is not a finished call".to_owned());
            }
        };
        // A file is whose folder it is.
        let publisher = frame.publisher.as_deref();
        let owned = publisher.map(|it| self.owners.owned(&pbx, it.user.as_deref()));
        let owned = owned.transpose()?.flatten();
        source.status.read += 1;
        source.on_message();
        call.live = frame.arrived.since(call.ended) <= LIVE_WITHIN && !source.settings.file;
        let began = self.possibly_sent_before.get(&source.settings.shown);
        self.waiting.push(WaitingCall {
            possibly_sent: began.is_some_and(|began| call.ended < *began),
            pbx,
            call,
        });
        Ok(owned)
    }

    /// The calls that came since the last time, judged, and what follows them.
    pub(super) fn judged(&mut self, judge: impl Fn(&FinishedCall, &str) -> Judged) -> Vec<Op> {
        let mut ops = Vec::with_capacity(self.waiting.len() + self.after_calls.len());
        for waiting in std::mem::take(&mut self.waiting) {
            let judged = judge(&waiting.call, &waiting.pbx);
            let uuid = judged.record.uuid.filter(|_| waiting.possibly_sent);
            ops.push(Op::Finish(Box::new(Finished::new(judged, waiting.call))));
            ops.extend(uuid.map(|uuid| Op::PeerOutcome(PeerOutcome::PossiblySent(uuid))));
        }
        ops.append(&mut self.after_calls);
        ops
    }

    /// Dates what came while our clock was wrong to `now`.
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
