//! What the assembler tells beside finished calls.

/// Counts of what was ignored or set right since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblyCounts {
    /// Events told before in the same words, which changed nothing.
    pub doubled: u64,
    /// Events of calls that were finished already.
    pub late: u64,
    /// Event times put aside for the time of arrival, because they differed by more than 5 s.
    pub clock_clamped: u64,
    /// Events without a unique id.
    pub unidentified: u64,
    /// Facts beyond what one call may hold.
    pub facts_dropped: u64,
    /// Scraps of channels that were never seen to do anything: no call.
    pub ghosts: u64,
    /// Calls ended because they were open too long, or too many or too large ones were open.
    pub forced: u64,
    /// Calls among the `forced` ones that took more memory than there was for them.
    pub oversized: u64,
    /// CDRs of no call, or of one that is finished.
    pub cdr_unmatched: u64,
}
