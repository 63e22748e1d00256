//! Passes any events in any order to the assembler.
#![no_main]

use callbridge_fuzz::script::Script;

libfuzzer_sys::fuzz_target!(|script: Script| script.play());
