//! What each source tells of a call, by the release of the PBX. This is the one table: `check`
//! shows the part of the PBX that it has asked, and `deploy/asterisk/README.md` the whole, which a
//! test holds against it.

use serde_json::{Map, Value as Json, json};

/// Releases that tell the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Asterisk 1.8, and what is near it.
    UpToTen,
    /// Asterisk 11.
    Eleven,
    /// Asterisk 12 and later.
    Twelve,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    Ami,
    /// The log of channel events.
    Cel,
    Cdr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// How long the customer talked with somebody.
    Talk,
    Answered,
    /// Who talked, and in which order.
    Employee,
    Rang,
    Number,
    /// What happened in a queue.
    Queue,
    /// Three and more in one talk.
    Conference,
    /// Transfers, pickup and parking.
    Transfer,
    /// The lead that the PBX knows.
    Lead,
}

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Exact,
    /// Exact but for what stands beside it.
    Partly,
    /// Near it, and marked so.
    Estimate,
    /// Nothing tells it: such calls are `incomplete`.
    Untold,
}

/// How one value is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub how: How,
    /// What is to be known of that; may be empty.
    pub but: &'static str,
}

type But = (Value, How, &'static str);

const ANSWERED: But = (
    Value::Answered,
    How::Partly,
    "`incomplete` where no dialling tells it",
);
const QUEUE: But = (
    Value::Queue,
    How::Partly,
    "which telephones rang is told only with `eventwhencalled = yes` in queues.conf and `agent` in \
     `read`",
);
const CALLED_FIRST: But = (
    Value::Number,
    How::Partly,
    "of a customer whom the PBX itself called first only where a lead has it",
);
const LISTED: But = (
    Value::Lead,
    How::Partly,
    "by `csv:` or `userfield:`, not by `var:`",
);
/// The masquerade of such a transfer takes the records' fields along.
const MOVED: But = (
    Value::Lead,
    How::Partly,
    "`userfield:` may be another call's after an attended transfer by REFER",
);
const MOVED_LISTED: But = (
    Value::Lead,
    How::Partly,
    "by `csv:` or `userfield:`, not by `var:`; the user field may be another call's after an \
     attended transfer by REFER",
);
const CONFBRIDGE: But = (
    Value::Conference,
    How::Untold,
    "calls in `ConfBridge` are `incomplete`",
);
const BLONDE: But = (
    Value::Transfer,
    How::Partly,
    "`incomplete` by feature code while the other telephone rings",
);
const BILLED: But = (Value::Talk, How::Estimate, "the billed seconds");
const WAITED: But = (
    Value::Talk,
    How::Estimate,
    "ringing in a queue counts as talk",
);
const FIRST_TWO: But = (Value::Conference, How::Estimate, "its first two alone");
const LINKED: But = (
    Value::Transfer,
    How::Estimate,
    "one call where the linkedid is logged",
);
const UNLINKED: But = (
    Value::Transfer,
    How::Estimate,
    "no linkedid: a parked call that is fetched after more than a minute is two",
);

impl Generation {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 3] = [Self::Twelve, Self::Eleven, Self::UpToTen];

    /// Of a PBX whose manager is of this version; `None` where that is no number.
    pub(crate) fn of(manager: &str) -> Option<Self> {
        let mut numbers = manager.split('.').map(str::parse::<u32>);
        match (numbers.next()?.ok()?, numbers.next()?.ok()?) {
            (0, _) => None,
            (1, 0..=2) => Some(Self::UpToTen),
            (1, _) => Some(Self::Eleven),
            (2.., _) => Some(Self::Twelve),
        }
    }

    /// As people say it.
    #[cfg(test)]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::UpToTen => "1.8 (and up to 10)",
            Self::Eleven => "11",
            Self::Twelve => "12 and later",
        }
    }

    /// Queues tell which of their telephones ring only where they are told to.
    pub(crate) const fn has_quiet_queues(self) -> bool {
        !matches!(self, Self::Twelve)
    }

    /// How all is told that is not listed, and what is.
    const fn told(self, teller: Teller) -> (How, &'static [But]) {
        match (teller, self) {
            (Teller::Ami, Self::Twelve) => (How::Exact, &[]),
            (Teller::Ami, Self::Eleven) => (How::Exact, &[ANSWERED, CALLED_FIRST, QUEUE, MOVED]),
            (Teller::Ami, Self::UpToTen) => (
                How::Exact,
                &[ANSWERED, CALLED_FIRST, QUEUE, CONFBRIDGE, MOVED],
            ),
            (Teller::Cel, Self::Twelve) => (How::Exact, &[CALLED_FIRST, LISTED]),
            (Teller::Cel, Self::Eleven | Self::UpToTen) => (
                How::Exact,
                &[CALLED_FIRST, CONFBRIDGE, BLONDE, MOVED_LISTED],
            ),
            (Teller::Cdr, Self::Twelve) => (How::Estimate, &[BILLED, LINKED, LISTED]),
            (Teller::Cdr, Self::Eleven) => {
                (How::Estimate, &[WAITED, FIRST_TWO, LINKED, MOVED_LISTED])
            }
            (Teller::Cdr, Self::UpToTen) => {
                (How::Estimate, &[WAITED, FIRST_TWO, UNLINKED, MOVED_LISTED])
            }
        }
    }

    /// How this value is told.
    pub(crate) fn cell(self, teller: Teller, value: Value) -> Cell {
        let (how, buts) = self.told(teller);
        let listed = buts.iter().find(|(of, ..)| *of == value);
        listed.map_or(Cell { how, but: "" }, |(_, how, but)| Cell {
            how: *how,
            but,
        })
    }

    /// `{"ami":{"talk":{"how":"exact"},…},…}`; beside what is not simply so stands `but`.
    pub(crate) fn to_json(self) -> Json {
        let tellers = Teller::ALL.map(|teller| {
            let cells = Value::ALL.map(|value| {
                let Cell { how, but } = self.cell(teller, value);
                let cell = match but {
                    "" => json!({"how": how.word()}),
                    but => json!({"how": how.word(), "but": but}),
                };
                (value.word().to_owned(), cell)
            });
            (teller.word().to_lowercase(), Map::from_iter(cells).into())
        });
        Map::from_iter(tellers).into()
    }

    /// A table for people: a line a source, and a line for each value that is not simply so.
    pub(crate) fn to_text(self) -> String {
        let mut text = String::from("source");
        for value in Value::ALL {
            text.push_str(&format!("  {:10}", value.word()));
        }
        for teller in Teller::ALL {
            text = format!("{}\n{:6}", text.trim_end(), teller.word());
            for value in Value::ALL {
                text.push_str(&format!("  {:10}", self.cell(teller, value).how.word()));
            }
        }
        text = text.trim_end().to_owned();
        for teller in Teller::ALL {
            for value in Value::ALL {
                let but = self.cell(teller, value).but;
                if !but.is_empty() {
                    text.push_str(&format!("\n{} {}: {but}", teller.word(), value.word()));
                }
            }
        }
        text
    }
}

