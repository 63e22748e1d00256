//! One PBX: the assembler of its calls, and which PBX a frame speaks of.

use super::core::Intake;
use crate::spool::Op;
use callbridge_call::{Assembler, Counts};
use std::collections::BTreeMap;

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

    /// Whether the channel belongs to a call that is over: what is told of it now changes nothing.
    pub(super) fn is_late(&self, unique: &str, finished: impl FnOnce(&str) -> bool) -> bool {
        !self.assembler.knows(unique) && finished(unique)
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
