//! The CRM's Open API as a client sees it: requests as types, a reply or an error for each, and
//! the thin shell that carries bytes between them.
//!
//! ```text
//! Request ─▶ Client (one POST or GET, no redirect, no retry, capped body) ─▶ ApiReply or ApiError
//! ```
//! Only [`client`] touches the network. Nothing here decides what is sent when: that is the
//! sender's.
//!
//! | module | what lives there |
//! |---|---|
//! | [`address`] | where the CRM is, checked once, and how it is reached |
//! | [`request`] | pure: endpoints and bodies |
//! | [`answer`] | pure: a reply or an error of an answer; `envelope`, `lenient`: its body (§2.1) |
//! | [`https`] | clients that send each request once, and texts for their errors |
//! | `in_time` | the latest moment at which a request may be written |
//! | [`client`] | the shell: one request out, its answer back, or why there is none |

pub mod address;
pub mod answer;
pub mod client;
mod envelope;
pub mod https;
mod in_time;
pub mod lenient;
pub mod request;

pub use address::{Address, AddressError, Setup, Timeouts};
pub use answer::{ApiError, ApiReply, ApiResponse, ApiResult, WriteStatus, read, read_redacted};
pub use client::{Client, Unanswered};
pub use envelope::{FailureWord, Page, ShownCall, TokenInfo, is_own};
pub use request::{Endpoint, FieldNames, FilterPage, LeadsPage, PageSize, Request};
