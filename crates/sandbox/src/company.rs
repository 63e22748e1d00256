//! Changes that a person makes in the CRM: tokens, grants, leads, and the license.

use crate::{
    ACCESS_SECONDS, Company, Grant, IdSet, PAT_SECONDS_MAX, Record, Sandbox, Submission, Token,
    TokenKey, TokenKind, oauth::connection, webhook::events,
};
use callbridge_call::{EpochSeconds, EventTime};

impl Sandbox {
    /// Issues the PAT `value` for the first company, and revokes the company's previous PAT (§5.3).
    /// Without `expires_at`, the PAT does not expire.
    pub fn issue_pat(&mut self, now: EventTime, value: &str, expires_at: Option<EpochSeconds>) {
        let company = self.settings.company.id;
        self.issue(now, value, TokenKind::Pat, company, expires_at);
    }

    /// Issues the token `value` for a company. A new PAT revokes the company's previous PAT. An
    /// unknown company is created with the grants of the first company and no leads.
    pub fn issue(
        &mut self,
        now: EventTime,
        value: &str,
        kind: TokenKind,
        company: i64,
        expires_at: Option<EpochSeconds>,
    ) {
        self.ensure_company(company);
        let now_sec = now.floor_seconds().get();
        // A PAT with an expiry date lives at most 365 days, and an access token always at most an
        // hour (§3.1, §5.2).
        let year = EpochSeconds::new(now_sec.saturating_add(PAT_SECONDS_MAX));
        let hour = EpochSeconds::new(now_sec.saturating_add(ACCESS_SECONDS));
        let expires_at = match kind {
            TokenKind::Pat => expires_at.map(|at| at.min(year)),
            TokenKind::Access => Some(expires_at.unwrap_or(hour).min(hour)),
        };
        let record = Token {
            kind,
            company,
            application: None,
            refresh: None,
            expires_at,
            revoked: false,
        };
        // An application has one working PAT, but can have several access tokens (§3.1).
        if kind == TokenKind::Pat {
            for other in self.tokens.values_mut() {
                other.revoked |= other.company == company && other.kind == TokenKind::Pat;
            }
        }
        self.tokens.insert(TokenKey::from_value(value), record);
    }

    /// Creates a company if it does not exist, with the grants of the first company and no leads.
    pub(super) fn ensure_company(&mut self, company: i64) {
        if !self.companies.contains_key(&company) {
            let mut other = self.settings.company.clone();
            other.id = company;
            other.name = format!("Company {company}");
            other.leads = IdSet::default();
            self.set_company(other);
        }
    }

    /// Stores a company, and creates its webhook installation if it never had one. Forgets refusals
    /// for missing grants, because the grants can have changed.
    fn set_company(&mut self, company: Company) {
        self.client.rules.grants_changed();
        self.webhooks.install(&company);
        self.companies.insert(company.id, company);
    }

    /// Applies the settings at the start, to a new or a restored state. If the flags differ from
    /// those of the last start, they replace the stored company and application, with all changes
    /// by a person. Issues `token` unless it is already known.
    pub fn begin(&mut self, now: EventTime, token: &str, expires_at: Option<EpochSeconds>) {
        self.now = now;
        let company = self.settings.company.clone();
        let id = company.id;
        if self.flags.as_ref() != Some(&company) {
            self.flags = Some(company.clone());
            self.set_company(company);
        }
        for lead in self.settings.lead_list.clone() {
            if !self.leads.is_gone(id, lead.id) && !self.leads.is_known(id, lead.id) {
                self.leads.put(id, lead.stamp(now));
            }
        }
        if !self.tokens.contains_key(&TokenKey::from_value(token)) {
            self.issue_pat(now, token, expires_at);
        }
        if let Some(application) = self.settings.application.clone()
            && self.oauth.flags.as_ref() != Some(&application)
        {
            self.oauth.flags = Some(application.clone());
            connection::register(self, application);
        }
    }

    /// Returns `true` if `value` is a known token that is neither revoked nor expired.
    pub fn token_works(&self, now: EventTime, value: &str) -> bool {
        let token = self.tokens.get(&TokenKey::from_value(value));
        token.is_some_and(|token| token.works(now))
    }

    /// Revokes the token `value` (§5.3). An unknown token changes nothing.
    pub fn revoke(&mut self, value: &str) {
        self.revoke_key(TokenKey::from_value(value));
    }

    pub(super) fn revoke_key(&mut self, token: TokenKey) {
        if let Some(record) = self.tokens.get_mut(&token) {
            record.revoked = true;
        }
    }

    /// Sets the expiry date of the token `value`. `None` removes the date. An unknown token changes
    /// nothing.
    pub fn expire(&mut self, value: &str, at: Option<EpochSeconds>) {
        if let Some(record) = self.tokens.get_mut(&TokenKey::from_value(value)) {
            record.expires_at = at;
        }
    }

    /// Applies `change` to the first company, for example to its leads, employees, or grants. The
    /// company's id stays.
    pub fn company(&mut self, now: EventTime, change: impl FnOnce(&mut Company)) {
        self.tick(now);
        let first = &self.settings.company;
        let mut company = self.companies.get(&first.id).unwrap_or(first).clone();
        change(&mut company);
        company.id = self.settings.company.id;
        self.set_company(company);
    }

    /// Sets the grants of the first company's connection. The new grants apply to existing tokens
    /// at once (§5.4).
    pub fn set_grants(&mut self, now: EventTime, grants: Vec<Grant>) {
        self.company(now, |company| company.grants = grants);
    }

    /// Deletes a record of the first company's journal, as a person does in the CRM. `uuid` is the
    /// call's uuid as submitted, without the prefix `oapi-`.
    pub fn delete_record(&mut self, now: EventTime, uuid: &str) {
        self.tick(now);
        self.journal.delete(self.settings.company.id, uuid);
    }

    /// Revokes every token of every company.
    pub fn revoke_all(&mut self) {
        for token in self.tokens.values_mut() {
            token.revoked = true;
        }
    }

    /// Adds a call of another provider to the first company's journal.
    pub fn add_foreign(&mut self, now: EventTime) {
        self.tick(now);
        let uuid = format!("{:016x}{:016x}", self.dice.roll(), self.dice.roll());
        let duration_sec = 10 + (self.dice.below(600) as i64);
        let started_at = now.floor_seconds().get() - duration_sec;
        let record = Record {
            uuid: uuid.clone(),
            request_id: String::new(),
            company_id: self.settings.company.id,
            ended_at: started_at + duration_sec,
            hangup_cause: "ANSWER".to_owned(),
            provider: "ONLINE_PBX".to_owned(),
            registered_at: now,
            call: Submission {
                lead_id: 1,
                uuid,
                started_at,
                duration_sec,
                talk_time_sec: Some(duration_sec),
                answered: true,
                direction: "INBOUND".to_owned(),
                ..Submission::default()
            },
        };
        events::journaled(self, &record);
        self.journal.add(record);
    }
}
