//! A client of the CRM's Open API. It has a type for each request, and a reply or an error for each
//! answer. It sends one request at a time.
//!
//! ```text
//! Request ─▶ Client (one POST or GET, no redirect, no retry, capped body) ─▶ ApiReply or ApiError
//! ```
//! Only [`client`] uses the network. The sender decides when each request is sent.
//!
//! | module | content |
//! |---|---|
//! | [`address`] | the checked address of the CRM, and the settings to reach it |
//! | [`request`] | endpoints and bodies, without side effects |
//! | [`answer`] | the reply or the error of an answer; `envelope`, `lenient`: its body (§2.1) |
//! | [`https`] | HTTP clients that send each request once, and messages for their errors |
//! | `in_time` | the latest time at which a request can be written |
//! | [`client`] | sends one request, and returns its answer, or why there is none |

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
