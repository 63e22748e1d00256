//! Dead letters of the page.

use super::backend::DaemonBackend;
use super::calls::input;
use callbridge_admin::refusal::Refusal;
use callbridge_model::Reason;
use callbridge_page::backend::{CauseGroup, LetterPage, LetterQuery};
use callbridge_spool::{LetterFilter, RowId, tables};

/// Letters of one page.
const PAGE: usize = 50;
/// Pages walked over for one of ours, where letters of one cause are asked for.
const WALKS_MAX: usize = 100;
/// Pages of letters that are told apart by their causes.
const GROUPED_PAGES: usize = 5;
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
    let mut filter = filter(&query, PAGE)?;
    let read = backend.spool.read(move |store| {
        let (mut letters, mut next) = (Vec::new(), None);
        for _ in 0..WALKS_MAX {
            let walked = tables::letters::letters(store, &filter)?;
            next = walked
                .last()
                .filter(|_| walked.len() == PAGE)
                .map(|it| it.id);
            letters.extend(
                walked
                    .into_iter()
                    .filter(|letter| query.takes_cause(letter)),
            );
            match next.filter(|_| letters.len() < PAGE) {
                Some(last) => filter.before = Some(last),
                None => break,
            }
        }
        // The next page begins behind the last that is shown.
        if letters.len() > PAGE {
            letters.truncate(PAGE);
            next = letters.last().map(|it| it.id);
        }
        Ok(LetterPage {
            letters,
            next,
            reasons: tables::letters::letters_by_reason(store)?,
        })
    });
    Ok(read.await?)
}

/// The newest letters by their causes.
pub(super) async fn causes(backend: &DaemonBackend) -> Result<Vec<CauseGroup>, Refusal> {
    let mut filter = filter(&LetterQuery::default(), IDS_PAGE)?;
    let read = backend.spool.read(move |store| {
        let mut newest = Vec::new();
        for _ in 0..GROUPED_PAGES {
            let page = tables::letters::letters(store, &filter)?;
            filter.before = page.last().map(|letter| letter.id);
            let last = page.len() < IDS_PAGE;
            newest.extend(page);
            if last {
                break;
            }
        }
        Ok(CauseGroup::of(newest.iter()))
    });
    Ok(read.await?)
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
            let last = letters.last().filter(|_| letters.len() == IDS_PAGE);
            Ok((last.map(|letter| letter.id), letters))
        });
        let (last, page) = read.await?;
        let page = page.iter().filter(|letter| query.takes_cause(letter));
        ids.extend(page.map(|letter| letter.id));
        match last {
            Some(last) => filter.before = Some(last),
            None => return Ok(ids),
        }
    }
}
