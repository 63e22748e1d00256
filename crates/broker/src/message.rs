//! A stored call to its message.

use callbridge_call::{EventTime, Extension, FinishedCall};
use callbridge_formats::message::{MessageKind, ResolvedIds, write};
use callbridge_model::{CallRecord, LeadId, Phone};
use callbridge_source::amqp::publish::own_properties;
use callbridge_spool::Row;
use lapin::BasicProperties;
use std::time::Duration;

/// The body of a ready call's message: what would be sent to the CRM.
pub fn body(row: &Row) -> String {
    let record = &row.record;
    let settled = ResolvedIds {
        phone: record.client_phone.as_ref().map(Phone::as_str),
        lead: record.lead_id.map(LeadId::get),
        employee: record.employee_id.map(|id| id.get()),
    };
    write(&record.pbx, &as_recorded(&row.call, record), settled)
}

/// The call as it was put down. Its exact figures count where they are those of the record; a
/// person, or a rule for what cannot be, may have said otherwise since.
fn as_recorded(call: &FinishedCall, record: &CallRecord) -> FinishedCall {
    let is_talk_exact = match call.answered {
        true => half_up(call.talk) == record.talk_time_sec && call.talk > Duration::ZERO,
        false => record.talk_time_sec == 0,
    };
    let exact = call.started.floor_seconds() == record.started_at
        && half_up(call.ended.since(call.started)).max(1) == record.duration_sec
        && call.answered == record.answered
        && is_talk_exact;
    let mut sent = call.clone();
    if !exact {
        let length = seconds(record.duration_sec);
        sent.started = EventTime::from_seconds(record.started_at.get());
        sent.ended = sent.started.plus(length);
        sent.answered = record.answered;
        sent.talk = match record.answered {
            // Less than half a second of talk is talk all the same.
            true => seconds(record.talk_time_sec).max(Duration::from_millis(500).min(length)),
            false => Duration::ZERO,
        };
    }
    sent.direction = record.direction;
    sent.trunk.clone_from(&record.trunk);
    sent.employee = record.employee.clone().map(Extension::new);
    let in_order = record.employees_in_order.iter().map(Extension::new);
    sent.employees_in_order = in_order.collect();
    sent.estimate = record.estimate;
    // What is ready is whole, or somebody has said that it is.
    sent.incomplete = None;
    sent
}

fn seconds(whole: u32) -> Duration {
    Duration::from_secs(whole.into())
}

/// Whole seconds, half up, as the journal has them.
fn half_up(exact: Duration) -> u32 {
    u32::try_from((exact.as_micros() + 500_000) / 1_000_000).unwrap_or(u32::MAX)
}

/// Properties of the call's message: its uuid, the end of the call, and `user`, which the broker
/// compares with the login.
pub fn properties(row: &Row, user: &str) -> BasicProperties {
    let properties = own_properties(user, MessageKind::Call.content_type())
        .with_message_id(row.uuid.to_string().into());
    stamped(properties, Some(row.call.ended))
}

