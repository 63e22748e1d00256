//! What really happened, as the script of a scenario tells it: it is the script that dials, answers
//! and hangs up, so it needs to ask nobody. Its own clock measures the seconds.

use callbridge_call::Direction;
use callbridge_sandbox::Record;
use serde_json::{Value, json};

/// A customer: `n` of 99890111000n, whose lead is 400n.
pub fn number(customer: u32) -> String {
    format!("+99890111000{customer}")
}

/// How a call ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stands in the journal.
    Journal,
    /// It is a dead letter for this reason; its values are compared where they are certain.
    Letter(&'static str),
}

/// One call with a customer.
#[derive(Clone, Debug)]
pub struct Truth {
    direction: Direction,
    phone: Option<String>,
    /// What the customer of an inbound call dialed.
    did: Option<String>,
    lead: Option<i64>,
    trunk: &'static str,
    order: Vec<String>,
    /// Who would be named though nobody talked.
    alone: Option<String>,
    started: f64,
    ended: Option<f64>,
    talk: f64,
    /// Since when the customer talks with somebody.
    since: Option<f64>,
    fate: Fate,
    /// Whether seconds, talk and employee are known to callbridge at all.
    certain: bool,
}

/// Seconds since the epoch, by the clock that Asterisk has, too.
pub fn now() -> f64 {
    callbridge_model::clock::now().wall.micros() as f64 / 1e6
}

/// The extension of an employee whom the flags of the run name.
fn extension(employee: i64) -> String {
    match employee - 400 {
        105 => "105-desk".to_owned(),
        other => other.to_string(),
    }
}

impl Truth {
    fn new(direction: Direction, customer: u32, trunk: &'static str) -> Self {
        Self {
            direction,
            phone: Some(number(customer)),
            did: None,
            lead: Some(4000 + i64::from(customer)),
            trunk,
            order: Vec::new(),
            alone: None,
            started: now(),
            ended: None,
            talk: 0.0,
            since: None,
            fate: Fate::Journal,
            certain: true,
        }
    }

    /// A call to this number of ours that a customer places now.
    pub fn inbound(customer: u32, trunk: &'static str, dialed: &str) -> Self {
        Self {
            did: Some(dialed.to_owned()),
            ..Self::new(Direction::Inbound, customer, trunk)
        }
    }

    /// A call to a customer that is placed now.
    pub fn outbound(customer: u32, trunk: &'static str) -> Self {
        Self::new(Direction::Outbound, customer, trunk)
    }

    /// The caller is none of the leads.
    pub fn without_lead(mut self, phone: Option<&str>) -> Self {
        self.phone = phone.map(str::to_owned);
        self.lead = None;
        self.fate = Fate::Letter("no_lead");
        self
    }

    /// It becomes a dead letter.
    pub fn letter(&mut self, reason: &'static str) {
        self.fate = Fate::Letter(reason);
        if reason == "ambiguous_lead" {
            self.lead = None;
        }
    }

    /// It becomes a dead letter `incomplete`, whose seconds nobody can know.
    pub fn incomplete(&mut self) {
        self.letter("incomplete");
        self.certain = false;
    }

    /// The customer and the employee of this extension hear each other from now on.
    pub fn with(&mut self, extension: &str) {
        if self.order.last().is_none_or(|last| last != extension) {
            self.order.push(extension.to_owned());
        }
        self.talks();
    }

    /// The customer hears a real person from now on, who is nobody's extension.
    pub fn talks(&mut self) {
        self.since.get_or_insert_with(now);
    }

    /// The customer hears nobody from now on.
    pub fn silent(&mut self) {
        if let Some(since) = self.since.take() {
            self.talk += now() - since;
        }
    }

    /// Nobody talked, and one extension is known: the only one dialed, or who placed the call.
    pub fn only(&mut self, extension: &str) {
        self.alone = Some(extension.to_owned());
    }

    /// The customer is gone.
    pub fn over(&mut self) {
        self.silent();
        self.ended.get_or_insert_with(now);
    }

    fn answered(&self) -> bool {
        self.talk >= 0.5
    }

    fn employee(&self) -> Option<&str> {
        self.order
            .last()
            .or(self.alone.as_ref())
            .map(String::as_str)
    }

    fn duration(&self) -> f64 {
        self.ended.unwrap_or(self.started) - self.started
    }

    /// When it began, for putting calls into order.
    pub fn started(&self) -> f64 {
        self.started
    }

