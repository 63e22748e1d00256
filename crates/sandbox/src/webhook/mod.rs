//! Webhooks (§6): configurations, the outbox, its deliveries and their journal.
//!
//! ```text
//! a change is applied ─▶ happened ─▶ row per installation ─▶ claim (1 s cycle) ─▶ POST
//!                                      ▲   done, dead ◀── verdict ◀── its outcome ┘
//!                                      └── 30 s, 5 min, 30 min
//! ```
//! Events are made while a change is applied and are logged with it alone: a change played again
//! makes its events again, and a change that was lost makes none (§6.1.1).
//!
//! | module | what lives there |
//! |---|---|
//! | [`event`] | what happened; the envelope and its blocks (§6.5–6.8) |
//! | [`config`], [`target`] | configurations, keys, installations; where to (§2.7, §6.9.7) |
//! | [`outbox`] | recording, rows, dead rows, the journal of attempts (§6.1, §3.4) |
//! | [`dispatch`], [`breaker`], [`verdict`] | the cycle, its limits, outcomes (§6.9, Limits) |
//! | [`attempts`] | the journal of attempts and the dead rows (§6.9.5, §3.4) |
//! | `admin`, [`post`] | what a person does in the CRM; the POSTs (§6.3) |
//! | [`shapes`] | what the document leaves open |

pub(super) mod admin;
pub mod attempts;
pub mod breaker;
pub mod config;
pub mod dispatch;
pub mod event;
pub mod outbox;
pub mod post;
pub mod shapes;
pub mod target;
pub mod verdict;

pub use self::attempts::{DeliveryId, Tried};
pub use self::config::{Config, Installation, SigningKey};
pub use self::dispatch::Dispatch;
pub use self::event::{CrmEvent, Recorded};
pub use self::outbox::{DeliveryRow, Outbox};
pub use self::shapes::Shapes;
pub use self::verdict::{AttemptOutcome, NextStep};

use super::core::{self, Sandbox};
use super::journal::Record;
use super::lead::catalogue::employee_name;
use super::lead::{Contact, Lead};
use crate::lead::act;
use crate::token_gen;
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What the state file keeps of webhooks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookChange {
    /// A configuration was made or changed.
    Configured {
        /// Whose.
        application: i64,
        /// As it now is.
        config: Config,
    },
    /// A configuration was deleted.
    Deleted {
        /// Whose.
        application: i64,
    },
    /// A company installed an application.
    Installed {
        /// Its id.
        installation: i64,
        /// As it is.
        record: Installation,
    },
    /// An installation has another key, or none of its own.
    Secret {
        /// Which.
        installation: i64,
        /// The key.
        secret: Option<SigningKey>,
    },
    /// An installation was revoked.
    Revoked {
        /// Which.
        installation: i64,
    },
    /// A delivery was tried.
    Attempted {
        /// Which.
        id: DeliveryId,
        /// How it ended.
        tried: Tried,
        /// Where its row goes.
        next: NextStep,
    },
    /// A delivery is dead without an attempt.
    Died {
        /// Which.
        id: DeliveryId,
        /// Why, for people.
        why: String,
    },
    /// An event by order, of an earlier state file: nothing is done.
    Happened(serde_json::Value),
}

/// Revoked, or its company disconnected the application.
pub(crate) fn is_gone(sandbox: &Sandbox, own: &Installation) -> bool {
    let company = sandbox.companies.get(&own.company);
    let left = company
        .is_none_or(|company| company.application_id == own.application && company.disconnected);
    own.revoked || left
}

/// Records an event for whoever is subscribed now (§6.1). Only to be called while a change is
/// applied or falls due: it is not logged itself, and the change played again makes the same
/// event again.
pub(super) fn happened(sandbox: &mut Sandbox, at: EventTime, company: i64, event: CrmEvent) {
    let own = sandbox.webhooks.installations().iter();
    let subscribers: Vec<i64> = own
        .filter(|(_, own)| own.company == company && !is_gone(sandbox, own))
        .filter(|(_, own)| {
            let config = sandbox.webhooks.config(own.application);
            config.is_some_and(|config| config.subscribes(&event))
        })
        .map(|(id, _)| *id)
        .collect();
    let Sandbox {
        webhooks, settings, ..
    } = sandbox;
    webhooks.happened(at, company, event, &subscribers, settings);
}

