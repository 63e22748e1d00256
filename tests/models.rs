//! Tests that start no program: the simulation, the rules of the CRM's document, and the rules of
//! this codebase.

mod conformance;
mod simulation;
mod support {
    pub mod simulated_calls;
}
mod tidy;
