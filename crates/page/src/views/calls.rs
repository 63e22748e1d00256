//! Calls: those that go on, then the newest; and one with all that is known of it.

use crate::answer::{self, Handled, Problem};
use crate::backend::{CallPage, CallQuery, CallView, OpenCallView, RequestView};
use crate::page::{Visit, refused};
use crate::request::link;
use crate::shell::PageShell;
use askama::Template;
use callbridge_call::Direction;
use callbridge_spool::{Listed, State};
use hyper::StatusCode;
use serde_json::Value;

/// The states that a call can be in, as one looks for them.
pub(crate) const STATES: [&str; 8] = [
    "journaled",
    "ready",
    "sending",
    "submitted",
    "dead",
    "parked",
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
    /// What was looked for and cannot be.
    wrong: Option<String>,
    newest: String,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "call.html")]
struct CallSheet<'a> {
    c: &'a PageShell,
    call: &'a CallView,
    line: &'a Listed,
}

/// `GET /calls`
pub(crate) async fn list(mut visit: Visit<'_>) -> Handled {
    visit.look_around().await;
    let asked = &visit.asked.query;
    let query = CallQuery {
        text: asked.owned("text"),
        day: asked.owned("day"),
        trunk: asked.owned("trunk"),
        state: asked.owned("state"),
        before: asked.owned("before"),
    };
    let backend = &visit.page.backend;
    let open = match query == CallQuery::default() {
        true => backend.under_way().await.map_err(refused)?,
        false => Vec::new(),
    };
    let trunks = backend.trunks().await.map_err(refused)?;
    let (page, wrong) = match backend.calls(query.clone()).await {
        Ok(page) => (page, None),
        // What was typed is kept, and what is wrong with it said.
        Err(refusal) if refusal.is_usage() => (CallPage::default(), Some(refusal.words)),
        Err(refusal) => return Err(refused(refusal)),
    };
    let to = |before: Option<&str>| {
        let fields = [
            ("text", query.text.as_deref()),
            ("day", query.day.as_deref()),
            ("trunk", query.trunk.as_deref()),
            ("state", query.state.as_deref()),
            ("before", before),
        ];
        link("/calls", &fields)
    };
    let status = match wrong {
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        None => StatusCode::OK,
    };
    let sheet = CallsSheet {
        c: &visit.shell,
        open,
        next: page.next.as_deref().map(|next| to(Some(next))),
        newest: to(None),
        page,
        trunks: trunks.into_iter().map(|trunk| trunk.name).collect(),
        query,
        wrong,
    };
    answer::html_as(status, &sheet)
}

impl CallsSheet<'_> {
    fn is_state(&self, state: &str) -> bool {
        self.query.state.as_deref() == Some(state)
    }

    fn is_trunk(&self, trunk: &str) -> bool {
        self.query.trunk.as_deref() == Some(trunk)
    }

    fn typed<'a>(&self, value: &'a Option<String>) -> &'a str {
        value.as_deref().unwrap_or_default()
    }

    fn states(&self) -> &'static [&'static str] {
        &STATES
    }
}

impl CallSheet<'_> {
    /// Who called whom, and whether they talked.
    fn told(&self) -> String {
        let (c, call) = (self.c, &self.line.record);
        let none = || c.t("none").to_owned();
        let phone = call
            .phone()
            .map_or_else(|| c.t("number.hidden").to_owned(), |it| c.plain(it));
        let trunk = call.trunk.as_deref().map_or_else(none, |it| c.plain(it));
        let called = match call.direction {
            Direction::Outbound => "call.told.out",
            Direction::Inbound | Direction::Internal => "call.told.in",
        };
        let talk = c.span(u64::from(call.talk_time_sec));
        let then = match (call.answered, call.employee.as_deref()) {
            (true, Some(extension)) => c.with2("call.told.talked", c.plain(extension), talk),
            (true, None) => c.with("call.told.talk", talk),
            (false, _) => c.with("call.told.nobody", c.span(u64::from(call.duration_sec))),
        };
        format!("{} {then}", c.with2(called, phone, trunk))
    }

    /// What became of it.
    fn outcome(&self) -> String {
        let (c, call) = (self.c, self.call);
        let since = c.moment(call.since);
        let reason = (self.line.reason).map(|it| c.word("reason", it.word()));
        match self.line.state {
            Some(State::Journaled) => c.with("call.told.journaled", since),
            Some(State::Submitted) => c.with("call.told.submitted", since),
            Some(State::Ready | State::Sending) | None => c.t("call.told.ready").to_owned(),
            Some(State::Forwarded) => c.with("call.told.forwarded", since),
            Some(State::Discarded) => c.with("call.told.discarded", since),
            Some(State::Dead | State::Parked) => {
                c.with("call.told.letter", reason.unwrap_or_default())
            }
        }
    }

    /// No request of it has left from here.
    fn nothing_left(&self) -> bool {
        let RequestView { sent_at, id, .. } = &self.call.request;
        sent_at.is_none() && id.is_none() && self.call.attempts.is_empty()
    }

    fn pretty(&self, body: &Value) -> String {
        serde_json::to_string_pretty(body).unwrap_or_default()
    }
}

/// `GET /calls/UUID/picture.svg`
pub(crate) async fn picture(visit: Visit<'_>, uuid: &str) -> Handled {
    let call = visit.page.backend.call(uuid.to_owned()).await;
    let picture = call.map_err(refused)?.map(|call| call.picture);
    let Some(picture) = picture.filter(|it| !it.is_empty()) else {
        let words = visit.shell.t("problem.no_call.words");
        let title = "problem.no_call";
        return Err(Problem::new(StatusCode::NOT_FOUND, title, words));
    };
    Ok(answer::svg(picture))
}

/// `GET /calls/UUID`
pub(crate) async fn one(mut visit: Visit<'_>, uuid: &str) -> Handled {
    visit.look_around().await;
    let call = visit.page.backend.call(uuid.to_owned()).await;
    let Some(call) = call.map_err(refused)? else {
        let words = visit.shell.t("problem.no_call.words");
        let title = "problem.no_call";
        return Err(Problem::new(StatusCode::NOT_FOUND, title, words));
    };
    let sheet = CallSheet {
        c: &visit.shell,
        line: &call.line,
        call: &call,
    };
    answer::html(&sheet)
}
