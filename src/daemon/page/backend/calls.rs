//! Calls on the page, which are stored calls, a single call, and open calls.

use super::DaemonBackend;
use callbridge_admin::explain::story::{Paint, Times};
use callbridge_admin::explain::text::{Depth, Explained};
use callbridge_admin::explain::{picture, story, text};
use callbridge_admin::{KeptCall, Refusal};
use callbridge_call::{EventTime, FinishedCall};
use callbridge_crm::request::submission;
use callbridge_intake::under_way::under_way;
use callbridge_mapping::{People, journal};
use callbridge_model::{TypedNumber, clock, dates};
use callbridge_page::backend::{CallPage, CallQuery, CallView, OpenCallView, RequestView};
use callbridge_spool::{CallFilter, Letter, Listed, Place, Row, Search, State, tables};

/// Number of calls on one page of the list.
const PAGE: usize = 50;
/// Maximum number of spool pages to read in order to fill one page, since matches may be rare.
const WALKS_MAX: usize = 20;
/// Maximum number of calls to count. If there are more, the page says so.
const COUNT_MAX: usize = 1_000;
/// Maximum number of spool pages to read in order to count calls.
const COUNT_WALKS: usize = 6;
/// Maximum number of open calls to show.
const OPEN_MAX: usize = 200;

impl DaemonBackend {
    pub(super) async fn call_page(&self, query: CallQuery) -> Result<CallPage, Refusal> {
        let before = match query.before.as_deref() {
            Some(key) => Place::read(key)
                .ok_or_else(|| Refusal::usage(format!("`{key}` is not a position in this list")))?,
            None => Place::END,
        };
        let (found, filter) = self.resolve_query(&query).await?;
        if let Some(call) = found {
            return Ok(CallPage {
                calls: vec![call],
                count: Some(1),
                ..CallPage::default()
            });
        }
        let (calls, next) = self.list_calls(&filter, before, (PAGE, WALKS_MAX)).await?;
        let mut page = CallPage {
            calls,
            next: next.map(|place| place.to_string()),
            ..CallPage::default()
        };
        if query.before.is_none() {
            let walks = (COUNT_MAX, COUNT_WALKS);
            let (counted, next) = self.list_calls(&filter, Place::END, walks).await?;
            page.count = Some(counted.len() as u64);
            page.more = next.is_some();
        }
        Ok(page)
    }

    /// Converts a search, returning the call if the text is the ID of a single one, along with the
    /// filter for the list.
    async fn resolve_query(
        &self,
        query: &CallQuery,
    ) -> Result<(Option<Listed>, CallFilter), Refusal> {
        let mut filter = CallFilter {
            trunk: query.trunk.clone(),
            ..CallFilter::default()
        };
        if let Some(word) = &query.state {
            let Some(state) = State::from_word(word) else {
                return Err(Refusal::usage(format!("`{word}` is not a state of a call")));
            };
            filter.state = Some(state);
        }
        if let Some(day) = &query.day {
            let zone = self.zone.as_time_zone();
            let from = dates::date(day, zone).map_err(|error| wrong_day(day, &error))?;
            let to = dates::date_end(day, zone).map_err(|error| wrong_day(day, &error))?;
            filter.from = Some(from.floor_seconds().get());
            filter.until = Some(to.floor_seconds().get());
        }
        let Some(text) = query.text.as_deref().map(str::trim) else {
            return Ok((None, filter));
        };
        let typed = TypedNumber::read(text, self.handler.countries());
        if let Some(typed) = typed.filter(TypedNumber::is_plain) {
            filter.phone = Some(typed);
            return Ok((None, filter));
        }
        let id = text.to_owned();
        let search = self.read(move |store| tables::calls::search_call(store, &id));
        if let Search::One(row) = search.await? {
            return Ok((Some(listed_call(&row)), filter));
        }
        // The text is neither a customer's number nor an ID, so it must be an extension.
        filter.extension = Some(text.to_owned());
        Ok((None, filter))
    }

