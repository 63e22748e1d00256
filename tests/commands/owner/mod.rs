//! Tests root with the state folder of another user: root gets an error, and nothing in the folder
//! is opened. These tests need root. Without root, each test prints that it did not run.
//!
//! | module | tests |
//! |---|---|
//! | `planted` | root does not follow links, FIFOs, and sockets in that folder |
//! | `refused` | the command that the error names works |
//! | `shared` | folders that other users can write, and secrets that all users can read |

mod planted;
mod refused;
mod shared;
mod stage;
