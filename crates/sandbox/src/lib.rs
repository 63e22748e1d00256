//! A simulated CRM that follows the Open API document, for trials and tests. It answers requests,
//! and records each violation of the document by a client. It is stricter than the real CRM, and
//! never more lenient.
//!
//! The core ([`Sandbox`]) receives the time `now` with each request. [`start`] serves it over HTTP.
//!
//! | module | contents |
//! |---|---|
//! | [`envelope`], `body` | requests, answers, the two envelopes, the refusals; bodies (§2.1, §7) |
//! | [`token`] | tokens, grants, companies, the expiry warning (§2.2, §2.3, §3.1, §5) |
//! | [`window`] | the fixed window of a token (Limits) |
//! | [`routes`] | paths to endpoints (§4) |
//! | [`journal`], `writes` | accepted writes, their outcome, the records (§3.2, §4.6) |
//! | [`oauth`] | applications, consent, codes, refresh tokens (§4.1, §4.2, §5.6, §7.6) |
//! | [`violations`], [`client_rules`], `judge` | violations of the document by clients |
//! | [`faults`], [`shapes`] | errors of the CRM, and choices that the document leaves open |
//! | [`core`] | the state |
//! | `answer`, `endpoints` | the checks of a request; the endpoints of tokens and calls |
//! | [`webhook`] | events, deliveries, their journal (§6) |
//! | [`lead`] | leads and their endpoints (§4.4, §4.7) |
//! | [`admin`], `company` | changes that a person makes in the CRM |
//! | [`config`], [`options`] | settings; the flags of the command |
//! | [`server`], `shared`, `pairs` | the shell: clock, sockets, state file |

pub mod admin;
mod answer;
mod body;
pub mod client_rules;
mod company;
pub mod config;
pub mod core;
mod endpoints;
pub mod envelope;
pub mod error;
pub mod faults;
pub mod journal;
mod judge;
pub mod lead;
pub mod oauth;
pub mod options;
mod pairs;
pub mod routes;
pub mod server;
pub mod shapes;
mod shared;
pub mod token;
pub mod violations;
pub mod webhook;
pub mod window;
mod writes;

#[cfg(test)]
mod tests;

pub(crate) use self::body::{AdminAnswer, BodyFields, EPOCH_MIN};
pub(crate) use self::client_rules::{ClientRules, Refused};
pub use self::config::{Config, Settings};
pub(crate) use self::config::{DEFAULT_EMPLOYEES, DEFAULT_LEADS, FieldNames};
pub use self::core::Sandbox;
pub(crate) use self::envelope::{
    BODY_BYTES_MAX, FieldError, Refusal, RefusalReason, Success, TOKEN_HEADER,
};
pub use self::envelope::{Delivery, Request, Response, Role};
pub use self::error::Error;
pub use self::faults::{Action, Rule};
pub(crate) use self::faults::{Dice, Faults};
pub use self::journal::Record;
pub(crate) use self::journal::{Content, Journal, OPEN_API, STATUS_KEPT, Submission, WRITES_MAX};
pub(crate) use self::lead::catalog::{Catalog, DEFAULT_CONTACT, DEFAULT_LED, FieldType};
pub(crate) use self::lead::record::{Contact, FieldValues, Lead};
pub(crate) use self::lead::store::{FieldUpsert, Leads};
pub(crate) use self::oauth::problem::Problem;
pub(crate) use self::oauth::state::{
    Application, AuthorizationCode, CODE_LIFE, CompanyConnection, ConsentRequest,
    FIRST_APPLICATION, OAuthState, REFRESH_LIFE, Refresh, Used,
};
pub use self::options::{Options, run};
pub use self::routes::Endpoint;
pub use self::server::{Server, start, start_with};
pub(crate) use self::shapes::{CallId, Paging, Registered, Rows, Shapes, Treatment};
pub(crate) use self::shared::StateFile;
pub use self::shared::{SandboxClock, SharedSandbox, steady_clock};
pub(crate) use self::token::{
    ACCESS_SECONDS, CALL_READ, CALL_SAVE, Company, Grant, IdSet, PAT_SECONDS_MAX, Token, TokenKey,
    TokenKind,
};
pub(crate) use self::violations::Violations;
pub use self::violations::{Violation, ViolationKind};
pub(crate) use self::webhook::config::{Installation, SigningKey};
pub(crate) use self::webhook::dispatch::{AttemptOutcome, Dispatch};
pub(crate) use self::webhook::event::{CrmEvent, Recorded};
pub(crate) use self::webhook::outbox::{DeliveryId, Outbox};
pub(crate) use self::webhook::post::DeliveryClient;
pub(crate) use self::window::{Fullest, Rate, Windows};
pub(crate) use self::writes::Asked;
