//! The rows that `tests/run benches` puts into one table at its end.

/// Prints a row: what was measured, its figure, the figure to reach if there is one, and what the
/// same run measured of something plainer.
pub fn row(bench: &str, what: &str, measured: &str, to_reach: &str, reference: &str) {
    println!("| {bench:<9} | {what:<44} | {measured:>26} | {to_reach:>14} | {reference} |");
}
