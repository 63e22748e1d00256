//! The state of the sandbox and the changes it can undergo. No clock, no socket, no file: the
//! same settings, changes and moments give the same state.

use super::client_rules::ClientRules;
use super::config::Settings;
use super::faults::{Dice, Faults, Rule};
use super::journal::{Journal, PendingWrite, Record};
use super::lead::{LeadChange, Leads};
use super::oauth::{self, OAuthState};
use super::routes::Endpoint;
use super::token::{Company, Token, TokenKey};
use super::violations::{Violation, Violations};
use super::window::{Fullest, Rate, Windows};
use crate::webhook::outbox::{Outbox, WebhookChange};
use callbridge_call::{EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A change of what outlives a restart: a line of the state file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A new PAT; the one before is revoked (§3.1).
    Issued {
        /// Its fingerprint.
        token: TokenKey,
        /// What is known of it.
        record: Token,
    },
    /// A token no longer works.
    Revoked {
        /// Its fingerprint.
        token: TokenKey,
    },
    /// Its expiry date was moved.
    Expires {
        /// Its fingerprint.
        token: TokenKey,
        /// `None`: never.
        at: Option<EpochSeconds>,
    },
    /// A start with this company in the flags.
    Started(Box<Company>),
    /// A company with its connection, as it now is.
    Company(Box<Company>),
    /// A request was counted in the window of its token.
    Counted {
        /// The token's fingerprint.
        token: TokenKey,
    },
    /// A write was accepted.
    Accepted(Box<PendingWrite>),
    /// A record that came another way.
    Added(Box<Record>),
    /// A person deleted a record.
    Deleted {
        /// Whose journal.
        company: i64,
        /// As it was sent, without the prefix.
        uuid: String,
    },
    /// A person changed a record: it is this one now.
    Edited(Box<Record>),
    /// Something about leads.
    Lead(LeadChange),
    /// The clock stands so many seconds ahead of the machine's.
    Ahead(u64),
    /// A client broke the document.
    Broken(Violation),
    /// Something about webhooks.
    Webhook(Box<WebhookChange>),
    /// Something of OAuth: applications, connections, codes, refresh tokens.
    Oauth(Box<oauth::OAuthChange>),
}

/// A change and its moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// When.
    pub at: EventTime,
    /// What.
    pub change: Change,
}

/// The CRM of the document.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub(super) settings: Settings,
    pub(super) companies: BTreeMap<i64, Company>,
    pub(super) tokens: BTreeMap<TokenKey, Token>,
    pub(super) journal: Journal,
    pub(super) webhooks: Outbox,
    pub(super) leads: Leads,
    pub(super) faults: Faults,
    pub(super) dice: Dice,
    pub(super) flags: Option<Company>,
    pub(super) oauth: OAuthState,
    pub(super) client: ClientWatch,
    pub(super) log: ChangeLog,
}

/// What is watched of the clients: how much they ask, and what they do against the document.
#[derive(Clone, Debug)]
pub(super) struct ClientWatch {
    pub(super) windows: Windows,
    pub(super) violations: Violations,
    pub(super) rules: ClientRules,
    /// Answers given, by endpoint and status.
    pub(super) counts: BTreeMap<(Endpoint, u16), u64>,
}

impl ClientWatch {
    fn new(rate: Rate) -> Self {
        Self {
            windows: Windows::new(rate),
            violations: Violations::default(),
            rules: ClientRules::default(),
            counts: BTreeMap::new(),
        }
    }
}

/// The changes there were, for the state file.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeLog {
    /// So many were made, those before a restart included.
    pub(super) made: u64,
    /// So far the clock stands ahead of the machine's.
    pub(super) ahead: Duration,
    /// Those that nobody has taken yet.
    pub(super) untaken: Vec<Logged>,
}

impl Sandbox {
    /// One company without a token: every request gives 401 until one is issued.
    pub fn new(settings: Settings) -> Self {
        let company = settings.company.clone();
        Self {
            companies: BTreeMap::from([(company.id, company)]),
            tokens: BTreeMap::new(),
            journal: Journal::default(),
            webhooks: Outbox::default(),
            leads: Leads::default(),
            faults: Faults::new(Vec::new(), settings.seed),
            dice: Dice::new(settings.seed),
            flags: None,
            oauth: OAuthState::default(),
            client: ClientWatch::new(settings.rate),
            log: ChangeLog::default(),
            settings,
        }
    }

    /// The sandbox's moment when the machine's clock says `clock`.
    pub fn moment(&self, clock: EventTime) -> EventTime {
        clock.plus(self.log.ahead)
    }

    /// How far the clock was moved ahead.
    pub const fn ahead(&self) -> Duration {
        self.log.ahead
    }

    /// The changes since the last call; empty unless [`Settings::keep_log`].
    pub fn take_log(&mut self) -> Vec<Logged> {
        std::mem::take(&mut self.log.untaken)
    }

    /// The journal's records, in the order they were written.
    pub fn records(&self) -> &[Record] {
        self.journal.records()
    }

    /// Writes and their status.
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What clients did against the document.
    pub const fn violations(&self) -> &Violations {
        &self.client.violations
    }

    /// Applications, connections and their tokens.
    pub const fn oauth(&self) -> &OAuthState {
        &self.oauth
    }

    /// Configurations, installations and deliveries of webhooks.
    pub const fn webhooks(&self) -> &Outbox {
        &self.webhooks
    }

    /// The fullest window and span.
    pub const fn fullest(&self) -> Fullest {
        self.client.windows.fullest()
    }

    /// Answers given, by endpoint and status.
    pub const fn counts(&self) -> &BTreeMap<(Endpoint, u16), u64> {
        &self.client.counts
    }

    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings, to be changed while it runs; the rate and the company are not read again.
    pub const fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The faults, to be changed while it runs.
    pub const fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Puts these faults in the place of the others.
    pub fn set_faults(&mut self, rules: Vec<Rule>) {
        self.faults = Faults::new(rules, self.settings.seed);
    }
}
