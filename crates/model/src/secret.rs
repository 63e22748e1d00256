//! Secrets cannot be printed: tokens and passwords live in [`Secret`]. Nor are they written down
//! with the rest of the memory when the program crashes.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
pub use secrecy::{ExposeSecret, SecretString as Secret};

/// Returns `true` for text that may be a token: visible ASCII, as headers carry it, and not empty.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Forbids core dumps of this process, and debuggers of anybody but root; called before the first
/// secret is read. Where the system refuses that, it goes on without.
pub fn forbid_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    // What takes dumps over a pipe is not bound by the limit, though most keep to it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
