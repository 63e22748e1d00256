//! A client for the CRM's Open API. It has a type for each request and a reply or an error for each
//! response, and sends one request at a time.
//!
//! ```text
//! Request ─▶ Client (one POST or GET, no redirect, no retry, capped body) ─▶ ApiReply or ApiError
//! ```
//! Only [`client`] uses the network. When each request is sent is up to the sender.
//!
//! | module | contents |
//! |---|---|
//! | [`address`] | the CRM's checked URL, and the settings for reaching it |
//! | [`request`] | endpoints and bodies, without side effects |
//! | [`answer`] | the reply or error in a response; `envelope`, `lenient`: its body (§2.1) |
//! | [`https`] | HTTP clients that send each request once, and messages for their errors |
//! | `in_time` | the latest time at which a request may be written |
//! | [`client`] | sends one request, and returns its response, or why there is none |

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
