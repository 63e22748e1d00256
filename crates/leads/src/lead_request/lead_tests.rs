//! Tests of how each response affects a lead request.

use super::*;
use crate::lead_request::due::FieldPoll;
use serde_json::Value;

fn lead() -> LeadId {
    LeadId::new(4_001).expect("a lead")
}

fn now() -> EventTime {
    EventTime::from_seconds(1_795_151_317)
}

fn poll() -> LeadRequest {
    LeadRequest::FieldPoll(FieldPoll {
        lead: lead(),
        request_id: "r".into(),
        token: TokenFingerprint::of("token"),
    })
}

/// Returns the outcome of the only request in `settled`.
fn outcome(mut settled: Settled) -> LeadOutcome {
    match settled.changes.pop() {
        Some(LeadChange::Request { outcome, .. }) if settled.changes.is_empty() => *outcome,
        other => panic!("one request: {other:?}"),
    }
}

/// Returns a response's effect as text, which ends with `(again)` if the request isn't done.
fn word(lead_request: &LeadRequest, answer: &ApiResult) -> String {
    let settled = settle(now(), lead_request, answer, &TokenFingerprint::of("token"));
    let done = settled.done;
    let outcome = match outcome(settled) {
        LeadOutcome::LookedUp(_, finding) => finding.word().to_owned(),
        LeadOutcome::MergedInto(_, survivor) => format!("merged into {survivor}"),
        LeadOutcome::Catalog(catalog) => format!("unread: {:?}", catalog.unread),
        LeadOutcome::Accepted(_, request_id, _) => format!("accepted {request_id}"),
        LeadOutcome::NotYet(_) => "not yet".to_owned(),
        LeadOutcome::Written(_) => "written".to_owned(),
        LeadOutcome::Refused(_, refusal) => {
            format!("given up: {} {:?}", refusal.reason, refusal.blames)
        }
        LeadOutcome::Again(_, why) => format!("again: {why}"),
        LeadOutcome::Back(_) => "back".to_owned(),
        LeadOutcome::Rest(kind, _, why) => format!("{kind:?} rest: {why}"),
        LeadOutcome::Granted => "granted".to_owned(),
        LeadOutcome::Sent(..) | LeadOutcome::Writes(..) => "sent".to_owned(),
    };
    format!("{outcome}{}", if done { "" } else { " (again)" })
}

fn message() -> String {
    "yo'q".to_owned()
}

/// Returns one response of each kind.
fn answers() -> Vec<ApiResult> {
    vec![
        Ok(ApiReply::Accepted("r1".into())),
        Ok(ApiReply::Status(WriteStatus::Success)),
        Ok(ApiReply::Status(WriteStatus::Pending("NEW".into()))),
        Ok(ApiReply::Status(WriteStatus::Failed(
            FailureWord::Failed,
            message(),
            Value::Null,
        ))),
        Err(ApiError::Rejected {
            status: 400,
            message: message(),
            errors: Value::Null,
        }),
        Err(ApiError::UNAUTHORIZED),
        Err(ApiError::Forbidden(message())),
        Err(ApiError::NotFound {
            own: true,
            message: message(),
        }),
        Err(ApiError::NotFound {
            own: false,
            message: message(),
        }),
        Err(ApiError::WrongAddress {
            status: 405,
            own: true,
        }),
        Err(ApiError::Rejected {
            status: 409,
            message: message(),
            errors: Value::Null,
        }),
        Err(ApiError::TooMany(true)),
        Err(ApiError::Server {
            status: 500,
            own: true,
            message: String::new(),
        }),
        Err(ApiError::TimedOut),
        Err(ApiError::NotConnected("refused".into())),
    ]
}

/// Returns the effect of each of [`answers`], one per line.
fn table(lead_request: &LeadRequest) -> String {
    let words: Vec<String> = answers()
        .iter()
        .map(|answer| word(lead_request, answer))
        .collect();
    words.join("\n")
}

