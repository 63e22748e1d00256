//! Any events in any order.
#![no_main]

use callbridge_fuzz::script::Script;

libfuzzer_sys::fuzz_target!(|script: Script| script.play());
