//! Shows `explain` to people: each value with the event that decided it.

use super::story::{self, Paint, Times};
use callbridge_call::{Direction, EventTime, FinishedCall, Timeline};
use callbridge_mapping::{LeadAnswer, People, Rules, Trunk};
use callbridge_model::{Judged, Outcome, Reason, safe};
use callbridge_spool::State;
use std::fmt::Write as _;

/// One row of `explain`: a value with its name, and the event or reason that decided it.
pub struct ValueRow {
    /// The value's key in `explain --json`, or a name for people.
    pub name: &'static str,
    /// The value as it is sent.
    pub value: String,
    /// The event that decided the value: its time and channel.
    pub by: Option<(EventTime, String)>,
    /// The reason for the value, as text.
    pub message: String,
}

impl ValueRow {
    /// Returns the time of the deciding event. Returns an empty text if no event decided the value.
    fn stamp(&self, times: &Times, depth: Depth) -> String {
        match (&self.by, depth) {
            (None, _) => String::new(),
            // The time is in AMI's form, so you can find it in a recording.
            (Some((at, _)), Depth::Values) => at.to_string(),
            (Some((at, _)), Depth::Story) => {
                format!("{} {:>8}", times.clock(*at), times.time_after_start(*at))
            }
        }
    }

    /// Returns the name of the deciding event's channel, or the channel's letter if `timeline` has
    /// it.
    fn channel(&self, timeline: Option<&Timeline>) -> String {
        let Some((_, name)) = &self.by else {
            return String::new();
        };
        let mut channels = timeline.iter().flat_map(|timeline| &timeline.channels);
        let letter = channels.position(|channel| safe(&channel.name) == *name);
        letter.map_or_else(|| story::short(name, NAME_MAX), story::label)
    }
}

/// How much detail of a call is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the values, one per line.
    Values,
    /// The events of the call by time, then the values.
    Story,
}

/// Maximum columns of a channel's name.
const NAME_MAX: usize = 40;

/// Returns the text of one call, followed by an empty line.
pub fn block(of: &Explained<'_>, times: &Times, depth: Depth, paint: Paint) -> String {
    let mut text = heading(of, times, paint);
    if depth == Depth::Story {
        text.push('\n');
        match &of.call.timeline {
            Some(timeline) => text.push_str(&story::block(timeline, times, paint)),
            None => text.push_str("  no channel events are kept of this call\n"),
        }
        text.push('\n');
    }
    let rows = of.rows();
    let story = match depth {
        Depth::Story => of.call.timeline.as_ref(),
        Depth::Values => None,
    };
    // Columns are as wide as needed, but one long value does not move all others.
    let mut value = 0;
    let mut at = 0;
    let mut channel = 0;
    for row in rows.iter().filter(|row| row.by.is_some()) {
        value = value.max(row.value.chars().count().min(36));
        at = at.max(row.stamp(times, depth).chars().count().min(24));
        channel = channel.max(row.channel(story).chars().count().min(34));
    }
    for row in &rows {
        let name = paint.dim(&format!("{:<16}", row.name));
        let shown = format!("{:<value$}", row.value);
        let line = if row.by.is_none() {
            format!("  {name}  {shown}  {}", row.message)
        } else {
            let when = paint.dim(&format!("{:<at$}", row.stamp(times, depth)));
            let by = row.channel(story);
            format!("  {name}  {shown}  {when}  {by:<channel$}  {}", row.message)
        };
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for prefix in &of.call.unmatched {
        let name = paint.dim(&format!("{:<16}", "no trunk"));
        let message = "had an outside number, but isn't part of any --trunk";
        let _ = writeln!(text, "  {name}  {} {message}", safe(prefix));
    }
    for prefix in &of.call.unknown_channels {
        let name = paint.dim(&format!("{:<16}", "technology"));
        let message = "has an unknown technology, so it may or may not be a phone";
        let _ = writeln!(text, "  {name}  {} {message}", safe(prefix));
    }
    for remark in &of.judged.remarks {
        let name = paint.dim(&format!("{:<16}", "remark"));
        let _ = writeln!(text, "  {name}  {}", safe(remark));
    }
    text.push('\n');
    text
}

/// Returns the outcome of a call: `journal`, `dead letter failed`, `waiting no_lead`.
pub fn outcome(judged: &Judged) -> String {
    match judged.outcome {
        Outcome::Journal => "journal".to_owned(),
        Outcome::DeadLetter => {
            let waiting = judged.reason.is_some_and(Reason::is_waiting);
            let what = if waiting { "waiting" } else { "dead letter" };
            let reason = judged.reason.map(Reason::word);
            format!("{what} {}", reason.unwrap_or_default())
        }
        Outcome::Internal => "internal".to_owned(),
        Outcome::Skipped => "skipped".to_owned(),
    }
}

fn heading(of: &Explained<'_>, times: &Times, paint: Paint) -> String {
    let judged = of.judged;
    let discarded = of.state == Some(State::Discarded);
    let code = match judged.outcome {
        _ if discarded => "36",
        Outcome::Journal => "32",
        Outcome::DeadLetter if judged.reason.is_some_and(Reason::is_waiting) => "33",
        Outcome::DeadLetter => "31",
        Outcome::Internal | Outcome::Skipped => "2",
    };
    let linkedid = paint.color_text("1", &safe(&judged.record.linkedid));
    let message = match (discarded, judged.reason) {
        (true, Some(reason)) => format!("discarded {reason}"),
        (true, None) => "discarded".to_owned(),
        (false, _) => outcome(judged),
    };
    let outcome = paint.color_text(code, &message);
    let date = paint.dim(&times.date(of.call.started));
    let mut text = format!("{linkedid}  {outcome}  {date}\n");
    if !judged.message.is_empty() {
        let _ = writeln!(text, "  {}", safe(&judged.message));
    }
    text
}

/// A call with everything that explains its values.
#[derive(Clone, Copy)]
pub struct Explained<'a> {
    pub judged: &'a Judged,
    /// The call's state in the spool. `None` for a call of a recording.
    pub state: Option<State>,
    /// The call as the PBX reported it.
    pub call: &'a FinishedCall,
    pub rules: &'a Rules,
    /// Lists of leads and employees.
    pub people: &'a People,
}

