//! The `callbridge` binary. Its code is in the library crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    callbridge::start()
}
