//! The token in use and the one before it: what their requestIds can be asked with, what the
//! record says, and which token was refused.

use crate::memory::{Memory, Refused};
use crate::{Known, PROBE, STRAGGLER, TOKEN_END, Task};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{ApiError, ApiResult, Endpoint, TokenInfo};
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::{Grant, Now, TokenFingerprint};
use callbridge_spool::{Binding, Fit, Op, SlotRow};
use std::time::Duration;

/// A replaced token that is still valid, and its expiry.
pub type Before = (TokenFingerprint, EpochSeconds);

/// The current and the previous token, with everything that answers have shown about them.
#[derive(Debug, Default)]
pub(super) struct KnownTokens {
    pub(super) current: Option<TokenFingerprint>,
    /// The previous token, and its expiry. Only its own requestIds are polled with it (§4.6).
    pub(super) before: Option<Before>,
    /// This long before the current token expires, its polls go before everything else.
    ends_within: Duration,
    /// The record of the current token.
    pub(super) info: Option<TokenInfo>,
    binding: Binding,
    /// The company that the current token must belong to, in addition to the bound one.
    pub(super) company: Option<i64>,
    /// The CRM warned that the token expires.
    pub(super) expires_in_days: Option<u32>,
    /// The last token, also over restarts.
    pub(super) last: Option<TokenFingerprint>,
    /// The token that was refused last, and when, since boot.
    pub(super) refused: Option<(Refused, Duration)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It belongs to us, and has the right to submit.
    Good,
    /// It belongs to another company or application, with a message.
    Foreign(String),
    /// It belongs to us, but has no right to submit.
    NoGrant,
}

impl KnownTokens {
    /// Starts without a token, and with what is remembered of the last one.
    pub(super) fn new(known: &Known, memory: &Memory, now: Now) -> Self {
        Self {
            ends_within: TOKEN_END,
            binding: known.binding.clone(),
            last: memory.token.clone(),
            refused: refused_at(memory.refused.clone(), &known.slots, now),
            ..Self::default()
        }
    }

    pub(super) fn is_current(&self, token: &TokenFingerprint) -> bool {
        self.current.as_ref() == Some(token)
    }

    /// The tokens whose requestIds can be read, the current one first.
    pub(super) fn living(&self, now: Now) -> impl Iterator<Item = &TokenFingerprint> {
        let lives = |(_, until): &&Before| now.wall.floor_seconds() < *until;
        let before = self.before.as_ref().filter(lives).map(|(token, _)| token);
        self.current.iter().chain(before)
    }

    /// A requestId of this token can be read.
    pub(super) fn reads(&self, now: Now, token: &TokenFingerprint) -> bool {
        self.living(now).any(|it| it == token)
    }

    /// A requestId is polled with the token that received it (§4.6), everything else uses the
    /// current one.
    pub(super) fn fitting(&self, now: Now, task: &Task) -> Option<TokenFingerprint> {
        let polled = task.poll().map(|call| &call.token);
        let of_lead = || task.lead_request().and_then(LeadRequest::token);
        match polled.or_else(of_lead) {
            Some(own) => self.reads(now, own).then(|| own.clone()),
            None => self.current.clone(),
        }
    }

    /// The token expires soon, so its requestIds can soon no longer be polled.
    pub(super) fn ends_soon(&self, now: Now, token: &TokenFingerprint) -> bool {
        let (expires, soon) = match self.before.as_ref().filter(|(it, _)| it == token) {
            Some((_, until)) => (Some(*until), self.ends_within.min(PROBE)),
            None => {
                let expires = self.info.as_ref().and_then(|info| info.expires_at);
                (expires, self.ends_within)
            }
        };
        expires.is_some_and(|at| {
            now.wall.plus(soon).floor_seconds() >= at && now.wall.floor_seconds() < at
        })
    }

    /// The token's record does not rule out this right.
    pub(super) fn may(&self, grant: Grant) -> bool {
        self.info.as_ref().is_none_or(|info| info.may(grant))
    }