/// Tells of the records written since the journal held `before` of them.
pub(super) fn journaled(sandbox: &mut Sandbox, before: usize) {
    let told: Vec<(EventTime, i64, CrmEvent)> = (sandbox.journal.records().iter())
        .skip(before)
        .map(|record| {
            let lead = act::find_lead(sandbox, record.company_id, record.call.lead_id);
            let event = completed(record, lead.as_ref());
            (record.registered_at, record.company_id, event)
        })
        .collect();
    for (at, company, event) in told {
        happened(sandbox, at, company, event);
    }
}

/// Sets an application's configuration, whatever §2.7 says of it; an application-level key is
/// made with the first one (shown then alone), and with `regenerate`.
pub fn configure_webhook(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: i64,
    config: Config,
    regenerate: bool,
) -> Option<SigningKey> {
    let earlier = sandbox.webhooks.config(application);
    let fresh = (earlier.is_none() || regenerate).then(|| fresh_key(sandbox));
    let kept = sandbox
        .webhooks
        .config(application)
        .and_then(|config| config.secret.clone());
    let secret = fresh.clone().or(kept);
    let config = Config { secret, ..config };
    webhook_change(
        sandbox,
        now,
        WebhookChange::Configured {
            application,
            config,
        },
    );
    fresh
}

/// A company consented to an application: its installation has a new key, which the token
/// response shows once (§4.1.1 `webhook_secret`). `None`: the application has no configuration.
pub fn webhook_connected(
    sandbox: &mut Sandbox,
    now: EventTime,
    company: i64,
    application: i64,
) -> Option<SigningKey> {
    let secret = (sandbox.webhooks.config(application).is_some()).then(|| fresh_key(sandbox));
    let change = match (sandbox.webhooks.installed(company, application), &secret) {
        (Some(_), None) => return None,
        (Some(installation), Some(_)) => WebhookChange::Secret {
            installation,
            secret: secret.clone(),
        },
        (None, _) => WebhookChange::Installed {
            installation: sandbox.webhooks.next_installation(),
            record: Installation {
                company,
                application,
                secret: secret.clone(),
                revoked: false,
            },
        },
    };
    webhook_change(sandbox, now, change);
    secret
}

/// The connection ended: its deliveries stop (§3.1, §6.1.6).
pub fn webhook_disconnected(sandbox: &mut Sandbox, now: EventTime, company: i64, application: i64) {
    if let Some(installation) = sandbox.webhooks.installed(company, application) {
        webhook_change(sandbox, now, WebhookChange::Revoked { installation });
    }
}

pub(super) fn fresh_key(sandbox: &Sandbox) -> SigningKey {
    SigningKey::new(token_gen::mint_key(sandbox, "webhook"))
}

pub(super) fn webhook_change(sandbox: &mut Sandbox, now: EventTime, change: WebhookChange) {
    sandbox.change(now, core::Change::Webhook(Box::new(change)));
}

/// The conversation of a journal's record (§6.8); its contact is the lead's with that number.
fn completed(record: &Record, lead: Option<&Lead>) -> CrmEvent {
    let call = &record.call;
    let holds = |contact: &&Contact| {
        let phone = call.client_phone.as_ref();
        phone.is_some_and(|phone| contact.phones.contains(phone))
    };
    let contact = lead.and_then(|lead| lead.contacts.iter().find(holds));
    // §6.8: real talk time is an answer as well.
    let answered = call.answered || call.talk_time_sec.is_some_and(|talk| talk > 0);
    CrmEvent::of_call(json!({
        "callId": record.uuid, "provider": record.provider, "conversationKind": "CALL",
        "direction": call.direction, "answered": answered, "startedAt": call.started_at,
        "endedAt": record.ended_at, "durationSec": call.duration_sec,
        "talkTimeSec": call.talk_time_sec, "hangupCause": record.hangup_cause,
        "clientPhone": call.client_phone, "operatorExtension": null,
        "employeeId": call.employee_id, "employeeName": call.employee_id.map(employee_name),
        "contactId": contact.map(|contact| contact.id),
        "contactName": contact.map(|contact| &contact.name), "leadIds": [call.lead_id],
    }))
}
