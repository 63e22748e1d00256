//! Actions on dead letters, which are retry, dry run, and discard. The first hundred are changed
//! right away, and the rest by a background job.

use super::letters;
use crate::answer::{self, Handled, Problem, see};
use crate::background::{CHUNK, Job, JobState};
use crate::{
    backend::LetterQuery, page::AuthenticatedRequest, request::FormFields, shell::PageShell,
};
use askama::Template;
use callbridge_admin::LetterChange;
use callbridge_call::Direction;
use callbridge_mapping::{EmployeeChoice, RetryValues};
use callbridge_model::{EmployeeId, LeadId, SuppliedFacts};
use callbridge_spool::RowId;
use std::sync::Arc;

#[derive(Template)]
#[template(path = "discard.html")]
struct DiscardSheet<'a> {
    c: &'a PageShell,
    ids: Vec<RowId>,
    all: bool,
    query: LetterQuery,
    one: Option<RowId>,
    count: u64,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobSheet<'a> {
    c: &'a PageShell,
    job: Job,
}

/// Serves `POST /letters/act`, which changes the selected dead letters or asks for confirmation of
/// a discard.
pub(crate) async fn act(visit: AuthenticatedRequest<'_>) -> Handled {
    let form = &visit.asked.form;
    let backend = &visit.page.backend;
    let change = match change(&visit.shell, form) {
        Ok(change) => change,
        Err(wrong) => return show_again(visit, wrong).await,
    };
    let ids = if form.all_letters() {
        backend.letter_ids(form.letter_query()).await?
    } else {
        form.letters("id")
    };
    if ids.is_empty() {
        let wrong = visit.shell.t("deadLetters.none_chosen").to_owned();
        return show_again(visit, wrong).await;
    }
    if change == LetterChange::Discard && form.get("confirmed") != Some("yes") {
        return confirm(visit, ids).await;
    }
    let jobs = &visit.page.jobs;
    if !jobs.has_room() {
        let wrong = visit.shell.t("deadLetters.busy").to_owned();
        return show_again(visit, wrong).await;
    }
    let who = visit.who.clone();
    let mut job = Job::new(change, &who, ids.len(), visit.shell.now);
    // The first chunk is changed right away, so that invalid input is shown next to the form.
    let (first, left) = ids.split_at(ids.len().min(CHUNK));
    match backend.act(change, first, &who).await {
        Ok(acted) => job.take(acted, first.len()),
        Err(refusal) if refusal.is_usage() => return show_again(visit, refusal.message).await,
        Err(refusal) => return Err(refusal.into()),
    }
    let id = jobs.begin(job, left.to_vec(), Arc::clone(backend));
    Ok(see(&format!("/jobs/{id}")))
}

/// Reads the change requested by a form, or returns a message about invalid input as the error.
fn change(shell: &PageShell, form: &FormFields) -> Result<LetterChange, String> {
    match form.get("action") {
        Some("discard") => Ok(LetterChange::Discard),
        Some(word @ ("retry" | "dry_run")) => Ok(LetterChange::Retry {
            wish: RetryValues {
                lead: lead(shell, form.get("lead"))?,
                employee: employee(shell, form.get("employee"))?,
                said: supplied_facts(shell, form)?,
            },
            dry_run: word == "dry_run",
        }),
        _ => Err(shell.t("deadLetters.no_action").to_owned()),
    }
}

/// Returns the dead letter whose page the form was on.
fn letter_of_form(visit: &AuthenticatedRequest<'_>) -> Option<RowId> {
    let one = visit.asked.form.get("one")?;
    one.parse().ok().map(RowId)
}

/// Parses a typed lead ID.
pub(crate) fn lead(shell: &PageShell, typed: Option<&str>) -> Result<Option<LeadId>, String> {
    let Some(typed) = typed else { return Ok(None) };
    let lead = typed.parse().ok().and_then(LeadId::new);
    Ok(Some(
        lead.ok_or_else(|| shell.text_with("wrong.lead", typed))?,
    ))
}

