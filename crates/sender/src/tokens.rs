//! The current token and the previous one. From tokens, their records, and refusals, this
//! determines which token a request needs and when `token/info` is due.

use crate::breaker::pause::PROBE;
use crate::confirm::RequestIdEnd;
use crate::memory::{Memory, Refused};
use crate::plan::Known;
use crate::queue::Work;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{ApiResult, Endpoint, TokenInfo};
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_leads::lead_request::{LeadChange, LeadOutcome};
use callbridge_model::{Grant, Now, TokenFingerprint};
use callbridge_spool::{Binding, Fit, Op, SlotRow, Unconfirmed};
use std::time::Duration;

/// Time after which `token/info` is read again.
const HOURLY: Duration = Duration::from_secs(3600);

/// Time after which `token/info` is tried again if it couldn't be read.
const UNREAD_AGAIN: Duration = Duration::from_secs(60);

/// A replaced token that's still valid, with its expiry.
pub type Before = (TokenFingerprint, EpochSeconds);

/// The current and previous tokens, along with everything that responses have revealed about them.
#[derive(Debug, Default)]
pub(super) struct KnownTokens {
    pub(super) current: Option<TokenFingerprint>,
    /// The previous token, with its expiry. It's used only to poll its own requestIds (§4.6).
    pub(super) before: Option<Before>,
    /// The current token's record.
    pub(super) info: Option<TokenInfo>,
    binding: Binding,
    /// The company that the current token must belong to, in addition to the one we're bound to.
    pub(super) company: Option<i64>,
    /// Days until the token expires, if the CRM warned about it.
    pub(super) expires_in_days: Option<u32>,
    /// The last token. Kept across restarts.
    pub(super) last: Option<TokenFingerprint>,
    /// The token that was last refused, and when, as time since boot.
    pub(super) refused: Option<(Refused, Duration)>,
    /// Whether the current token's record has been read and shows that the token belongs to us.
    pub(super) is_verified: bool,
    /// Time since boot at which to read the record again, or `None` before it's been read once.
    record_due: Option<Duration>,
    /// Time since boot at which the record was last read.
    record_read: Duration,
    /// Time since boot of the last response that contradicted the record.
    record_doubted: Option<Duration>,
    /// The grants in the record that was read last, for whichever token.
    grants_seen: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The token belongs to us and may submit calls.
    Good,
    /// The token belongs to another company or application, as the message explains.
    Foreign(String),
    /// The token belongs to us, but may not submit calls.
    NoGrant,
}

impl KnownTokens {
    /// Starts without a token, but with what was stored about the last one.
    pub(super) fn new(known: &Known, memory: &Memory, now: Now, late: Duration) -> Self {
        Self {
            binding: known.binding.clone(),
            last: memory.token.clone(),
            refused: refused_at(memory.refused.clone(), &known.slots, now, late),
            ..Self::default()
        }
    }

    pub(super) fn is_current(&self, token: &TokenFingerprint) -> bool {
        self.current.as_ref() == Some(token)
    }

    /// Returns the tokens whose requestIds can be read, starting with the current one.
    pub(super) fn valid_tokens(&self, now: Now) -> impl Iterator<Item = &TokenFingerprint> {
        let mut before = None;
        if let Some((token, until)) = &self.before
            && now.wall.floor_seconds() < *until
        {
            before = Some(token);
        }
        let current = self.current.iter().filter(move |_| !self.is_expired(now));
        current.chain(before)
    }

    /// Returns `true` if the current token has expired. It's then used only for `token/info`, which
    /// shows whether the CRM still accepts it.
    pub(super) fn is_expired(&self, now: Now) -> bool {
        let info = self.info.as_ref();
        info.and_then(|info| info.expires_at)
            .is_some_and(|at| now.wall.floor_seconds() >= at)
    }

    /// Returns `true` if this token's requestIds can be read.
    pub(super) fn can_read(&self, now: Now, token: &TokenFingerprint) -> bool {
        self.valid_tokens(now).any(|valid| valid == token)
    }

