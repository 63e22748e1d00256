//! Rows for the table that `tests/run benches` prints at its end.

/// Prints a row: the name, the figure, the target if there is one, and the figure of a simpler
/// reference in the same run.
pub fn row(bench: &str, what: &str, measured: &str, to_reach: &str, reference: &str) {
    println!("| {bench:<9} | {what:<44} | {measured:>26} | {to_reach:>14} | {reference} |");
}
