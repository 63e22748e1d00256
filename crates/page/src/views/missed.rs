//! The Missed view, which shows customers waiting for a callback, longest wait first.

use crate::answer::{self, Handled, Problem};
use crate::backend::{Profiles, WaitingCustomer};
use crate::csv::{self, Columns, cell};
use crate::{page::AuthenticatedRequest, shell::PageShell};
use askama::Template;
use callbridge_leads::directory::LeadProfile;

/// Maximum number of customers on the page. The CSV file has all of them.
const SHOWN_MAX: usize = 500;
/// Waits longer than this are highlighted.
const LONG_SECONDS: i64 = 4 * 3600;

#[derive(Template)]
#[template(path = "missed.html")]
struct MissedSheet<'a> {
    c: &'a PageShell,
    missed: Vec<WaitingCustomer>,
    profiles: Profiles,
    all: u64,
}

/// Serves `GET /missed`, which shows the customers waiting for a callback.
pub(crate) async fn list(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let _ = visit.refresh_badges().await;
    let mut missed = visit.page.backend.missed().await?;
    let all = missed.len() as u64;
    missed.truncate(SHOWN_MAX);
    let profiles = profiles(&visit, &missed).await?;
    let sheet = MissedSheet {
        c: &visit.shell,
        missed,
        profiles,
        all,
    };
    answer::html(&sheet)
}

/// Reads the profiles of the customers' leads.
async fn profiles(
    visit: &AuthenticatedRequest<'_>,
    missed: &[WaitingCustomer],
) -> Result<Profiles, Problem> {
    let leads = missed.iter().filter_map(|waiting| waiting.customer.lead_id);
    Ok(visit.page.backend.profiles(leads.collect()).await?)
}

impl MissedSheet<'_> {
    fn profile(&self, waiting: &WaitingCustomer) -> Option<&LeadProfile> {
        self.profiles.get(&waiting.customer.lead_id?)
    }

    fn is_long(&self, first_at: i64) -> bool {
        self.c.now.saturating_sub(first_at) > LONG_SECONDS
    }

    /// Returns a number for a `tel:` link, which may only contain digits and a plus sign, or `None`
    /// for any other text.
    fn dial(&self, phone: &str) -> Option<String> {
        let digits = phone.strip_prefix('+').unwrap_or(phone);
        let is_number =
            (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| phone.to_owned())
    }
}

/// The CSV file's columns, which are a customer and the profile of their lead.
const COLUMNS: &Columns<(WaitingCustomer, LeadProfile)> = &[
    ("phone", |(waiting, _), _| {
        waiting.customer.phone.as_str().to_owned()
    }),
    ("leadId", |(waiting, _), _| cell(&waiting.customer.lead_id)),
    ("trunk", |(waiting, _), _| waiting.customer.trunk.clone()),
    ("firstAt", |(waiting, _), c| {
        c.zone.second(waiting.customer.first_at.get())
    }),
    ("lastAt", |(waiting, _), c| {
        c.zone.second(waiting.customer.last_at.get())
    }),
    ("tries", |(waiting, _), _| {
        waiting.customer.tries.to_string()
    }),
    ("triedBack", |(waiting, _), _| waiting.tried.to_string()),
    ("triedBackAt", |(waiting, _), c| {
        cell(&waiting.tried_at.map(|at| c.zone.second(at)))
    }),
    ("leadName", |(_, lead), _| cell(&lead.name)),
    ("responsible", |(_, lead), c| cell(&c.responsible(lead))),
];

/// Serves `GET /missed.csv`, which contains the customers as a file.
pub(crate) async fn csv(visit: &AuthenticatedRequest<'_>) -> Handled {
    let missed = visit.page.backend.missed().await?;
    let profiles = profiles(visit, &missed).await?;
    let rows = missed.into_iter().map(|waiting| {
        let lead = waiting.customer.lead_id;
        let profile = lead.and_then(|lead| profiles.get(&lead).cloned());
        (waiting, profile.unwrap_or_default())
    });
    let name = "callbridge-missed.csv";
    Ok(csv::download(COLUMNS, rows, &visit.shell, name))
}
