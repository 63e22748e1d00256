//! The shape of `status --json`: fixed in names and types, only added to.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything `status` shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Where every call stands.
    pub books: Books,
    /// Requests of the running window.
    pub budget: Budget,
    /// Calls that wait to be sent.
    pub backlog: Backlog,
    /// One entry a source, in the order of the flags.
    pub sources: Vec<Source>,
    /// What is known of the token.
    pub token: Token,
    /// Why nothing is sent, and what mends it; `null` while all is well.
    pub pause: Option<Pause>,
    /// Events from the CRM; not there without `--webhook-listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
    /// The directory of leads; left out where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Directory>,
    /// Fields of leads that show their calls; not there without `--lead-field`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead_fields: Option<LeadFields>,
}

/// Which lead has which phone, as far as the CRM has told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// Numbers.
    pub phones: u64,
    /// Leads that are neither merged nor deleted.
    pub leads: u64,
    /// News that told something not known before.
    pub learned: u64,
    /// `--lead-directory`: `reading`, `waiting`, `no_grant` or `left`.
    pub backfill: Option<String>,
    /// Every change up to this second is read.
    pub read_to: Option<i64>,
    /// Why it is left.
    pub why: Option<String>,
}

impl Directory {
    fn to_text(&self, text: &mut String) {
        let (phones, leads) = (self.phones, self.leads);
        let _ = write!(text, "leads    {phones} numbers of {leads} leads");
        if let Some(state) = &self.backfill {
            let _ = write!(text, ", backfill {state}");
        }
        let _ = match &self.why {
            Some(why) => writeln!(text, ": {why}"),
            None => writeln!(text),
        };
    }
}

/// Fields of leads that show their calls (`--lead-field`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadFields {
    /// `ok`; `unchecked` before the CRM's fields were read; `off` while nothing is written.
    pub state: String,
    /// Why it is off.
    pub why: Option<String>,
    /// Until then, in epoch seconds.
    pub until: Option<i64>,
    /// Leads that wait to show something.
    pub waiting: u64,
    /// In the order of the flag's names.
    pub fields: Vec<LeadField>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadField {
    /// `last_call`, `last_missed`, `last_employee`.
    pub name: String,
    /// The CRM's id of it.
    pub id: i64,
    /// It is written; otherwise it is left out.
    pub ok: bool,
    /// What the CRM's fields say of it.
    pub what: String,
}

impl LeadFields {
    fn to_text(&self, text: &mut String) {
        let why = self
            .why
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}"));
        let _ = writeln!(
            text,
            "fields   {}{why}; {} leads wait",
            self.state, self.waiting
        );
        for field in &self.fields {
            let mark = if field.ok { "" } else { ", left out" };
            let LeadField { name, id, what, .. } = field;
            let _ = writeln!(text, "         {name} {id}: {what}{mark}");
        }
    }
}

/// `finished = ready + sending + submitted + journaled + dead + parked + discarded` at every
/// instant; `internal`, `skipped` and `unreadable` stand beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// Finished customer calls in all.
    pub finished: u64,
    /// Waiting to be sent.
    pub ready: u64,
    /// A request is under way.
    pub sending: u64,
    /// Accepted by the CRM, not confirmed yet.
    pub submitted: u64,
    /// Confirmed in the journal.
    pub journaled: u64,
    /// Dead letters.
    pub dead: u64,
    /// Waiting for a lead.
    pub parked: u64,
    /// Given up by a person.
    pub discarded: u64,
    /// Calls between extensions.
    pub internal: u64,
    /// Calls that a flag leaves out.
    pub skipped: u64,
    /// Messages of a source that could not be read.
    pub unreadable: u64,
}

impl Books {
    /// Is every finished call in exactly one place?
    pub const fn balance(&self) -> bool {
        self.finished
            == self.ready
                + self.sending
                + self.submitted
                + self.journaled
                + self.dead
                + self.parked
                + self.discarded
    }

    /// Is nothing under way any more?
    pub const fn settled(&self) -> bool {
        self.ready + self.sending + self.submitted == 0
    }

    /// Each book with its name, in the order of the shape.
    pub const fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("finished", self.finished),
            ("ready", self.ready),
            ("sending", self.sending),
            ("submitted", self.submitted),
            ("journaled", self.journaled),
            ("dead", self.dead),
            ("parked", self.parked),
            ("discarded", self.discarded),
            ("internal", self.internal),
            ("skipped", self.skipped),
            ("unreadable", self.unreadable),
        ]
    }
}

/// The window of requests (§ Limits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Requests a window.
    pub limit: u32,
    /// The window, in seconds.
    pub window_sec: u64,
    /// Slots taken now.
    pub used: u32,
    /// Milliseconds until a slot is free; 0 when one is.
    pub next_free_in_ms: u64,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backlog {
    /// Calls not yet confirmed.
    pub calls: u64,
    /// Seconds until they are, at the budget's pace.
    pub drain_sec: u64,
}

