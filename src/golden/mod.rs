//! Does this version read what released versions have stored, and write the same?
//!
//! `tests/golden` (here, and beside each crate that stores) holds one file for each shape that is
//! stored: columns of JSON in the spool, its small settings, files of the state folder. A file is
//! never changed: a shape that gains something gets another file (`NAME.2.json`), which is written
//! from then on, and all of them are read for ever.
//!
//! | module | what is held to its golden file by `callbridge_testkit::golden` |
//! |---|---|
//! | `shapes` | the shapes of this crate, those that are private beside their types |
//! | `words` | the words in columns, settings and JSON |

mod shapes;
mod words;
