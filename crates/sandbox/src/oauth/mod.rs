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
//! | [`state`] | applications, connections, codes and refresh tokens |
//! | [`problem`] | the domain codes of §7.6 and how they are seen; form-encoded fields |
//! | `exchange` | the token and the revoke endpoint |
//! | `consent` | the authorization page: its checks, its HTML |
//! | [`connection`] | what a person does: disconnect, narrow, suspend, revoke, rotate |
//! | `admin` | paths below `/sandbox` |

pub(super) mod admin;
pub mod connection;
pub(super) mod consent;
pub(super) mod exchange;
pub mod problem;
pub mod state;

pub use self::state::Application;
