//! What is done with letters: sent again, tried dry, discarded; at once, or as a job whose
//! progress can be left.

use super::letters::{self, RetryForm};
use crate::answer::{self, Handled, Problem, see};
use crate::backend::LetterQuery;
use crate::jobs::{CHUNK, Job, JobState};
use crate::page::Visit;
use crate::shell::PageShell;
use askama::Template;
use callbridge_admin::command_handler::LetterChange;
use callbridge_mapping::journal::{EmployeeWish, Wish};
use callbridge_model::{EmployeeId, LeadId, Said};
use callbridge_spool::RowId;
use std::sync::Arc;

#[derive(Template)]
#[template(path = "discard.html")]
struct DiscardSheet<'a> {
    c: &'a PageShell,
    ids: Vec<RowId>,
    all: bool,
    reason: String,
    cause: String,
    one: Option<RowId>,
    count: u64,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobSheet<'a> {
    c: &'a PageShell,
    job: Job,
}

/// What a form asks for.
struct WantedAction {
    change: LetterChange,
    all: bool,
    reason: Option<String>,
    cause: Option<String>,
    chosen: Vec<RowId>,
    /// It came from the page of this letter.
    one: Option<RowId>,
    confirmed: bool,
}

/// `POST /letters/act`
pub(crate) async fn act(visit: Visit<'_>) -> Handled {
    let wanted = match wanted(&visit) {
        Ok(wanted) => wanted,
        Err(wrong) => return again(visit, wrong).await,
    };
    let backend = &visit.page.backend;
    let ids = match wanted.all {
        true => {
            let query = LetterQuery {
                reason: wanted.reason.clone(),
                cause: wanted.cause.clone(),
                before: None,
            };
            backend.letter_ids(query).await?
        }
        false => wanted.chosen.clone(),
    };
    if ids.is_empty() {
        let wrong = visit.shell.t("letters.none_chosen").to_owned();
        return again(visit, wrong).await;
    }
    if wanted.change == LetterChange::Discard && !wanted.confirmed {
        return confirm(visit, wanted, ids).await;
    }
    if !visit.page.jobs.has_room() {
        let wrong = visit.shell.t("letters.busy").to_owned();
        return again(visit, wrong).await;
    }
    let who = visit.who.clone();
    let mut job = Job::new(wanted.change, &who, ids.len(), visit.shell.now);
    // The first of them at once: what cannot be done is said beside what was typed.
    let (first, left) = ids.split_at(ids.len().min(CHUNK));
    match backend.act(job.change, first, &who).await {
        Ok(acted) => job.take(acted, first.len()),
        Err(refusal) if refusal.is_usage() => return again(visit, refusal.words).await,
        Err(refusal) => return Err(refusal.into()),
    }
    let id = visit
        .page
        .jobs
        .begin(job, left.to_vec(), Arc::clone(backend));
    Ok(see(&format!("/jobs/{id}")))
}

fn wanted(visit: &Visit<'_>) -> Result<WantedAction, String> {
    let (form, shell) = (&visit.asked.form, &visit.shell);
    let change = match form.get("action") {
        Some("discard") => LetterChange::Discard,
        Some(word @ ("retry" | "dry_run")) => LetterChange::Retry {
            wish: Wish {
                lead: lead(shell, form.get("lead"))?,
                employee: employee(shell, form.get("employee"))?,
                said: said(shell, form.get("answered"), form.get("talk"))?,
            },
            dry_run: word == "dry_run",
        },
        _ => return Err(shell.t("letters.no_action").to_owned()),
    };
    Ok(WantedAction {
        change,
        all: form.get("scope") == Some("all"),
        reason: form.owned("reason"),
        cause: form.owned("cause"),
        chosen: form.letters("id"),
        one: one(visit),
        confirmed: form.get("confirmed") == Some("yes"),
    })
}

fn one(visit: &Visit<'_>) -> Option<RowId> {
    let one = visit.asked.form.get("one")?;
    one.parse().ok().map(RowId)
}

