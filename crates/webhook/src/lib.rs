//! Receives the CRM's events (§6), which arrive as signed POST requests, and verifies, parses, and
//! stores them.
//!
//! | module | contents |
//! |---|---|
//! | [`headers`] | a delivery's four headers (§6.3) |
//! | [`keyring`] | the secrets that may verify a delivery |
//! | [`installations`] | whose deliveries have been verified, for those that no secret matches |
//! | [`event`] | an event's JSON (§6.5 to §6.8), as far as callbridge uses it |
//! | [`lead`] | the changes to a lead in an event, for the directory |
//! | [`verify`] | all checks, which decide whether a delivery is stored, dropped, or rejected |
//! | [`secrets`], [`tls`] | the files with secrets and the certificate, which are reloaded |
//! | [`receiver`] | verifies and stores a delivery, and responds to it |
//! | [`http`] | a connection's limits on the path, the headers, and the body within the budget |
//! | [`tally`] | counts of results, for `status` and metrics |
//!
//! The response determines what the CRM does (§6.9). A 2xx ends a delivery, a 503 makes the CRM
//! retry it after 30 s, 5 min, and 30 min, and a 4xx loses it forever. That's why only requests
//! that the CRM didn't send get a 4xx, and a delivery that we can't verify or store gets a 503.
//!
//! | response | when |
//! |---|---|
//! | 200 | stored, already known, or verified but not for us |
//! | 400 | none of a delivery's headers; verified, but not an event |
//! | 401 | headers that aren't the CRM's; no secret matches, and it isn't for us |
//! | 404, 405, 413 | unknown path, unsupported method, a body that's too large |
//! | 408 | a body that doesn't arrive in time |
//! | 503 | no secret, or none matches, but it may be ours; unknown company; our clock is wrong; |
//! | | no disk space, time, or memory; stale timestamp |
//!
//! A stale timestamp is one that's off by more than five minutes even though the signature is
//! valid. We chose 503 for it, because deliveries are signed when they're sent (§6.3), so a delayed
//! delivery comes back with a new timestamp, and a wrong clock may have been set in the meantime. A
//! replayed delivery keeps its timestamp and is never accepted. With a 401, a delayed event would
//! be lost.

pub mod event;
pub mod headers;
pub mod http;
pub mod installations;
pub mod keyring;
pub mod lead;
pub mod receiver;
pub mod secrets;
pub mod tally;
pub mod tls;
pub mod verify;
