//! Dead letters of the page.

use super::backend::DaemonBackend;
use super::calls::input;
use callbridge_admin::refusal::Refusal;
use callbridge_model::Reason;
use callbridge_page::backend::{LetterPage, LetterQuery};
use callbridge_spool::{LetterFilter, RowId, tables};

/// Letters of one page.
const PAGE: usize = 50;
/// Letters read at a time for their ids.
const IDS_PAGE: usize = 1_000;

fn filter(query: &LetterQuery, limit: usize) -> Result<LetterFilter, Refusal> {
    let reason = query.reason.as_deref().map(|word| {
        let wrong = || input(format!("`{word}` is no reason of a dead letter"));
        Reason::from_word(word).ok_or_else(wrong)
    });
    Ok(LetterFilter {
        reason: reason.transpose()?,
        before: Some(query.before.unwrap_or(RowId(i64::MAX))),
        limit,
        ..LetterFilter::default()
    })
}

pub(super) async fn letter_page(
    backend: &DaemonBackend,
    query: LetterQuery,
) -> Result<LetterPage, Refusal> {
    let filter = filter(&query, PAGE)?;
    let read = backend.spool.read(move |store| {
        let letters = tables::letters::letters(store, &filter)?;
        Ok((letters, tables::letters::letters_by_reason(store)?))
    });
    let (letters, reasons) = read.await?;
    let next = letters.last().filter(|_| letters.len() == PAGE);
    Ok(LetterPage {
        next: next.map(|letter| letter.id),
        letters,
        reasons,
    })
}

pub(super) async fn ids_of_letters(
    backend: &DaemonBackend,
    query: LetterQuery,
) -> Result<Vec<RowId>, Refusal> {
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
        let page = read.await?;
        ids.extend_from_slice(&page);
        match page.last() {
            Some(last) if page.len() == IDS_PAGE => filter.before = Some(*last),
            Some(_) | None => return Ok(ids),
        }
    }
}
