//! Numbers without a lead, on the page.

use super::backend::{DaemonBackend, broken};
use super::calls;
use super::letters;
use callbridge_control::protocol::ControlRequest;
use callbridge_model::TypedNumber;
use callbridge_page::backend::{BackendRefusal, CallLine, GivenLead, NumberView};
use callbridge_spool::{CallFilter, ParkedPhone, Place, tables};
use serde_json::Value;

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
    let question = ControlRequest::LeadGive {
        phone: phone.to_owned(),
        lead: letters::lead_id(lead)?,
    };
    let items = backend.ask(question, who).await?;
    let left = items.first().and_then(|item| item["left"].as_u64());
    Ok(left.unwrap_or(0))
}

pub(super) async fn lead_taken(
    backend: &DaemonBackend,
    phone: &str,
    who: &str,
) -> Result<(), BackendRefusal> {
    let phone = phone.to_owned();
    backend.ask(ControlRequest::LeadTake { phone }, who).await?;
    Ok(())
}

pub(super) async fn leads_given(backend: &DaemonBackend) -> Result<Vec<GivenLead>, BackendRefusal> {
    // a list is nobody's act
    let items = backend.ask(ControlRequest::LeadGiven, "").await?;
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let number = |item: &Value, name: &str| item[name].as_i64().unwrap_or_default();
    let given = items.iter().map(|item| GivenLead {
        phone: text(item, "phone"),
        lead_id: number(item, "leadId"),
        at: number(item, "at"),
        who: text(item, "who"),
    });
    Ok(given.collect())
}
