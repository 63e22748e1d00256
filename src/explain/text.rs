//! `explain` for people: each value with the event that decided it.

use crate::journal::{Judged, Outcome, Rules};
use crate::people::{LeadAnswer, People};
use callbridge_call::{Direction, FinishedCall};
use std::fmt::Write as _;

/// How it is painted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint {
    /// With colours.
    pub colour: bool,
}

impl Paint {
    fn on(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn dim(self, text: &str) -> String {
        if text.trim().is_empty() {
            text.to_owned()
        } else {
            self.on("2", text)
        }
    }
}

/// One value: its name, itself, and where it comes from.
struct Row {
    name: &'static str,
    value: String,
    at: String,
    channel: String,
    words: String,
}

/// The block of one call, an empty line behind it.
pub fn block(
    judged: &Judged,
    call: &FinishedCall,
    rules: &Rules,
    people: &People,
    paint: Paint,
) -> String {
    let rows = rows(judged, call, rules, people);
    let mut text = heading(judged, paint);
    // Columns are as wide as they must be, but one long value does not push all others away.
    let width = |of: fn(&Row) -> &str, most: usize| {
        rows.iter()
            .filter(|row| !row.at.is_empty())
            .map(|row| of(row).chars().count().min(most))
            .max()
            .unwrap_or(0)
    };
    let value = width(|row| &row.value, 36);
    let at = width(|row| &row.at, 20);
    let channel = width(|row| &row.channel, 28);
    for row in &rows {
        let name = paint.dim(&format!("{:<16}", row.name));
        let shown = format!("{:<value$}", row.value);
        let line = if row.channel.is_empty() {
            format!("  {name}  {shown}  {}", row.words)
        } else {
            let when = paint.dim(&format!("{:<at$}", row.at));
            format!(
                "  {name}  {shown}  {when}  {:<channel$}  {}",
                row.channel, row.words
            )
        };
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for remark in &judged.remarks {
        let _ = writeln!(
            text,
            "  {}  {}",
            paint.dim(&format!("{:<16}", "remark")),
            safe(remark)
        );
    }
    text.push('\n');
    text
}

fn heading(judged: &Judged, paint: Paint) -> String {
    let (code, outcome) = match judged.outcome {
        Outcome::Journal => ("32", "journal".to_owned()),
        Outcome::DeadLetter => {
            let reason = judged
                .reason
                .map(|reason| reason.word())
                .unwrap_or_default();
            let parked = judged.reason.is_some_and(|reason| reason.is_parked());
            (
                if parked { "33" } else { "31" },
                format!("dead letter {reason}"),
            )
        }
        Outcome::Internal => ("2", "internal".to_owned()),
        Outcome::Skipped => ("2", "skipped".to_owned()),
    };
    let linkedid = paint.on("1", &safe(&judged.record.linkedid));
    let mut line = format!("{linkedid}  {}", paint.on(code, &outcome));
    if !judged.message.is_empty() {
        let _ = write!(line, ": {}", safe(&judged.message));
    }
    line.push('\n');
    line
}

fn rows(judged: &Judged, call: &FinishedCall, rules: &Rules, people: &People) -> Vec<Row> {
    let record = &judged.record;
    let because = |name: &'static str, value: String, by: &str| {
        let found = call.why.iter().find(|because| because.value == by);
        let (at, channel, words) = found.map_or_else(Default::default, |because| {
            (
                because.at.to_string(),
                safe(&because.channel),
                safe(&because.words),
            )
        });
        Row {
            name,
            value,
            at,
            channel,
            words,
        }
    };
    let by_words = |name: &'static str, value: String, words: &str| Row {
        name,
        value,
        at: String::new(),
        channel: String::new(),
        words: safe(words),
    };
    let own = |name: &'static str, value: String| because(name, value, name);
    let or_none = |text: Option<&str>| text.map_or_else(|| "none".to_owned(), safe);
    let direction = match record.direction {
        Direction::Inbound => "INBOUND",
        Direction::Outbound => "OUTBOUND",
        Direction::Internal => "INTERNAL",
    };
    let mut rows = vec![own("direction", direction.to_owned())];
    rows.push(own(
        "answered",
        if record.answered { "yes" } else { "no" }.to_owned(),
    ));
    if record.direction != Direction::Internal {
        rows.push(own("trunk", or_none(record.trunk.as_deref())));
        let phone = record.client_phone.as_ref().map(|phone| phone.as_str());
        let mut row = own("clientPhone", or_none(phone));
        if let Some(heard) = call.number.as_ref().filter(|_| phone.is_none()) {
            row.words = format!("`{}` is no number of anybody", safe(&heard.text));
        }
        rows.push(row);
        rows.push(lead(judged, call, rules, people, because));
    }
    rows.push(own("employee", or_none(record.employee.as_deref())));
    if let Some(id) = record.employee_id {
        rows.push(by_words(
            "employeeId",
            id.to_string(),
            "by the list of employees",
        ));
    }
    if record.employees_in_order.len() > 1 {
        let all = record.employees_in_order.join(" ");
        rows.push(by_words(
            "employeesInOrder",
            safe(&all),
            "each as they came to talk",
        ));
    }
    rows.push(own("startedAt", record.started_at.to_string()));
    rows.push(own("durationSec", record.duration_sec.to_string()));
    rows.push(own("talkTimeSec", record.talk_time_sec.to_string()));
    if record.estimate {
        rows.push(by_words("estimate", "yes".to_owned(), "told by CDRs alone"));
    }
    if let Some(uuid) = record.uuid {
        rows.push(by_words(
            "uuid",
            uuid.to_string(),
            &format!("of PBX {}", record.pbx),
        ));
    }
    rows
}

