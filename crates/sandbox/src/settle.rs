//! Accepted writes come to their end, each at its own moment.

use super::core::Sandbox;
use super::journal::{Content, Journal, Submission, Write};
use crate::lead::act;
use crate::webhook::told;
use callbridge_call::EventTime;

impl Sandbox {
    /// Brings asynchronous writes to their end that are due.
    pub fn tick(&mut self, now: EventTime) {
        while let Some(write) = self.journal.next_due(now) {
            let ended = match &write.content {
                _ if write.doomed => Err("by order of a fault"),
                Content::Call(call) => self.journal_call(&write, call),
                Content::Fields(fields) => {
                    act::write_fields(self, write.due, write.company, fields)
                }
            };
            self.journal.end(&write.request_id, ended.err());
        }
        self.journal.forget(now);
    }

    fn journal_call(&mut self, write: &Write, call: &Submission) -> Result<(), &'static str> {
        let company = self.companies.get(&write.company);
        let company = company.ok_or("unknown company")?;
        if !self.leads.exists(company, call.lead_id) {
            return Err("unknown leadId");
        }
        if (call.employee_id).is_some_and(|id| !company.employees.contains(id)) {
            return Err("unknown employeeId");
        }
        if let Some(record) = self.journal.record_of(write, call) {
            let provider = self.settings.shapes.journal.foreign.as_ref();
            let foreign = provider.map(|it| Journal::foreign_of(&record, it));
            for record in [Some(record), foreign].into_iter().flatten() {
                told::journaled(self, &record);
                self.journal.add(record);
            }
        }
        Ok(())
    }
}
