use super::core::{Batch, Intake};
use super::owners::OWNER_PREFIX;
use super::settings::{Memory, Settings, SourceSettings};
use callbridge_call::EventTime;
use callbridge_mapping::trunk::parse;
use callbridge_mapping::{People, Rules, Trunk, Trunks};
use callbridge_model::{Judged, LeadId, Outcome, Reason};
use callbridge_source::{
    Frame, FrameVerdict, Position, Publisher, SourceId, SourceUrl, StreamPosition,
};
use callbridge_spool::{Delivery, Op, OutcomeSource, PeerOutcome, WebhookEvent};
use std::time::Duration;

const START: EventTime = EventTime::from_seconds(1_795_151_317);

fn intake(url: &str, memory: Memory) -> Intake {
    let trunk = parse("city=,country=UZ,lead=var:LEAD_ID", &Trunk::default());
    let settings = Settings {
        calls: callbridge_call::Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            max_call: Duration::from_secs(3_600),
            max_open_calls: 100,
            ..callbridge_call::Settings::new(Default::default())
        },
        zone: None,
        columns: None,
        clock_right_from: EventTime::from_seconds(1_700_000_000),
        rules: Rules {
            trunks: Trunks::new(vec![trunk.expect("a trunk")]).expect("trunks"),
            without_trunk: Some(Trunk::default()),
            ..Rules::default()
        },
    };
    let url = SourceUrl::parse(url).unwrap_or_else(|faults| panic!("{faults:?}"));
    let source = SourceSettings::new(&url, String::new(), false);
    let mut intake = Intake::new(settings, vec![source], memory).expect("no conflict");
    intake.tick(START.plus(Duration::from_secs(10)));
    intake
}

const STREAM: &str = "amqp://u@mq1,mq2:5673/v?stream=calls&format=call";

fn message(pbx: &str, id: &str) -> String {
    format!(
        r#"{{"pbx":"{pbx}","id":"{id}","direction":"INBOUND","trunk":"city",
            "phone":"+998901110001","startedAt":1795151317.5,"durationSec":5,"answered":true,
            "talkSec":4,"variables":{{"LEAD_ID":"4001"}}}}"#
    )
}

fn frame(seq: u64, body: &str, user: Option<&str>) -> Frame {
    Frame {
        seq,
        arrived: START.plus(Duration::from_secs(6)),
        bytes: body.to_owned().into(),
        position: Some(Position::Stream(StreamPosition {
            stream: "calls".into(),
            offset: seq + 99,
            message: None,
        })),
        publisher: Some(Box::new(Publisher {
            user: user.map(Into::into),
            is_own: user == Some("u"),
            content_type: None,
        })),
        details: None,
    }
}

fn on_event(intake: &mut Intake, frame: &Frame) {
    intake
        .frame(SourceId(0), frame, &mut |_, _| None)
        .expect("no conflict");
}

fn take(intake: &mut Intake) -> Batch {
    intake.take(&People::default(), START.plus(Duration::from_secs(10)))
}

fn judged(batch: &Batch) -> Vec<&Judged> {
    let finished = batch.ops.iter().filter_map(|op| match op {
        Op::Finish(finished) => Some(&finished.judged),
        _ => None,
    });
    finished.collect()
}

fn letters(batch: &Batch) -> Vec<&str> {
    let letters = batch.ops.iter().filter_map(|op| match op {
        Op::Unreadable(unread) => Some(unread.why.as_str()),
        _ => None,
    });
    letters.collect()
}

