//! What would be journaled of a recording, and why.

use crate::cli::command::Explain;
use crate::cli::{Code, Environment, Failure};

/// `explain`
pub fn run(_explain: &Explain, _environment: &Environment) -> Result<(), Failure> {
    Err(Failure::new(Code::Failed, "this build has no `explain`"))
}
