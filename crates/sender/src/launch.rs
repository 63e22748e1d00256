//! Makes the chosen request, and what is to be committed before it leaves.

use crate::{About, Core, InFlight, Launch, Plan, Task, unresolved};
use callbridge_crm::{Request, request};
use callbridge_model::{Now, Reason, TokenFingerprint};
use callbridge_spool::{Op, Row, RowId, State, Step, Unconfirmed};
use std::time::Duration;

/// Wait after a reconciliation that could not begin.
const RECONCILE_AGAIN: Duration = Duration::from_secs(1);

impl Core {
    /// Makes the chosen request. `about` are its stored rows ([`Task::about`]).
    pub fn launch(&mut self, now: Now, plan: Plan, about: About) -> Launch {
        let slot = plan.slot;
        let mut ops = Vec::new();
        let request = self.tokens.fitting(now, &plan.task).and_then(|token| {
            let request = self.make(now, &plan.task, about, &mut ops)?;
            Some((request, token))
        });
        let Some((sent, token)) = &request else {
            self.budget.pacer.never_sent(slot);
            return Launch { request, ops };
        };
        self.confirmation.launched(&plan.task);
        let in_flight = InFlight {
            plan,
            endpoint: sent.endpoint(),
            token: token.clone(),
            sent: now,
        };
        ops.push(self.budget.launched(&in_flight));
        if self.tokens.launched(now, token) {
            self.remember(now, &mut ops);
        }
        if in_flight.plan.task == Task::TokenInfo {
            let beside = self.gate.is_flowing() && !self.gate.troubles.is_whole();
            self.rights.asked(now.boot, beside.then_some(slot));
        }
        self.gate.sent(now.boot, in_flight.part());
        self.in_flight.by_slot.insert(slot, in_flight);
        Launch { request, ops }
    }

    /// Handles an unresolved call that no reconciliation can find. It is sent again with its uuid,
    /// which makes no second record (§4.5.4), or given up.
    pub fn revive(&self, now: Now, call: &Unconfirmed) -> Step {
        let refused = self.rights.polls_barred(now.boot) && self.tokens.reads(now, &call.token);
        let pages = self.confirmation.page_strategy().is_readable(now.wall);
        let others_tell = pages || !self.confirmation.webhooks.left(now.wall).is_zero();
        match refused && !others_tell {
            true => unresolved::unobservable(&self.rights.with_bar(call)),
            false => unresolved::absent(call, false),
        }
    }

    /// The operations of a launch could not be committed. Nothing was sent.
    pub fn aborted(&mut self, slot: u32) {
        let beside = self.rights.ended(slot);
        if let Some(in_flight) = self.in_flight.by_slot.remove(&slot) {
            if beside {
                self.rights.unread(in_flight.sent.boot);
            }
            if in_flight.is_page() {
                self.confirmation.reconciliation.dropped();
            }
        }
        self.budget.pacer.never_sent(slot);
        // the next memory is stored in any case
        self.memory.clear();
    }

    fn make(&mut self, now: Now, task: &Task, about: About, ops: &mut Vec<Op>) -> Option<Request> {
        match task {
            Task::TokenInfo => Some(Request::TokenInfo),
            Task::Poll(poll) => Some(Request::Poll {
                request_id: poll.request_id.clone()?,
            }),
            Task::Reconcile { .. } => self.reconcile(now, about.unconfirmed),
            Task::Submit(id) => {
                let mut row = about.row?;
                if let Some(onward) = about.onward.filter(|_| row.state == State::Ready) {
                    row.record.clone_from(&onward.record);
                    // its lead is known to be merged: send it to the survivor, so it does not FAIL
                    // first
                    ops.push(Op::step(*id, Step::moved(onward, ""), now.wall));
                }
                self.submit(now, *id, row, ops)
            }
            Task::LeadRequest(lead_request) => {
                self.lead_requests
                    .request(now, lead_request, about.write, ops)
            }
        }
    }

    fn reconcile(&mut self, now: Now, unconfirmed: Vec<Unconfirmed>) -> Option<Request> {
        // while polls are refused, only a reconciliation finds a call, whatever its token
        let polls = !self.rights.polls_barred(now.boot);
        let tokens: Vec<TokenFingerprint> =
            self.tokens.living(now).filter(|_| polls).cloned().collect();
        let free = |call: &Unconfirmed| !self.in_flight.has_call(call.row);
        let unconfirmed = unconfirmed.into_iter().filter(free).collect();
        let before = self.confirmation.confirmable_before(now, self.load);
        let reconciliation = &mut self.confirmation.reconciliation;
        let page = reconciliation.page(now.wall, before, &tokens, unconfirmed);
        if page.is_none() {
            self.confirmation.reconcile_from = now.boot + RECONCILE_AGAIN;
        }
        page.map(Request::Filter)
    }

    fn submit(&mut self, now: Now, id: RowId, row: Row, ops: &mut Vec<Op>) -> Option<Request> {
        if row.state != State::Ready {
            return None;
        }
        let body = request::submission(&row.record, &self.settings.fields);
        let step = match body {
            Some(_) => Step::Send,
            // Our rules never make such a call ready. If one is there, it must not stop the queue.
            None => unresolved::died(Reason::NoLead, "the call has no lead or no uuid".to_owned()),
        };
        ops.push(Op::step(id, step, now.wall));
        self.retry.recall(id, row.failures);
        body.map(Request::Submit)
    }
}
