//! Checks that a call is forwarded only if the answer of the hub names the uuid of the call.
#![no_main]

use callbridge_hub::forward::core::{BatchCall, ForwardCore, Reply};
use callbridge_model::CallUuid;
use callbridge_spool::RowId;
use serde_json::Value;
use std::time::Duration;

const UUIDS: [&str; 2] = [
    "6f4b1f0a-52a1-5c8e-9a51-0d5f0c1e2a3b",
    "0c9a2f7e-1b7d-5e43-8f6a-77d1c5b0a9e2",
];

libfuzzer_sys::fuzz_target!(|answers: Vec<(u16, Vec<u8>)>| {
    let hubs = vec![
        "https://one.example".to_owned(),
        "https://two.example".to_owned(),
    ];
    let mut now = Duration::from_secs(1);
    let mut core = ForwardCore::new(hubs, None, 1, now);
    let batch = [0, 1].map(|at| BatchCall {
        row: RowId(i64::try_from(at).unwrap_or(0)),
        uuid: CallUuid(UUIDS[at].parse().expect("a uuid")),
    });
    for (status, body) in answers {
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let taken: Vec<CallUuid> = (answer["taken"].as_array().into_iter().flatten())
            .filter_map(|uuid| serde_json::from_value(uuid.clone()).ok())
            .collect();
        let reply = Reply::Answer {
            status,
            retry_after: None,
            body,
        };
        let outcome = core.calls_answered(now, &batch, reply);
        for row in outcome.forwarded {
            let call = batch
                .iter()
                .find(|call| call.row == row)
                .expect("a call of the batch");
            assert_eq!(status, 200);
            assert!(taken.contains(&call.uuid));
        }
        now += Duration::from_secs(120);
    }
});
