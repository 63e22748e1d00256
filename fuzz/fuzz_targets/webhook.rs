//! Checks any headers and body as a webhook delivery, without a signature and with a correct one.
#![no_main]

use callbridge_call::EventTime;
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use callbridge_webhook::headers::{Headers, ID, INSTALLATION, Refusal, SIGNATURE, TIMESTAMP};
use callbridge_webhook::keyring::Keyring;
use callbridge_webhook::verify::{Verified, VerifyContext, judge};

const NOW: i64 = 1_795_151_317;

fn judge_delivery(keyring: &Keyring, headers: &Headers, body: &[u8]) -> Result<Verified, Refusal> {
    let context = VerifyContext {
        now: EventTime::from_seconds(NOW),
        right_from: EventTime::from_seconds(0),
        country: None,
        could_be_ours: true,
    };
    let mut proof = keyring.begin(headers);
    proof.add(body);
    judge(headers, body, proof, context)
}

libfuzzer_sys::fuzz_target!(|input: ([Vec<u8>; 4], Vec<u8>)| {
    let (values, body) = input;
    let key = Key::new(&Secret::from("secret"));
    let keyring = Keyring {
        application: vec![key.clone()],
        ..Keyring::default()
    };
    let names = [ID, INSTALLATION, TIMESTAMP, SIGNATURE];
    let given = names.into_iter().zip(values.iter().map(Vec::as_slice));
    if let Ok(headers) = Headers::read(given) {
        // The key of 256 bits cannot be guessed.
        assert!(judge_delivery(&keyring, &headers, &body).is_err());
    }
    let (timestamp, signature) = (NOW.to_string(), key.sign(&NOW.to_string(), &body));
    let signed = [
        (ID, "e"),
        (INSTALLATION, "9"),
        (TIMESTAMP, &timestamp),
        (SIGNATURE, &signature),
    ];
    let signed = signed.map(|(name, value)| (name, value.as_bytes()));
    let headers = Headers::read(signed).expect("whole");
    if let Ok(Verified::Keep { delivery, .. }) = judge_delivery(&keyring, &headers, &body) {
        assert_eq!((&*delivery.event, &*delivery.installation), ("e", "9"));
    }
});
