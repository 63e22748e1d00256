//! Tests that the schema and the docs page match the code that reads messages.

use callbridge_formats::message::{MessageField, content_type, read};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(docs.join(name)).expect(name)
}

fn schema() -> Value {
    serde_json::from_str(&document("call-message.schema.json")).expect("JSON")
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    all.map(str::to_owned).collect()
}

#[test]
fn schema_fields_and_required_fields_match_reader() {
    let schema = schema();
    let properties = schema["properties"].as_object().expect("properties");
    let fields: Vec<&str> = MessageField::ALL.iter().map(|field| field.name()).collect();
    let described = names(properties.keys().map(String::as_str));
    assert_eq!(described, names(fields.iter().copied()));
    let required = schema["required"].as_array().expect("required").iter();
    let needed = fields.into_iter().filter(|field| {
        let mut message = schema["examples"][2].clone();
        (message["answered"], message["leadId"]) = (json!(false), json!(1));
        let left_out = message.as_object_mut().expect("an object");
        left_out.retain(|name, _| name != "talkSec" && name != field);
        read(message.to_string().as_bytes(), None).is_err()
    });
    assert_eq!(names(required.filter_map(Value::as_str)), names(needed));
    for (name, property) in properties {
        assert!(
            name == "version" || property["description"].is_string(),
            "{name}"
        );
    }
}

/// Returns `true` if the example can be read with this value in the field. The talk time may be
/// longer than the call here, because that's only checked when the call is judged.
fn is_read_with(example: &Value, field: &str, value: Value) -> bool {
    let mut message = example.clone();
    message[field] = value;
    read(message.to_string().as_bytes(), None).is_ok()
}

fn limit(schema: &Value, field: &str, key: &str) -> usize {
    let limit = schema["properties"][field][key].as_u64();
    usize::try_from(limit.expect(key)).expect("small")
}

fn variables(count: usize) -> Value {
    let all = (0..count).map(|n| (format!("V{n}"), json!("1")));
    Value::Object(all.collect())
}

#[test]
fn schema_limits_match_the_code() {
    let schema = schema();
    let example = &schema["examples"][0];
    for field in ["id", "extension"] {
        let max = limit(&schema, field, "maxLength");
        assert!(
            is_read_with(example, field, json!("1".repeat(max))),
            "{field}"
        );
        assert!(
            !is_read_with(example, field, json!("1".repeat(max + 1))),
            "{field}"
        );
    }
    let pattern = schema["properties"]["did"]["pattern"].as_str();
    assert_eq!(pattern, Some("^\\+?[0-9]{2,24}$"));
    for (text, is_read) in [("71", true), ("+71", true), ("7", false), ("+7", false)] {
        assert_eq!(is_read_with(example, "did", json!(text)), is_read, "{text}");
    }
    assert!(
        is_read_with(example, "did", json!("1".repeat(24)))
            && !is_read_with(example, "did", json!("1".repeat(25)))
    );
    for field in ["pbx", "trunk"] {
        assert!(
            is_read_with(example, field, json!("1".repeat(64)))
                && !is_read_with(example, field, json!("1".repeat(65)))
        );
    }
    for field in ["durationSec", "talkSec"] {
        let max = limit(&schema, field, "maximum");
        assert!(
            is_read_with(example, field, json!(max))
                && !is_read_with(example, field, json!(max + 1)),
            "{field}"
        );
    }
    for field in ["extensions", "userFields"] {
        let max = limit(&schema, field, "maxItems");
        assert!(
            is_read_with(example, field, json!(vec!["1"; max])),
            "{field}"
        );
        assert!(
            !is_read_with(example, field, json!(vec!["1"; max + 1])),
            "{field}"
        );
    }
    let max = limit(&schema, "variables", "maxProperties");
    assert!(
        is_read_with(example, "variables", variables(max))
            && !is_read_with(example, "variables", variables(max + 1))
    );
    // The code accepts null wherever the schema does.
    for field in MessageField::ALL {
        let property = &schema["properties"][field.name()];
        let types = property["type"].as_array();
        let takes_null = types.is_some_and(|types| types.contains(&json!("null")));
        let mut message = schema["examples"][2].clone();
        message["answered"] = json!(false);
        message["talkSec"] = json!(0);
        message[field.name()] = Value::Null;
        let reads = read(message.to_string().as_bytes(), None).is_ok();
        assert_eq!(reads, takes_null, "{field}");
    }
}

#[test]
fn every_example_of_the_schema_is_read() {
    let schema = schema();
    let examples = schema["examples"].as_array().expect("examples");
    assert!(examples.len() >= 3);
    for example in examples {
        read(example.to_string().as_bytes(), None).expect("an example");
    }
}

/// Checks the complete JSON objects on the page.
#[test]
fn page_examples_are_readable_and_table_lists_all_fields() {
    let page = document("call-message.md");
    let blocks = page.split("```json\n").skip(1);
    let blocks: Vec<&str> = blocks
        .filter_map(|block| block.split("```").next())
        .collect();
    assert!(blocks.len() >= 2, "{}", blocks.len());
    for block in blocks {
        read(block.as_bytes(), None).expect(block);
    }
    for field in MessageField::ALL {
        assert!(page.contains(&format!("\n| `{field}` |")), "{field}");
    }
    assert!(page.contains(&content_type()));
    assert!(page.contains("(call-message.schema.json)"));
}
