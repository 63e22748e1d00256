//! The real calls, as the script of a scenario records them. The script dials, answers, and hangs
//! up, so it knows what happened. It measures times with its own clock.

use callbridge_call::Direction;
use callbridge_sandbox::Record;
use serde_json::{Value, json};

/// Returns the number of customer `n`: 99890111000n. The customer's lead is 400n.
pub fn number(customer: u32) -> String {
    format!("+99890111000{customer}")
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The call is in the journal.
    Journal,
    /// The call is a dead letter with this reason. Its values are compared if they are certain.
    Letter(&'static str),
}

/// One call with a customer.
#[derive(Clone, Debug)]
pub struct Truth {
    direction: Direction,
    phone: Option<String>,
    /// The number that the customer of an inbound call dialed.
    did: Option<String>,
    lead: Option<i64>,
    trunk: &'static str,
    order: Vec<String>,
    /// The employee of a call without talk.
    alone: Option<String>,
    started: f64,
    ended: Option<f64>,
    talk: f64,
    /// The time since when the customer talks with a person.
    since: Option<f64>,
    fate: Fate,
    /// Whether callbridge can know the call's seconds, talk, and employee.
    certain: bool,
}

/// Returns the seconds since the epoch, by the clock that Asterisk also uses.
pub fn now() -> f64 {
    callbridge_model::clock::now().wall.micros() as f64 / 1e6
}

/// Returns the extension of an employee in the flags of the run.
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

    /// Records a call that a customer places now to this number of the company.
    pub fn inbound(customer: u32, trunk: &'static str, dialed: &str) -> Self {
        Self {
            did: Some(dialed.to_owned()),
            ..Self::new(Direction::Inbound, customer, trunk)
        }
    }

    /// Records a call that is placed now to a customer.
    pub fn outbound(customer: u32, trunk: &'static str) -> Self {
        Self::new(Direction::Outbound, customer, trunk)
    }

    /// Makes the caller a person without a lead.
    pub fn without_lead(mut self, phone: Option<&str>) -> Self {
        self.phone = phone.map(str::to_owned);
        self.lead = None;
        self.fate = Fate::Letter("no_lead");
        self
    }

    /// Expects a dead letter with this reason.
    pub fn expect_dead_letter(&mut self, reason: &'static str) {
        self.fate = Fate::Letter(reason);
        if reason == "ambiguous_lead" {
            self.lead = None;
        }
    }

    /// Expects a dead letter `incomplete`, whose seconds are unknown.
    pub fn expect_incomplete(&mut self) {
        self.expect_dead_letter("incomplete");
        self.certain = false;
    }

    /// Records that the customer and the employee of this extension hear each other from now on.
    pub fn begin_talk_with(&mut self, extension: &str) {
        if self.order.last().is_none_or(|last| last != extension) {
            self.order.push(extension.to_owned());
        }
        self.begin_talk();
    }

    /// Records that the customer hears a real person from now on who has no extension.
    pub fn begin_talk(&mut self) {
        self.since.get_or_insert_with(now);
    }

    /// Records that the customer hears no one from now on.
    pub fn end_talk(&mut self) {
        if let Some(since) = self.since.take() {
            self.talk += now() - since;
        }
    }

    /// Records that no one talked and that one extension is known: the only one dialed, or the one
    /// that placed the call.
    pub fn set_only_extension(&mut self, extension: &str) {
        self.alone = Some(extension.to_owned());
    }

    /// Records that the customer has hung up.
    pub fn end(&mut self) {
        self.end_talk();
        self.ended.get_or_insert_with(now);
    }

    fn is_answered(&self) -> bool {
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

    /// Returns the time when the call began, for sorting calls.
    pub fn started(&self) -> f64 {
        self.started
    }

    /// Returns `true` if a channel of this name is a leg of the call's trunk.
    pub fn is_leg(&self, channel: &str) -> bool {
        let leg = channel.split_once('/');
        let leg = leg.and_then(|(_driver, leg)| leg.strip_prefix(self.trunk));
        leg.is_some_and(|suffix| suffix.starts_with('-'))
    }

    /// Returns the expected outcome of the call.
    pub fn fate(&self) -> Fate {
        self.fate
    }

    pub fn lead(&self) -> Option<i64> {
        self.lead
    }

    /// Returns the call as a line of the table.
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

    /// Returns the call as an entry in `expected.json`. `linkedid` and `started` come from the
    /// recording.
    pub fn expected(&self, linkedid: &str, started: i64) -> Value {
        let mut call = json!({
            "linkedid": linkedid,
            "direction": if self.direction == Direction::Inbound { "INBOUND" } else { "OUTBOUND" },
            "answered": self.is_answered(),
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

    /// Returns the differences between a record of the journal and this call.
    pub fn differences_from_record(&self, record: &Record) -> Vec<String> {
        let call = &record.call;
        let got = json!({
            "direction": call.direction, "answered": call.answered, "lead": call.lead_id,
            "employee": call.employee_id.map(extension), "phone": call.client_phone,
            "start": call.started_at, "duration": call.duration_sec, "talk": call.talk_time_sec,
        });
        let mut wrong = self.differences(&got);
        if self.fate != Fate::Journal {
            wrong.push(format!("journaled instead of {:?}", self.fate));
        }
        wrong
    }

    /// Returns the differences between a dead letter in `dead list --json` and this call.
    pub fn differences_from_letter(&self, letter: &Value) -> Vec<String> {
        let call = &letter["call"];
        let got = json!({
            "direction": call["direction"], "answered": call["answered"], "lead": call["leadId"],
            "employee": call["employee"], "phone": call["clientPhone"],
            "start": call["startedAt"], "duration": call["durationSec"],
            "talk": call["talkTimeSec"],
        });
        let mut wrong = self.differences(&got);
        let reason = letter["reason"].as_str().unwrap_or_default();
        if self.fate != Fate::Letter("no_lead") || reason != "no_lead" {
            let same = matches!(self.fate, Fate::Letter(wanted) if wanted == reason);
            if !same {
                wrong.push(format!("a letter {reason} instead of {:?}", self.fate));
            }
        }
        wrong
    }

    fn differences(&self, got: &Value) -> Vec<String> {
        let direction = if self.direction == Direction::Inbound {
            "INBOUND"
        } else {
            "OUTBOUND"
        };
        let mut values: Vec<(&str, Value)> = vec![
            ("direction", direction.into()),
            ("lead", self.lead.into()),
            ("phone", self.phone.clone().into()),
        ];
        if self.certain {
            values.push(("answered", self.is_answered().into()));
            values.push(("employee", self.employee().into()));
        }
        let mut wrong = Vec::new();
        for (what, wanted) in values {
            if got[what] != wanted {
                wrong.push(format!("{what} {} instead of {wanted}", got[what]));
            }
        }
        if self.certain {
            for (what, wanted) in [("duration", self.duration()), ("talk", self.talk)] {
                let is = got[what].as_f64().unwrap_or(-9.0);
                // Durations are whole seconds, at least one. A missed call has no talk.
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