/// A lead's id as it is typed.
pub(crate) fn lead(shell: &PageShell, typed: Option<&str>) -> Result<Option<LeadId>, String> {
    let Some(typed) = typed else { return Ok(None) };
    let lead = typed.parse().ok().and_then(LeadId::new);
    lead.map(Some)
        .ok_or_else(|| shell.with("wrong.lead", typed))
}

fn employee(shell: &PageShell, typed: Option<&str>) -> Result<Option<EmployeeWish>, String> {
    let Some(typed) = typed else { return Ok(None) };
    // `none` in the words of the page, too.
    let nobody = ["none", shell.t("word.nobody")];
    if nobody.iter().any(|it| it.eq_ignore_ascii_case(typed)) {
        return Ok(Some(EmployeeWish::None));
    }
    let id = typed.parse().ok().and_then(EmployeeId::new);
    id.map(|id| Some(EmployeeWish::Is(id)))
        .ok_or_else(|| shell.with("wrong.employee", typed))
}

/// Whether it was answered, and the seconds of talk as they are typed.
fn said(
    shell: &PageShell,
    answered: Option<&str>,
    talk: Option<&str>,
) -> Result<Option<Said>, String> {
    let seconds = |typed: &str| typed.parse().map_err(|_| shell.with("wrong.talk", typed));
    let said = Said {
        answered: answered.map(|word| word == "yes"),
        talk_sec: talk.map(seconds).transpose()?,
    };
    Ok((said != Said::default()).then_some(said))
}

/// The form once more, with what was typed and what is wrong with it.
async fn again(visit: Visit<'_>, wrong: String) -> Handled {
    let form = &visit.asked.form;
    let (one, again) = (
        one(&visit),
        RetryForm {
            chosen: form.letters("id"),
            lead: form.typed("lead"),
            employee: form.typed("employee"),
            answered: form.typed("answered"),
            talk: form.typed("talk"),
            wrong: Some(wrong),
            reason: form.owned("reason"),
            cause: form.owned("cause"),
            all: form.get("scope") == Some("all"),
        },
    );
    match one {
        Some(id) => letters::one(visit, id, again).await,
        None => letters::list(visit, again).await,
    }
}

async fn confirm(mut visit: Visit<'_>, wanted: WantedAction, ids: Vec<RowId>) -> Handled {
    visit.look_around().await;
    let sheet = DiscardSheet {
        c: &visit.shell,
        count: ids.len() as u64,
        ids: if wanted.all { Vec::new() } else { ids },
        all: wanted.all,
        reason: wanted.reason.unwrap_or_default(),
        cause: wanted.cause.unwrap_or_default(),
        one: wanted.one,
    };
    answer::html(&sheet)
}

/// `GET /jobs/N`
pub(crate) async fn job(mut visit: Visit<'_>, id: u64) -> Handled {
    visit.look_around().await;
    let Some(job) = visit.page.jobs.find(id) else {
        return Err(Problem::missing(&visit.shell, "problem.no_job"));
    };
    let sheet = JobSheet {
        c: &visit.shell,
        job,
    };
    answer::html(&sheet)
}

impl JobSheet<'_> {
    fn is_working(&self) -> bool {
        self.job.state == JobState::Working
    }

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

    /// What was chosen for the letters: lead and employee.
    fn chosen(&self) -> (Option<String>, Option<String>) {
        let LetterChange::Retry { wish, .. } = self.job.change else {
            return (None, None);
        };
        let employee = wish.employee.map(|employee| match employee {
            EmployeeWish::Is(id) => id.to_string(),
            EmployeeWish::None => "none".to_owned(),
        });
        (wish.lead.map(|lead| lead.to_string()), employee)
    }

    /// How it ended.
    fn end(&self) -> Option<(&'static str, String)> {
        match &self.job.state {
            JobState::Working => None,
            JobState::Done => Some(("well", self.c.t("job.done").to_owned())),
            JobState::Refused(words) => Some(("down", words.clone())),
            JobState::Stopped => Some(("attention", self.c.t("job.stopped").to_owned())),
        }
    }

    fn listed(&self) -> u64 {
        self.job.lines.len() as u64
    }
}
