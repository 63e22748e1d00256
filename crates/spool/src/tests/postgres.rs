//! The tests of both engines, on PostgreSQL.

use super::place::Engine;

pub const ENGINE: Engine = Engine::Postgres;

#[path = "suite.rs"]
pub mod suite;
