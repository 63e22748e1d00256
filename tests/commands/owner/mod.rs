//! Root and the state folder of another user: root gets an error, and nothing in the folder is
//! opened. These tests need root. Without root, each says that it did not run.
//!
//! | module | its question |
//! |---|---|
//! | `planted` | do links, FIFOs, and sockets in that folder lead root anywhere? |
//! | `refused` | which command does the error name, and does it work? |
//! | `shared` | folders that others may write, secrets that all can read |

mod planted;
mod refused;
mod shared;
mod stage;
