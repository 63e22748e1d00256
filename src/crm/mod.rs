//! The CRM's Open API as a client sees it: requests as types, answers as one enum, and the thin
//! shell that carries bytes between them.
//!
//! ```text
//! Request ─▶ Client (one POST or GET, no redirect, no retry, capped body) ─▶ Heard { Answer }
//! ```
//! [`request`] and [`answer`] are pure; only [`client`] touches the network. Nothing here decides
//! what is sent when: that is the sender's.

pub mod address;
pub mod answer;
pub mod client;
mod envelope;
pub mod failure;
pub mod request;

pub use address::{Address, AddressError};
pub use answer::{Answer, Expiry, Grant, Heard, Page, TokenInfo, read};
pub use client::{Client, Setup};
pub use request::{Endpoint, FieldNames, FilterPage, PageSize, Request};
