//! Checks any text as FreeSWITCH's `amqp.conf.xml` and `json_cdr.conf.xml`.
#![no_main]

use callbridge_freeswitch::module_conf::{judge_amqp, judge_json_cdr};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for finding in [judge_amqp(text), judge_json_cdr(text)].concat() {
        assert!(!finding.about.is_empty() && !finding.message.is_empty());
    }
});
