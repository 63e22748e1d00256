//! The calls that are journaled here, looked for in the CRM's journal by the daemon.

use super::ASKED_MAX;
use crate::Failure;
use crate::commands::control::conversation::{converse, typed};
use crate::config::{Asking, Audit};
use callbridge_admin::audit::journal::progress;
use callbridge_admin::audit::{FileCall, JournalAnswer, JournalFindings, JournalSearch};
use callbridge_admin::{ControlRequest, state_access};
use callbridge_crm::FilterPage;
use callbridge_model::clock;
use callbridge_model::status::BudgetStatus;
use callbridge_spool::JournaledCall;
use std::io::{IsTerminal as _, Write};

/// Of fewer pages than these nobody waits long.
const PAGES_FEW: u32 = 5;

/// What the CRM's journal has of them. Where it cannot be read that is said, and no failure.
pub(super) async fn look_for(
    audit: &Audit,
    at: &Asking,
    calls: &[FileCall],
    notes: &mut (dyn Write + Send),
) -> Result<JournalFindings, Failure> {
    if !audit.journal {
        return Ok(JournalFindings::unread("--no-journal was given"));
    }
    let journaled = journaled(at, calls).await?;
    let mut search = JournalSearch::new(journaled, clock::now().wall);
    let (watched, mut pace, mut shown) = (std::io::stderr().is_terminal(), None, false);
    while let Some(query) = search.next() {
        if !search.rest().is_zero() {
            tokio::time::sleep(search.rest()).await;
        }
        match page(at, query).await {
            Ok(answer) => search.heard(answer),
            Err(failure) => search.broken_off(failure.to_string()),
        }
        let pages = search
            .pages()
            .filter(|(_, all)| watched && *all > PAGES_FEW);
        if let Some((left, all)) = pages {
            if pace.is_none() {
                pace = Some(budget(at).await);
            }
            let words = progress(left, all, pace.flatten());
            // A terminal that is gone shows nothing.
            let _ = write!(notes, "\r{words}\x1b[K");
            shown = true;
        }
    }
    if shown {
        let _ = writeln!(notes);
    }
    Ok(search.findings())
}

/// Those that are journaled, by their places in the file.
async fn journaled(
    at: &Asking,
    calls: &[FileCall],
) -> Result<Vec<(usize, JournaledCall)>, Failure> {
    let (mut found, mut place) = (Vec::new(), 0);
    for some in calls.chunks(ASKED_MAX) {
        let calls = some.iter().map(|call| call.asked.clone()).collect();
        let ask = ControlRequest::Journaled { calls };
        converse(at, ask, |item, _| {
            let call: Option<JournaledCall> = typed(item)?;
            found.extend(call.map(|call| (place, call)));
            place += 1;
            Ok(())
        })
        .await?;
    }
    Ok(found)
}

async fn page(at: &Asking, query: FilterPage) -> Result<JournalAnswer, Failure> {
    let mut answer = None;
    let ask = ControlRequest::JournalPage(query);
    converse(at, ask, |item, _| {
        answer = Some(typed(item)?);
        Ok(())
    })
    .await?;
    let why = "the daemon gave no answer".to_owned();
    Ok(answer.unwrap_or(JournalAnswer::Failed { why }))
}

/// The daemon's budget, of which pages take half.
async fn budget(at: &Asking) -> Option<BudgetStatus> {
    let status = state_access::status(at.state.as_path()).await.ok()??;
    Some(status.budget)
}
