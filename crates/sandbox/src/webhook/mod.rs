//! Webhooks (§6): configurations, the outbox, its deliveries and their journal.
//!
//! ```text
//! a change is applied ─▶ happened ─▶ row per installation ─▶ claim (1 s cycle) ─▶ POST
//!                                      ▲   done, dead ◀── verdict ◀── its outcome ┘
//!                                      └── 30 s, 5 min, 30 min
//! ```
//! Events are made with their change and kept with it: what was lost is told to nobody (§6.1.1).
//!
//! | module | what lives there |
//! |---|---|
//! | [`event`] | what happened; the envelope and its blocks (§6.5–6.8) |
//! | `told` | who is told of what is done |
//! | `keys` | configurations and keys as they change |
//! | [`config`], [`target`] | configurations, keys, installations; where to (§2.7, §6.9.7) |
//! | [`outbox`] | recording, rows, dead rows, the journal of attempts (§6.1, §3.4) |
//! | [`dispatch`], [`verdict`] | the cycle, its limits, outcomes (§6.9, Limits) |
//! | [`attempts`] | the journal of attempts and the dead rows (§6.9.5, §3.4) |
//! | `admin`, [`post`] | what a person does in the CRM; the POSTs (§6.3) |

pub(super) mod admin;
pub mod attempts;
pub mod config;
pub mod dispatch;
pub mod event;
mod keys;
pub mod outbox;
pub mod post;
pub mod target;
pub(crate) mod told;
pub mod verdict;

pub use self::attempts::DeliveryId;
pub use self::config::{Config, Installation, SigningKey};
pub use self::dispatch::Dispatch;
pub use self::event::{CrmEvent, Recorded};
pub(crate) use self::keys::fresh_key;
pub use self::keys::{configure_webhook, webhook_connected};
pub use self::outbox::{DeliveryRow, Outbox};
pub use self::verdict::AttemptOutcome;
