//! What each change makes of the state, at once and when the log is played again.

use super::core::{Change, Logged, Sandbox};
use super::token::{TokenKey, TokenKind};
use super::violations::{Violation, ViolationKind};
use super::window::Counted;
use crate::lead::act;
use crate::oauth::connection;
use crate::webhook::told;
use callbridge_call::EventTime;
use std::time::Duration;

impl Sandbox {
    /// Brings asynchronous writes to their end that are due.
    pub fn tick(&mut self, now: EventTime) {
        while let Some((&(due, _), _)) = self.leads.pending.first_key_value() {
            if due > now {
                break;
            }
            self.settle_calls(due);
            act::settle_order(self);
        }
        self.settle_calls(now);
    }

    fn settle_calls(&mut self, now: EventTime) {
        let before = self.journal.records().len();
        self.journal.settle(now, &self.companies, &self.leads);
        told::journaled(self, before);
    }

    /// Makes a change of the log again.
    pub fn replay(&mut self, logged: Logged) {
        self.tick(logged.at);
        self.apply(logged.at, logged.change);
    }

    pub(super) fn change(&mut self, at: EventTime, change: Change) {
        if self.settings.keep_log {
            self.log.untaken.push(Logged {
                at,
                change: change.clone(),
            });
        }
        self.apply(at, change);
    }

    fn apply(&mut self, at: EventTime, change: Change) {
        self.log.made += 1;
        match change {
            Change::Issued { token, record } => {
                // An application has one working PAT; access tokens live side by side (§3.1).
                let replaces = record.kind == TokenKind::Pat;
                for other in self.tokens.values_mut().filter(|_| replaces) {
                    let same = (other.company, other.kind) == (record.company, record.kind);
                    other.revoked |= same;
                }
                self.tokens.insert(token, record);
            }
            Change::Revoked { token } => {
                if let Some(record) = self.tokens.get_mut(&token) {
                    record.revoked = true;
                }
            }
            Change::Expires { token, at } => {
                if let Some(record) = self.tokens.get_mut(&token) {
                    record.expires_at = at;
                }
            }
            Change::Started(company) => {
                self.flags = Some((*company).clone());
                self.webhooks.install(&company);
                self.companies.insert(company.id, *company);
            }
            Change::Company(company) => {
                self.client.rules.grants_changed();
                self.webhooks.install(&company);
                self.companies.insert(company.id, *company);
            }
            Change::Counted { token } => {
                self.client.windows.count(token, at);
            }
            Change::Accepted(write) => self.journal.accept(*write),
            Change::Added(record) => {
                let before = self.journal.records().len();
                self.journal.add(*record);
                told::journaled(self, before);
            }
            Change::Deleted { company, uuid } => self.journal.delete(company, &uuid),
            Change::Edited(record) => self.journal.edit(*record),
            Change::Lead(change) => act::apply_lead(self, at, change),
            Change::Ahead(seconds) => self.log.ahead = Duration::from_secs(seconds),
            Change::Broken(breach) => self.client.violations.push(breach),
            Change::Webhook(change) => self.webhooks.apply(at, *change),
            Change::Oauth(change) => connection::apply_oauth(self, at, &change),
        }
    }

    pub(super) fn count(&mut self, at: EventTime, token: TokenKey) -> Counted {
        if self.settings.keep_log {
            self.log.untaken.push(Logged {
                at,
                change: Change::Counted { token },
            });
        }
        self.client.windows.count(token, at)
    }

    pub(super) fn violation(
        &mut self,
        at: EventTime,
        kind: ViolationKind,
        rule: &str,
        words: impl Into<String>,
    ) {
        let breach = Violation {
            at,
            kind,
            rule: rule.to_owned(),
            words: words.into(),
        };
        self.change(at, Change::Broken(breach));
    }
}