    /// Whether a channel of this name is a leg of its trunk.
    pub fn is_leg(&self, channel: &str) -> bool {
        let leg = channel.split_once('/');
        let leg = leg.and_then(|(_driver, leg)| leg.strip_prefix(self.trunk));
        leg.is_some_and(|suffix| suffix.starts_with('-'))
    }

    /// How it ends up.
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// Its lead.
    pub fn lead(&self) -> Option<i64> {
        self.lead
    }

    /// As a line of a table.
    pub fn words(&self) -> String {
        let fate = match self.fate {
            Fate::Journal => String::new(),
            Fate::Letter(reason) => format!(" {reason}"),
        };
        format!(
            "{} {} {} {:.1}s talk {:.1}s{fate}",
            if self.direction == Direction::Inbound {
                "in"
            } else {
                "out"
            },
            self.phone
                .as_deref()
                .map_or("?", |phone| &phone[phone.len() - 4..]),
            self.employee().unwrap_or("-"),
            self.duration(),
            self.talk,
        )
    }

    /// As `expected.json` of a recording has it; `linkedid` and the start are the recording's.
    pub fn expected(&self, linkedid: &str, started: i64) -> Value {
        let mut call = json!({
            "linkedid": linkedid,
            "direction": if self.direction == Direction::Inbound { "INBOUND" } else { "OUTBOUND" },
            "answered": self.answered(),
            "leadId": self.lead,
            "trunk": self.trunk,
            "clientPhone": self.phone,
            "employee": self.employee(),
            "employeesInOrder": self.order,
            "startedAt": started,
            "durationSec": (self.duration() * 100.0).round() / 100.0,
            "talkTimeSec": (self.talk * 100.0).round() / 100.0,
        });
        if let Some(did) = &self.did {
            call["did"] = did.as_str().into();
        }
        if let Fate::Letter(reason) = self.fate
            && reason != "no_lead"
        {
            call["reason"] = reason.into();
        }
        call
    }

    /// How a record of the journal differs.
    pub fn differs_from_record(&self, record: &Record) -> Vec<String> {
        let call = &record.call;
        let got = json!({
            "direction": call.direction, "answered": call.answered, "lead": call.lead_id,
            "employee": call.employee_id.map(extension), "phone": call.client_phone,
            "start": call.started_at, "duration": call.duration_sec, "talk": call.talk_time_sec,
        });
        let mut wrong = self.differs(&got);
        if self.fate != Fate::Journal {
            wrong.push(format!("journaled instead of {:?}", self.fate));
        }
        wrong
    }

    /// How a dead letter of `dead list --json` differs.
    pub fn differs_from_letter(&self, letter: &Value) -> Vec<String> {
        let call = &letter["call"];
        let got = json!({
            "direction": call["direction"], "answered": call["answered"], "lead": call["leadId"],
            "employee": call["employee"], "phone": call["clientPhone"],
            "start": call["startedAt"], "duration": call["durationSec"],
            "talk": call["talkTimeSec"],
        });
        let mut wrong = self.differs(&got);
        let reason = letter["reason"].as_str().unwrap_or_default();
        if self.fate != Fate::Letter("no_lead") || reason != "no_lead" {
            let same = matches!(self.fate, Fate::Letter(wanted) if wanted == reason);
            if !same {
                wrong.push(format!("a letter {reason} instead of {:?}", self.fate));
            }
        }
        wrong
    }

    fn differs(&self, got: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut same = |what: &str, wanted: Value| {
            if got[what] != wanted {
                wrong.push(format!("{what} {} instead of {wanted}", got[what]));
            }
        };
        let direction = if self.direction == Direction::Inbound {
            "INBOUND"
        } else {
            "OUTBOUND"
        };
        same("direction", direction.into());
        same("lead", self.lead.into());
        same("phone", self.phone.clone().into());
        if self.certain {
            same("answered", self.answered().into());
            same("employee", self.employee().into());
            for (what, wanted) in [("duration", self.duration()), ("talk", self.talk)] {
                let is = got[what].as_f64().unwrap_or(-9.0);
                // Whole seconds are shown, at least one; a missed call has no talk at all.
                let wanted = if what == "duration" {
                    wanted.max(1.0)
                } else {
                    wanted
                };
                if (is - wanted).abs() > 1.0 {
                    wrong.push(format!("{what} {is} instead of {wanted:.1}"));
                }
            }
        }
        let start = got["start"].as_f64().unwrap_or_default();
        if self.certain && (start - self.started).abs() > 1.5 {
            wrong.push(format!("start {start} instead of {:.1}", self.started));
        }
        wrong
    }
}
