//! From a finished call to what the journal says of it.

pub mod record;

pub use record::{CallRecord, CallUuid, EmployeeId, Judged, LeadId, Outcome, Phone, Reason};
