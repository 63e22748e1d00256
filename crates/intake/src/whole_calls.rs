//! Calls that arrive whole, with one message per call (`format=call`). They're kept here until
//! they're judged.
//!
//! Such calls don't need an assembler. Each message identifies its PBX.

use crate::IntakeSource;
use callbridge_call::{ClockDifference, Decoded, EventTime, FinishedCall, ReportedCall};
use callbridge_formats::message::version_problem;
use callbridge_model::Judged;
use callbridge_source::Frame;
use callbridge_spool::{Finished, Op};
use std::time::Duration;

/// How soon after its end a call's message must arrive for the call to be live, which means that
/// it's sent before the backlog.
const LIVE_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct WaitingCall {
    pbx: String,
    call: FinishedCall,
}

/// Calls from messages that haven't been judged yet.
#[derive(Debug, Default)]
pub(super) struct WholeCalls {
    pub(super) waiting: Vec<WaitingCall>,
}

impl WholeCalls {
    /// Processes one message, returning the operation that stores the message if it's unreadable.
    pub(super) fn take(
        &mut self,
        source: &mut IntakeSource,
        frame: &Frame,
        wall_ahead: ClockDifference,
    ) -> Option<Op> {
        source.note(frame, wall_ahead);
        match read(source, frame) {
            Ok(call) => {
                self.waiting.push(call);
                None
            }
            Err(why) => Some(source.set_aside(frame, why)),
        }
    }

    /// Judges the calls that have arrived since the last time.
    pub(super) fn judge_all(&mut self, judge: impl Fn(&FinishedCall, &str) -> Judged) -> Vec<Op> {
        let mut ops = Vec::with_capacity(self.waiting.len());
        for waiting in std::mem::take(&mut self.waiting) {
            let judged = judge(&waiting.call, &waiting.pbx);
            ops.push(Op::Finish(Box::new(Finished::new(judged, waiting.call))));
        }
        ops
    }

    /// Determines anew which calls are live, because our clock was wrong when they arrived.
    pub(super) fn clock_is_right(&mut self, now: EventTime) {
        for WaitingCall { call, .. } in &mut self.waiting {
            call.live = now.since(call.ended) <= LIVE_WITHIN;
        }
    }
}

fn read(source: &mut IntakeSource, frame: &Frame) -> Result<WaitingCall, String> {
    if let Some(why) = source.fault_of(frame) {
        return Err(why);
    }
    if let Some(why) = frame.content_type.as_deref().and_then(version_problem) {
        return Err(why);
    }
    let ReportedCall { pbx, mut call } = match source.decoder.decode(&frame.bytes) {
        Decoded::Call(Ok(reported)) => *reported,
        Decoded::Call(Err(wrong)) => return Err(wrong.message),
        Decoded::Event { .. } | Decoded::Skipped | Decoded::Unreadable(_) => {
            return Err("the message is not a finished call".to_owned());
        }
    };
    source.status.read += 1;
    source.on_message();
    call.live = frame.arrived.since(call.ended) <= LIVE_WITHIN && !source.settings.file;
    Ok(WaitingCall { pbx, call })
}
