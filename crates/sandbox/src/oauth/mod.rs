//! OAuth of the document: applications, consent, tokens and their ends (§3.1, §4.1, §4.2, §5.4,
//! §5.6, §7.6).
//!
//! ```text
//! consent page ─▶ code (10 minutes, once) ─▶ access token (an hour) + refresh token (30 days)
//!                                                          ▲            │
//!                                                          └── refresh ─┘  the used one is over
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`application`] | applications and their connections to companies |
//! | [`state`] | codes and refresh tokens, and what each change makes of them |
//! | [`problem`] | the domain codes of §7.6 and how they are seen |
//! | [`form`] | form-encoded fields, each at most once |
//! | `endpoints`, `exchange` | the token and the revoke endpoint |
//! | `consent`, `page` | the authorization page: its checks, its HTML |
//! | `connection` | what a person does: disconnect, narrow, suspend, revoke, rotate |
//! | `misplaced` | tokens and secrets where they must not be |
//! | `admin`, [`options`] | paths below `/sandbox`; the flags of one application |

mod admin;
pub mod application;
pub mod connection;
pub(crate) mod consent;
pub(crate) mod endpoints;
pub(crate) mod exchange;
pub mod form;
mod misplaced;
pub mod options;
mod page;
pub mod problem;
pub mod state;

pub use self::application::{Application, CompanyConnection};
pub use self::options::ApplicationOptions;
pub use self::problem::{Code, Problem};
pub use self::state::OAuthState;

pub(super) use self::admin::{administer, look};
pub(super) use self::consent::PATH as CONSENT_PATH;
pub(super) use self::misplaced::judge_api;
