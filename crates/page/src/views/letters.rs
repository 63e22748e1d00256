//! The dead letter views, which are the list by cause with fixes, a single dead letter, and the
//! export.

use crate::answer::{self, Handled, Problem, download};
use crate::backend::{About, Backend, Cause, CauseGroup, LetterPage, LetterQuery};
use crate::request::{FormFields, link};
use crate::{background::Job, page::AuthenticatedRequest, shell::PageShell};
use askama::Template;
use bytes::Bytes;
use callbridge_admin::Refusal;
use callbridge_listener::body;
use callbridge_model::Reason;
use callbridge_spool::{Letter, RowId};
use futures_util::stream;
use hyper::StatusCode;
use std::sync::Arc;

/// Maximum number of causes to show. Those with the most dead letters come first.
const CAUSES_MAX: usize = 100;

#[derive(Template)]
#[template(path = "letters.html")]
struct LettersSheet<'a> {
    c: &'a PageShell,
    page: LetterPage,
    query: LetterQuery,
    causes: Vec<CauseGroup>,
    /// The fields typed into the form, which are shown again if they were rejected (`wrong`).
    form: &'a FormFields,
    wrong: Option<String>,
    jobs: Vec<(u64, Job)>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "letter.html")]
struct LetterSheet<'a> {
    c: &'a PageShell,
    letter: Letter,
    cause: Cause,
    /// Number of dead letters with the same cause, including this one.
    same: u64,
    /// The fields typed into the form, which are shown again if they were rejected (`wrong`).
    form: &'a FormFields,
    wrong: Option<String>,
}

/// Serves `GET /letters`, and the same page after a form was rejected.
pub(crate) async fn list(mut visit: AuthenticatedRequest<'_>, wrong: Option<String>) -> Handled {
    let _ = visit.refresh_badges().await;
    let form = &visit.asked.form;
    let typed = form.letter_query();
    let asked = visit.asked.query.letter_query();
    let before = visit.asked.query.get("before");
    let query = LetterQuery {
        reason: typed.reason.or(asked.reason),
        cause: typed.cause.or(asked.cause),
        before: before.and_then(|id| id.parse().ok()).map(RowId),
    };
    let backend = &visit.page.backend;
    let page = backend.letters(query.clone()).await?;
    let mut causes = backend.causes().await?;
    let reason = query.reason.as_deref();
    causes.retain(|group| reason.is_none_or(|reason| group.cause.reason.word() == reason));
    let sheet = LettersSheet {
        c: &visit.shell,
        next: page.next.map(|_| link_to("/letters", &query, page.next)),
        page,
        query,
        causes,
        form,
        wrong,
        jobs: visit.page.jobs.newest().into_iter().take(5).collect(),
    };
    answer::form(&sheet, sheet.wrong.is_some())
}

impl LettersSheet<'_> {
    /// Returns the number of dead letters that match the query, on all pages.
    fn match_count(&self) -> u64 {
        if self.query.cause.is_some() {
            return self.chosen_cause().map_or(0, |group| group.letters);
        }
        let mut found = 0;
        for (reason, count) in &self.page.reasons {
            if self.query.reason.is_none() || self.is_reason(reason.word()) {
                found += count;
            }
        }
        found
    }

    /// Returns the selected cause, whose dead letters are shown.
    fn chosen_cause(&self) -> Option<&CauseGroup> {
        let wanted = self.query.cause.as_deref()?;
        let mut groups = self.causes.iter();
        groups.find(|group| group.cause.to_string() == wanted)
    }

    /// Returns the causes to show. There are none if a cause is selected, or after the first page.
    fn groups(&self) -> &[CauseGroup] {
        if self.query.cause.is_some() || self.query.before.is_some() {
            return &[];
        }
        &self.causes[..self.causes.len().min(CAUSES_MAX)]
    }

    /// Returns a name such as `Lead 9001`, or the reason if the cause isn't about anything in
    /// particular.
    fn name(&self, cause: &Cause) -> String {
        let c = self.c;
        match &cause.about {
            Some((about, which)) => c.text_with(&format!("cause.{about}"), which),
            None => c.word("reason", cause.reason.word()),
        }
    }

    /// Returns `true` if the cause can be fixed by typing a lead.
    fn takes_lead(&self, cause: &Cause) -> bool {
        matches!(&cause.about, Some((About::Lead | About::Phone, _)))
    }

    /// Returns the cause's phone number, if it has one. A lead that's assigned to the number also
    /// applies to its next calls.
    fn has_number<'a>(&self, cause: &'a Cause) -> Option<&'a str> {
        match &cause.about {
            Some((About::Phone, phone)) => Some(phone),
            Some((About::Lead | About::Employee | About::Extension, _)) | None => None,
        }
    }

    fn link_of(&self, group: &CauseGroup) -> String {
        let query = LetterQuery {
            reason: Some(group.cause.reason.word().to_owned()),
            cause: Some(group.cause.to_string()).filter(|cause| !cause.is_empty()),
            before: None,
        };
        link_to("/letters", &query, None)
    }

    fn is_chosen(&self, id: &RowId) -> bool {
        self.form.letters("id").contains(id)
    }

    fn is_reason(&self, reason: &str) -> bool {
        self.query.reason.as_deref() == Some(reason)
    }

    fn fix(&self) -> Option<String> {
        Some(self.c.word("remedy", self.query.reason.as_ref()?))
    }

    fn export(&self) -> String {
        link_to("/letters/export", &self.query, None)
    }
}

