//! The command line: one binary, `callbridge`. All of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    callbridge::start()
}
