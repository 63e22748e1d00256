//! Tests of configurations, allowed targets, and signing keys of deliveries (§2.7, §6.4, §6.9.7).

use super::webhook_recording::{
    admin, configure, emit_event, install, lead_created, subscribed_sandbox,
};
use super::{NOW, now_plus, sandbox};
use crate::webhook::config::{is_private, is_private_name};
use crate::webhook::{Dispatch, dispatch};
use crate::{Request, Sandbox, webhook};
use serde_json::{Value, json};

/// Configures a webhook with the fields in `change`. Returns the error, or an empty text if the
/// sandbox accepts the configuration.
fn config_error(change: &Value) -> String {
    let mut core = sandbox();
    let mut body = json!({ "targetUrl": "https://hooks.example.com/", "events": ["LEAD"] });
    for (name, value) in change.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let answer = core.handle(NOW, &Request::post("/sandbox/admin/webhook", &body));
    match answer.status {
        200 => String::new(),
        400 => answer.value()["error"].as_str().expect("words").to_owned(),
        status => panic!("{status}"),
    }
}

fn target_of_length(length: usize) -> Value {
    let start = "https://hooks.example.com/";
    json!({ "targetUrl": format!("{start}{}", "x".repeat(length - start.len())) })
}

#[test]
fn target_url_must_be_https_short_and_public() {
    assert_eq!(config_error(&target_of_length(1024)), "");
    assert_eq!(config_error(&target_of_length(1025)), "targetUrl: LENGTH");
    for (target, reason) in [
        ("", "targetUrl: NOT_BLANK"),
        ("hooks", "targetUrl: NOT_A_URL"),
        ("http://hooks.example.com/", "targetUrl: target not HTTPS"),
        ("ftp://hooks.example.com/", "targetUrl: target not HTTPS"),
        (
            "https://localhost/",
            "targetUrl: target private or internal",
        ),
        (
            "https://127.0.0.1:8443/",
            "targetUrl: target private or internal",
        ),
        (
            "https://2130706433/",
            "targetUrl: target private or internal",
        ),
        ("https://0x7f.1/", "targetUrl: target private or internal"),
        ("https://[::1]/", "targetUrl: target private or internal"),
    ] {
        assert_eq!(
            config_error(&json!({ "targetUrl": target })),
            reason,
            "{target}"
        );
    }
}

#[test]
fn empty_or_unknown_event_list_is_refused() {
    assert_eq!(config_error(&json!({ "events": [] })), "events: NOT_EMPTY");
    assert_eq!(
        config_error(&json!({ "events": ["LEAD_SOLD"] })),
        "events: UNKNOWN_EVENT"
    );
    assert_eq!(
        config_error(&json!({ "events": ["CALL_COMPLETED", "LEAD_TASK"] })),
        ""
    );
    assert!(config_error(&json!({ "events": "LEAD" })).contains("expected a sequence"));
}

#[test]
fn documented_address_blocks_are_private_and_others_public() {
    let private = [
        "10.0.0.0",
        "10.255.255.255",
        "172.16.0.0",
        "172.31.255.255",
        "192.168.0.1",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.1.1",
        "0.0.0.0",
        "100.64.0.0",
        "100.127.255.255",
        "255.255.255.255",
        "224.0.0.1",
        "::",
        "::1",
        "fd00::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
    ];
    let public = [
        "9.255.255.255",
        "11.0.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "1.1.1.1",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::",
    ];
    for text in private {
        assert!(is_private(text.parse().expect("an address")), "{text}");
    }
    for text in public {
        assert!(!is_private(text.parse().expect("an address")), "{text}");
    }
    for name in [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "pbx.local",
        "x.y.internal",
        "a.localdomain",
        ".",
    ] {
        assert!(is_private_name(name), "{name}");
    }
    for name in [
        "example.com",
        "local.example.com",
        "internal-hooks.uz",
        "localhost.uz",
    ] {
        assert!(!is_private_name(name), "{name}");
    }
}

#[test]
fn webhook_secret_is_64_hex_and_shown_only_when_new() {
    let mut core = sandbox();
    let config = json!({ "targetUrl": "https://hooks.example.com/", "events": ["LEAD"] });
    let first = admin(&mut core, "webhook", &config)["webhookSecret"].clone();
    let text = first.as_str().expect("shown");
    assert_eq!(text.len(), 64, "{text}");
    assert!(
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{text}"
    );
    let again = admin(&mut core, "webhook", &json!({ "enabled": true }));
    assert_eq!(again.get("webhookSecret"), None);
    let seen = core
        .handle(NOW, &Request::get("/sandbox/webhooks"))
        .value()
        .to_string();
    assert!(!seen.contains(text));
    assert!(!format!("{core:?}").contains(text), "nor in a debug print");
    let other = admin(&mut core, "webhook", &json!({ "regenerateSecret": true }));
    assert_ne!(other["webhookSecret"], first);
    let own = admin(
        &mut core,
        "webhook/regenerate",
        &json!({ "installation": 7001 }),
    );
    assert!(own["webhookSecret"] != first && own["webhookSecret"] != other["webhookSecret"]);
}