#[test]
fn lookup_with_404_or_409_from_crm_reports_missing_lead() {
    insta::assert_snapshot!(table(&LeadRequest::LookUp(lead())), @r"
        unclear
        unclear
        unclear
        unclear
        unclear
        back (again)
        LookUps rest: 403: yo'q
        lead_missing
        LookUps rest: 404: yo'q
        LookUps rest: 405
        lead_missing
        back (again)
        again: 500 (again)
        again: no answer in time (again)
        back (again)
        ");
    let there = Ok(ApiReply::Data(serde_json::json!({"data": {"id": 4_001}})));
    assert_eq!(word(&LeadRequest::LookUp(lead()), &there), "lead_exists");
}

#[test]
fn unreadable_catalog_reports_the_reason() {
    insta::assert_snapshot!(table(&LeadRequest::Catalog), @r#"
        unread: Some("an answer to another request")
        unread: Some("an answer to another request")
        unread: Some("an answer to another request")
        unread: Some("FAILED: yo'q")
        unread: Some("400: yo'q")
        back (again)
        unread: Some("403: yo'q")
        unread: Some("404: yo'q")
        unread: Some("404: yo'q")
        unread: Some("405")
        unread: Some("409: yo'q")
        back (again)
        again: 500 (again)
        again: no answer in time (again)
        back (again)
        "#);
    let fields = Ok(ApiReply::Data(
        serde_json::json!({"data": [{"id": 11, "infoType": "LED"}]}),
    ));
    let none = TokenFingerprint::none();
    let outcome = outcome(settle(now(), &LeadRequest::Catalog, &fields, &none));
    let LeadOutcome::Catalog(catalog) = outcome else {
        panic!("a catalog")
    };
    assert!(catalog.whole && catalog.fields.len() == 1);
    let none = Ok(ApiReply::Data(serde_json::json!({"data": null})));
    assert!(word(&LeadRequest::Catalog, &none).contains("no fields in the answer"));
}

#[test]
fn lookup_answered_with_another_lead_reports_a_merge() {
    let look_up = LeadRequest::LookUp(lead());
    for (id, expected) in [(lead().get(), "lead_exists"), (9_999, "merged into 9999")] {
        let body = serde_json::json!({"data": {"id": id, "name": "N"}, "accept": true});
        assert_eq!(word(&look_up, &Ok(ApiReply::Data(body))), expected);
    }
}

#[test]
fn field_write_is_accepted_retried_given_up_or_paused() {
    insta::assert_snapshot!(table(&LeadRequest::FieldWrite(lead())), @r"
        accepted r1
        given up: an answer to another request ItemOrLead
        given up: an answer to another request ItemOrLead
        given up: FAILED: yo'q ItemOrLead
        given up: 400: yo'q SomeItem
        back (again)
        Fields rest: 403: yo'q
        given up: 404: yo'q ItemOrLead
        Fields rest: 404: yo'q
        Fields rest: 405
        given up: 409: yo'q ItemOrLead
        back (again)
        again: 500 (again)
        again: no answer in time (again)
        back (again)
        ");
    let named = Err(ApiError::Rejected {
        status: 400,
        message: "yo'q".into(),
        errors: serde_json::json!([{"field": "[1].value", "reason": "MAX"}]),
    });
    insta::assert_snapshot!(
        word(&LeadRequest::FieldWrite(lead()), &named),
        @r#"given up: 400: yo'q [{"field":"[1].value","reason":"MAX"}] Items([1])"#
    );
}

#[test]
fn poll_answer_ends_the_write_or_causes_another_try() {
    insta::assert_snapshot!(table(&poll()), @r"
        not yet
        written
        not yet
        given up: FAILED: yo'q ItemOrLead
        again: 400: yo'q (again)
        back (again)
        not yet (again)
        again: 404: yo'q (again)
        not yet (again)
        not yet (again)
        again: 409: yo'q (again)
        back (again)
        not yet (again)
        not yet (again)
        back (again)
        ");
}
