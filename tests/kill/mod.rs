//! The promise under hardship: the real program killed at each commit, on a disk that fails, is
//! full or goes away; and the spool alone killed while it writes.

mod disk;
mod fault;
mod folder;
pub use callbridge_testbed::mounts;
mod points;
mod scenario;
mod spool;
