//! Dead letters of the page, and what is done with them.

use super::backend::{DaemonBackend, broken};
use callbridge_control::command_handler::LetterChange;
use callbridge_dead_letter::retry::{Asked, Employee};
use callbridge_model::{EmployeeId, LeadId, Reason};
use callbridge_page::backend::{
    Acted, BackendRefusal, LetterAction, LetterPage, LetterQuery, LetterView, ReasonView,
    RefusalKind,
};
use callbridge_spool::{Letter, LetterFilter, RowId, tables};

/// Letters of one page.
const PAGE: usize = 50;
/// Letters read at a time for their ids.
const IDS_PAGE: usize = 1_000;

fn filter(query: &LetterQuery, limit: usize) -> Result<LetterFilter, BackendRefusal> {
    let reason = query.reason.as_deref().map(|word| {
        let kind = RefusalKind::Input;
        let words = format!("`{word}` is no reason of a dead letter");
        Reason::from_word(word).ok_or(BackendRefusal { kind, words })
    });
    let before = query.before.and_then(|id| i64::try_from(id).ok());
    Ok(LetterFilter {
        reason: reason.transpose()?,
        before: Some(RowId(before.unwrap_or(i64::MAX))),
        limit,
        ..LetterFilter::default()
    })
}

fn number(id: RowId) -> u64 {
    u64::try_from(id.0).unwrap_or(0)
}

pub(super) async fn letter_page(
    backend: &DaemonBackend,
    query: LetterQuery,
) -> Result<LetterPage, BackendRefusal> {
    let filter = filter(&query, PAGE)?;
    let read = backend.spool.read(move |store| {
        let letters = tables::letters::letters(store, &filter)?;
        Ok((letters, tables::letters::letters_by_reason(store)?))
    });
    let (letters, reasons) = read.await.map_err(broken)?;
    let next = letters.last().filter(|_| letters.len() == PAGE);
    let next = next.map(|letter| number(letter.id));
    let reasons = reasons.into_iter().map(|(reason, count)| ReasonView {
        reason: reason.word().to_owned(),
        count,
        hint: callbridge_spool::advice::hint(reason).to_owned(),
    });
    Ok(LetterPage {
        letters: letters.into_iter().map(view).collect(),
        next,
        reasons: reasons.collect(),
    })
}

pub(super) async fn ids_of_letters(
    backend: &DaemonBackend,
    query: LetterQuery,
) -> Result<Vec<u64>, BackendRefusal> {
    let mut filter = filter(&query, IDS_PAGE)?;
    let mut ids = Vec::new();
    loop {
        let of = filter.clone();
        let read = backend.spool.read(move |store| {
            let letters = tables::letters::letters(store, &of)?;
            Ok(letters
                .into_iter()
                .map(|letter| letter.id)
                .collect::<Vec<_>>())
        });
        let page = read.await.map_err(broken)?;
        ids.extend(page.iter().copied().map(number));
        match page.last() {
            Some(last) if page.len() == IDS_PAGE => filter.before = Some(*last),
            Some(_) | None => return Ok(ids),
        }
    }
}

pub(super) async fn act_on(
    backend: &DaemonBackend,
    action: &LetterAction,
    ids: &[u64],
    who: &str,
) -> Result<Vec<Acted>, BackendRefusal> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let change = match action {
        LetterAction::Discard => LetterChange::Discard,
        LetterAction::Retry {
            lead,
            employee,
            dry_run,
        } => LetterChange::Retry {
            asked: Asked {
                lead: lead.as_deref().map(lead_id).transpose()?,
                employee: employee.as_deref().map(employee_of).transpose()?,
                said: None,
            },
            dry_run: *dry_run,
        },
    };
    let changed = backend.handler.change_letters(ids, change, who).await;
    let acted = changed.map_err(broken)?.into_iter().map(|it| Acted {
        id: number(it.id),
        result: it.result.to_owned(),
        why: it.why,
        lead_id: it.lead_id.flatten().map(LeadId::get),
        employee_id: it.employee_id.flatten().map(EmployeeId::get),
    });
    Ok(acted.collect())
}

/// A lead as it was typed.
pub(super) fn lead_id(text: &str) -> Result<LeadId, BackendRefusal> {
    let kind = RefusalKind::Input;
    let words = format!("`{text}` is no lead id: digits are expected");
    LeadId::parse(text.trim()).ok_or(BackendRefusal { kind, words })
}

fn employee_of(text: &str) -> Result<Employee, BackendRefusal> {
    let text = text.trim();
    if text == "none" {
        return Ok(Employee::None);
    }
    let kind = RefusalKind::Input;
    let words = format!("`{text}` is no employee's id: digits are expected, or none");
    let id = EmployeeId::parse(text).ok_or(BackendRefusal { kind, words })?;
    Ok(Employee::Is(id))
}

/// A letter as the page shows it.
pub(super) fn view(letter: Letter) -> LetterView {
    let acts = letter.acts.iter();
    let acts = acts.map(|it| (it.at.floor_seconds().get(), it.who.clone(), it.what.clone()));
    let call = letter.call.as_ref();
    let phone = call.and_then(|call| call.client_phone.as_ref());
    LetterView {
        id: number(letter.id),
        uuid: letter.uuid.map(|uuid| uuid.to_string()),
        reason: letter.reason.word().to_owned(),
        message: letter.message.clone(),
        hint: letter.hint(),
        parked: letter.parked,
        since: letter.since.floor_seconds().get(),
        started_at: call.map(|call| call.started_at.get()),
        phone: phone.map(|phone| phone.as_str().to_owned()),
        extension: call.and_then(|call| call.employee.clone()),
        lead_id: call.and_then(|call| call.lead_id).map(LeadId::get),
        employee_id: call.and_then(|call| call.employee_id).map(EmployeeId::get),
        acts: acts.collect(),
        json: serde_json::to_string_pretty(&letter.to_json()).unwrap_or_default(),
    }
}
