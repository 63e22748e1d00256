//! The tests of both engines, on SQLite.

use super::place::Engine;

pub const ENGINE: Engine = Engine::Sqlite;

#[path = "suite.rs"]
pub mod suite;
