//! Tests that stored values keep their shape.
//!
//! The folder `tests/golden` of this crate, and of each other crate that stores values, holds one
//! file for each stored shape: JSON columns and small settings in the spool, and files of the state
//! folder. A shape that changes needs a migration of the stored values, and a new golden file.
//!
//! | module | values that `callbridge_testkit::golden` compares with a golden file |
//! |---|---|
//! | `shapes` | public stored types; private types are compared next to their definition |
//! | `words` | the words in columns, settings, and JSON |

mod shapes;
mod words;