/// How a source is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// Connected.
    Up,
    /// Not connected; tried again.
    #[default]
    Down,
    /// A file with more to read.
    Reading,
    /// A file read to its end.
    Done,
}

/// One source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// As given by its flag, without secrets.
    pub url: String,
    /// The id of its PBX.
    pub pbx: String,
    /// How it is doing.
    pub state: SourceState,
    /// Arrival of its last event, in epoch seconds; `null` before the first.
    pub last_event_at: Option<i64>,
    /// Messages a call can depend on.
    pub read: u64,
    /// Messages no rule needs.
    pub skipped: u64,
    /// Messages that had to be repaired to be read.
    pub repaired: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// Times at which events may have been missed.
    pub gaps: u64,
    /// The last of them; not there before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_gap: Option<Gap>,
    /// Why it is down; `null` otherwise.
    pub why: Option<String>,
}

/// A time in which events may have been missed, in epoch seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last event before it that is stored.
    pub from: i64,
    /// When events were heard again.
    pub until: i64,
}

/// What is known of the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// `ok`, `missing`, `refused`, `wrong_company`, `no_grant`; `unknown` before the first answer;
    /// `reconnect` once consent has to be given anew, though the last token may still be good.
    pub state: String,
    /// `PAT` or `ACCESS` (§2.2).
    pub kind: Option<String>,
    /// The company's name.
    pub company: Option<String>,
    /// The application's name.
    pub application: Option<String>,
    /// Epoch seconds; `null` for no expiry.
    pub expires_at: Option<i64>,
    /// `PERMISSION:SCOPE` each.
    pub grants: Vec<String>,
    /// By which it can be told from another: 16 hex digits of a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub print: Option<String>,
}

/// Events that the CRM sends to us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    /// Where they are taken.
    pub address: String,
    /// Over TLS of our own.
    pub tls: bool,
    /// `listening`; `no_secret` while nothing can be proved.
    pub state: String,
    /// Arrival of the last one that was proved, in epoch seconds; `null` before the first.
    pub last_event_at: Option<i64>,
    /// How many by result, since the start of the process.
    pub events: BTreeMap<String, u64>,
}

impl Webhooks {
    fn to_text(&self, text: &mut String) {
        let how = if self.tls { "HTTPS" } else { "HTTP" };
        let _ = write!(text, "webhooks {} ({how}) {}", self.address, self.state);
        let last = self.last_event_at;
        if let Some(at) = last.and_then(|at| jiff::Timestamp::from_second(at).ok()) {
            let _ = write!(text, ", last event {at}");
        }
        let events = self.events.iter();
        let events = events.map(|(result, count)| format!("{count} {}", result.replace('_', " ")));
        let events: Vec<String> = events.collect();
        let events = match &events[..] {
            [] => "none so far".to_owned(),
            events => events.join(", "),
        };
        let _ = writeln!(text, "\n         {events}");
    }
}

/// Every [`Pause::reason`] there is.
pub const PAUSES: [&str; 13] = [
    "token_missing",
    "token_refused",
    "reconnect",
    "wrong_company",
    "no_grant",
    "wrong_address",
    "outage",
    "too_many_requests",
    "calls_refused",
    "disk",
    "spool",
    "clock",
    "dry_run",
];

/// Why nothing is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// One of [`PAUSES`]; `no daemon runs` where that is so.
    pub reason: String,
    /// What mends it.
    pub cure: String,
}

