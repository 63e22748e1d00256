//! The endpoints, behind token, window, address and grant.

use super::answer::Asked;
use super::core::Sandbox;
use super::envelope::{Refusal, Success};
use super::faults::Action;
use super::journal::{Content, STATUS_KEPT, Status, Submission, WRITES_MAX, Write};
use super::token::{Grant, TokenKind};
use super::violations::ViolationKind;
use super::{call_history, filter};
use callbridge_call::EventTime;
use serde_json::{Value, json};
use std::time::Duration;

const REQUEST_NAMESPACE: uuid::Uuid =
    uuid::Uuid::from_u128(0x8c2d_1a44_0f6b_4e59_a7d3_3b90_6f1e_24c7);

/// The record of `GET token/info` (§2.2), of an application in a company. Without an expiry date
/// `expiresInDays`, an integer that cannot be null, is 0.
pub(super) fn token_info(sandbox: &Sandbox, asked: &Asked<'_>) -> Success {
    let token = &asked.token;
    let Some(company) = sandbox.companies.get(&token.company) else {
        return Success::default();
    };
    let own = (company.application_id, &company.application_name);
    let public = token.application.and_then(|id| {
        let application = sandbox.oauth.applications.get(&id)?;
        let connection = sandbox.oauth.connections.get(&(id, token.company))?;
        Some(((id, &application.name), &connection.grants))
    });
    let ((id, name), grants) = public.unwrap_or((own, &company.grants));
    let kind = match token.kind {
        TokenKind::Pat => "PRIVATE",
        TokenKind::Access => "PUBLIC",
    };
    let permissions: Vec<Value> = (grants.iter().map(Grant::parts))
        .map(|(permission, scope)| json!({ "permission": permission, "scope": scope }))
        .collect();
    Success::of(json!({
        "application": { "id": id, "name": name, "type": kind },
        "company": { "id": company.id, "name": company.name },
        "kind": token.kind,
        "expiresAt": token.expires_at,
        "expiresInDays": token.days_left(asked.now).unwrap_or(0),
        "permissions": permissions,
    }))
}

pub(super) fn submit(sandbox: &mut Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let (now, settings) = (asked.now, &sandbox.settings);
    let (call, derived) = call_history::read(
        &asked.request.body,
        &settings.names,
        now,
        settings.ahead_max,
    )?;
    if !derived.is_empty() {
        let words = format!("sent: {}", derived.join(", "));
        sandbox.violation(now, ViolationKind::DerivedField, "§2.6", words);
    }
    judge_repeat(sandbox, now, asked.token.company, &call);
    accept(sandbox, asked, Content::Call(call))
}

/// Accepts a write: it will be done after its time, and can be polled for from now on.
pub(super) fn accept(
    sandbox: &mut Sandbox,
    asked: &Asked<'_>,
    content: Content,
) -> Result<Success, Refusal> {
    let Sandbox { settings, dice, .. } = sandbox;
    let accepted = sandbox.journal.accepted();
    if accepted >= WRITES_MAX {
        return Err(Refusal::Status(500));
    }
    let jitter = settings.persist_jitter.as_micros();
    let jitter = Duration::from_micros(dice.below(u64::try_from(jitter).unwrap_or(0) + 1));
    let held = match asked.fault {
        Some(Action::Hold(time)) => time,
        _ => Duration::ZERO,
    };
    let serial = format!("{}-{}", settings.seed, accepted + 1);
    let request_id = uuid::Uuid::new_v5(&REQUEST_NAMESPACE, serial.as_bytes()).to_string();
    sandbox.journal.accept(Write {
        request_id: request_id.clone(),
        company: asked.token.company,
        token: asked.key,
        accepted_at: asked.now,
        due: asked.now.plus(settings.persist_after + jitter + held),
        answered: asked.fault.is_none_or(Action::leaves_answer_whole),
        doomed: asked.fault == Some(Action::Failed),
        content,
        status: Status::Pending,
        why: None,
    });
    Ok(Success::accepted(request_id))
}

/// A call whose uuid came before, and did not end FAILED (§4.5.4).
fn judge_repeat(sandbox: &mut Sandbox, now: EventTime, company: i64, call: &Submission) {
    let earlier = sandbox.journal.earlier(company, call);
    let Some(earlier) = earlier.filter(|earlier| earlier.status != Status::Failed) else {
        return;
    };
    let (kind, words) = if earlier.call() != Some(call) {
        let words = format!("{} is another call's: this one makes no record", call.uuid);
        (ViolationKind::UuidReused, words)
    } else if earlier.answered {
        let words = format!(
            "{} again after its 200, now {:?}",
            call.uuid, earlier.status
        );
        (ViolationKind::RepeatAfter200, words)
    } else {
        return;
    };
    sandbox.violation(now, kind, "§4.5.4", words);
}

pub(super) fn filter(sandbox: &Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let (records, company) = (sandbox.journal.records(), asked.token.company);
    filter::answer(
        &asked.request.body,
        records,
        company,
        &sandbox.settings.shapes,
    )
}

/// §4.6, §3.2: 24 hours, for the creating token alone.
pub(super) fn request_status(sandbox: &mut Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let now = asked.now;
    let missing = Refusal::NotFound("So‘rov topilmadi");
    let Some(write) = sandbox.journal.write(asked.id) else {
        let words = "a requestId never given";
        sandbox.violation(now, ViolationKind::UnknownPoll, "§4.6", words);
        return Err(missing);
    };
    if write.token != asked.key {
        let words = "a requestId that another token created";
        sandbox.violation(now, ViolationKind::ForeignPoll, "§3.2", words);
        return Err(missing);
    }
    if now.since(write.accepted_at) >= STATUS_KEPT {
        return Err(missing);
    }
    let shapes = &sandbox.settings.shapes;
    let word = match write.status {
        Status::Pending => &shapes.pending,
        Status::Success => "SUCCESS",
        Status::Failed => "FAILED",
    };
    Ok(Success::of(shapes.status_data(word)))
}