/// Returns the link to the dead letters that match a query and have IDs below `before`.
fn link_to(path: &str, query: &LetterQuery, before: Option<RowId>) -> String {
    let before = before.map(|id| id.to_string());
    let fields = [
        ("reason", query.reason.as_deref()),
        ("cause", query.cause.as_deref()),
        ("before", before.as_deref()),
    ];
    link(path, &fields)
}

/// Serves `GET /letters/ID`, and the same page after a form was rejected.
pub(crate) async fn show(
    mut visit: AuthenticatedRequest<'_>,
    id: RowId,
    wrong: Option<String>,
) -> Handled {
    let _ = visit.refresh_badges().await;
    let Some(letter) = find(&*visit.page.backend, id).await? else {
        return Err(Problem::not_found(&visit.shell, "problem.no_dead_letter"));
    };
    let cause = Cause::from_letter(&letter);
    let causes = visit.page.backend.causes().await?;
    let mut groups = causes.iter();
    let same = groups.find(|group| group.cause.about.is_some() && group.cause == cause);
    let sheet = LetterSheet {
        c: &visit.shell,
        letter,
        same: same.map_or(1, |group| group.letters),
        cause,
        form: &visit.asked.form,
        wrong,
    };
    answer::form(&sheet, sheet.wrong.is_some())
}

impl LetterSheet<'_> {
    /// Returns the complete dead letter as JSON, as written by `dead export`.
    fn json(&self) -> String {
        serde_json::to_string_pretty(&self.letter.to_json()).unwrap_or_default()
    }
}

/// Finds a dead letter by its ID, as the newest one below the next ID.
async fn find(backend: &dyn Backend, id: RowId) -> Result<Option<Letter>, Refusal> {
    let query = LetterQuery {
        before: Some(RowId(id.0.saturating_add(1))),
        ..LetterQuery::default()
    };
    let page = backend.letters(query).await?;
    Ok(page.letters.into_iter().find(|letter| letter.id == id))
}

/// The dead letters that an export still has to write, which are either those that match a query or
/// those with these IDs, last ID first.
type Export = (Option<LetterQuery>, Vec<RowId>);

/// Serves `GET /letters/export` with all dead letters that match a query, and `POST` with the
/// selected ones, as one line of JSON each.
pub(crate) async fn export(visit: &AuthenticatedRequest<'_>) -> Handled {
    let asked = visit.asked;
    let form = if asked.is_post() {
        &asked.form
    } else {
        &asked.query
    };
    let mut chosen = form.letters("id");
    chosen.sort_unstable();
    let export: Export = if !asked.is_post() || form.all_letters() {
        (Some(form.letter_query()), Vec::new())
    } else if chosen.is_empty() {
        let message = visit.shell.t("deadLetters.none_chosen");
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Problem::new(status, "problem.input", message));
    } else {
        (None, chosen)
    };
    let backend = Arc::clone(&visit.page.backend);
    let pieces = stream::try_unfold((export, backend), |(export, backend)| async {
        // If a page fails, the file mustn't look complete.
        match piece(export, &*backend).await {
            Ok(piece) => Ok(piece.map(|(lines, left)| (lines, (left, backend)))),
            Err(refusal) => Err(refusal.message),
        }
    });
    let body = body::in_pieces(pieces);
    let name = "callbridge-letters.jsonl";
    Ok(download(body, "application/jsonl; charset=utf-8", name))
}

async fn piece(
    (query, mut ids): Export,
    backend: &dyn Backend,
) -> Result<Option<(Bytes, Export)>, Refusal> {
    let (letters, next) = match (query, ids.pop()) {
        (Some(query), _) => {
            let page = backend.letters(query.clone()).await?;
            let before = page.next;
            let next = before.map(|_| LetterQuery { before, ..query });
            (page.letters, next)
        }
        (None, Some(id)) => (Vec::from_iter(find(backend, id).await?), None),
        (None, None) => return Ok(None),
    };
    let lines = letters
        .iter()
        .map(|letter| format!("{}\n", letter.to_json()));
    Ok(Some((Bytes::from(lines.collect::<String>()), (next, ids))))
}