fn employee(shell: &PageShell, typed: Option<&str>) -> Result<Option<EmployeeChoice>, String> {
    let Some(typed) = typed else { return Ok(None) };
    // The page accepts both `none` and its translation.
    for none in ["none", shell.t("word.no_employee")] {
        if none.eq_ignore_ascii_case(typed) {
            return Ok(Some(EmployeeChoice::None));
        }
    }
    match typed.parse().ok().and_then(EmployeeId::new) {
        Some(id) => Ok(Some(EmployeeChoice::Is(id))),
        None => Err(shell.text_with("wrong.employee", typed)),
    }
}

/// Reads the fields for `incomplete` dead letters, which are whether the call was answered, its
/// talk time in seconds, and its direction.
fn supplied_facts(shell: &PageShell, form: &FormFields) -> Result<Option<SuppliedFacts>, String> {
    let talk_sec = match form.get("talk") {
        Some(typed) => {
            let seconds = typed.parse();
            Some(seconds.map_err(|_| shell.text_with("wrong.talk", typed))?)
        }
        None => None,
    };
    let said = SuppliedFacts {
        answered: form.get("answered").map(|word| word == "yes"),
        talk_sec,
        direction: match form.get("direction") {
            Some("INBOUND") => Some(Direction::Inbound),
            Some("OUTBOUND") => Some(Direction::Outbound),
            _ => None,
        },
    };
    if said == SuppliedFacts::default() {
        return Ok(None);
    }
    Ok(Some(said))
}

/// Shows the form again with the input and the error.
async fn show_again(visit: AuthenticatedRequest<'_>, wrong: String) -> Handled {
    match letter_of_form(&visit) {
        Some(id) => letters::show(visit, id, Some(wrong)).await,
        None => letters::list(visit, Some(wrong)).await,
    }
}

async fn confirm(mut visit: AuthenticatedRequest<'_>, ids: Vec<RowId>) -> Handled {
    let _ = visit.refresh_badges().await;
    let form = &visit.asked.form;
    let sheet = DiscardSheet {
        c: &visit.shell,
        all: form.all_letters(),
        query: form.letter_query(),
        one: letter_of_form(&visit),
        count: ids.len() as u64,
        ids: if form.all_letters() { Vec::new() } else { ids },
    };
    answer::html(&sheet)
}

/// Serves `GET /jobs/N`, which shows a job's progress.
pub(crate) async fn job(mut visit: AuthenticatedRequest<'_>, id: u64) -> Handled {
    let _ = visit.refresh_badges().await;
    let Some(job) = visit.page.jobs.find(id) else {
        return Err(Problem::not_found(&visit.shell, "problem.no_job"));
    };
    let c = &visit.shell;
    answer::html(&JobSheet { c, job })
}

impl JobSheet<'_> {
    fn name(&self) -> &str {
        let key = match self.job.change {
            LetterChange::Discard => "job.discard",
            LetterChange::Retry { dry_run: true, .. } => "job.dry_run",
            LetterChange::Retry { dry_run: false, .. } => "job.retry",
        };
        self.c.t(key)
    }

    fn is_dry(&self) -> bool {
        matches!(self.job.change, LetterChange::Retry { dry_run: true, .. })
    }

    /// Returns the lead and the employee that were typed for the dead letters.
    fn typed_wish(&self) -> (Option<String>, Option<String>) {
        let LetterChange::Retry { wish, .. } = self.job.change else {
            return (None, None);
        };
        let employee = wish.employee.map(|employee| match employee {
            EmployeeChoice::Is(id) => id.to_string(),
            EmployeeChoice::None => "none".to_owned(),
        });
        (wish.lead.map(|lead| lead.to_string()), employee)
    }

    /// Returns the style class and message for a finished job, or `None` while it's running.
    fn end(&self) -> Option<(&'static str, String)> {
        match &self.job.state {
            JobState::Working => None,
            JobState::Done => Some(("well", self.c.t("job.done").to_owned())),
            JobState::Refused(message) => Some(("down", message.clone())),
            JobState::Stopped => Some(("attention", self.c.t("job.stopped").to_owned())),
        }
    }
}
