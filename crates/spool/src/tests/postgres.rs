//! The tests that run on both engines, with PostgreSQL.

use super::place::Engine;

pub const ENGINE: Engine = Engine::Postgres;

#[path = "suite.rs"]
pub mod suite;
