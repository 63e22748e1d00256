//! Numbers without a lead, on the page.

use super::backend::{DaemonBackend, broken};
use super::calls;
use super::letters;
use callbridge_model::TypedNumber;
use callbridge_page::backend::{BackendRefusal, CallLine, GivenLead, NumberView};
use callbridge_spool::{CallFilter, ParkedPhone, Place, tables};

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
) -> Result<Vec<NumberView>, BackendRefusal> {
    let mut all: Vec<ParkedPhone> = Vec::new();
    loop {
        let after = all.last().map(|last| last.phone.clone());
        let read = backend
            .spool
            .read(move |store| tables::parked::parked_phones(store, after.as_ref(), PHONES_PAGE));
        let page = read.await.map_err(broken)?;
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

async fn newest_of(
    backend: &DaemonBackend,
    parked: &ParkedPhone,
) -> Result<Vec<CallLine>, BackendRefusal> {
    let filter = CallFilter {
        phone: TypedNumber::read(parked.phone.as_str(), []),
        ..CallFilter::default()
    };
    let read = backend
        .spool
        .read(move |store| tables::listed::listed_back(store, &filter, Place::END, NEWEST));
    let (found, _) = read.await.map_err(broken)?;
    Ok(found.iter().map(calls::line).collect())
}

pub(super) async fn lead_given(
    backend: &DaemonBackend,
    phone: &str,
    lead: &str,
    who: &str,
) -> Result<u64, BackendRefusal> {
    let lead = letters::lead_id(lead)?;
    let given = backend.handler.give_lead(phone, lead, who).await;
    given.map(|(_, left)| left).map_err(broken)
}

pub(super) async fn lead_taken(backend: &DaemonBackend, phone: &str) -> Result<(), BackendRefusal> {
    let taken = backend.handler.take_lead(phone).await;
    taken.map(drop).map_err(broken)
}

pub(super) async fn leads_given(backend: &DaemonBackend) -> Result<Vec<GivenLead>, BackendRefusal> {
    let given = backend.handler.leads_given().await.map_err(broken)?;
    let given = given.into_iter().map(|it| GivenLead {
        phone: it.phone.as_str().to_owned(),
        lead_id: it.lead.get(),
        at: it.at.get(),
        who: it.who,
    });
    Ok(given.collect())
}
