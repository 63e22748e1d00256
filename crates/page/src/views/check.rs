//! Check: `check` run from here, with its cures.

use crate::answer::{self, Handled, see};
use crate::backend::CheckFinding;
use crate::checks::LastCheck;
use crate::page::AuthenticatedRequest;
use crate::shell::PageShell;
use askama::Template;
use callbridge_listener::body::Body;
use hyper::Response;
use std::sync::Arc;

#[derive(Template)]
#[template(path = "check.html")]
struct CheckSheet<'a> {
    c: &'a PageShell,
    last: LastCheck,
}

/// Serves `POST /check`: begins a run, and goes to its page.
pub(crate) fn begin(visit: &AuthenticatedRequest<'_>) -> Response<Body> {
    let backend = Arc::clone(&visit.page.backend);
    visit.page.checks.begin(backend);
    see("/check")
}

/// Serves `GET /check`: the findings of the last run, failed ones first.
pub(crate) async fn show(mut visit: AuthenticatedRequest<'_>) -> Handled {
    visit.refresh_badges().await;
    let mut last = visit.page.checks.last();
    // What needs somebody stands first.
    let rank = |it: &CheckFinding| match it.result() {
        "failed" => 0,
        "doubt" => 1,
        _ => 2,
    };
    last.findings.sort_by_key(rank);
    let sheet = CheckSheet {
        c: &visit.shell,
        last,
    };
    answer::html(&sheet)
}

impl CheckSheet<'_> {
    fn count(&self, result: &str) -> u64 {
        let found = self.last.findings.iter();
        found.filter(|it| it.result() == result).count() as u64
    }

    fn result_class(&self, result: &str) -> &'static str {
        match result {
            "ok" => "well",
            "failed" => "down",
            _ => "attention",
        }
    }
}
