//! The lease that decides which of several machines sends (`--standby`).

use super::fleet::{FleetMember, Liveness};
use super::verdict::todo;
use super::{FindingKind, Status, Todo};
use crate::Zone;
use crate::safe::safe;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The state of this process in its contest for the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum LeasePhase {
    /// Another process holds the lease, or none does: nothing is sent from here.
    #[default]
    Standby,
    /// The lease has come to us, and we keep silent until no request of another can count any more.
    Silent,
    /// The lease is ours, and we send.
    Holding,
}

impl LeasePhase {
    /// The phase as JSON spells it: `standby`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The lease, as `status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Lease {
    /// The queue that decides it: the name of `--standby`.
    pub name: String,
    /// The phase of this process.
    pub state: LeasePhase,
    /// Epoch seconds since which the phase lasts.
    pub since: i64,
    /// Epoch seconds until which nothing is sent yet; `null` outside the silent phase.
    pub silent_until: Option<i64>,
    /// Other processes whose ticks arrived lately; known only to the one that the lease has come
    /// to.
    pub others: Vec<String>,
    /// Milliseconds from the publishing of the last tick to its return; `null` before one returned.
    pub round_trip_ms: Option<u64>,
    /// The reason for which the queue cannot be used; `null` while it can.
    pub why: Option<String>,
    /// Epoch seconds since which it has been held here while nothing could be sent; `null` while it
    /// is not held, or something could be.
    pub unable_since: Option<i64>,
    /// Another process that could send in that time; `null` where none reports so.
    pub able_standby: Option<String>,
}

impl Lease {
    /// Returns `true` where requests may leave from here.
    pub fn is_held(&self) -> bool {
        self.state == LeasePhase::Holding
    }

    /// Appends the line that begins with `lease`.
    pub(super) fn to_text(&self, text: &mut String, zone: &Zone) {
        let (name, since) = (safe(&self.name), zone.second(self.since));
        let (phase, effect) = match self.state {
            LeasePhase::Holding => ("held", ""),
            LeasePhase::Silent => ("ours", ""),
            LeasePhase::Standby => ("standing by", ", nothing is sent from here"),
        };
        let _ = write!(text, "lease    {name}: {phase} since {since}{effect}");
        if let (LeasePhase::Silent, Some(until)) = (self.state, self.silent_until) {
            let until = zone.second(until);
            let because = "for another may have sent just before";
            let _ = write!(text, "\n         silent until {until}, {because}");
        }
        if !self.others.is_empty() {
            let others: Vec<String> = self.others.iter().map(|it| safe(it)).collect();
            let _ = write!(text, "; other machines: {}", others.join(", "));
        }
        text.push('\n');
    }
}

/// The queue of the lease cannot be used, so nobody knows here whose turn it is.
pub(super) fn unusable(status: &Status, found: &mut Vec<Todo>) {
    let lease = status.lease.as_ref();
    if let Some((name, why)) = lease.and_then(|it| Some((&it.name, it.why.as_ref()?))) {
        let what = format!(
            "the lease {name} cannot be held or taken over ({why}); calls are kept until then"
        );
        let values = [name.clone(), why.clone()];
        let unusable = todo(FindingKind::Lease, what, status.check());
        found.push(unusable.with_code("lease_unusable", values));
    }
}

