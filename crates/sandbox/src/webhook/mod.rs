//! Webhooks (§6): configurations, the outbox, its deliveries and their journal.
//!
//! ```text
//! a change is applied ─▶ happened ─▶ row per installation ─▶ claim (1 s cycle) ─▶ POST
//!                                      ▲   done, dead ◀── verdict ◀── its outcome ┘
//!                                      └── 30 s, 5 min, 30 min
//! ```
//! Events are stored together with their change. The event of a lost change is never sent (§6.1.1).
//!
//! | module | contents |
//! |---|---|
//! | [`event`] | events; the envelope and its blocks (§6.5–6.8) |
//! | `events` | the installations that get an event |
//! | [`config`] | configurations, keys, installations, allowed targets (§2.7, §6.9.7) |
//! | [`outbox`] | recording, rows, dead rows, the journal of attempts (§6.1, §3.4, §6.9.5) |
//! | [`dispatch`] | the cycle, its limits, outcomes (§6.9, Limits) |
//! | `admin`, [`post`] | what a person does in the CRM, with new keys; the POSTs (§6.3) |

pub(super) mod admin;
pub mod config;
pub mod dispatch;
pub mod event;
pub(super) mod events;
pub mod outbox;
pub mod post;

pub use self::admin::{configure_webhook, webhook_connected};
pub use self::config::{Config, Installation};
pub use self::dispatch::{AttemptOutcome, Dispatch};
pub use self::event::CrmEvent;
pub use self::outbox::DeliveryRow;
