//! Tests with one row per rule of the document: the request, the expected answer, and the expected
//! violations of the client.

use super::{
    NOW, has_fields, keys, kinds, rules_of_clients, rules_of_errors, rules_of_reading,
    rules_of_submission, sandbox, submit,
};
use crate::{Request, Sandbox, ViolationKind};
use callbridge_call::EventTime;
use serde_json::Value;

/// Prepares a sandbox, and returns the time and the request that show the rule.
type Scene = Box<dyn Fn(&mut Sandbox) -> (EventTime, Request)>;

/// A rule of the document with its expected answer.
pub(super) struct Row {
    section: &'static str,
    rule: &'static str,
    scene: Scene,
    status: u16,
    body: Value,
    breaches: Vec<ViolationKind>,
}

/// Returns the test case of a rule that one request to a fresh sandbox shows.
pub(super) fn row(
    section: &'static str,
    rule: &'static str,
    request: Request,
    status: u16,
    body: Value,
) -> Row {
    scene(section, rule, move |_| (NOW, request.clone()), status, body)
}

/// Returns the test case of a rule that needs earlier requests or changes, which `scene` makes.
pub(super) fn scene(
    section: &'static str,
    rule: &'static str,
    scene: impl Fn(&mut Sandbox) -> (EventTime, Request) + 'static,
    status: u16,
    body: Value,
) -> Row {
    Row {
        section,
        rule,
        scene: Box::new(scene),
        status,
        body,
        breaches: Vec::new(),
    }
}

/// Returns the test case of a rule of §2.6: the submission `body` gets a 400 with the body
/// `expected`.
pub(super) fn refused_submission(rule: &'static str, body: &Value, expected: Value) -> Row {
    row("§2.6", rule, submit(body), 400, expected).violation(ViolationKind::Invalid)
}

impl Row {
    /// Adds an expected violation of the client.
    pub(super) fn violation(mut self, kind: ViolationKind) -> Self {
        self.breaches.push(kind);
        self
    }
}

const REDUCED: [&str; 4] = ["accept", "data", "errors", "message"];
const FULL: [&str; 6] = ["accept", "data", "error", "errors", "message", "requestId"];

#[test]
fn every_documented_rule_gets_its_documented_answer() {
    let rows: Vec<Row> = [rules_of_submission::rows(), rules_of_reading::rows()]
        .into_iter()
        .chain([rules_of_errors::rows(), rules_of_clients::rows()])
        .flatten()
        .collect();
    let mut wrong = Vec::new();
    for Row {
        section,
        rule,
        scene,
        status,
        body,
        breaches,
    } in &rows
    {
        let mut core = sandbox();
        let (now, request) = scene(&mut core);
        let before = kinds(&core).len();
        let answer = core.handle(now, &request);
        let (reply, held) = (answer.value(), kinds(&core)[before..].to_vec());
        let envelope = match answer.status {
            401 | 429 => keys(&answer) == REDUCED,
            _ => keys(&answer) == FULL && reply["accept"] == (answer.status == 200),
        };
        if answer.status != *status || !has_fields(&reply, body) || held != *breaches || !envelope {
            let got = answer.status;
            wrong.push(format!(
                "{section} {rule}: {got} {reply}, {held:?}; expected {status} {body}, {breaches:?}"
            ));
        }
    }
    println!("{} rules, {} broken", rows.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows.len() >= 100, "rules went missing: {}", rows.len());
}
