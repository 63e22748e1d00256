//! Field values, which are parsed from typed text and formatted for `POST lead/:leadId/field/list`
//! (§2.4).

use super::FieldId;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};

/// Maximum length of a value in characters. The CRM's document doesn't specify a limit.
pub const VALUE_MAX: usize = 10_000;

/// Maximum number of items per request.
pub const ITEMS_MAX: usize = 100;

/// A field's value, in one of the request's forms (§2.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    Text(String),
    Number(Number),
    Flag(bool),
    /// All values of a multi-select field (`valueList`), which replace the current ones.
    List(Vec<String>),
    /// Clears the field.
    Null,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub id: FieldId,
    /// The field's value, or null to clear it.
    pub given: Given,
}

impl Item {
    /// Creates an item with a text value.
    pub const fn text(id: FieldId, text: String) -> Self {
        Self {
            id,
            given: Given::Text(text),
        }
    }

    /// Parses `ID=VALUE`, where the value is a literal text, `null` to clear the field, or a list
    /// (`[a,b]` or a JSON array). A text that looks like one of the latter is written as a JSON
    /// string (`"null"`). Also parses `ID:=JSON`, where the value is a number, `true`, `false`, a
    /// string, `null`, or a list of these, as JSON.
    ///
    /// # Errors
    /// Returns a message that shows the correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((id, value)) = text.split_once('=') else {
            return Err(format!("`{text}` is not ID=VALUE or ID:=JSON"));
        };
        let (id, read): (_, fn(&str) -> _) = match id.strip_suffix(':') {
            Some(id) => (id, parse_exact),
            None => (id, parse_given),
        };
        let id = FieldId::parse(id.trim()).ok_or_else(|| {
            format!("`{id}` is not a field id: use digits only, as in 11=VIP or 11:=5")
        })?;
        let parsed = if value.chars().count() > VALUE_MAX {
            Err(format!("is longer than {VALUE_MAX} characters"))
        } else {
            read(value)
        };
        let given = parsed.map_err(|why| format!("the value of {id} {why}"))?;
        Ok(Self { id, given })
    }

    /// Formats the item for the request (§2.4).
    pub fn to_json(&self) -> Value {
        let id = self.id.get();
        match &self.given {
            Given::Text(text) => json!({ "id": id, "value": text }),
            Given::Number(number) => json!({ "id": id, "value": number }),
            Given::Flag(flag) => json!({ "id": id, "value": flag }),
            Given::List(list) => json!({ "id": id, "valueList": list }),
            Given::Null => json!({ "id": id, "value": null }),
        }
    }
}

fn parse_given(text: &str) -> Result<Given, String> {
    if text.is_empty() {
        return Err("is empty: `null` clears the field".to_owned());
    }
    let bare = text.trim();
    if bare == "null" {
        return Ok(Given::Null);
    }
    if bare.starts_with('"') {
        return serde_json::from_str(bare)
            .map(Given::Text)
            .map_err(|_| "begins like a JSON string, but is not one".to_owned());
    }
    let Some(inner) = bare
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    else {
        return Ok(Given::Text(text.to_owned()));
    };
    if let Ok(list) = serde_json::from_str::<Vec<Value>>(bare) {
        return texts(list);
    }
    if inner.contains(['"', '[', '{']) {
        return Err("is neither [a,b] nor a JSON array".to_owned());
    }
    let entries: Vec<String> = inner
        .split(',')
        .map(|entry| entry.trim().to_owned())
        .collect();
    if entries.iter().any(String::is_empty) {
        return Err("has an empty entry in its list".to_owned());
    }
    Ok(Given::List(entries))
}

/// Parses a JSON value, which is a scalar, null, or a list of strings (§2.4).
fn parse_exact(text: &str) -> Result<Given, String> {
    let not_json = "is not JSON: after := give 5, true, \"text\", null or [\"a\",\"b\"]";
    let value = serde_json::from_str(text).map_err(|_| not_json)?;
    match value {
        Value::Null => Ok(Given::Null),
        Value::Bool(flag) => Ok(Given::Flag(flag)),
        Value::Number(number) if is_kept(&number, text) => Ok(Given::Number(number)),
        Value::Number(_) => {
            Err("has too many digits to be sent exactly: use = instead of :=".to_owned())
        }
        Value::String(text) => Ok(Given::Text(text)),
        Value::Array(list) => texts(list),
        Value::Object(_) => {
            Err("is an object: a field takes a scalar or a list of texts".to_owned())
        }
    }
}

