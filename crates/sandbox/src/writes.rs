//! Accepts writes, and carries out each when it is due.

use crate::{
    Action, Content, Endpoint, Journal, Refusal, Request, Sandbox, Submission, Success, Token,
    TokenKey, WRITES_MAX, journal::Status, journal::Write, lead::act, lead::record::upsert,
    webhook::events,
};
use callbridge_call::EventTime;
use std::time::Duration;

const REQUEST_NAMESPACE: uuid::Uuid =
    uuid::Uuid::from_u128(0x8c2d_1a44_0f6b_4e59_a7d3_3b90_6f1e_24c7);

/// A request that passed authentication, and the fault that applies to it.
pub(super) struct Asked<'a> {
    pub(super) key: TokenKey,
    pub(super) token: Token,
    pub(super) endpoint: Endpoint,
    /// The id in the path. Empty for paths without one.
    pub(super) id: &'a str,
    pub(super) request: &'a Request,
    pub(super) fault: Option<Action>,
}

/// Accepts a write, which [`Sandbox::tick`] carries out when it is due. Returns a success with the
/// requestId, by which a client can poll the status from now on.
pub(super) fn accept(
    core: &mut Sandbox,
    asked: &Asked<'_>,
    content: Content,
) -> Result<Success, Refusal> {
    let Sandbox { settings, dice, .. } = core;
    let accepted = core.journal.accepted();
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
    core.journal.accept(Write {
        request_id: request_id.clone(),
        company: asked.token.company,
        token: asked.key,
        accepted_at: core.now,
        due: core.now.plus(settings.persist_after + jitter + held),
        answered: asked.fault.is_none_or(Action::leaves_answer_whole),
        doomed: asked.fault == Some(Action::Failed),
        content,
        status: Status::Pending,
        why: None,
    });
    Ok(Success {
        request_id: Some(request_id),
        ..Success::default()
    })
}

impl Sandbox {
    /// Sets the sandbox's time, carries out the writes that are due, and removes old writes.
    pub fn tick(&mut self, now: EventTime) {
        self.now = now;
        while let Some(write) = self.journal.next_due(now) {
            let ended = match &write.content {
                _ if write.doomed => Err("by order of a fault"),
                Content::Call(call) => self.journal_call(&write, call),
                Content::Fields(fields) => match act::find_lead(self, write.company, fields.lead) {
                    None => Err("unknown leadId"),
                    Some(mut lead) => {
                        upsert(&mut lead.fields, &fields.values);
                        act::save_lead(self, write.due, write.company, lead);
                        Ok(())
                    }
                },
            };
            self.journal.end(&write.request_id, ended.err());
        }
        self.journal.forget(now);
    }

    fn journal_call(&mut self, write: &Write, call: &Submission) -> Result<(), &'static str> {
        let company = self
            .companies
            .get(&write.company)
            .ok_or("unknown company")?;
        if !self.leads.exists(company, call.lead_id) {
            return Err("unknown leadId");
        }
        if (call.employee_id).is_some_and(|id| !company.employees.contains(id)) {
            return Err("unknown employeeId");
        }
        if let Some(record) = self.journal.record_of(write, call) {
            let provider = self.settings.shapes.journal_foreign.as_ref();
            let foreign = provider.map(|provider| Journal::foreign_of(&record, provider));
            for record in [Some(record), foreign].into_iter().flatten() {
                events::journaled(self, &record);
                self.journal.add(record);
            }
        }
        Ok(())
    }
}
