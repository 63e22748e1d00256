//! Receives calls over HTTPS. A collector next to each PBX sends its calls to a hub, which sends
//! them to the CRM.
//!
//! ```text
//! collector: spool ─▶ forward ── POST /v1/calls ──▶ http ─▶ receiver ─▶ spool :hub
//! ```
//!
//! The hub responds after its commit. The collector keeps a call `ready` until the hub's response
//! lists the call's uuid. `docs/hub.md` describes both sides.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | paths, headers, answers, and limits that both sides know |
//! | [`token`] | tokens of branches, and the branch of a token |
//! | [`lines`] | the body of a request: one call message per line |
//! | [`traps`] | bodies that are calls, but not one per line in UTF-8 |
//! | [`limits`] | requests and bytes of a branch in a minute |
//! | [`tally`] | refusals by branch and reason |
//! | [`receiver`] | calls and reports of a branch, committed and answered |
//! | [`status`] | a branch, as it is shown |
//! | [`http`] | the listener of `--collect` |
//! | [`forward`] | the collector: a pure core, the client, and the loop around them |

pub mod forward;
pub mod http;
pub mod limits;
pub mod lines;
pub mod protocol;
pub mod receiver;
pub mod status;
pub mod tally;
pub mod token;
pub mod traps;
