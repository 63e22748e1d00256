//! The command line: one binary, `callbridge`.
fn main() {}
