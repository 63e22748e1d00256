//! What a row of the journal shows of its call, where it shows more than the uuid. The rows are
//! not published (§4.7): a field is read where its name is the one of the submission (§2.6) or of
//! the webhook (§6.8), and its value of the right kind; else it is not known.

use callbridge_call::Direction;
use callbridge_model::CallUuid;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A row of the journal, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCall {
    /// The call's uuid, without the prefix `oapi-`.
    pub uuid: CallUuid,
    /// `leadId`, or `leadIds`; none where the row says nothing of leads.
    pub leads: Vec<i64>,
    /// `durationSec`: length of the call in seconds.
    pub duration_sec: Option<i64>,
    /// `answered`; `None` where the row does not say.
    pub answered: Option<bool>,
    /// `direction`; `None` where the row does not say.
    pub direction: Option<Direction>,
}

impl ShownCall {
    /// Reads the object that a uuid stands in.
    pub(super) fn read(uuid: CallUuid, row: &Map<String, Value>) -> Self {
        let one = row.get("leadId").and_then(whole);
        let many = row.get("leadIds").and_then(Value::as_array);
        let many = many.into_iter().flatten().filter_map(whole);
        Self {
            uuid,
            leads: one.into_iter().chain(many).collect(),
            duration_sec: row.get("durationSec").and_then(whole),
            answered: row.get("answered").and_then(Value::as_bool),
            direction: row.get("direction").and_then(direction),
        }
    }
}

/// A number that is whole: a fraction would be of another unit.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn direction(value: &Value) -> Option<Direction> {
    let word = value.as_str()?.trim();
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    match () {
        () if is("INBOUND") => Some(Direction::Inbound),
        () if is("OUTBOUND") => Some(Direction::Outbound),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiReply, Endpoint, read};
    use serde_json::json;

    const ID: &str = "5f0c2f54-6f2e-5a8b-9d7e-0c4b6f5c1a11";

    /// What a page of this one row shows.
    fn shown(row: &Value) -> Vec<ShownCall> {
        let body = json!({"data": {"list": [row]}}).to_string();
        match read(Endpoint::Filter, 200, body.as_bytes()).answer {
            Ok(ApiReply::Page(page)) => page.shown,
            other => panic!("no page: {other:?}"),
        }
    }

    #[test]
    fn a_row_is_read_as_far_as_it_says_something_of_its_call() {
        let uuid = CallUuid(uuid::Uuid::try_parse(ID).expect("a uuid"));
        let whole = ShownCall {
            uuid,
            leads: vec![4001],
            duration_sec: Some(61),
            answered: Some(true),
            direction: Some(Direction::Inbound),
        };
        let plain = json!({"uuid": format!("oapi-{ID}"), "leadId": 4001, "durationSec": 61,
            "answered": true, "direction": "INBOUND"});
        assert_eq!(shown(&plain), std::slice::from_ref(&whole));
        assert_eq!(shown(&json!({"id": 7, "call": plain})), [whole]);
        // What is of another kind than it should be says nothing.
        let odd = json!({"uuid": ID, "leadId": {"id": 1}, "durationSec": 61.5,
            "answered": "yes", "direction": "BOTH"});
        assert_eq!(shown(&odd), [ShownCall::read(uuid, &Map::new())]);
        let leads = shown(&json!({"uuid": ID, "leadIds": [4001, "4002", null]}));
        assert_eq!(leads[0].leads, [4001, 4002]);
    }
}
