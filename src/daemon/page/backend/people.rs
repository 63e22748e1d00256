//! What employees did, and what trunks took.

use super::DaemonBackend;
use callbridge_admin::Refusal;
use callbridge_call::Direction;
use callbridge_model::{LeadId, TypedNumber, clock, status::TrunkStatus};
use callbridge_page::backend::{EmployeeTable, Profiles, WaitingCustomer};
use callbridge_spool::{CallFilter, Listed, Place, employee_work::employee_work, tables};
use std::collections::BTreeSet;

/// Calls to a customer that are looked at.
const CALLS_MAX: usize = 100;

/// Leads whose profiles are read at once.
const PROFILES_AT_ONCE: usize = 50;

impl DaemonBackend {
    pub(super) async fn employee_figures(&self, days: i64) -> Result<EmployeeTable, Refusal> {
        let now = clock::now().wall;
        let from = self.day_begun(now, days - 1);
        let until = now.floor_seconds().get() + 1;
        Ok(employee_work(&self.handler.spool, from, until).await?.work)
    }

    /// Customers who wait for a call back, each with the calls to them since that nobody answered.
    pub(super) async fn waiting_customers(&self) -> Result<Vec<WaitingCustomer>, Refusal> {
        let mut all = Vec::new();
        for customer in self.handler.missed_customers(None).await? {
            let filter = CallFilter {
                phone: TypedNumber::read(customer.phone.as_str(), []),
                from: Some(customer.first_at.get()),
                ..CallFilter::default()
            };
            // A read each: writes go on between them.
            let of_customer = self.listed(&filter, Place::END, (CALLS_MAX, 1));
            let (calls, _) = of_customer.await?;
            let out =
                |it: &&Listed| it.record.direction == Direction::Outbound && !it.record.answered;
            let tried: Vec<&Listed> = calls.iter().filter(out).collect();
            all.push(WaitingCustomer {
                customer,
                tried: tried.len() as u64,
                tried_at: tried.first().map(|it| it.record.started_at.get()),
            });
        }
        Ok(all)
    }

    pub(super) async fn lead_profiles(&self, leads: BTreeSet<LeadId>) -> Result<Profiles, Refusal> {
        let leads: Vec<LeadId> = leads.into_iter().collect();
        let mut all = Profiles::new();
        for some in leads.chunks(PROFILES_AT_ONCE) {
            let some = some.to_vec();
            let read = self.handler.spool.read(move |store| {
                let profile = |lead| Ok((lead, tables::directory::profile(store, lead)?));
                Result::<Profiles, _>::from_iter(some.into_iter().map(profile))
            });
            all.extend(read.await?);
        }
        Ok(all)
    }

    pub(super) async fn trunk_views(&self) -> Result<Vec<TrunkStatus>, Refusal> {
        let today = self.day_begun(clock::now().wall, 0);
        let took = self.read(move |store| tables::trunk_calls::trunk_calls(store, today));
        let took = took.await?;
        let (shown, _) = self.observer.trunks.shown(&took, &[]);
        Ok(shown)
    }
}