impl Explained<'_> {
    /// Returns the values of the call, each with its reason.
    pub fn rows(&self) -> Vec<ValueRow> {
        let record = &self.judged.record;
        let answered = if record.answered { "yes" } else { "no" };
        let mut rows = vec![
            self.own_value("direction", record.direction.word()),
            self.own_value("answered", answered),
        ];
        if record.direction != Direction::Internal {
            rows.push(self.own_value("trunk", &text_or_none(record.trunk.as_deref())));
            rows.push(self.phone());
            rows.push(self.lead());
        }
        rows.push(self.own_value("employee", &text_or_none(record.employee.as_deref())));
        if let Some(id) = record.employee_id {
            let message = match self.call.given.and_then(|given| given.employee) {
                Some(_) => "as the message says",
                None => "by the list of employees",
            };
            rows.push(plain_value("employeeId", &id.to_string(), message));
        }
        if record.employees_in_order.len() > 1 {
            let all = safe(&record.employees_in_order.join(" "));
            rows.push(plain_value(
                "employeesInOrder",
                &all,
                "in the order in which they talked",
            ));
        }
        rows.push(self.own_value("startedAt", &record.started_at.to_string()));
        rows.push(self.own_value("durationSec", &record.duration_sec.to_string()));
        rows.push(self.own_value("talkTimeSec", &record.talk_time_sec.to_string()));
        if let Some(message) = record.by_hand_message() {
            rows.push(plain_value("by hand", "yes", &message));
        }
        if record.estimate {
            rows.push(plain_value("estimate", "yes", "known from CDRs only"));
        }
        if let Some(uuid) = record.uuid {
            rows.push(plain_value(
                "uuid",
                &uuid.to_string(),
                &uuid_reason(&record.pbx),
            ));
        }
        rows
    }

    /// Returns the row of a value whose deciding event is recorded under the value's name.
    fn own_value(&self, name: &'static str, value: &str) -> ValueRow {
        self.value_by_event(name, value, name)
    }

    /// Returns the row of a value whose deciding event is recorded under the name `by`.
    fn value_by_event(&self, name: &'static str, value: &str, by: &str) -> ValueRow {
        let mut row = plain_value(name, value, "");
        if let Some(because) = self
            .call
            .decided_by
            .iter()
            .find(|because| because.value == by)
        {
            row.by = Some((because.at, safe(&because.channel)));
            row.message = safe(&because.message);
        }
        row
    }

    fn trunk(&self) -> Option<&Trunk> {
        let record = &self.judged.record;
        (self.rules.trunks).find(&record.pbx, record.trunk.as_deref()?)
    }

    fn phone(&self) -> ValueRow {
        if let Some(phone) = &self.judged.record.client_phone {
            return self.own_value("clientPhone", &safe(phone.as_str()));
        }
        let mut row = self.own_value("clientPhone", "none");
        if let Some(raw) = &self.call.number {
            let message = match self.trunk().and_then(|trunk| trunk.country) {
                Some(country) => {
                    let code = country.code();
                    format!("`{}` is not a telephone number in {code}", raw.text)
                }
                None => format!("the country of `{}` is not known: give --country", raw.text),
            };
            row.message = safe(&message);
        }
        row
    }

    /// Returns the row of the lead, with the event that set the variable if the lead came from one.
    fn lead(&self) -> ValueRow {
        let record = &self.judged.record;
        let phone = record.client_phone.as_ref();
        let trunk = self.trunk();
        let answer = trunk.map(|trunk| self.people.lead_of(self.call, phone, trunk));
        let (value, message) = match (record.lead_id, answer) {
            (Some(kept), _) => (
                kept.to_string(),
                record.lead_from.clone().unwrap_or_default(),
            ),
            (None, Some(LeadAnswer::Two(a, b, why))) => (format!("{a} or {b}"), why),
            (None, Some(LeadAnswer::None(why))) => ("none".to_owned(), why),
            (None, Some(LeadAnswer::One(..)) | None) => ("none".to_owned(), String::new()),
        };
        let named = message.strip_prefix("variable ").unwrap_or_default();
        let variable = named.split(' ').next().unwrap_or_default();
        let mut row = self.value_by_event("leadId", &value, variable);
        row.message = safe(&message);
        row
    }
}

