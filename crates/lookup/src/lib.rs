//! Looks up a caller for a dialplan while the phone rings (`--lookup`). This never delays a call,
//! because a lookup that takes too long results in `no`.
//!
//! | module | contents |
//! |---|---|
//! | [`answer`] | a query and its result, without I/O |
//! | [`harmless`] | removes what a dialplan could interpret from the CRM's texts, without I/O |
//! | [`network`] | the addresses that are allowed to query |
//! | [`desk`] | the lookup thread, its bounded queue, and its timeout |
//! | [`http`] | the listener |
//! | [`tally`] | counts of lookups by outcome |

pub mod answer;
pub mod desk;
pub mod harmless;
pub mod http;
pub mod network;
pub mod tally;
