//! The faults to plant. Each one is a plausible mistake in a single place, and compiles.

/// A fault to plant.
pub struct Fault {
    /// Description of the wrong behavior.
    pub name: &'static str,
    /// Path of the file within `src`.
    pub file: &'static str,
    /// The text to replace, which occurs exactly once in the file.
    pub old: &'static str,
    /// The text to replace `old` with.
    pub new: &'static str,
}

pub const FAULTS: [Fault; 16] = [
    Fault {
        name: "strangers in a parking lot hear each other",
        file: "facts/fact.rs",
        old: "technology.eq_ignore_ascii_case(\"holding_bridge\")",
        new: "technology == \"holding\"",
    },
    Fault {
        name: "a Local channel joins nobody",
        file: "resolve/connections.rs",
        old: "sets.join(a, b);",
        new: "sets.join(a, a.min(b));",
    },
    Fault {
        name: "a recorder or announcer is somebody to talk with",
        file: "resolve/connections.rs",
        old: "&& legs[presence.leg].party.is_real()",
        new: "&& presence.leg < legs.len()",
    },
    Fault {
        name: "unique ids are compared as text",
        file: "units.rs",
        old: "|(e, c)| (e, c, &self.0)",
        new: "|_| (0, 0, &self.0)",
    },
    Fault {
        name: "who talked first has the call, not who talked last",
        file: "resolve/finish.rs",
        old: ".rfind(|&&(_, i)|",
        new: ".find(|&&(_, i)|",
    },
    Fault {
        name: "a missed call of several phones is put down to the first",
        file: "resolve/finish.rs",
        old: "if other.party.extension() != leg.party.extension() => return None,",
        new: "if other.party.extension().is_none() => return None,",
    },
    Fault {
        name: "the call ends with the first carrier that refused",
        file: "resolve/finish.rs",
        old: "customers.max_by_key(|leg| leg.left)",
        new: "customers.min_by_key(|leg| leg.left)",
    },
    Fault {
        name: "two customers called on one line are one call",
        file: "resolve/attempts.rs",
        old: "if numbers.len() < 2 {",
        new: "if numbers.len() < 200 {",
    },
    Fault {
        name: "the second customer of a conference is lost",
        file: "resolve/attempts.rs",
        old: "        if came_in(i) {",
        new: "        if came_in(i) && calls.is_empty() {",
    },
    Fault {
        name: "a call is over when its first channel hangs up",
        file: "facts/open.rs",
        old: "self.is_ghost() || !self.legs.values().any(Leg::is_up)",
        new: "self.is_ghost() || !self.legs.values().all(Leg::is_up)",
    },
    Fault {
        name: "chan_sip's first state is not asked whether the call came in",
        file: "resolve/view.rs",
        old: "if fact.what == FactKind::State(Ringing) {",
        new: "if !fact.what.is_dial_end() {",
    },
    Fault {
        name: "the number is read where the dial prefix stands",
        file: "resolve/number.rs",
        old: "rest.find(['@', '!',",
        new: "rest.find(['!',",
    },
    Fault {
        name: "a hand that slipped is an answer",
        file: "talk.rs",
        old: "ANSWERED_FROM: Duration = Duration::from_millis(500)",
        new: "ANSWERED_FROM: Duration = Duration::from_millis(1)",
    },
    Fault {
        name: "a transfer or pickup ties nothing",
        file: "assemble/calls.rs",
        old: "Kind::Joined { with: others } => with = others,",
        new: "Kind::Joined { with: others } => with = &others[..0],",
    },
    Fault {
        name: "calls that met in a bridge stay apart",
        file: "resolve/split.rs",
        old: "stay.from <= known.1);",
        new: "stay.from > known.1);",
    },
    Fault {
        name: "a stay in a bridge lasts to the hang-up",
        file: "resolve/view.rs",
        old: "to: to.unwrap_or(end.max(from)),",
        new: "to: end.max(to.unwrap_or(from)),",
    },
];