/// Finds a holder of the lease that cannot send: this machine, or another of the fleet.
pub(super) fn holder_cannot_send(status: &Status, found: &mut Vec<Todo>) {
    let Some(lease) = &status.lease else { return };
    let at = |seconds| Zone::utc().second(seconds);
    if let Some(since) = lease.unable_since {
        let because = match &status.pause {
            Some(pause) => format!("{} ({})", pause.reason, pause.cure),
            None => "requests fail".to_owned(),
        };
        let standby = match lease.able_standby.as_deref().map(safe) {
            Some(name) => {
                format!("{name} can: it is handed over after two minutes, once in fifteen")
            }
            None => "no standby that can".to_owned(),
        };
        let (name, since) = (&lease.name, at(since));
        let what = format!(
            "holds the lease {name} and cannot send since {since}, because {because}, {standby}"
        );
        let values = [lease.name.clone(), because];
        let unable = todo(FindingKind::Lease, what, status.check());
        found.push(unable.with_code("lease_unable", values));
    }
    let table = status.fleet.as_ref().and_then(|it| it.table.as_ref());
    let holds = |member: &&FleetMember| {
        let held = member.word.lease.as_ref();
        let held = held.is_some_and(|it| it.name == lease.name && it.unable_since.is_some());
        held && member.speech == Liveness::Speaking && !lease.is_held()
    };
    for member in table.iter().flat_map(|it| it.members.iter()).filter(holds) {
        let word = &member.word;
        let since = word.lease.as_ref().and_then(|it| it.unable_since);
        let what = format!(
            "{} holds and cannot send since {}, because {} (the lease {})",
            safe(&word.hostname),
            at(since.unwrap_or(word.at)),
            safe(word.pause.as_deref().unwrap_or("requests fail")),
            lease.name
        );
        let command = "callbridge fleet --source URL (the stream of run)";
        let pause = word.pause.clone().unwrap_or_default();
        let unable = todo(FindingKind::Lease, what, command);
        found.push(unable.with_code("lease_unable", [safe(&word.hostname), pause]));
    }
}

/// Nothing is sent from here because it is another's turn, or nobody's yet.
pub(super) fn is_standing_by(status: &Status) -> bool {
    status.lease.as_ref().is_some_and(|it| !it.is_held())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lease: Lease) -> String {
        let mut text = String::new();
        lease.to_text(&mut text, &Zone::named("UTC").expect("a zone"));
        text
    }

    #[test]
    fn people_read_whose_turn_it_is() {
        let lease = Lease {
            name: "crm-lease".to_owned(),
            since: 1_795_151_317,
            ..Lease::default()
        };
        let silent = Lease {
            state: LeasePhase::Silent,
            silent_until: Some(1_795_151_424),
            ..lease.clone()
        };
        let holding = Lease {
            state: LeasePhase::Holding,
            others: vec!["beta (17)".to_owned()],
            ..lease.clone()
        };
        assert!(holding.is_held() && !silent.is_held() && !lease.is_held());
        let all = [lease, silent, holding].map(told).concat();
        insta::assert_snapshot!(all, @r"
        lease    crm-lease: standing by since 2026-11-20 05:08:37 UTC, nothing is sent from here
        lease    crm-lease: ours since 2026-11-20 05:08:37 UTC
                 silent until 2026-11-20 05:10:24 UTC, for another may have sent just before
        lease    crm-lease: held since 2026-11-20 05:08:37 UTC; other machines: beta (17)
        ");
    }

    #[test]
    fn who_holds_and_cannot_send_says_since_when_why_and_who_could() {
        let mut status = Status {
            lease: Some(Lease {
                name: "crm-lease".to_owned(),
                state: LeasePhase::Holding,
                unable_since: Some(1_795_151_317),
                ..Lease::default()
            }),
            pause: Some(crate::status::Pause {
                reason: "outage".to_owned(),
                cure: "no way to the CRM".to_owned(),
            }),
            ..Status::default()
        };
        let told = |status: &Status| {
            let mut found = Vec::new();
            holder_cannot_send(status, &mut found);
            found.pop().map(|it| it.what)
        };
        let words = "holds the lease crm-lease and cannot send since 2026-11-20 05:08:37 UTC, \
                     because outage (no way to the CRM), ";
        let alone = format!("{words}no standby that can");
        assert_eq!(told(&status), Some(alone));
        if let Some(lease) = &mut status.lease {
            lease.able_standby = Some("beta (17)".to_owned());
        }
        let given =
            format!("{words}beta (17) can: it is handed over after two minutes, once in fifteen");
        assert_eq!(told(&status), Some(given));
    }

    #[test]
    fn its_shape_is_added_to_and_its_words_stay() {
        for phase in [LeasePhase::Standby, LeasePhase::Silent, LeasePhase::Holding] {
            assert_eq!(serde_json::to_value(phase).expect("a word"), phase.word());
        }
        let none = serde_json::to_value(Status::default()).expect("JSON");
        assert!(
            none["lease"].is_null() && none.as_object().is_some_and(|it| it.contains_key("lease"))
        );
    }
}
