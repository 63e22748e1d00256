//! Maps a finished call to the values for the CRM's journal. The input is a call, the
//! administrator's flags, and the lists of leads and employees. The output is a record, or the
//! reason why there is none.
//!
//! | module | what it contains |
//! |---|---|
//! | [`trunk`] | outside lines: their endpoints, numbers, leads, and employees |
//! | [`people`] | the owners of numbers and extensions: lists and rules |
//! | [`journal`] | maps a finished call to a record for the CRM, or to a reason why not |

pub mod journal;
pub mod people;
pub mod trunk;

pub use journal::{EmployeeChoice, RetryValues, Rules, judge};
pub use people::rule::LeadRule;
pub use people::{LeadAnswer, People};
pub use trunk::{Trunk, Trunks};
