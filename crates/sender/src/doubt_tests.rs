//! What was remembered and cannot be read is in doubt.

use super::tests::{at, print, stored};
use crate::core::Core;
use crate::plan::{Decision, Known, Settings};
use callbridge_model::Now;
use callbridge_spool::WorkQueue;

/// A rollback, a renamed word, a torn text: 60 requests may have left just now.
#[test]
fn unreadable_memory_starts_silence_that_survives_restart() {
    let known = |memory: &str| Known {
        boot_id: Some("now".to_owned()),
        memory: Some(memory.to_owned()),
        ..Known::default()
    };
    let silent = |memory: &str, now: Now| {
        let (mut core, ops) = Core::start(Settings::default(), known(memory), now);
        core.token(Some(print()));
        let until = match core.next(now, &WorkQueue::default()) {
            Decision::WaitUntil(until) => Some(until),
            _ => None,
        };
        (until, stored(&ops), core.doubts.clone())
    };
    let (_, ops) = Core::start(Settings::default(), Known::default(), at(0));
    let whole = stored(&ops).expect("remembered");
    let (until, unchanged, doubts) = silent(&whole, at(0));
    assert_eq!((until, unchanged, doubts), (None, None, Vec::new()));
    let torn = &whole[..whole.len() / 2];
    let renamed = whole.replace("\"silence\"", "\"quiet\"");
    let longest = r#"{"boot_id": "now", "until": {"secs": 18446744073709551615, "nanos": 0}}"#;
    let absurd = whole.replace("\"silence\":null", &format!("\"silence\":{longest}"));
    for (memory, in_words) in [(torn, true), (&renamed, true), (&absurd, false)] {
        let (until, memory, doubts) = silent(memory, at(0));
        assert!(until.is_some_and(|it| it >= at(65).boot && it < at(66).boot));
        assert_eq!(!doubts.is_empty(), in_words);
        let (again, _, doubts) = silent(&memory.expect("stored anew"), at(10));
        assert_eq!((again, doubts), (until, Vec::new()));
    }
}
