//! OAuth of the document: applications, consent, tokens, and revocation (§3.1, §4.1, §4.2, §5.4,
//! §5.6, §7.6).
//!
//! ```text
//! consent page ─▶ code (10 minutes, once) ─▶ access token (an hour) + refresh token (30 days)
//!                                                          ▲            │
//!                                                          └── refresh ─┘  the old one ends
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | applications, connections, codes and refresh tokens |
//! | [`problem`] | the domain codes of §7.6 and their answers; form-encoded fields |
//! | `exchange` | the token and revoke endpoints |
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