/// `2 h 05 min`, `3 min 20 s`, `12 s`.
pub fn seconds_in_words(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

impl Status {
    /// The same for people: a few aligned lines, `colour` with ANSI colours.
    pub fn to_text(&self, colour: bool) -> String {
        let paint = |code: &str, text: &str| {
            if colour {
                format!("\x1b[{code}m{text}\x1b[0m")
            } else {
                text.to_owned()
            }
        };
        let mut text = String::new();
        match &self.pause {
            Some(pause) => {
                let _ = writeln!(text, "{} {}", paint("1;31", "paused:"), pause.reason);
                let _ = writeln!(text, "  cure:  {}", pause.cure);
            }
            None => {
                let _ = writeln!(text, "{}", paint("32", "sending"));
            }
        }
        let (b, balance) = (
            &self.books,
            if self.books.balance() {
                ""
            } else {
                " (unbalanced!)"
            },
        );
        let _ = writeln!(text, "books    {} finished{balance}", b.finished);
        let _ = writeln!(
            text,
            "         {} ready, {} sending, {} submitted, {} journaled\n         \
             {} dead, {} parked, {} discarded",
            b.ready, b.sending, b.submitted, b.journaled, b.dead, b.parked, b.discarded
        );
        let _ = writeln!(
            text,
            "         beside them {} internal, {} skipped, {} unreadable",
            b.internal, b.skipped, b.unreadable
        );
        self.pace_to_text(&mut text);
        self.token_to_text(&mut text);
        if let Some(webhooks) = &self.webhooks {
            webhooks.to_text(&mut text);
        }
        if let Some(directory) = &self.directory {
            directory.to_text(&mut text);
        }
        if let Some(fields) = &self.lead_fields {
            fields.to_text(&mut text);
        }
        for source in &self.sources {
            source.to_text(&mut text, &paint);
        }
        text
    }

    fn pace_to_text(&self, text: &mut String) {
        let budget = &self.budget;
        // Without a daemon nobody keeps a budget.
        if budget.limit > 0 {
            let next = match budget.next_free_in_ms {
                0 => String::new(),
                ms => format!(", next free in {}.{} s", ms / 1000, ms % 1000 / 100),
            };
            let _ = writeln!(
                text,
                "budget   {} of {} requests used in {} s{next}",
                budget.used, budget.limit, budget.window_sec
            );
        }
        let waiting = match self.backlog.calls {
            0 => "nothing waits".to_owned(),
            1 => "1 call".to_owned(),
            calls => format!("{calls} calls"),
        };
        // while it is paused the time does not run
        let then = self.pause.as_ref().map_or("", |_| " once it goes on");
        let drain = match self.backlog.drain_sec {
            0 => String::new(),
            seconds => format!(", confirmed in about {}{then}", seconds_in_words(seconds)),
        };
        let _ = writeln!(text, "backlog  {waiting}{drain}");
    }

    fn token_to_text(&self, text: &mut String) {
        let token = &self.token;
        let _ = write!(text, "token    {}", token.state);
        if let Some(company) = &token.company {
            let _ = write!(text, ", company {company}");
        }
        if let Some(application) = &token.application {
            let _ = write!(text, ", application {application}");
        }
        if let Some(at) = token
            .expires_at
            .and_then(|at| jiff::Timestamp::from_second(at).ok())
        {
            let _ = write!(text, ", expires {at}");
        }
        text.push('\n');
    }
}

impl Source {
    fn to_text(&self, text: &mut String, paint: &impl Fn(&str, &str) -> String) {
        let state = match self.state {
            SourceState::Up => paint("32", "up"),
            SourceState::Down => paint("31", "down"),
            SourceState::Reading => paint("33", "reading"),
            SourceState::Done => paint("32", "done"),
        };
        let _ = writeln!(text, "source   {} ({}) {state}", self.url, self.pbx);
        if let Some(why) = &self.why {
            let _ = writeln!(text, "         {why}");
        }
        let _ = writeln!(
            text,
            "         {} read, {} skipped, {} repaired, {} unreadable, {} gaps",
            self.read, self.skipped, self.repaired, self.unreadable, self.gaps
        );
    }
}

/// Requests sent, by endpoint and verdict: the labels of `callbridge_requests_total`.
pub type Requests = BTreeMap<(String, String), u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_the_promised_one() {
        let status = Status {
            sources: vec![Source::default()],
            ..Status::default()
        };
        let json = serde_json::to_value(&status).expect("a status");
        for path in [
            "/books/finished",
            "/books/unreadable",
            "/budget/windowSec",
            "/budget/nextFreeInMs",
            "/backlog/drainSec",
            "/sources/0/lastEventAt",
            "/sources/0/gaps",
            "/token/expiresAt",
            "/token/grants",
            "/pause",
        ] {
            assert!(json.pointer(path).is_some(), "{path} is missing in {json}");
        }
        assert_eq!(json.pointer("/sources/0/state"), Some(&"down".into()));
    }

    #[test]
    fn books_that_do_not_add_up_are_said_to() {
        let books = Books {
            finished: 2,
            ready: 1,
            ..Books::default()
        };
        assert!(!books.balance());
        let status = Status {
            books,
            ..Status::default()
        };
        assert!(status.to_text(false).contains("unbalanced"));
        assert!(
            Books {
                finished: 1,
                journaled: 1,
                ..Books::default()
            }
            .balance()
        );
    }

    #[test]
    fn people_read_a_pause_first() {
        let pause = Pause {
            reason: "the token is refused".into(),
            cure: "put a new one".into(),
        };
        let status = Status {
            pause: Some(pause),
            backlog: Backlog {
                calls: 3,
                drain_sec: 1,
            },
            ..Status::default()
        };
        insta::assert_snapshot!(status.to_text(false), @r"
        paused: the token is refused
          cure:  put a new one
        books    0 finished
                 0 ready, 0 sending, 0 submitted, 0 journaled
                 0 dead, 0 parked, 0 discarded
                 beside them 0 internal, 0 skipped, 0 unreadable
        backlog  3 calls, confirmed in about 1 s once it goes on
        token
        ");
    }
}