impl Teller {
    /// All, the best first.
    pub(crate) const ALL: [Self; 3] = [Self::Ami, Self::Cel, Self::Cdr];

    /// As people say it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ami => "AMI",
            Self::Cel => "CEL",
            Self::Cdr => "CDR",
        }
    }
}

impl Value {
    /// All, in the order in which they are shown.
    pub(crate) const ALL: [Self; 9] = [
        Self::Talk,
        Self::Answered,
        Self::Employee,
        Self::Rang,
        Self::Number,
        Self::Queue,
        Self::Conference,
        Self::Transfer,
        Self::Lead,
    ];

    /// As it is shown, and told in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Talk => "talk",
            Self::Answered => "answered",
            Self::Employee => "employee",
            Self::Rang => "rang",
            Self::Number => "number",
            Self::Queue => "queue",
            Self::Conference => "conference",
            Self::Transfer => "transfer",
            Self::Lead => "lead",
        }
    }
}

impl How {
    /// As it is shown, and told in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Partly => "partly",
            Self::Estimate => "estimate",
            Self::Untold => "no",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's table: a row for each release and source.
    fn page() -> String {
        let mut text = String::from(
            "| Asterisk | source | exact | an estimate | in part, or not told |\n\
             |---|---|---|---|---|\n",
        );
        for generation in Generation::ALL {
            for teller in Teller::ALL {
                let cells = Value::ALL.map(|value| (value, generation.cell(teller, value)));
                let all = |how: How| {
                    let of = cells.iter().filter(|(_, cell)| cell.how == how);
                    let words: Vec<&str> = of.map(|(value, _)| value.word()).collect();
                    words.join(", ")
                };
                let buts = cells.iter().filter(|(_, cell)| !cell.but.is_empty());
                let buts = buts.map(|(value, cell)| format!("{}: {}", value.word(), cell.but));
                let buts: Vec<String> = buts.collect();
                let (release, teller) = (generation.word(), teller.word());
                let (exact, estimate) = (all(How::Exact), all(How::Estimate));
                let row = [release, teller, &exact, &estimate, &buts.join("; ")];
                let row = row.map(|cell| match cell {
                    "" => " ".to_owned(),
                    cell => format!(" {cell} "),
                });
                text.push_str(&format!("|{}|\n", row.join("|")));
            }
        }
        text
    }

    #[test]
    fn the_page_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/asterisk/README.md");
        let readme = std::fs::read_to_string(path).expect("the page");
        assert!(readme.contains(&page()), "it should have\n{}", page());
    }

    #[test]
    fn what_is_told_in_part_or_not_at_all_says_what() {
        for generation in Generation::ALL {
            for (teller, value) in Teller::ALL
                .into_iter()
                .flat_map(|teller| Value::ALL.into_iter().map(move |value| (teller, value)))
            {
                let cell = generation.cell(teller, value);
                let plain = matches!(cell.how, How::Exact | How::Estimate);
                assert!(plain || !cell.but.is_empty(), "{teller:?} {value:?}");
            }
        }
    }

    #[test]
    fn the_managers_version_tells_the_generation() {
        for (manager, generation) in [
            ("1.0", Some(Generation::UpToTen)),
            ("1.1", Some(Generation::UpToTen)),
            ("1.3", Some(Generation::Eleven)),
            ("2.10.6", Some(Generation::Twelve)),
            ("11.0.0", Some(Generation::Twelve)),
            ("", None),
            ("0.9", None),
            ("1", None),
        ] {
            assert_eq!(Generation::of(manager), generation, "{manager}");
        }
    }
}
