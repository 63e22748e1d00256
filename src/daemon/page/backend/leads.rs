//! Numbers without a lead, on the page.

use super::DaemonBackend;
use callbridge_admin::refusal::Refusal;
use callbridge_model::TypedNumber;
use callbridge_page::backend::NumberView;
use callbridge_spool::{CallFilter, Listed, ParkedPhone, Place, tables};

/// Numbers read at a time.
const PHONES_PAGE: usize = 500;
/// Numbers shown; those with most calls.
const PHONES_MAX: usize = 2_000;
/// Calls shown of a number.
const NEWEST: usize = 5;
/// Numbers whose calls are shown beside them.
const WITH_CALLS: usize = 100;

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
    let mut numbers = Vec::new();
    for (at, parked) in all.into_iter().enumerate() {
        let newest = match at < WITH_CALLS {
            true => newest_of(backend, &parked).await?,
            false => Vec::new(),
        };
        numbers.push(NumberView {
            phone: parked.phone.as_str().to_owned(),
            calls: parked.calls,
            first_at: parked.first.get(),
            last_at: parked.last.get(),
            newest,
        });
    }
    Ok(numbers)
}

async fn newest_of(backend: &DaemonBackend, parked: &ParkedPhone) -> Result<Vec<Listed>, Refusal> {
    let filter = CallFilter {
        phone: TypedNumber::read(parked.phone.as_str(), []),
        ..CallFilter::default()
    };
    let read = backend
        .spool
        .read(move |store| tables::listed::listed_back(store, &filter, Place::END, NEWEST));
    Ok(read.await?.0)
}
