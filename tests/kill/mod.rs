//! Tests the real program, killed at each commit and with a disk that fails, is full, or
//! disappears. Also tests only the spool, killed while it writes.

mod disk;
mod fault;
mod folder;
pub use callbridge_testbed::mounts;
mod points;
mod scenario;
mod spool;
