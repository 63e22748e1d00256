//! Dead letters of the page, and numbers without a lead.

use super::DaemonBackend;
use callbridge_admin::Refusal;
use callbridge_model::Reason;
use callbridge_page::backend::{CauseGroup, LetterPage, LetterQuery};
use callbridge_spool::{Letter, LetterFilter, ParkedPhone, RowId, tables};

/// Letters of one page of the list.
const PAGE: usize = 50;
/// Pages walked over for one of ours, where letters of one cause are asked for.
const WALKS_MAX: usize = 100;
/// Pages of letters that are told apart by their causes.
const GROUPED_PAGES: usize = 5;
/// Letters read at a time for their ids.
const IDS_PAGE: usize = 1_000;

fn filter(query: &LetterQuery, limit: usize) -> Result<LetterFilter, Refusal> {
    let reason = query.reason.as_deref().map(|word| {
        let wrong = || Refusal::usage(format!("`{word}` is not a reason of a dead letter"));
        Reason::from_word(word).ok_or_else(wrong)
    });
    Ok(LetterFilter {
        reason: reason.transpose()?,
        before: Some(query.before.unwrap_or(RowId(i64::MAX))),
        limit,
        ..LetterFilter::default()
    })
}

/// Numbers read at a time.
const PHONES_PAGE: usize = 500;
/// Numbers shown; those with most calls.
const PHONES_MAX: usize = 2_000;

impl DaemonBackend {
    /// Hands over letters page by page, newest first, while `take` wants more; the last one where
    /// more may follow. Each page is a read of its own: writes go on between them.
    async fn walk(
        &self,
        mut filter: LetterFilter,
        pages_max: usize,
        mut take: impl FnMut(Vec<Letter>) -> bool,
    ) -> Result<Option<RowId>, Refusal> {
        for _ in 0..pages_max {
            let of = filter.clone();
            let page = self.read(move |store| tables::letters::letters(store, &of));
            let page = page.await?;
            let last = page.last().map(|letter| letter.id);
            let last = last.filter(|_| page.len() == filter.limit);
            let wants_more = take(page);
            match last {
                Some(last) => filter.before = Some(last),
                None => return Ok(None),
            }
            if !wants_more {
                break;
            }
        }
        Ok(filter.before)
    }

    pub(super) async fn letter_page(&self, query: LetterQuery) -> Result<LetterPage, Refusal> {
        let filter = filter(&query, PAGE)?;
        let mut letters = Vec::new();
        let walk = self.walk(filter, WALKS_MAX, |page| {
            letters.extend(page.into_iter().filter(|letter| query.takes_cause(letter)));
            letters.len() < PAGE
        });
        let mut next = walk.await?;
        // The next page begins behind the last that is shown.
        if letters.len() > PAGE {
            letters.truncate(PAGE);
            next = letters.last().map(|it| it.id);
        }
        let reasons = self.handler.spool.read(tables::letters::letters_by_reason);
        Ok(LetterPage {
            letters,
            next,
            reasons: reasons.await?,
        })
    }

    /// The newest letters by their causes.
    pub(super) async fn cause_groups(&self) -> Result<Vec<CauseGroup>, Refusal> {
        let filter = filter(&LetterQuery::default(), IDS_PAGE)?;
        let mut newest = Vec::new();
        let walk = self.walk(filter, GROUPED_PAGES, |page| {
            newest.extend(page);
            true
        });
        walk.await?;
        Ok(CauseGroup::of(newest.iter()))
    }

    pub(super) async fn ids_of_letters(&self, query: LetterQuery) -> Result<Vec<RowId>, Refusal> {
        let filter = filter(&query, IDS_PAGE)?;
        let mut ids = Vec::new();
        let walk = self.walk(filter, usize::MAX, |page| {
            let wanted = page.iter().filter(|letter| query.takes_cause(letter));
            ids.extend(wanted.map(|letter| letter.id));
            true
        });
        walk.await?;
        Ok(ids)
    }

    pub(super) async fn numbers_without_lead(&self) -> Result<Vec<ParkedPhone>, Refusal> {
        let mut all: Vec<ParkedPhone> = Vec::new();
        loop {
            let after = all.last().map(|last| last.phone.clone());
            let parked = tables::parked::parked_phones;
            let page = self.read(move |store| parked(store, after.as_ref(), PHONES_PAGE));
            let page = page.await?;
            let end = page.len() < PHONES_PAGE;
            all.extend(page);
            if end {
                break;
            }
        }
        all.sort_by_key(|it| (std::cmp::Reverse(it.calls), it.first));
        all.truncate(PHONES_MAX);
        Ok(all)
    }
}
