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
//! | [`protocol`] | the paths, headers, responses, and limits that both sides know |
//! | [`token`] | branch tokens, and how a token's branch is found |
//! | [`lines`] | reads a request's body, which has one call message per line |
//! | [`traps`] | recognizes bodies that hold calls, but not one per line in UTF-8 |
//! | [`limits`] | limits a branch's requests and bytes |
//! | [`tally`] | counts refusals by branch and reason |
//! | [`receiver`] | commits a branch's calls and reports, and creates the responses |
//! | [`status`] | a branch as it's shown |
//! | [`http`] | the `--collect` listener |
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
