//! Who calls, answered to a dialplan while it rings (`--lookup`). It never holds a call up: what
//! cannot be answered in time is answered `no`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`answer`] | a question, and what is answered to it; pure |
//! | [`harmless`] | what of the CRM's texts may reach a dialplan; pure |
//! | [`network`] | who may ask, by address |
//! | [`desk`] | the thread that looks up, its bounded queue and its time |
//! | [`http`] | the listener |
//! | [`tally`] | lookups, counted by what became of them |

pub mod answer;
pub mod desk;
pub mod harmless;
pub mod http;
pub mod network;
pub mod tally;
