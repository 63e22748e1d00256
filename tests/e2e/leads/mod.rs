//! Tests that calls find their lead and employee.

mod directory;
pub mod lead_fields;
mod lookup;
mod missed;
mod people;
