//! The Today view, which shows a one-sentence verdict followed by the numbers behind it.

use crate::answer::{self, Handled};
use crate::backend::{CallQuery, Figures, Outcomes};
use crate::shell::{LocalText, PageShell};
use crate::{chart::Chart, page::AuthenticatedRequest};
use askama::Template;
use callbridge_model::status::{FindingKind, OverallState, Problem, SourceState};
use callbridge_model::{Reason, Status};
use callbridge_spool::Listed;

/// Maximum number of newest calls to show.
const CALLS: usize = 8;

#[derive(Template)]
#[template(path = "today.html")]
struct TodaySheet<'a> {
    c: &'a PageShell,
    status: &'a Status,
    figures: &'a Figures,
    lead: Lead,
    hours: Chart,
    days: Chart,
    books: Vec<Book>,
    /// The `CALLS` newest stored calls.
    newest: Vec<Listed>,
}

/// The verdict at the top of the page.
struct Lead {
    state: &'static str,
    sentence: String,
    since: Option<i64>,
    /// Problems that need attention, worst first.
    waits: Vec<Waiting>,
}

/// A problem that needs attention.
struct Waiting {
    title: String,
    message: LocalText,
    fix: String,
    command: String,
    /// The path of the view in which the problem can be fixed, or `None` if there's no such view.
    link: Option<&'static str>,
}

/// One of the books that count finished calls.
struct Book {
    name: &'static str,
    calls: u64,
    /// The width of the book's bar in thousandths of the finished calls, but at least 6.
    share: u64,
    /// The left end of the bar, in thousandths of the finished calls.
    from: u64,
}

/// Serves `GET /`, which shows the verdict, today's numbers, and the newest calls.
pub(crate) async fn show(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let backend = &visit.page.backend;
    let figures = backend.today().await?;
    let newest = backend.calls(CallQuery::default()).await?;
    let status = visit.refresh_badges().await?;
    let shell = &visit.shell;
    let sheet = TodaySheet {
        c: shell,
        lead: lead(shell, &status, &figures),
        hours: Chart::from_bars(&figures.hours),
        days: Chart::from_bars(&figures.days),
        books: books(&status),
        newest: newest.calls.into_iter().take(CALLS).collect(),
        status: &status,
        figures: &figures,
    };
    answer::html(&sheet)
}

fn lead(shell: &PageShell, status: &Status, figures: &Figures) -> Lead {
    let places = (status.problems.iter()).map(|problem| (problem, place(status, problem.kind)));
    let since = places.clone().next().and_then(|(_, (_, since))| since);
    let waits = places.map(|(problem, (link, _))| waiting(shell, problem, link));
    let missed = match shell.badges.missed {
        0 => None,
        count => Some(shell.n("today.missed", count)),
    };
    let (state, sentence) = match (status.verdict, &missed) {
        (OverallState::Ok, Some(missed)) => ("attention", missed.clone()),
        (OverallState::Ok, None) => ("ok", ok_message(shell, &figures.today)),
        (OverallState::Attention, _) => ("attention", worst(shell, status)),
        (OverallState::Down, _) => ("down", worst(shell, status)),
    };
    let callbacks = missed.map(|title| customers(shell, title));
    Lead {
        state,
        sentence,
        since,
        waits: waits.chain(callbacks).collect(),
    }
}

/// Creates the problem for customers waiting for a callback.
fn customers(shell: &PageShell, title: String) -> Waiting {
    Waiting {
        title,
        message: LocalText::default(),
        fix: shell.t("fix.missed").to_owned(),
        command: String::new(),
        link: Some("/missed"),
    }
}

fn ok_message(shell: &PageShell, today: &Outcomes) -> String {
    let all = today.total();
    match (all, today.journaled == all) {
        (0, _) => shell.t("today.well.none").to_owned(),
        (all, true) => shell.n("today.well.all", all),
        (all, false) => shell
            .n("today.well.some", all)
            .replace("{a}", &shell.count(today.journaled)),
    }
}

fn worst(shell: &PageShell, status: &Status) -> String {
    match status.problems.first() {
        Some(problem) => shell.word("kind", problem.kind.word()),
        None => shell.t("today.attention").to_owned(),
    }
}

