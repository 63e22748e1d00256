//! The CRM's Open API as a client sees it: requests as types, answers as one enum, and the thin
//! shell that carries bytes between them.
//!
//! ```text
//! Request ─▶ Client (one POST or GET, no redirect, no retry, capped body) ─▶ Heard { Answer }
//! ```
//! Only [`client`] touches the network. Nothing here decides what is sent when: that is the
//! sender's.
//!
//! | module | what lives there |
//! |---|---|
//! | [`address`] | where the CRM is, checked once |
//! | [`request`] | pure: endpoints and bodies |
//! | [`answer`] | pure: status and body to one enum; `envelope`, `lenient`: its body (§2.1) |
//! | [`client`] | the shell: one request out, its answer back |
//! | [`failure`] | why no answer came: nothing was sent, or it may have arrived |

pub mod address;
pub mod answer;
pub mod client;
mod envelope;
pub mod failure;
pub mod lenient;
pub mod request;

pub use address::{Address, AddressError};
pub use answer::{Answer, Expiry, Grant, Heard, Page, TokenInfo, read};
pub use client::{Client, Setup, Unheard};
pub use request::{Endpoint, FieldNames, FilterPage, LeadsPage, PageSize, Request};
