//! Answers a dialplan's lookup of a caller while the phone rings (`--lookup`). It never delays a
//! call: a lookup that takes too long is answered with `no`.
//!
//! | module | contents |
//! |---|---|
//! | [`answer`] | a question and its answer; pure |
//! | [`harmless`] | removes what a dialplan could interpret from the CRM's texts; pure |
//! | [`network`] | the addresses that are allowed to ask |
//! | [`desk`] | the thread that looks up, its bounded queue, and its time limit |
//! | [`http`] | the listener |
//! | [`tally`] | counts of lookups by outcome |

pub mod answer;
pub mod desk;
pub mod harmless;
pub mod http;
pub mod network;
pub mod tally;
