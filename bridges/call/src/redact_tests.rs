use super::*;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::json;

const SECRET: &str = "svc pat/1+\"é\\~?>";

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn secret_in_each_encoding_is_replaced() {
    let redactor = Redactor::new([SECRET]);
    let form = "svc+pat%2F1%2B%22%C3%A9%5C%7E%3F%3E";
    let path = "svc%20pat/1+%22%c3%a9%5c~%3f%3e";
    let json = r#"svc pat\/1+\"\u00e9\\~?>"#;
    for encoded in [SECRET, form, path, json, &percent_encoded(SECRET)] {
        let text = format!("token={encoded}&more");
        assert_eq!(redactor.redact(&text), "token=[redacted]&more", "{text}");
    }
}

#[test]
fn base64_text_with_a_secret_is_replaced_as_a_whole() {
    let redactor = Redactor::new([SECRET]);
    for user in ["", "a:", "ab:", "svc_app_1:"] {
        let credentials = format!("{user}{SECRET}");
        for after in ["", "x", "xy"] {
            let bytes = format!("{credentials}{after}");
            let standard = STANDARD.encode(&bytes);
            let encoded = [
                URL_SAFE.encode(&bytes),
                URL_SAFE_NO_PAD.encode(&bytes),
                percent_encoded(&standard),
                standard.replace('/', "%2f").replace('=', "%3d"),
                standard,
            ];
            for encoded in encoded {
                let text = format!("got Basic {encoded}, refused");
                let shown = redactor.redact(&text);
                assert_eq!(shown, "got Basic [redacted], refused", "{text}");
            }
        }
    }
}

#[test]
fn longer_secret_is_redacted_before_its_prefix() {
    let redactor = Redactor::new(["svc_1234", "svc_123456"]);
    let shown = redactor.redact("svc_123456 svc_1234svc_1234 svc_123");
    assert_eq!(shown, "[redacted] [redacted][redacted] svc_123");
}

#[test]
fn text_without_a_secret_is_kept() {
    let redactor = Redactor::new(["", "abc", "svc_1234"]);
    for text in ["", "abc", "50% off + \\u00e9 %zz %", "svc_", "Токен\\"] {
        assert_eq!(redactor.redact(text), text);
    }
    assert!(!format!("{redactor:?}").contains("svc_1234"));
}

#[test]
fn json_strings_and_keys_are_redacted() {
    let redactor = Redactor::new(["svc_1234"]);
    let mut answer = json!({
        "message": "no svc_1234", "errors": [{"svc_1234": "svc%5F1234", "size": 7}], "data": null,
    });
    redactor.redact_json(&mut answer);
    let shown = json!({
        "message": "no [redacted]", "errors": [{"[redacted]": "[redacted]", "size": 7}],
        "data": null,
    });
    assert_eq!(answer, shown);
}

proptest! {
    #[test]
    fn secret_in_any_text_is_redacted_without_panic(
        before in ".{0,20}",
        secret in "[a-z+/%\\\\ é\"]{4,12}",
        after in ".{0,20}",
    ) {
        let redactor = Redactor::new([secret.as_str()]);
        for hidden in [secret.clone(), percent_encoded(&secret)] {
            let shown = redactor.redact(&format!("{before}{hidden}{after}"));
            prop_assert!(shown.contains(REDACTED));
            // A secret may be part of the text that replaces it.
            prop_assert!(!shown.split(REDACTED).any(|part| part.contains(&hidden)));
        }
    }
}
