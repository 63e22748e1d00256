//! The Calls view, with calls in progress and stored calls, and the page of a single call.

use crate::answer::{self, Handled, Problem, download};
use crate::backend::{CallPage, CallQuery, CallView, OpenCallView, RequestView};
use crate::csv::{Columns, CsvText, cell};
use crate::{markup::mask, page::AuthenticatedRequest, request::link, shell::PageShell};
use askama::Template;
use callbridge_call::Direction;
use callbridge_leads::directory::LeadProfile;
use callbridge_listener::body;
use callbridge_model::Reason;
use callbridge_spool::{Listed, State};
use futures_util::stream;
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// The states that can be searched for.
pub(crate) const STATES: [&str; 8] = [
    "journaled",
    "ready",
    "sending",
    "submitted",
    "dead",
    "waiting",
    "discarded",
    "forwarded",
];

#[derive(Template)]
#[template(path = "calls.html")]
struct CallsSheet<'a> {
    c: &'a PageShell,
    open: Vec<OpenCallView>,
    page: CallPage,
    query: CallQuery,
    trunks: Vec<String>,
    /// The query's error message, in which case the list is empty.
    wrong: Option<String>,
    newest: String,
    csv: String,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "call.html")]
struct CallSheet<'a> {
    c: &'a PageShell,
    call: &'a CallView,
    line: &'a Listed,
    lead: &'a LeadProfile,
}

/// Serves `GET /calls`, which shows the calls in progress and a page of stored calls.
pub(crate) async fn list(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let _ = visit.refresh_badges().await;
    let query = query(&visit);
    let backend = &visit.page.backend;
    let open = if query == CallQuery::default() {
        backend.under_way().await?
    } else {
        Vec::new()
    };
    let trunks = backend.trunks().await?;
    let (page, wrong) = match backend.calls(query.clone()).await {
        Ok(page) => (page, None),
        // The typed query is kept, and its error is shown.
        Err(refusal) if refusal.is_usage() => (CallPage::default(), Some(refusal.message)),
        Err(refusal) => return Err(refusal.into()),
    };
    let next = page.next.as_deref();
    let sheet = CallsSheet {
        c: &visit.shell,
        open,
        next: next.map(|next| link_to("/calls", &query, Some(next))),
        newest: link_to("/calls", &query, None),
        csv: link_to("/calls.csv", &query, None),
        page,
        trunks: trunks.into_iter().map(|trunk| trunk.name).collect(),
        query,
        wrong,
    };
    answer::form(&sheet, sheet.wrong.is_some())
}

/// Returns the link to a page of the calls that match a query. `before` is the page's key, or
/// `None` for the first page.
fn link_to(path: &str, query: &CallQuery, before: Option<&str>) -> String {
    let fields = [
        ("text", query.text.as_deref()),
        ("day", query.day.as_deref()),
        ("trunk", query.trunk.as_deref()),
        ("state", query.state.as_deref()),
        ("before", before),
    ];
    link(path, &fields)
}

fn query(visit: &AuthenticatedRequest<'_>) -> CallQuery {
    let asked = &visit.asked.query;
    CallQuery {
        text: asked.get_owned("text"),
        day: asked.get_owned("day"),
        trunk: asked.get_owned("trunk"),
        state: asked.get_owned("state"),
        before: asked.get_owned("before"),
    }
}

/// The CSV file's columns.
const COLUMNS: &Columns<Listed> = &[
    ("startedAt", |call, c| {
        c.zone.second(call.record.started_at.get())
    }),
    ("direction", |call, _| {
        call.record.direction.word().to_owned()
    }),
    ("phone", |call, c| {
        match (call.record.phone(), c.may_act()) {
            (phone, true) => phone.unwrap_or_default().to_owned(),
            (phone, false) => mask(phone.unwrap_or_default()),
        }
    }),
    ("leadId", |call, _| cell(&call.record.lead_id)),
    ("employeeId", |call, _| cell(&call.record.employee_id)),
    ("extension", |call, _| cell(&call.record.employee)),
    ("trunk", |call, _| cell(&call.record.trunk)),
    ("answered", |call, _| call.record.answered.to_string()),
    ("durationSec", |call, _| {
        call.record.duration_sec.to_string()
    }),
    ("talkTimeSec", |call, _| {
        call.record.talk_time_sec.to_string()
    }),
    ("state", |call, _| call.state_word().to_owned()),
    ("reason", |call, _| cell(&call.reason.map(Reason::word))),
    ("uuid", |call, _| call.uuid()),
];