    /// Returns the token for a request, or `None` if it's missing or no longer valid. A requestId
    /// is polled with the token that received it (§4.6), and everything else uses the current
    /// token.
    pub(super) fn fitting(&self, now: Now, work: &Work) -> Option<TokenFingerprint> {
        let own = match work {
            Work::Poll(call) => Some(&call.token),
            Work::Lead(request) => request.token(),
            Work::TokenInfo | Work::Submit(_) | Work::Page { .. } | Work::Settle(_) => None,
        };
        match own {
            Some(own) if self.can_read(now, own) => Some(own.clone()),
            Some(_) => None,
            None if self.is_expired(now) && *work != Work::TokenInfo => None,
            None => self.current.clone(),
        }
    }

    /// Returns when the call's requestId ceases to be readable.
    pub(super) fn request_id_end(&self, call: &Unconfirmed) -> RequestIdEnd {
        let token_ends = self.expires_at(&call.token);
        RequestIdEnd::new(call, token_ends.map(|at| EventTime::from_seconds(at.get())))
    }

    /// Returns when the token expires, if known.
    fn expires_at(&self, token: &TokenFingerprint) -> Option<EpochSeconds> {
        match self.before.as_ref().filter(|(before, _)| before == token) {
            Some((_, until)) => Some(*until),
            None => self.info.as_ref()?.expires_at,
        }
    }

    /// Returns the CRM's URL that the state is bound to, which is empty before the first binding.
    pub(super) fn address(&self) -> &str {
        self.binding.address.as_deref().unwrap_or_default()
    }

    /// Returns `true` if `token/info` is due again. Before the first reading, this is `false`,
    /// because `token/info` goes before everything else anyway.
    pub(super) fn is_record_due(&self, now: Duration) -> bool {
        self.record_due.is_some_and(|due| due <= now)
    }

    /// Returns the time since boot at which `token/info` is due again.
    pub(super) fn record_due(&self) -> Option<Duration> {
        self.record_due
    }

    /// Notes that `token/info` is being requested or couldn't be read, so that it's due again in a
    /// minute.
    pub(super) fn record_asked(&mut self, now: Duration) {
        if self.record_due.is_some() {
            self.record_due = Some(now + UNREAD_AGAIN);
        }
    }

    /// Makes `token/info` due because a response contradicts the record, at most once a minute.
    pub(super) fn doubt_record(&mut self, now: Duration) {
        let doubted_lately = self
            .record_doubted
            .is_some_and(|at| now < at + UNREAD_AGAIN);
        if self.record_due.is_some() && !doubted_lately {
            self.record_doubted = Some(now);
            self.record_due = Some(now);
        }
    }

    /// Makes `token/info` due at this time, unless it's due even earlier.
    pub(super) fn read_record_at(&mut self, at: Duration) {
        if let Some(due) = &mut self.record_due {
            *due = at.min(*due);
        }
    }

    /// Returns `true` if the token's record was read within the last two hours.
    pub(super) fn is_record_recent(&self, now: Duration) -> bool {
        self.is_verified && now <= self.record_read + 2 * HOURLY
    }

    /// Returns `true` if the token's record doesn't rule out this grant.
    pub(super) fn may(&self, grant: Grant) -> bool {
        self.info.as_ref().is_none_or(|info| info.may(grant))
    }

    /// Returns `true` if a request succeeded even though the token's record lacks the grant for it.
    pub(super) fn is_contradicted(&self, asked: Option<&LeadRequest>, answer: &ApiResult) -> bool {
        answer.is_ok()
            && match asked {
                Some(LeadRequest::FieldWrite(_)) => !self.may(Grant::LeadSave),
                Some(LeadRequest::LookUp(_) | LeadRequest::Backfill(_)) => {
                    !self.may(Grant::LeadRead)
                }
                Some(LeadRequest::Asked(_, asked)) => {
                    let writes = asked.request.endpoint() == Endpoint::FieldList;
                    writes && !self.may(Grant::LeadSave)
                }
                Some(LeadRequest::Catalog | LeadRequest::FieldPoll(_)) | None => false,
            }
    }

    /// Returns the time since boot at which to check the current token again, if it was refused
    /// before.
    pub(super) fn refused_until(&self) -> Option<Duration> {
        let (refused, at) = self.refused.as_ref()?;
        if self.is_current(&refused.token) {
            Some(*at + PROBE)
        } else {
            None
        }
    }