    pub(super) async fn one_call(&self, uuid: String) -> Result<Option<CallView>, Refusal> {
        let read = self.handler.spool.read(move |store| {
            let Search::One(row) = tables::calls::search_call(store, &uuid)? else {
                return Ok(None);
            };
            let letter = tables::letters::letter(store, row.id)?;
            Ok(Some((row, letter)))
        });
        let found = read.await?;
        Ok(found.map(|(row, letter)| self.view(*row, letter)))
    }

    fn view(&self, row: Row, letter: Option<Letter>) -> CallView {
        let attempts = row.attempts.clone();
        let since = row.since.floor_seconds().get();
        let line = listed_call(&row);
        let request = self.request(&row);
        let kept = KeptCall::from_row(row, None, None);
        let judged = kept.judged();
        let of = Explained {
            judged: &judged,
            state: Some(kept.state),
            call: &kept.call,
            rules: &self.handler.rules,
            // The lists aren't read here, because the lead is stored with the call.
            people: &People::default(),
        };
        let times = Times::new(&self.zone, kept.call.started);
        let values = text::block(&of, &times, Depth::Values, Paint::default());
        let timeline = kept.call.timeline.as_ref();
        let events = timeline.map(|timeline| story::events(timeline, &times));
        CallView {
            line: Listed {
                reason: judged.reason,
                ..line
            },
            picture: picture::lanes_svg(&of, &times).unwrap_or_default(),
            values,
            events: events.unwrap_or_default(),
            wait_sec: answered_at(&kept.call).map(|at| at.since(kept.call.started).as_secs()),
            since,
            request,
            attempts,
            letter,
        }
    }

    /// Returns the request that was or would be sent to the CRM. A call is stored as `sending`
    /// before its first byte is sent. If the request wasn't sent after all, the call has neither a
    /// request ID nor an attempt.
    fn request(&self, row: &Row) -> RequestView {
        let has_left =
            row.request_id.is_some() || !row.attempts.is_empty() || row.state == State::Sending;
        let sent_at = if has_left { row.first_sent } else { None };
        let accepted_at = row.request_id.as_ref().and(row.submitted_at);
        RequestView {
            body: submission(&row.record, &self.fields),
            sent_at: sent_at.map(|at| at.floor_seconds().get()),
            id: row.request_id.clone(),
            accepted_at: accepted_at.map(|at| at.floor_seconds().get()),
        }
    }

    pub(super) async fn open_calls(&self) -> Result<Vec<OpenCallView>, Refusal> {
        let read = self.read(|store| tables::resume::all_open_calls(store));
        let open = read.await?;
        let now = clock::now().wall;
        let mut calls: Vec<OpenCallView> = Vec::new();
        for (pbx, call) in under_way(&self.intake, &open, now) {
            calls.push(self.open_call(pbx, &call, now));
        }
        calls.sort_by_key(|call| call.since);
        calls.truncate(OPEN_MAX);
        Ok(calls)
    }

    fn open_call(&self, pbx: String, call: &FinishedCall, now: EventTime) -> OpenCallView {
        let rules = &self.handler.rules;
        let judged = journal::judge(call, &pbx, rules, &People::default(), now);
        let record = judged.record;
        let raw = call.number.as_ref().map(|number| number.text.clone());
        let phone = record.client_phone.map(|phone| phone.as_str().to_owned());
        let mut extensions = record.employees_in_order;
        if extensions.is_empty() {
            extensions.extend(record.employee);
        }
        OpenCallView {
            since: call.started.floor_seconds().get(),
            answered_at: answered_at(call).map(|at| at.floor_seconds().get()),
            trunk: record.trunk,
            phone: phone.or(raw),
            extensions,
        }
    }
}

/// Returns the time of the event showing that the call was answered, or `None` if it wasn't.
fn answered_at(call: &FinishedCall) -> Option<EventTime> {
    if !call.answered {
        return None;
    }
    let mut events = call.decided_by.iter();
    events
        .find(|event| event.value == "answered")
        .map(|event| event.at)
}

fn wrong_day(day: &str, error: &str) -> Refusal {
    Refusal::usage(format!("{day}: {error}"))
}

fn listed_call(row: &Row) -> Listed {
    Listed {
        id: row.id,
        state: Some(row.state),
        reason: row.reason,
        record: row.record.clone(),
    }
}
