//! Root in a state folder of another user's: it becomes that user, and nothing that he has planted
//! there leads anywhere or holds a command up. Needs root, and says so where it is not.
//!
//! | module | its question |
//! |---|---|
//! | `planted` | links and FIFOs in the place of every file, and of the folder |
//! | `service` | the service's own folder serves root's commands, where it can reach it |
//! | `shared` | folders that others may write, secrets that all can read |

mod planted;
mod service;
mod shared;
mod stage;
