//! Events that the CRM sends to us (§6), as signed POSTs: proved, understood, kept.
//!
//! | module | what lives there |
//! |---|---|
//! | [`signature`] | the HMAC over a body (§6.4): made and proved |

pub mod signature;
