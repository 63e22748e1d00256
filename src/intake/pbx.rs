//! One PBX: the assembler of its calls, and which PBX a frame speaks of.

use super::core::Intake;
use crate::spool::{Known, Op};
use callbridge_call::{Assembler, Counts, EventTime, Kind, Told};
use std::collections::BTreeMap;

/// Counts events of calls that were over.
pub(super) const LATE: &str = "late";
/// Counts calls that were given the ids of a finished one.
pub(super) const REUSED: &str = "reused_ids";

/// The open calls of one PBX.
pub(super) struct Pbx {
    pub(super) assembler: Assembler,
    counted: Counts,
}

impl Pbx {
    pub(super) fn new(settings: callbridge_call::Settings) -> Self {
        Self {
            assembler: Assembler::new(settings),
            counted: Counts::default(),
        }
    }

    /// Where an event belongs whose channel no open call has: nowhere if it is of a finished call
    /// ([`LATE`]), to a call of its own if another call was given the ids of a finished one
    /// ([`REUSED`]; the spool then makes a letter `uuid_conflict` of it), else `None`.
    pub(super) fn place(
        &mut self,
        told: &Told<'_>,
        known: impl FnOnce(&str) -> Option<Known>,
    ) -> Option<&'static str> {
        let (uniqueid, linkedid) = match told {
            Told::Channel(event) => (&event.channel.uniqueid, &event.channel.linkedid),
            Told::Cdr(cdr) => (&cdr.uniqueid, &cdr.linkedid),
            Told::Mark(_) => return None,
        };
        if self.assembler.knows(uniqueid) || self.assembler.knows(linkedid) {
            return None;
        }
        let known = known(uniqueid)?;
        if let Told::Channel(event) = told
            && matches!(event.kind, Kind::Born { .. })
        {
            let born = event.at.map(EventTime::floor_seconds);
            if known.is_another(born, &event.channel.caller_number) {
                self.assembler.forget_finished();
                return Some(REUSED);
            }
        }
        Some(LATE)
    }

    /// What the assembler ignored or set right since the last time, as durable counters.
    pub(super) fn count(&mut self, ops: &mut Vec<Op>) {
        let (now, before) = (self.assembler.counts(), &mut self.counted);
        let pairs = [
            ("doubled", now.doubled, before.doubled),
            ("late", now.late, before.late),
            ("clock_clamped", now.clock_clamped, before.clock_clamped),
            ("unidentified", now.unidentified, before.unidentified),
            ("facts_dropped", now.facts_dropped, before.facts_dropped),
            ("ghosts", now.ghosts, before.ghosts),
            ("forced", now.forced, before.forced),
            ("cdr_unmatched", now.cdr_unmatched, before.cdr_unmatched),
        ];
        for (counter, now, before) in pairs {
            if now > before {
                ops.push(Op::Count {
                    counter: counter.to_owned(),
                    by: now - before,
                });
            }
        }
        before.clone_from(now);
    }
}

/// Which PBX a frame speaks of. The first `server_name` on a PBX's stream is that PBX; another
/// one is another PBX, whose unique ids may be the same.
pub(super) fn pbx_of(
    pbx: &str,
    server: Option<&str>,
    servers: &mut BTreeMap<String, String>,
    ops: &mut Vec<Op>,
) -> String {
    let Some(server) = server.filter(|server| !server.is_empty()) else {
        return pbx.to_owned();
    };
    match servers.get(pbx) {
        Some(first) if first == server => pbx.to_owned(),
        Some(_) => format!("{pbx}/{server}"),
        None => {
            servers.insert(pbx.to_owned(), server.to_owned());
            ops.push(Op::Meta {
                key: Intake::server_key(pbx),
                value: server.to_owned(),
            });
            pbx.to_owned()
        }
    }
}
