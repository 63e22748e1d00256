//! A call in one line, as `demo` and `calls` show it.

use callbridge_call::Direction;
use callbridge_model::{ByHand, CallRecord, LeadId, Phone, Reason, safe};
use callbridge_spool::State;
use serde::Deserialize;

/// The values for a call's line. They can also be read from a call of `calls --json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OneLine {
    direction: Direction,
    answered: bool,
    lead_id: Option<LeadId>,
    client_phone: Option<Phone>,
    employee: Option<String>,
    talk_time_sec: u32,
    by_hand: Option<ByHand>,
    /// The word for the call's state. `internal` for a call between extensions.
    state: String,
    reason: Option<Reason>,
}

impl OneLine {
    pub fn from_record(record: &CallRecord, state: State, reason: Option<Reason>) -> Self {
        Self {
            direction: record.direction,
            answered: record.answered,
            lead_id: record.lead_id,
            client_phone: record.client_phone.clone(),
            employee: record.employee.clone(),
            talk_time_sec: record.talk_time_sec,
            by_hand: record.by_hand,
            state: state.word().to_owned(),
            reason,
        }
    }

    /// Returns the columns of the line: `in   +998901110001  lead 4001  101 talked 4 s  `
    pub fn columns(&self) -> String {
        let direction = match self.direction {
            Direction::Inbound => "in",
            Direction::Outbound => "out",
            Direction::Internal => "internal",
            Direction::Unknown => "unknown",
        };
        let employee = self.employee.as_deref().map(safe);
        // Only an incoming call can be missed.
        let rang = self.direction == Direction::Inbound;
        let mut who = match (&employee, self.answered) {
            (Some(employee), true) => format!("{employee} talked {} s", self.talk_time_sec),
            (Some(employee), false) if rang => format!("missed by {employee}"),
            (Some(employee), false) => format!("{employee} no answer"),
            (None, true) => format!("talked {} s", self.talk_time_sec),
            (None, false) if rang => "missed".to_owned(),
            (None, false) => "no answer".to_owned(),
        };
        if self.by_hand.is_some() {
            who.push_str(", by hand");
        }
        if self.direction == Direction::Internal {
            return format!("{direction:<4} {who:<36}");
        }
        let phone = match &self.client_phone {
            Some(phone) => safe(phone.as_str()),
            None => "hidden".to_owned(),
        };
        let lead = match self.lead_id {
            Some(lead) => lead.to_string(),
            None => "-".to_owned(),
        };
        format!("{direction:<4} {phone:<14} lead {lead:<5} {who:<16}")
    }

    /// Returns the state as text: `journaled`, `failed: dead letter`, `no_lead: waiting`.
    pub fn state_text(&self) -> String {
        match (self.known_state(), self.reason) {
            (Some(State::Dead), Some(reason)) => format!("{reason}: dead letter"),
            (Some(State::Waiting), Some(reason)) => format!("{reason}: waiting"),
            (Some(state), _) => state.word().to_owned(),
            (None, _) if self.state == "internal" => "not journaled".to_owned(),
            (None, _) => safe(&self.state),
        }
    }

    /// Returns the terminal color (SGR code) for the call's state.
    pub fn color(&self) -> &'static str {
        match self.known_state() {
            Some(State::Journaled | State::Forwarded) => "32",
            Some(State::Dead) => "31",
            Some(State::Waiting) => "33",
            Some(State::Ready | State::Sending | State::Submitted | State::Discarded) => "36",
            None => "2",
        }
    }

    fn known_state(&self) -> Option<State> {
        State::from_word(&self.state)
    }
}

/// Cuts a text to at most `width` characters. A cut text ends with `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(direction: &str, state: &str, reason: Option<&str>) -> OneLine {
        let line = json!({
            "direction": direction, "answered": true, "leadId": 4001,
            "clientPhone": "+998901110001", "employee": "101", "talkTimeSec": 4,
            "state": state, "reason": reason, "another": "of a later release",
        });
        serde_json::from_value(line).expect("a line")
    }

    fn line_text(line: &OneLine) -> String {
        format!("{} {}", line.columns(), line.state_text())
    }

    #[test]
    fn call_is_shown_as_one_line() {
        let mut missed = line("OUTBOUND", "waiting", Some("no_lead"));
        (missed.answered, missed.lead_id) = (false, None);
        let mut rang = missed.clone();
        rang.direction = Direction::Inbound;
        let mut hidden = line("INBOUND", "dead", Some("failed"));
        (hidden.client_phone, hidden.employee) = (None, None);
        let lines = [
            line("INBOUND", "journaled", None),
            missed,
            rang,
            hidden,
            line("INTERNAL", "internal", None),
            line("INBOUND", "of a later release", None),
        ];
        let lines: Vec<String> = lines.iter().map(line_text).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        in   +998901110001  lead 4001  101 talked 4 s   journaled
        out  +998901110001  lead -     101 no answer    no_lead: waiting
        in   +998901110001  lead -     missed by 101    no_lead: waiting
        in   hidden         lead 4001  talked 4 s       failed: dead letter
        internal 101 talked 4 s                       not journaled
        in   +998901110001  lead 4001  101 talked 4 s   of a later release
        ");
    }

    #[test]
    fn control_codes_in_an_extension_are_escaped() {
        let mut evil = line("INBOUND", "journaled", None);
        evil.employee = Some("1\u{1b}[2J".to_owned());
        assert!(line_text(&evil).contains(r"1\u{1b}[2J talked"));
    }

    #[test]
    fn line_is_cut_to_the_terminal_width() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