/// The lead, by the event where it was a variable's.
fn lead(
    judged: &Judged,
    call: &FinishedCall,
    rules: &Rules,
    people: &People,
    because: impl Fn(&'static str, String, &str) -> Row,
) -> Row {
    let record = &judged.record;
    let trunk = record
        .trunk
        .as_deref()
        .and_then(|name| rules.trunks.find(&record.pbx, name));
    let answer = trunk.map(|trunk| people.lead_of(call, record.client_phone.as_ref(), trunk));
    let (value, words) = match (record.lead_id, answer) {
        (Some(put_down), Some(LeadAnswer::One(lead, why))) if put_down == lead => {
            (lead.to_string(), why)
        }
        (Some(put_down), _) => (put_down.to_string(), "put down so".to_owned()),
        (None, Some(LeadAnswer::Two(a, b, why))) => (format!("{a} or {b}"), why),
        (None, Some(LeadAnswer::None(why))) => ("none".to_owned(), why),
        (None, Some(LeadAnswer::One(..)) | None) => ("none".to_owned(), String::new()),
    };
    let variable = words.strip_prefix("variable ").unwrap_or_default();
    let variable = variable.split(' ').next().unwrap_or_default();
    let mut row = because("leadId", value, variable);
    row.words = safe(&words);
    row
}

/// Names and numbers come from outside: nothing in them may move the cursor or end a line.
fn safe(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{judge, tests::call};
    use crate::trunk::{Defaults, Trunks};
    use callbridge_call::call::Because;

    fn explained(call: &FinishedCall, colour: bool) -> String {
        let flag = "city=PJSIP/city,country=UZ,lead=var:LEAD_ID,employees=101:501";
        let trunk = crate::trunk::parse(flag, &Defaults::default()).expect("good");
        let rules = Rules {
            trunks: Trunks::new(vec![trunk]).expect("one"),
            ..Rules::default()
        };
        let people = People::default();
        let judged = judge(call, "pbx1", &rules, &people, call.ended);
        block(&judged, call, &rules, &people, Paint { colour })
    }

    fn told() -> FinishedCall {
        let mut call = call();
        let note = |value: &str, channel: &str, words: &str| Because {
            value: value.to_owned(),
            at: call.started,
            channel: channel.to_owned(),
            words: words.to_owned(),
        };
        let customer = "PJSIP/city-4f";
        call.why = vec![
            note("direction", customer, "came in on a trunk"),
            note("LEAD_ID", customer, "LEAD_ID of this channel"),
            note("employee", "PJSIP/101-50", "the last to begin to talk"),
        ];
        call
    }

    #[test]
    fn each_value_stands_with_the_event_that_decided_it() {
        insta::assert_snapshot!(explained(&told(), false), @"
        1795151317.146  journal
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
        ");
    }

    #[test]
    fn colours_are_for_terminals_and_names_cannot_bring_their_own() {
        let mut call = told();
        call.why[0].channel = "PJSIP/\u{1b}[31mcity".to_owned();
        assert!(!explained(&call, false).contains('\u{1b}'));
        assert!(explained(&call, true).contains("\u{1b}[32mjournal\u{1b}[0m"));
    }
}