/// Returns `true` for a number that will be sent exactly. A float reliably keeps 15 digits, so with
/// more than that, a different number would be sent.
fn is_kept(number: &Number, text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    !number.is_f64() || digits.skip_while(|digit| *digit == b'0').count() <= 15
}

/// Converts a list's values to texts (§2.4).
fn texts(list: Vec<Value>) -> Result<Given, String> {
    let texts = list.into_iter().map(|entry| match entry {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(entry.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err("has an entry in its list that is not a text".to_owned())
        }
    });
    texts.collect::<Result<_, _>>().map(Given::List)
}

/// Creates the request's body, which is either just the items or the items under the key given by
/// `--field-list-wrapper` (§4.4 doesn't show its form).
pub fn body(items: &[Item], wrapper: Option<&str>) -> Value {
    let list: Vec<Value> = items.iter().map(Item::to_json).collect();
    match wrapper {
        None => Value::Array(list),
        Some(key) => json!({ key: list }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a typed item's JSON, or its error.
    fn json_of(text: &str) -> String {
        match Item::parse(text) {
            Ok(item) => item.to_json().to_string(),
            Err(why) => why,
        }
    }

    #[test]
    fn typed_values_are_read_as_text_list_null_or_json() {
        let typed = [
            "11=VIP",
            "11= two words ",
            "11=5",
            "11=a=b",
            "11=null",
            "11=\"null\"",
            "12=[a, b]",
            "12=[\"a,b\",7,true]",
            "12=[]",
            "12=[a,]",
            "12=[\"a\",]",
            "12=[null]",
            "11=",
            "11=\"",
            "x=1",
            "11",
            "11:=5",
            "11:= -0.25",
            "11:=true",
            "11:=\"5\"",
            "11:=null",
            "12:=[\"a,b\",7]",
            "11:=VIP",
            "11:={}",
            "11:=12345678901234567890123",
            "11:",
            "x:=1",
        ];
        let all: Vec<String> = typed.into_iter().map(json_of).collect();
        insta::assert_snapshot!(all.join("\n"), @r#"
        {"id":11,"value":"VIP"}
        {"id":11,"value":" two words "}
        {"id":11,"value":"5"}
        {"id":11,"value":"a=b"}
        {"id":11,"value":null}
        {"id":11,"value":"null"}
        {"id":12,"valueList":["a","b"]}
        {"id":12,"valueList":["a,b","7","true"]}
        {"id":12,"valueList":[]}
        the value of 12 has an empty entry in its list
        the value of 12 is neither [a,b] nor a JSON array
        the value of 12 has an entry in its list that is not a text
        the value of 11 is empty: `null` clears the field
        the value of 11 begins like a JSON string, but is not one
        `x` is not a field id: use digits only, as in 11=VIP or 11:=5
        `11` is not ID=VALUE or ID:=JSON
        {"id":11,"value":5}
        {"id":11,"value":-0.25}
        {"id":11,"value":true}
        {"id":11,"value":"5"}
        {"id":11,"value":null}
        {"id":12,"valueList":["a,b","7"]}
        the value of 11 is not JSON: after := give 5, true, "text", null or ["a","b"]
        the value of 11 is an object: a field takes a scalar or a list of texts
        the value of 11 has too many digits to be sent exactly: use = instead of :=
        `11:` is not ID=VALUE or ID:=JSON
        `x` is not a field id: use digits only, as in 11=VIP or 11:=5
        "#);
    }

    #[test]
    fn command_items_of_any_version_are_understood_by_daemon() {
        callbridge_testkit::golden::keeps::<Vec<Item>>("lead-set-items");
    }

    #[test]
    fn body_is_a_list_or_an_object_with_the_given_key() {
        let items = [Item::text(FieldId(11), "x".to_owned())];
        assert_eq!(body(&items, None).to_string(), r#"[{"id":11,"value":"x"}]"#);
        assert_eq!(
            body(&items, Some("fields")).to_string(),
            r#"{"fields":[{"id":11,"value":"x"}]}"#
        );
    }
}