    /// Sets the current token, returning `true` if it differs from the last one, even across a
    /// restart.
    pub(super) fn replace(&mut self, token: Option<TokenFingerprint>) -> bool {
        let renewed = token.is_some() && self.last != token;
        if renewed {
            self.last.clone_from(&token);
        }
        self.current = token;
        self.before = None;
        self.info = None;
        self.expires_in_days = None;
        self.is_verified = false;
        self.record_due = None;
        renewed
    }

    /// Notes that a request is being sent with this token, returning `true` if the token was
    /// refused before. The time until the next probe then starts over, which the caller must store,
    /// since the response may be lost if the process is killed.
    pub(super) fn launched(&mut self, now: Now, token: &TokenFingerprint) -> bool {
        let Some((refused, at)) = &mut self.refused else {
            return false;
        };
        if refused.token != *token {
            return false;
        }
        (refused.at, *at) = (now.wall, now.boot);
        true
    }

    /// Removes the previous token, because it's invalid. Calls sent with it can only be looked for
    /// in the journal.
    pub(super) fn drop_previous(&mut self, token: &TokenFingerprint) {
        self.before.take_if(|(before, _)| before == token);
    }

    /// Notes that the current token was refused.
    pub(super) fn refuse(&mut self, now: Now, token: &TokenFingerprint) {
        self.info = None;
        self.is_verified = false;
        self.record_due = None;
        let refused = Refused {
            token: token.clone(),
            at: now.wall,
        };
        self.refused = Some((refused, now.boot));
    }

    /// Handles the token's record, checking whether the token belongs to us and has the grants we
    /// need.
    pub(super) fn read(&mut self, now: Now, info: TokenInfo, ops: &mut Vec<Op>) -> Standing {
        let company = info.company.to_string();
        // A record without an application is assumed to be for the bound application.
        let application = info
            .application
            .map(|id| id.to_string())
            .or_else(|| self.binding.application.clone())
            .unwrap_or_default();
        let fit = self.binding.fits_company(&company, &application);
        let named = self.company.filter(|named| *named != info.company);
        let whose = format!("it belongs to {} ({company})", info.company_name);
        // Once the token has expired, only this request shows whether the CRM still accepts it.
        let next_record = info.expires_at.map_or(HOURLY, |at| {
            let left = EventTime::from_seconds(at.get()).since(now.wall);
            left.clamp(UNREAD_AGAIN, HOURLY)
        });
        self.note_grants(now, &info, ops);
        self.info = Some(info);
        self.refused = None;
        self.record_read = now.boot;
        self.record_due = Some(now.boot + next_record);
        self.is_verified = false;
        if let Some(named) = named {
            return Standing::Foreign(format!("{whose}, but --company is {named}"));
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
        self.is_verified = true;
        if self.may(Grant::CallSave) {
            Standing::Good
        } else {
            Standing::NoGrant
        }
    }

    /// Resumes lead requests that are paused due to a missing grant, if there's a new grant.
    fn note_grants(&mut self, now: Now, info: &TokenInfo, ops: &mut Vec<Op>) {
        let Some(grants) = &info.grants else {
            return;
        };
        let before = self.grants_seen.replace(grants.clone()).unwrap_or_default();
        if grants.iter().any(|grant| !before.contains(grant)) {
            let outcome = Box::new(LeadOutcome::Granted);
            let at = now.wall;
            ops.push(Op::Lead(LeadChange::Request { outcome, at }));
        }
    }
}

/// Returns when the token was last refused. A request with it that was interrupted by a kill counts
/// as refused once it can no longer arrive, even if it was planned long ago.
fn refused_at(
    last: Option<Refused>,
    slots: &[SlotRow],
    now: Now,
    late: Duration,
) -> Option<(Refused, Duration)> {
    let mut last = last?;
    let mut slots = slots.iter();
    if slots.any(|row| row.answered.is_none() && row.token == last.token) {
        last.at = now.wall.plus(late);
        return Some((last, now.boot + late));
    }
    let ahead = last.at.since(now.wall).min(late);
    let since = now.wall.since(last.at);
    Some((last, (now.boot + ahead).saturating_sub(since)))
}
