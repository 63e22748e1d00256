//! Events that the CRM sends to us (§6), as signed POSTs: proved, understood, kept.
//!
//! | module | what lives there |
//! |---|---|
//! | [`headers`] | the four headers of a delivery (§6.3) |
//! | [`keyring`] | which secret may prove a delivery |
//! | [`event`] | the JSON of an event (§6.5 to §6.8), as far as it concerns us |
//! | [`lead`] | what it tells of a lead, for the directory |
//! | [`verify`] | all of these at once: what is to become of a delivery, and what is answered |
//! | [`secrets`], [`tls`] | the files of secrets and of the certificate, watched |
//! | [`receiver`] | a delivery judged, kept and answered |
//! | [`http`] | what may come on a connection: path, head, a body within the budget |
//! | [`tally`] | what came of it, for `status` and metrics |
//!
//! What is answered decides what the service does (§6.9): 2xx ends a delivery, 503 brings it back
//! after 30 s, 5 min and 30 min, 4xx loses it for ever. So 4xx is only for what the service has
//! not sent, and whatever we cannot judge or keep is 503.
//!
//! | answer | when |
//! |---|---|
//! | 200 | kept, known already, or proved and not for us |
//! | 400 | no header of a delivery at all; proved, but no event |
//! | 401 | none of the secrets made the signature; headers that no delivery has |
//! | 404, 405, 413 | another path, another method, a body too long |
//! | 408 | a body that does not come to its end |
//! | 503 | no secret, no company yet, a wrong clock of our own; no disk, time, room; a stale time |
//!
//! The last is a choice: a right signature whose time is more than five minutes off. A delivery is
//! signed when it is sent (§6.3), so one that was held up on the way comes back with a new time,
//! and if a clock is wrong there is time to set it; a replayed one stays as it is and is never
//! accepted. With 401 a held-up event would be lost.

pub mod event;
pub mod headers;
pub mod http;
pub mod keyring;
pub mod lead;
pub mod receiver;
pub mod secrets;
pub mod tally;
pub mod tls;
pub mod verify;
