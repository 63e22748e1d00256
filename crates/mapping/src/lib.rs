//! From a finished call to what the journal says of it. In come a call, what the administrator's
//! flags say and who is who; out goes a record, or the reason why there is none.
//!
//! | module | what lives there |
//! |---|---|
//! | [`trunk`] | lines to the outside: their endpoints, numbers, leads, employees |
//! | [`people`] | whom a number and an extension belong to: lists and rules |
//! | [`journal`] | a finished call to a record for the CRM, or the reason why not |

pub mod journal;
pub mod people;
pub mod trunk;

pub use journal::{EmployeeChoice, RetryValues, Rules, judge};
pub use people::rule::LeadRule;
pub use people::{LeadAnswer, People};
pub use trunk::{Trunk, Trunks};
