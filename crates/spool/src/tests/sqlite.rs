//! The tests that run on both engines, with SQLite.

use super::place::Engine;

pub const ENGINE: Engine = Engine::Sqlite;

#[path = "suite.rs"]
pub mod suite;
