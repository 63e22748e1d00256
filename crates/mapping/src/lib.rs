//! Maps a finished call to the values for the CRM's journal. The input is a call, the
//! administrator's flags, and the lead and employee lists. The output is a record, or the reason
//! why there is none.
//!
//! | module | contents |
//! |---|---|
//! | [`trunk`] | outside lines: their endpoints, numbers, leads, and employees |
//! | [`people`] | who numbers and extensions belong to, based on lists and rules |
//! | [`journal`] | maps a finished call to a record for the CRM, or to the reason why not |

pub mod journal;
pub mod people;
pub mod trunk;

pub use journal::{EmployeeChoice, RetryValues, Rules, judge};
pub use people::rule::LeadRule;
pub use people::{LeadAnswer, People};
pub use trunk::{Trunk, Trunks};