/// Serves `GET /calls.csv`, which contains all calls that match a query, newest first.
pub(crate) async fn csv(visit: &AuthenticatedRequest<'_>) -> Handled {
    let query = query(visit);
    let backend = Arc::clone(&visit.page.backend);
    // Any error in the query is reported before the file begins.
    let first = backend.calls(query.clone()).await?;
    let head = CsvText::new(COLUMNS);
    let shell = visit.shell.clone();
    let pieces = stream::try_unfold(Some((head, first)), move |left| {
        let backend = Arc::clone(&backend);
        let query = query.clone();
        let shell = shell.clone();
        async move {
            let Some((mut text, page)) = left else {
                return Ok(None);
            };
            for call in &page.calls {
                text.row(COLUMNS, call, &shell);
            }
            let next = match page.next {
                None => None,
                before => {
                    // If a page fails, the file mustn't look complete.
                    let next = backend.calls(CallQuery { before, ..query }).await;
                    Some((CsvText::default(), next.map_err(|refusal| refusal.message)?))
                }
            };
            Ok::<_, String>(Some((text.bytes(), next)))
        }
    });
    let name = "callbridge-calls.csv";
    Ok(download(body::in_pieces(pieces), CsvText::KIND, name))
}

impl CallSheet<'_> {
    /// Returns a sentence with the two parties, the trunk, and the talk time.
    fn summary(&self) -> String {
        let c = self.c;
        let call = &self.line.record;
        let phone = c.plain(call.phone().unwrap_or(c.t("number.hidden")));
        let trunk = c.plain(call.trunk.as_deref().unwrap_or(c.t("none")));
        let called = match call.direction {
            Direction::Outbound => "call.told.out",
            Direction::Inbound | Direction::Internal => "call.told.in",
            Direction::Unknown => "call.told.unknown",
        };
        let talk = c.span(u64::from(call.talk_time_sec));
        let then = match (call.answered, call.employee.as_deref()) {
            (true, Some(extension)) => {
                c.text_with_two("call.told.talked", c.plain(extension), talk)
            }
            (true, None) => c.text_with("call.told.talk", talk),
            (false, _) => c.text_with("call.told.unanswered", c.span(u64::from(call.duration_sec))),
        };
        format!("{} {then}", c.text_with_two(called, phone, trunk))
    }

    /// Returns a sentence with the call's state and when the call entered it.
    fn outcome(&self) -> String {
        let c = self.c;
        let since = c.moment(self.call.since);
        match self.line.state {
            Some(State::Journaled) => c.text_with("call.told.journaled", since),
            Some(State::Submitted) => c.text_with("call.told.submitted", since),
            Some(State::Ready | State::Sending) | None => c.t("call.told.ready").to_owned(),
            Some(State::Discarded) => c.text_with("call.told.discarded", since),
            Some(State::Forwarded) => c.text_with("call.told.forwarded", since),
            Some(State::Dead | State::Waiting) => {
                let reason = self
                    .line
                    .reason
                    .map(|reason| c.word("reason", reason.word()));
                c.text_with("call.told.dead_letter", reason.unwrap_or_default())
            }
        }
    }

    /// Returns `true` if no request with the call has been sent.
    fn was_never_sent(&self) -> bool {
        let RequestView { sent_at, id, .. } = &self.call.request;
        sent_at.is_none() && id.is_none() && self.call.attempts.is_empty()
    }

    fn pretty(&self, body: &Value) -> String {
        serde_json::to_string_pretty(body).unwrap_or_default()
    }
}

/// Serves `GET /calls/UUID/picture.svg`, the picture of a call.
pub(crate) async fn picture(visit: AuthenticatedRequest<'_>, uuid: &str) -> Handled {
    match visit.page.backend.call(uuid.to_owned()).await? {
        Some(call) if !call.picture.is_empty() => Ok(answer::svg(call.picture)),
        _ => Err(Problem::not_found(&visit.shell, "problem.no_call")),
    }
}

/// Serves `GET /calls/UUID`, which shows a call with everything known about it.
pub(crate) async fn show(mut visit: AuthenticatedRequest<'_>, uuid: &str) -> Handled {
    let _ = visit.refresh_badges().await;
    let call = visit.page.backend.call(uuid.to_owned()).await;
    let Some(call) = call? else {
        return Err(Problem::not_found(&visit.shell, "problem.no_call"));
    };
    let mut profile = None;
    if let Some(lead) = call.line.record.lead_id {
        let mut profiles = visit.page.backend.profiles(BTreeSet::from([lead])).await?;
        profile = profiles.remove(&lead);
    }
    let sheet = CallSheet {
        c: &visit.shell,
        lead: &profile.unwrap_or_default(),
        line: &call.line,
        call: &call,
    };
    answer::html(&sheet)
}
