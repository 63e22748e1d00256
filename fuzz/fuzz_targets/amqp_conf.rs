//! Any text as FreeSWITCH's `amqp.conf.xml`.
#![no_main]

use callbridge_freeswitch::amqp_conf::judge;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for finding in judge(text) {
        assert!(!finding.about.is_empty() && !finding.what.is_empty());
    }
});