/// Creates a lead at this second, and returns each installation with the signing key of the
/// delivery to it, sorted.
fn keys(core: &mut Sandbox, second: u64) -> Vec<(i64, String)> {
    emit_event(core, now_plus(second), lead_created(1));
    let mut keys: Vec<(i64, String)> = (dispatch::deliveries(core, now_plus(second)).iter())
        .map(|one| (one.id.installation, one.key.expose().to_owned()))
        .collect();
    keys.sort();
    keys
}

fn secret(answer: &Value) -> String {
    answer["webhookSecret"].as_str().expect("shown").to_owned()
}

#[test]
fn installation_secret_signs_and_application_secret_is_fallback() {
    let mut core = sandbox();
    let config = json!({ "targetUrl": "https://hooks.example.com/", "events": ["LEAD"] });
    let fallback = secret(&admin(&mut core, "webhook", &config));
    let other = install(&mut core, 1, 1);
    let own = secret(&admin(
        &mut core,
        "webhook/regenerate",
        &json!({ "installation": other }),
    ));
    assert_eq!(keys(&mut core, 0), [(7001, fallback), (other, own.clone())]);
    // The new key is used at once, and only by installations without their own key.
    let regenerated = secret(&admin(
        &mut core,
        "webhook",
        &json!({ "regenerateSecret": true }),
    ));
    assert_eq!(
        keys(&mut core, 1),
        [(7001, regenerated.clone()), (other, own)]
    );
    let newer = secret(&admin(
        &mut core,
        "webhook/regenerate",
        &json!({ "installation": other }),
    ));
    assert_eq!(
        keys(&mut core, 2),
        [(7001, regenerated.clone()), (other, newer)]
    );
    let installations = &mut core.webhooks.installations;
    installations.get_mut(&other).expect("installed").secret = None;
    assert_eq!(
        keys(&mut core, 3),
        [(7001, regenerated.clone()), (other, regenerated)]
    );
}

#[test]
fn retry_is_signed_with_the_key_valid_at_the_retry() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    emit_event(&mut core, NOW, lead_created(1));
    let first = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    super::webhook_dispatch::end_attempt(&mut core, NOW, &first, 503);
    let own = secret(&admin(
        &mut core,
        "webhook/regenerate",
        &json!({ "installation": 7001 }),
    ));
    let again = dispatch::deliveries(&mut core, now_plus(30))
        .pop()
        .expect("the retry");
    assert_eq!(
        (again.key.expose(), &again.body),
        (own.as_str(), &first.body)
    );
}

#[test]
fn consent_creates_webhook_key_only_with_configuration() {
    let mut core = sandbox();
    assert_eq!(
        webhook::webhook_connected(&mut core, 1, 9),
        None,
        "no configuration, no secret"
    );
    configure(&mut core, 9, &["LEAD"]);
    let key = webhook::webhook_connected(&mut core, 1, 9).expect("a secret");
    let id = core.webhooks.installed(1, 9).expect("installed");
    assert_eq!(keys(&mut core, 0), [(id, key.expose().to_owned())]);
    admin(&mut core, "webhook/revoke", &json!({ "installation": id }));
    assert_eq!(keys(&mut core, 1), []);
    webhook::webhook_connected(&mut core, 1, 9);
    let back = core.webhooks.installed(1, 9).expect("installed again");
    assert_ne!(back, id, "another connection, another number");
}

/// The expected signature is the output of
/// `printf '%s' '1795151400.BODY' | openssl dgst -sha256 -hmac SECRET`.
#[test]
fn webhook_headers_and_signature_match_document_and_openssl() {
    let mut core = subscribed_sandbox(&["LEAD"]);
    emit_event(&mut core, NOW, lead_created(1));
    let dispatch = dispatch::deliveries(&mut core, NOW).pop().expect("due");
    let dispatch = Dispatch {
        body: r#"{"eventId":"x"}"#.to_owned(),
        key: serde_json::from_value(json!(SECRET)).expect("a key"),
        ..dispatch
    };
    let headers = dispatch.headers(NOW.floor_seconds());
    let id = dispatch.id.event.to_string();
    let expected = [
        ("x-webhook-id", id.as_str()),
        ("x-webhook-installation-id", "7001"),
        ("x-webhook-timestamp", "1795151400"),
        ("x-webhook-signature", SIGNATURE),
    ];
    let given: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    assert_eq!(given, expected);
}

const SECRET: &str = "c268dc3ed4775a4d8ac119b6f63d35fc5a0d776981e059f9abcf8032e2151959";
const SIGNATURE: &str = "sha256=e76ef8dc7a490c0be4d2aeda9f3f15a501e3494a769b1bfcf41d2d3ecee46e17";
