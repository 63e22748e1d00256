//! Tests that what is stored keeps its shape.
//!
//! `tests/golden` (here, and beside each crate that stores) holds one file for each stored shape:
//! columns of JSON in the spool, its small settings, and files of the state folder. A shape that
//! changes needs a migration of the stored values, and a new golden file.
//!
//! | module | what is compared with its golden file by `callbridge_testkit::golden` |
//! |---|---|
//! | `shapes` | the shapes of this crate; private ones are compared beside their types |
//! | `words` | the words in columns, settings, and JSON |

mod shapes;
mod words;