    /// Returns `true` if an answer contradicts the rights in the token's record.
    pub(super) fn is_doubted_by(&self, asked: Option<&LeadRequest>, answer: &ApiResult) -> bool {
        let against = answer.is_ok()
            && match asked {
                Some(LeadRequest::FieldWrite(_)) => !self.may(Grant::LeadSave),
                Some(LeadRequest::LookUp(_) | LeadRequest::Backfill(_)) => {
                    !self.may(Grant::LeadRead)
                }
                Some(LeadRequest::Asked(_, asked)) => {
                    let writes = asked.request.endpoint() == Endpoint::FieldList;
                    writes && !self.may(Grant::LeadSave)
                }
                Some(LeadRequest::Catalogue | LeadRequest::FieldPoll(_)) | None => false,
            };
        against || matches!(answer, Err(ApiError::Forbidden(..)))
    }

    /// Time since boot at which the current token is asked about again, if it was refused before.
    pub(super) fn refused_until(&self) -> Option<Duration> {
        let (refused, at) = self.refused.as_ref()?;
        self.is_current(&refused.token).then_some(*at + PROBE)
    }

    /// Sets the current token. Returns whether it differs from the last one, also across a restart.
    pub(super) fn replace(&mut self, token: Option<TokenFingerprint>) -> bool {
        let renewed = token.is_some() && self.last != token;
        if renewed {
            self.last.clone_from(&token);
        }
        self.current = token;
        self.before = None;
        self.ends_within = TOKEN_END;
        self.info = None;
        self.expires_in_days = None;
        renewed
    }

    /// A request is sent with this token. If it was refused before, a kill can lose the answer. So
    /// the next probe counts from now, and this must be stored. Returns `true` in that case.
    pub(super) fn launched(&mut self, now: Now, token: &TokenFingerprint) -> bool {
        let refused = self.refused.as_mut().filter(|(it, _)| it.token == *token);
        let Some((refused, at)) = refused else {
            return false;
        };
        (refused.at, *at) = (now.wall, now.boot);
        true
    }

    /// The previous token is invalid: its calls can only be looked for in the journal.
    pub(super) fn over(&mut self, token: &TokenFingerprint) {
        self.before.take_if(|(before, _)| before == token);
    }

    /// The current token was refused.
    pub(super) fn refuse(&mut self, now: Now, token: &TokenFingerprint) {
        self.info = None;
        let (token, at) = (token.clone(), now.wall);
        self.refused = Some((Refused { token, at }, now.boot));
    }

    /// Handles the token's record: does it belong to us, and has it the rights that we need?
    pub(super) fn read(&mut self, now: Now, info: TokenInfo, ops: &mut Vec<Op>) -> Standing {
        let company = info.company.to_string();
        // a record without its application counts as that of the bound one
        let application = info.application.map(|id| id.to_string());
        let application = application.or_else(|| self.binding.application.clone());
        let application = application.unwrap_or_default();
        let fit = self.binding.fits_company(&company, &application);
        let named = self.company.filter(|it| *it != info.company);
        let whose = format!("it is of {} ({company})", info.company_name);
        self.ends_within = info.expires_at.map_or(TOKEN_END, |at| {
            let left = EventTime::from_seconds(at.get()).since(now.wall);
            TOKEN_END.min(left / 4)
        });
        self.info = Some(info);
        self.refused = None;
        if let Some(named) = named {
            return Standing::Foreign(format!("{whose}, and --company is {named}"));
        }
        match fit {
            Fit::Other => {
                let bound = self.binding.company.as_deref().unwrap_or("none");
                let bound_application = self.binding.application.as_deref().unwrap_or("none");
                return Standing::Foreign(format!(
                    "{whose}, application {application}; bound to company {bound}, \
                     application {bound_application}"
                ));
            }
            Fit::Unbound => {
                self.binding.company = Some(company.clone());
                self.binding.application = Some(application.clone());
                ops.push(Op::BindCompany {
                    company,
                    application,
                });
            }
            Fit::Same => {}
        }
        match self.may(Grant::CallSave) {
            true => Standing::Good,
            false => Standing::NoGrant,
        }
    }
}

/// Time at which the token was last refused. If a kill interrupted a request with it, that request
/// counts as refused now, plus [`STRAGGLER`], even if it was planned long ago.
fn refused_at(last: Option<Refused>, slots: &[SlotRow], now: Now) -> Option<(Refused, Duration)> {
    let mut last = last?;
    let cut = |row: &SlotRow| row.answered.is_none() && row.token == last.token;
    if slots.iter().any(cut) {
        last.at = now.wall.plus(STRAGGLER);
        return Some((last, now.boot + STRAGGLER));
    }
    let since = now.wall.since(last.at);
    Some((last, now.boot.saturating_sub(since)))
}