/// The properties with the moment as their timestamp, if that is after 1970.
pub(crate) fn stamped(properties: BasicProperties, at: Option<EventTime>) -> BasicProperties {
    match at.and_then(|at| u64::try_from(at.floor_seconds().get()).ok()) {
        Some(at) => properties.with_timestamp(at),
        None => properties,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::EpochSeconds;
    use callbridge_formats::message::read;
    use callbridge_mapping::journal::figures::uuid;
    use callbridge_mapping::trunk::parse;
    use callbridge_mapping::{People, Rules, Trunk, Trunks, judge};
    use callbridge_model::{Country, Judged, Outcome, SuppliedFacts};
    use callbridge_spool::{Progress, RowId, State};
    use callbridge_testkit::sample;

    fn rules(trunk: &str) -> Rules {
        let defaults = Trunk {
            country: Country::parse("UZ"),
            ..Trunk::default()
        };
        let trunk = parse(trunk, &defaults).expect("a trunk");
        Rules {
            trunks: Trunks::new(vec![trunk]).expect("trunks"),
            without_trunk: Some(defaults),
            ..Rules::default()
        }
    }

    fn judged(call: &FinishedCall, trunk: &str) -> Judged {
        judge(call, "pbx1", &rules(trunk), &People::default(), call.ended)
    }

    fn row(call: FinishedCall, record: CallRecord) -> Row {
        Row {
            id: RowId(1),
            uuid: uuid("pbx1", &call.linkedid),
            record,
            progress: Progress {
                state: State::Ready,
                since: EventTime::from_seconds(0),
                started: call.started.floor_seconds(),
                live: true,
                not_before: 0,
                hooked: false,
                request_id: None,
                token: None,
                submitted_at: None,
                first_sent: None,
                next_poll: None,
                polls: 0,
                absent: 0,
                absent_at: None,
                resubmits: 0,
                failures: 0,
                fate: None,
                been: None,
                generation: 0,
                reason: None,
                message: String::new(),
                errors: None,
                finding: None,
                attempts: Vec::new(),
                deaths: 0,
            },
            call,
        }
    }

    /// The record that a sender without any list makes of the message.
    fn sent(row: &Row) -> CallRecord {
        let body = body(row);
        let sent = read(body.as_bytes(), None).expect(&body);
        let now = sent.call.ended;
        let rules = rules("city=,pbx=another");
        let judged = judge(&sent.call, &sent.pbx, &rules, &People::default(), now);
        assert_eq!(judged.outcome, Outcome::Journal, "{}", judged.message);
        judged.record
    }

    const COLLECTOR: &str = "city=PJSIP/city,lead=var:LEAD_ID,employees=101:501";

    #[test]
    fn the_sender_makes_the_record_that_the_collector_would_have_made() {
        let here = judged(&sample::call(), COLLECTOR).record;
        assert_eq!(here.employee_id.map(|it| it.get()), Some(501));
        // The sender knows the lead by the message, and not by the variable.
        let there = CallRecord {
            lead_from: Some("as the message says".to_owned()),
            ..here.clone()
        };
        assert_eq!(sent(&row(sample::call(), here)), there);
    }

    #[test]
    fn exact_figures_are_kept_and_those_that_somebody_mended_go_before_them() {
        let here = judged(&sample::call(), COLLECTOR).record;
        let exact = body(&row(sample::call(), here.clone()));
        assert!(exact.contains("\"startedAt\":1795151317.8336"), "{exact}");
        let said = SuppliedFacts {
            answered: Some(true),
            talk_sec: Some(2),
            direction: None,
        };
        let mended = here.said_by_hand(said, EpochSeconds::new(5)).expect("so");
        let mut torn = sample::call();
        torn.incomplete = Some("the end was missed".to_owned());
        let there = sent(&row(torn, mended.clone()));
        assert_eq!((there.talk_time_sec, there.answered), (2, true));
        assert!(!there.incomplete);
        assert_eq!(there.started_at, mended.started_at);
    }

    #[test]
    fn a_start_that_could_not_be_goes_out_as_it_was_put_down() {
        let mut early = sample::call();
        early.started = EventTime::from_seconds(5);
        early.ended = EventTime::from_seconds(15);
        let now = EventTime::from_seconds(1_795_151_317);
        let judged = judge(&early, "pbx1", &rules(COLLECTOR), &People::default(), now);
        let there = sent(&row(early, judged.record.clone()));
        assert_eq!(there.started_at, judged.record.started_at);
        assert_eq!(there.duration_sec, 10);
    }

    #[test]
    fn a_message_says_who_publishes_it_and_which_call_it_is() {
        let record = judged(&sample::call(), COLLECTOR).record;
        let row = row(sample::call(), record);
        let properties = properties(&row, "branch-7");
        let text = |text: &Option<lapin::types::ShortString>| {
            text.as_ref().map(|it| it.as_str().to_owned())
        };
        let uuid = "0ceb32a8-260a-5ba6-b8f1-30205fcc212d".to_owned();
        assert_eq!(text(properties.message_id()), Some(uuid));
        assert_eq!(text(properties.user_id()).as_deref(), Some("branch-7"));
        assert_eq!(
            text(properties.content_type()).as_deref(),
            Some("application/vnd.callbridge.call+json; version=1")
        );
        assert_eq!(*properties.delivery_mode(), Some(2));
    }
}