/// Returns the row of a value that no single event decided.
fn plain_value(name: &'static str, value: &str, message: &str) -> ValueRow {
    ValueRow {
        name,
        value: value.to_owned(),
        by: None,
        message: safe(message),
    }
}

/// Returns a text about the origin of the uuid, which depends on the PBX id.
fn uuid_reason(pbx: &str) -> String {
    if pbx == super::PBX {
        return "give the --pbx-id of `run` to see the uuid that `run` uses".to_owned();
    }
    format!("of PBX {pbx}")
}

fn text_or_none(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::call::DecidingEvent;
    use callbridge_mapping::{Trunk, Trunks, judge};
    use callbridge_model::Zone;
    use callbridge_testkit::sample::call;

    fn explanation(call: &FinishedCall, color: bool) -> String {
        let flag = "city=PJSIP/city,country=UZ,lead=var:LEAD_ID,employees=101:501";
        let trunk = callbridge_mapping::trunk::parse(flag, &Trunk::default()).expect("good");
        let rules = Rules {
            trunks: Trunks::new(vec![trunk]).expect("one"),
            ..Rules::default()
        };
        let people = People::default();
        let judged = judge(call, "pbx1", &rules, &people, call.ended);
        let explained = Explained {
            judged: &judged,
            state: None,
            call,
            rules: &rules,
            people: &people,
        };
        block(
            &explained,
            &Times::new(&Zone::from_name("UTC").expect("a zone"), call.started),
            Depth::Values,
            Paint { color },
        )
    }

    fn deciding_event(at: EventTime, value: &str, channel: &str, message: &str) -> DecidingEvent {
        DecidingEvent {
            value: value.to_owned(),
            at,
            channel: channel.to_owned(),
            message: message.to_owned(),
        }
    }

    fn call_with_deciding_events() -> FinishedCall {
        let mut call = call();
        let start = call.started;
        let customer = "PJSIP/city-4f";
        call.decided_by = vec![
            deciding_event(start, "direction", customer, "came in on a trunk"),
            deciding_event(start, "LEAD_ID", customer, "LEAD_ID of this channel"),
            deciding_event(
                start,
                "employee",
                "PJSIP/101-50",
                "the last to begin to talk",
            ),
        ];
        call
    }

    #[test]
    fn values_are_shown_with_the_event_that_decided_them() {
        insta::assert_snapshot!(explanation(&call_with_deciding_events(), false), @r#"
        1795151317.146  journal  2026-11-20 05:08:37 UTC
          direction         INBOUND  1795151317.833600  PJSIP/city-4f  came in on a trunk
          answered          yes
          trunk             city
          clientPhone       +998901110001
          leadId            4001     1795151317.833600  PJSIP/city-4f  variable LEAD_ID
          employee          101      1795151317.833600  PJSIP/101-50   the last to begin to talk
          employeeId        501      by the list of employees
          startedAt         1795151317
          durationSec       5
          talkTimeSec       4
          uuid              0ceb32a8-260a-5ba6-b8f1-30205fcc212d  of PBX pbx1
        "#);
    }

    #[test]
    fn colors_appear_only_on_terminals_and_never_from_names() {
        let mut call = call_with_deciding_events();
        call.decided_by[0].channel = "PJSIP/\u{1b}[31mcity".to_owned();
        assert!(!explanation(&call, false).contains('\u{1b}'));
        let colored = explanation(&call, true);
        assert!(colored.contains("\u{1b}[32mjournal\u{1b}[0m"));
        assert!(colored.contains(r"PJSIP/\u{1b}[31mcity"), "{colored:?}");
        assert!(!colored.contains("\u{1b}[31m"), "{colored:?}");
    }
}
