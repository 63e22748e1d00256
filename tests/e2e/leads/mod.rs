//! Tests that each call gets the right lead and employee.

mod directory;
pub mod lead_fields;
mod lookup;
mod missed;
mod people;
