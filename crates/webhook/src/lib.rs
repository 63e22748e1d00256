//! Receives events of the CRM (§6), which arrive as signed POSTs: verifies, parses, and stores
//! them.
//!
//! | module | contents |
//! |---|---|
//! | [`headers`] | the four headers of a delivery (§6.3) |
//! | [`keyring`] | the secrets that can verify a delivery |
//! | [`installations`] | whose deliveries were verified, for those that no secret matches |
//! | [`event`] | the JSON of an event (§6.5 to §6.8), as far as callbridge uses it |
//! | [`lead`] | changes of a lead in an event, for the directory |
//! | [`verify`] | all checks: whether a delivery is stored, dropped, or refused |
//! | [`secrets`], [`tls`] | the files of secrets and of the certificate, with reload |
//! | [`receiver`] | verifies, stores, and answers a delivery |
//! | [`http`] | the limits of a connection: path, head, a body within the budget |
//! | [`tally`] | counts of results, for `status` and metrics |
//!
//! The answer decides what the CRM does (§6.9). A 2xx ends a delivery, a 503 repeats it after 30 s,
//! 5 min, and 30 min, and a 4xx loses it forever. Therefore a 4xx is only for requests that the CRM
//! did not send, and a delivery that we cannot check or store gets a 503.
//!
//! | answer | when |
//! |---|---|
//! | 200 | stored, known already, or verified and not for us |
//! | 400 | no header of a delivery at all; verified, but not an event |
//! | 401 | headers that are not the CRM's; no secret matches, and it isn't for us |
//! | 404, 405, 413 | another path, another method, a body that is too large |
//! | 408 | a body that is not complete in time |
//! | 503 | no secret, or none matches, but it could be ours; company unknown; our clock wrong; |
//! | | no disk, time, room; stale time |
//!
//! A stale time is a valid signature whose time is more than five minutes off. The 503 is a choice:
//! a delivery is signed when it is sent (§6.3), so a delayed delivery comes back with a new time,
//! and a wrong clock can be set meanwhile. A replayed delivery keeps its time and is never
//! accepted. With a 401, a delayed event would be lost.

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
