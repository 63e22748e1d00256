//! The state of the sandbox. It has no clock, sockets, or files: the same settings, requests, and
//! times give the same state.

use crate::{
    ClientRules, Company, Dice, Endpoint, Faults, Fullest, Journal, Leads, OAuthState, Outbox,
    Record, Rule, Settings, Token, TokenKey, Violation, ViolationKind, Violations, Windows,
};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x27d4_e0b1_9c35_4f68_8a1e_64f0_b3c9_517d);

/// The simulated CRM. Its JSON is the state file, which outlives a restart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sandbox {
    #[serde(skip)]
    /// The current settings. They can change at run time, except the rate and the company, which
    /// are copied at the start.
    pub settings: Settings,
    pub(super) companies: BTreeMap<i64, Company>,
    pub(super) tokens: BTreeMap<TokenKey, Token>,
    /// Writes and their status, and the records.
    pub journal: Journal,
    /// Configurations, installations and deliveries of webhooks.
    pub webhooks: Outbox,
    pub(super) leads: Leads,
    #[serde(skip)]
    /// The current fault rules. They can change at run time.
    pub faults: Faults,
    #[serde(skip)]
    pub(super) dice: Dice,
    /// The time of the current request or change.
    #[serde(skip)]
    pub(super) now: EventTime,
    /// The company as the flags of the last start described it. A difference shows that the flags
    /// have changed.
    pub(super) flags: Option<Company>,
    /// Applications, connections and their tokens.
    pub oauth: OAuthState,
    pub(super) client: ClientWatch,
    /// Number of tokens, codes, and keys made so far. The number is part of each new value, so no
    /// value repeats.
    pub(super) minted: u64,
    /// How far the sandbox's clock is ahead of the machine's.
    pub(super) ahead: Duration,
}

/// Records about the clients: their request windows, and their violations of the document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClientWatch {
    pub(super) windows: Windows,
    pub(super) violations: Violations,
    #[serde(skip)]
    pub(super) rules: ClientRules,
    /// Number of answers by endpoint and status.
    #[serde(skip)]
    pub(super) counts: BTreeMap<(Endpoint, u16), u64>,
}

impl Sandbox {
    /// Creates a sandbox with one company and no token. Every request gives 401 until a token is
    /// issued.
    pub fn new(settings: Settings) -> Self {
        let mut core = Self::default();
        let company = settings.company.clone();
        core.companies.insert(company.id, company);
        core.with_settings(settings)
    }

    /// Restores a sandbox from the JSON `state` of an earlier run. Applies `settings` instead of
    /// the settings of that run.
    ///
    /// # Errors
    /// The text is not a valid state.
    pub fn restore(state: &[u8], settings: Settings) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(state).map(|core: Self| core.with_settings(settings))
    }

    fn with_settings(mut self, settings: Settings) -> Self {
        self.faults = Faults::new(Vec::new(), settings.seed);
        self.dice = Dice::new(settings.seed);
        self.client.windows.rate = settings.rate;
        self.settings = settings;
        self
    }

    /// Converts a time of the machine's clock to the sandbox's time, which can be ahead.
    pub fn moment(&self, clock: EventTime) -> EventTime {
        clock.plus(self.ahead)
    }

    /// Returns the journal's records, in the order they were written.
    pub fn records(&self) -> &[Record] {
        &self.journal.records
    }

    /// Returns the violations of the document by clients, oldest first.
    pub const fn violations(&self) -> &Violations {
        &self.client.violations
    }

    /// Returns the largest numbers of requests of one token in one window, so far.
    pub const fn fullest(&self) -> Fullest {
        self.client.windows.fullest
    }

    /// Number of answers by endpoint and status.
    pub const fn counts(&self) -> &BTreeMap<(Endpoint, u16), u64> {
        &self.client.counts
    }

    /// Replaces all fault rules.
    pub fn set_faults(&mut self, rules: Vec<Rule>) {
        self.faults = Faults::new(rules, self.settings.seed);
    }

    pub(super) fn record_violation(
        &mut self,
        kind: ViolationKind,
        rule: &str,
        message: impl Into<String>,
    ) {
        self.client.violations.push(Violation {
            at: self.now,
            kind,
            rule: rule.to_owned(),
            words: message.into(),
        });
    }

    /// Makes a new token or code: the prefix `begins` and 32 hexadecimal digits. The same settings
    /// give the same sequence of values. Each start of the command adds a new salt, so no one can
    /// predict the values.
    pub(super) fn mint(&mut self, begins: &str) -> String {
        // The counter is in the state file, so it survives a restart and no value repeats.
        self.minted += 1;
        let Settings { seed, salt, .. } = &self.settings;
        let name = format!("{seed}\n{salt}\n{}\n{begins}", self.minted);
        let digits = uuid::Uuid::new_v5(&NAMESPACE, name.as_bytes());
        format!("{begins}{}", digits.simple())
    }

    /// Makes a new signing key: 64 lowercase hexadecimal digits (§4.1.1, §6.4.5).
    pub(super) fn mint_key(&mut self) -> String {
        self.mint("") + &self.mint("")
    }
}