fn waiting(shell: &PageShell, problem: &Problem, link: Option<&'static str>) -> Waiting {
    let word = problem.kind.word();
    Waiting {
        title: shell.word("kind", word),
        message: shell.problem_text(problem),
        fix: shell.word("fix", word),
        command: problem.command.clone(),
        link,
    }
}

/// Returns the view in which a problem can be fixed, and since when the problem has existed, if
/// that's in `status`.
fn place(status: &Status, kind: FindingKind) -> (Option<&'static str>, Option<i64>) {
    use FindingKind as F;
    let sources = status.sources.iter();
    match kind {
        F::DeadLetters => (Some("/letters"), None),
        F::NoLead => (Some("/numbers"), None),
        F::NoEmployee => (Some("/letters?reason=no_employee"), None),
        F::NoSource | F::SourceDown => {
            let down = sources.filter_map(|source| source.down_since);
            (Some("/pbx"), down.min())
        }
        F::SilentBranches
        | F::PausedBranches
        | F::HubLostCommits
        | F::CopiedCollector
        | F::BranchSenders => (Some("/branches"), None),
        F::NotHeard => {
            let silent = sources.filter(|source| source.state == SourceState::Connected);
            let since = silent.filter_map(|source| source.connected_since).min();
            (Some("/pbx"), since)
        }
        F::Gap => {
            let open = status.gaps.iter().filter(|gap| !gap.filled);
            (Some("/pbx"), open.map(|gap| gap.from).max())
        }
        F::Employees => {
            let lists = status.employees.iter();
            let unknown = lists.flat_map(|employees| &employees.unknown);
            (Some("/pbx"), unknown.map(|employee| employee.since).min())
        }
        F::LateEvents
        | F::NoTrunk
        | F::UnknownTechnology
        | F::SilentTrunk
        | F::SilentEmployees
        | F::NoEmployees => (Some("/pbx"), None),
        F::DeadLetterQueue
        | F::Notify
        | F::Rights
        | F::OtherFormat
        | F::SourceDisk
        | F::Token
        | F::Lists
        | F::LeadFields
        | F::SecretFiles => (Some("/check"), None),
        F::FieldNotShown | F::ForeignCalls | F::HubCertificate | F::LeadDirectory | F::Webhooks => {
            (Some("/check"), None)
        }
        F::CrmDegraded => (None, status.degraded.iter().map(|part| part.since).min()),
        F::NoDaemon | F::NoLeader | F::Standby | F::Database | F::Paused => (None, None),
        F::OtherDaemon | F::TokenEnds | F::Books => (None, None),
    }
}

/// Returns the books that count finished calls, in the order of a call's states. A book that's
/// added to the status appears automatically.
fn books(status: &Status) -> Vec<Book> {
    let finished = status.books.finished.max(1);
    let mut books = Vec::new();
    let mut from = 0;
    for book in status.books.counts_by_name() {
        let (name, calls) = match book {
            ("finished" | "internal" | "skipped" | "unreadable", _) => continue,
            ("dead", _) => ("letters", status.dead_letter_count()),
            other => other,
        };
        if calls == 0 {
            continue;
        }
        // Even small values must be visible.
        let share = (calls.saturating_mul(1000) / finished).clamp(6, 1000);
        books.push(Book {
            name,
            calls,
            share,
            from,
        });
        from += share;
    }
    books
}

impl TodaySheet<'_> {
    /// Returns the counts of calls that aren't customer calls, as text.
    fn other_books(&self) -> Vec<String> {
        let books = &self.status.books;
        let all = [
            ("books.internal", books.internal),
            ("books.skipped", books.skipped),
            ("books.unreadable", books.unreadable),
        ];
        let some = all.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(key, count)| self.c.n(key, count)).collect()
    }

    /// Returns the number of dead letters that are messages rather than calls. Such messages don't
    /// count as finished calls.
    fn messages(&self) -> u64 {
        let unreadable = self.status.dead_letters.get(Reason::Unreadable.word());
        unreadable.copied().unwrap_or(0)
    }

    fn books_width(&self) -> u64 {
        let sum: u64 = self.books.iter().map(|book| book.share).sum();
        sum.max(1)
    }
}