#[test]
fn a_message_is_a_call_with_its_place_in_one_batch() {
    let mut intake = intake(STREAM, Memory::default());
    intake.up(SourceId(0), START);
    on_event(
        &mut intake,
        &frame(1, &message("tashkent-1", "1.2"), Some("t1")),
    );
    let batch = take(&mut intake);
    let [call] = judged(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert_eq!((call.outcome, call.live), (Outcome::Journal, true));
    assert_eq!(call.record.lead_id, LeadId::new(4001));
    // By Python: uuid.uuid5(NAMESPACE, "tashkent-1\0" + "1.2")
    let uuid = call.record.uuid.expect("a uuid").to_string();
    assert_eq!(uuid, "c5a3a901-2f7f-5d72-86ae-7f6f44e9ca52");
    let places = batch.ops.iter().filter_map(|op| match op {
        Op::Position { source, position } => Some((source.as_str(), position.to_string())),
        _ => None,
    });
    let place = r#"{"offset":100,"stream":"calls"}"#.to_owned();
    assert_eq!(places.collect::<Vec<_>>(), [("stream:v?calls", place)]);
    let committed = (SourceId(0), FrameVerdict::Committed { through: 1 });
    assert_eq!(batch.verdicts, [committed]);
    assert_eq!(intake.open_calls(), 0);
}

#[test]
fn a_pbx_belongs_to_its_first_user_and_to_it_after_a_restart() {
    let mut first = intake(STREAM, Memory::default());
    on_event(&mut first, &frame(1, &message("a", "1"), Some("alpha")));
    on_event(&mut first, &frame(2, &message("a", "2"), Some("beta")));
    on_event(&mut first, &frame(3, &message("a", "3"), None));
    on_event(&mut first, &frame(4, &message("b", "4"), Some("beta")));
    on_event(&mut first, &frame(5, &message("a", "5"), Some("alpha")));
    let batch = take(&mut first);
    let ids = judged(&batch)
        .into_iter()
        .map(|it| it.record.linkedid.as_str());
    assert_eq!(ids.collect::<Vec<_>>(), ["1", "4", "5"]);
    let told = letters(&batch);
    assert_eq!(told.len(), 2);
    assert!(
        told.iter().all(|words| words.starts_with("user_id: ")),
        "{told:?}"
    );
    assert!(
        told.iter().all(|words| words.contains("; it may be ")),
        "{told:?}"
    );
    let stored = batch.ops.iter().filter_map(|op| match op {
        Op::Meta { key, value } => Some((key.strip_prefix(OWNER_PREFIX)?, value.as_str())),
        _ => None,
    });
    assert_eq!(stored.collect::<Vec<_>>(), [("a", "alpha"), ("b", "beta")]);
    let refused = [2, 3].map(|seq| (SourceId(0), FrameVerdict::Refused { seq }));
    assert_eq!(batch.verdicts[..2], refused);

    let known = std::collections::BTreeMap::from([("a".to_owned(), "alpha".to_owned())]);
    let (owners, _) = crate::owners::Owners::named(known, std::collections::BTreeMap::new());
    let mut second = intake(
        STREAM,
        Memory {
            owners,
            ..Memory::default()
        },
    );
    on_event(&mut second, &frame(1, &message("a", "6"), Some("beta")));
    assert_eq!(letters(&take(&mut second)).len(), 1);
}

#[test]
fn nobody_who_tells_no_name_takes_a_pbx_and_its_first_named_user_does() {
    let mut intake = intake(STREAM, Memory::default());
    on_event(&mut intake, &frame(1, &message("a", "1"), None));
    on_event(&mut intake, &frame(2, &message("a", "2"), Some("alpha")));
    on_event(&mut intake, &frame(3, &message("a", "3"), None));
    let batch = take(&mut intake);
    assert_eq!((judged(&batch).len(), letters(&batch).len()), (2, 1));
}

#[test]
fn wrong_messages_and_newer_versions_are_letters_that_name_the_field() {
    let mut intake = intake(STREAM, Memory::default());
    let wrong = message("a", "1").replace("\"durationSec\":5", "\"durationSec\":-5");
    on_event(&mut intake, &frame(1, &wrong, Some("alpha")));
    let mut newer = frame(2, &message("a", "2"), Some("alpha"));
    let publisher = newer.publisher.as_mut().expect("a publisher");
    publisher.content_type = Some("application/vnd.callbridge.call+json; version=2".into());
    on_event(&mut intake, &newer);
    let future = message("a", "3").replace("1795151317.5", "1795159999");
    on_event(&mut intake, &frame(3, &future, Some("alpha")));
    let batch = take(&mut intake);
    let told = letters(&batch);
    assert!(
        told[0].starts_with("durationSec: it is -5; it may be "),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("version: it is 2, and this callbridge reads"),
        "{told:?}"
    );
    let counted =
        |op: &Op| matches!(op, Op::Count { counter, .. } if counter == "messages_of_version_2");
    assert_eq!(batch.ops.iter().filter(|op| counted(op)).count(), 1);
    let [call] = judged(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert_eq!(call.reason, Some(Reason::InvalidEpoch));
    assert!(call.message.starts_with("startedAt: "), "{}", call.message);
}

#[test]
fn while_our_clock_is_wrong_calls_wait_and_their_source_hears_nothing() {
    let mut intake = intake(STREAM, Memory::default());
    intake.tick(EventTime::from_seconds(5));
    on_event(&mut intake, &frame(1, &message("a", "1"), Some("alpha")));
    let held = take(&mut intake);
    assert!(judged(&held).is_empty() && held.verdicts.is_empty());
    assert!(!held.ops.iter().any(|op| matches!(op, Op::Position { .. })));
    intake.tick(START.plus(Duration::from_secs(10)));
    let batch = take(&mut intake);
    assert_eq!((judged(&batch).len(), batch.verdicts.len()), (1, 1));
    assert!(batch.ops.iter().any(|op| matches!(op, Op::Position { .. })));
}

#[test]
fn a_files_messages_need_no_publisher() {
    let mut intake = intake(
        "file:///calls.jsonl?format=call&from=start",
        Memory::default(),
    );
    let mut told = frame(1, &message("a", "1"), None);
    told.publisher = None;
    on_event(&mut intake, &told);
    let batch = take(&mut intake);
    let [call] = judged(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert!(!call.live, "what a file tells may be old");
}

/// A message of another kind than a call.
fn of_kind(seq: u64, body: &str, user: Option<&str>, content_type: &str) -> Frame {
    let mut told = frame(seq, body, user);
    let publisher = told.publisher.as_mut().expect("a publisher");
    publisher.content_type = Some(content_type.into());
    told
}

#[test]
fn messages_of_another_kind_are_read_past_the_calls_and_make_no_letter() {
    let mut intake = intake(STREAM, Memory::default());
    let outcomes = "application/vnd.callbridge.outcomes+json; version=7";
    on_event(&mut intake, &of_kind(1, "{}", Some("alpha"), outcomes));
    let batch = take(&mut intake);
    assert!(letters(&batch).is_empty() && judged(&batch).is_empty());
    let ignored = Op::Count {
        counter: "messages_ignored".to_owned(),
        by: 1,
    };
    assert!(batch.ops.contains(&ignored), "{:?}", batch.ops);
    assert!(batch.ops.iter().any(|op| matches!(op, Op::Position { .. })));
}

fn elsewhere(batch: &Batch) -> Vec<&PeerOutcome> {
    let all = batch.ops.iter().filter_map(|op| match op {
        Op::PeerOutcome(told) => Some(told),
        _ => None,
    });
    all.collect()
}

#[test]
fn what_ended_before_this_state_began_may_have_been_sent_and_is_marked_behind_its_call() {
    // The call of `message` ends at 5.5 s.
    let began = |seconds: u64| Memory {
        possibly_sent_before: [(
            "stream:v?calls".to_owned(),
            START.plus(Duration::from_secs(seconds)),
        )]
        .into(),
        ..Memory::default()
    };
    for (memory, marked) in [
        (began(6), true),
        (began(5), false),
        (Memory::default(), false),
    ] {
        let mut intake = intake(STREAM, memory);
        on_event(&mut intake, &frame(1, &message("a", "1"), Some("alpha")));
        let batch = take(&mut intake);
        let uuid = judged(&batch)[0].record.uuid.expect("a uuid");
        let place = |of: &dyn Fn(&Op) -> bool| batch.ops.iter().position(of);
        let mark = Op::PeerOutcome(PeerOutcome::PossiblySent(uuid));
        let mark = place(&|op| *op == mark);
        assert_eq!(mark.is_some(), marked);
        assert!(mark.is_none_or(|at| Some(at) > place(&|op| matches!(op, Op::Finish(_)))));
    }
}

#[test]
fn outcomes_of_our_own_login_follow_their_calls_and_those_of_others_are_ignored() {
    let mut intake = intake(STREAM, Memory::default());
    let kind = "application/vnd.callbridge.outcomes+json; version=1";
    let uuid = "c5a3a901-2f7f-5d72-86ae-7f6f44e9ca52";
    let told = format!(r#"{{"journaled":["{uuid}"]}}"#);
    on_event(
        &mut intake,
        &frame(1, &message("tashkent-1", "1.2"), Some("t1")),
    );
    for (seq, user) in [(2, None), (3, Some("t1")), (4, Some("u"))] {
        on_event(&mut intake, &of_kind(seq, &told, user, kind));
    }
    let batch = take(&mut intake);
    let [PeerOutcome::Settled(settlement)] = elsewhere(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert_eq!(settlement.outcomes.journaled[0].to_string(), uuid);
    assert_eq!(settlement.source, OutcomeSource::Stream);
    let finish = batch.ops.iter().position(|op| matches!(op, Op::Finish(_)));
    let settled = batch
        .ops
        .iter()
        .position(|op| matches!(op, Op::PeerOutcome(_)));
    assert!(finish.is_some() && finish < settled, "{:?}", batch.ops);
    let ignored = batch.ops.iter().filter(|op| matches!(op, Op::Count { .. }));
    assert_eq!((ignored.count(), letters(&batch).len()), (2, 0));

    // Our own that cannot be read are kept.
    on_event(
        &mut intake,
        &of_kind(5, r#"{"journaled":[1]}"#, Some("u"), kind),
    );
    let batch = take(&mut intake);
    let [words] = letters(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert!(
        words.starts_with("outcomes: they cannot be read"),
        "{words}"
    );
}

#[test]
fn outcomes_wait_with_their_calls_while_our_clock_is_wrong() {
    let mut intake = intake(STREAM, Memory::default());
    intake.tick(EventTime::from_seconds(5));
    let kind = "application/vnd.callbridge.outcomes+json; version=1";
    on_event(&mut intake, &frame(1, &message("a", "1"), Some("alpha")));
    on_event(&mut intake, &of_kind(2, "{}", Some("u"), kind));
    assert!(elsewhere(&take(&mut intake)).is_empty());
    intake.tick(START.plus(Duration::from_secs(10)));
    assert_eq!(elsewhere(&take(&mut intake)).len(), 1);
}

const WEBHOOK: &str = "application/vnd.callbridge.webhook+json; version=1";

/// An event that says that this call is in the journal.
fn webhook(uuid: &str) -> String {
    format!(
        r#"{{"event":"e-1","installation":"9001","company":"77","proof":"{}",
            "kind":"CALL_COMPLETED","call":{{"uuid":"{uuid}","leads":[4001]}}}}"#,
        "0a".repeat(32)
    )
}

fn deliveries(batch: &Batch) -> Vec<&Delivery> {
    let all = batch.ops.iter().filter_map(|op| match op {
        Op::Delivery(delivery) => Some(delivery.as_ref()),
        _ => None,
    });
    all.collect()
}

#[test]
fn an_event_of_our_own_login_follows_its_call_and_a_forged_one_is_ignored_and_counted() {
    let mut intake = intake(STREAM, Memory::default());
    let uuid = "c5a3a901-2f7f-5d72-86ae-7f6f44e9ca52";
    let told = webhook(uuid);
    on_event(
        &mut intake,
        &frame(1, &message("tashkent-1", "1.2"), Some("t1")),
    );
    for (seq, user) in [(2, None), (3, Some("t1")), (4, Some("u"))] {
        on_event(&mut intake, &of_kind(seq, &told, user, WEBHOOK));
    }
    let newer = WEBHOOK.replace("version=1", "version=2");
    on_event(&mut intake, &of_kind(5, &told, Some("u"), &newer));
    let batch = take(&mut intake);
    let [delivery] = deliveries(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    let arrived = START.plus(Duration::from_secs(6));
    assert_eq!((delivery.at, delivery.service_retries), (arrived, false));
    let leads = LeadId::new(4001).into_iter().collect();
    let uuid = callbridge_model::CallUuid(uuid.parse().expect("a uuid"));
    let shown = None;
    assert_eq!(
        delivery.news,
        WebhookEvent::Completed { uuid, leads, shown }
    );
    let place = |of: &dyn Fn(&Op) -> bool| batch.ops.iter().position(of);
    let finish = place(&|op| matches!(op, Op::Finish(_)));
    let follows = place(&|op| matches!(op, Op::Delivery(_)));
    assert!(finish.is_some() && finish < follows, "{:?}", batch.ops);
    let ignored = batch.ops.iter().filter(|op| matches!(op, Op::Count { .. }));
    assert_eq!((ignored.count(), letters(&batch).len()), (3, 0));
}

#[test]
fn an_event_of_our_own_that_cannot_be_read_is_a_letter_that_names_its_field() {
    let mut intake = intake(STREAM, Memory::default());
    let good = webhook("c5a3a901-2f7f-5d72-86ae-7f6f44e9ca52");
    let wrong = [
        ("{", "webhook: "),
        (&good.replace("4001", "-1"), "call.leads: "),
        (&good.replace("0a0a", "0x"), "proof: "),
        (&good.replace("CALL_COMPLETED", "LEAD_SOLD"), "kind: "),
    ];
    for (seq, (body, _)) in (1..).zip(&wrong) {
        on_event(&mut intake, &of_kind(seq, body, Some("u"), WEBHOOK));
    }
    let batch = take(&mut intake);
    assert!(deliveries(&batch).is_empty(), "{:?}", batch.ops);
    let told = letters(&batch);
    assert_eq!(told.len(), wrong.len());
    for (words, (_, field)) in told.iter().zip(&wrong) {
        assert!(words.starts_with(field), "{words}");
    }
}

#[test]
fn an_event_that_came_while_our_clock_was_wrong_came_when_it_was_set() {
    let mut intake = intake(STREAM, Memory::default());
    intake.tick(EventTime::from_seconds(5));
    let mut told = of_kind(
        1,
        &webhook("c5a3a901-2f7f-5d72-86ae-7f6f44e9ca52"),
        Some("u"),
        WEBHOOK,
    );
    told.arrived = EventTime::from_seconds(5);
    on_event(&mut intake, &told);
    assert!(deliveries(&take(&mut intake)).is_empty());
    let now = START.plus(Duration::from_secs(10));
    intake.tick(now);
    let batch = take(&mut intake);
    assert_eq!(deliveries(&batch)[0].at, now);
}
