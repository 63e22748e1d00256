//! Numbers without a lead, on the page.

use super::DaemonBackend;
use callbridge_admin::refusal::Refusal;
use callbridge_page::backend::NumberView;
use callbridge_spool::{ParkedPhone, tables};

/// Numbers read at a time.
const PHONES_PAGE: usize = 500;
/// Numbers shown; those with most calls.
const PHONES_MAX: usize = 2_000;

pub(super) async fn numbers_without_lead(
    backend: &DaemonBackend,
) -> Result<Vec<NumberView>, Refusal> {
    let mut all: Vec<ParkedPhone> = Vec::new();
    loop {
        let after = all.last().map(|last| last.phone.clone());
        let read = backend
            .spool
            .read(move |store| tables::parked::parked_phones(store, after.as_ref(), PHONES_PAGE));
        let page = read.await?;
        let end = page.len() < PHONES_PAGE;
        all.extend(page);
        if end {
            break;
        }
    }
    all.sort_by_key(|it| (std::cmp::Reverse(it.calls), it.first));
    all.truncate(PHONES_MAX);
    let numbers = all.into_iter().map(|parked| NumberView {
        phone: parked.phone.as_str().to_owned(),
        calls: parked.calls,
        first_at: parked.first.get(),
        last_at: parked.last.get(),
    });
    Ok(numbers.collect())
}
