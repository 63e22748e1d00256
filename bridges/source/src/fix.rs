//! Who can mend an error.

/// Whose hand mends an error; `check` makes its exit code of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The other side, or the way there: it may pass by itself (sysexits 69).
    Remote,
    /// A secret or a right (77).
    Secret,
    /// Flags or files of ours (78).
    Settings,
}
