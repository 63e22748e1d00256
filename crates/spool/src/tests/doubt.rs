//! Tests that stored values other than calls are treated as missing if they can't be read, and
//! don't hold up anything.

use super::call::{T0, ask, journal, time_at};
use crate::{Op, Settings, tables};
use callbridge_testkit::Wait as _;

const TEXTS: [&str; 4] = ["", "{\"of\": \"another version\"}", "7 x 8 9", "[1"];

/// Every key with a structured value, under the name that its module uses.
const KEYS: [&str; 5] = [
    "lead_requests.memory",
    "lead_field.catalog",
    "directory.backfill",
    "webhook.pace",
    "lead_field.floor",
];

fn settings() -> Settings {
    Settings {
        lead_directory: Some(callbridge_leads::directory::backfill::ReadLeads {
            country: None,
            every: std::time::Duration::from_secs(60),
        }),
        ..Settings::default()
    }
}

#[test]
fn unreadable_stored_memory_is_reset_at_the_next_start() {
    for text in TEXTS {
        let place = super::place();
        let (handle, guard) = place.open(settings());
        let remember = KEYS.map(|key| Op::Meta {
            key: key.to_owned(),
            value: text.to_owned(),
        });
        let mut ops = remember.to_vec();
        ops.push(Op::Finish(Box::new(journal(3))));
        handle.write(ops).wait().expect("stored");
        guard.close();
        let (handle, _guard) = place.open(settings());
        let read = handle
            .read(|store| {
                let head = tables::work_queue::head(store, &ask(time_at(500)))?;
                let floor = tables::meta::meta(store, "lead_field.floor")?;
                let others = KEYS[..4].iter().map(|key| tables::meta::meta(store, key));
                let others = others.collect::<Result<Vec<_>, _>>()?;
                Ok((head, floor, others, tables::meta::memory(store)?))
            })
            .wait();
        let (head, floor, others, memory) = read.expect("readable");
        assert_eq!((head.ready, head.webhook_pace), (1, None), "{text}");
        let newest = (T0 + 3).to_string();
        assert_eq!(floor.as_deref(), Some(newest.as_str()), "{text}: in doubt");
        assert_eq!(others, [const { None }; 4], "{text}");
        assert_eq!(memory, Default::default(), "{text}");
    }
}
