//! The CRM of the tests, and the checks of the requests that it received.

use crate::support::program::TOKEN;
use callbridge_call::EpochSeconds;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::token::IdSet;
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Record, Server, Violation, ViolationKind};
pub use callbridge_testbed::expected::Expected;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The rate of the sandbox. It is smaller than a real one, so windows fill and end during a test.
pub const RATE: Rate = Rate {
    requests: 60,
    window: Duration::from_secs(2),
};
/// [`RATE`] as a flag of callbridge.
pub const RATE_FLAG: &str = "--rate=60/2s";

/// Settings of a sandbox that knows the leads and employees of the recordings and journals calls
/// soon.
pub fn settings() -> sandbox::Config {
    let mut config = sandbox::Config {
        token: TOKEN.into(),
        ..sandbox::Config::default()
    };
    config.settings.rate = RATE;
    config.settings.persist_after = Duration::from_millis(300);
    config.settings.persist_jitter = Duration::from_millis(100);
    config.settings.company.leads = IdSet::parse("4001-4009").expect("ids");
    config
}

pub async fn start() -> Server {
    sandbox::start(settings()).await.expect("a sandbox")
}

/// Starts a sandbox whose token expires in 300 days. Also returns the time when it expires, in
/// seconds since the epoch.
pub async fn start_expiring() -> (Server, i64) {
    let days = 300 * 86_400;
    let expires_at = callbridge_model::clock::now().wall.floor_seconds().get() + days;
    let config = sandbox::Config {
        expires_at: Some(EpochSeconds::new(expires_at)),
        ..settings()
    };
    let server = sandbox::start(config).await.expect("a sandbox");
    (server, expires_at)
}

/// Returns the fields in which a record differs from the expected call.
fn differences(wanted: &Expected, record: &Record) -> Vec<String> {
    let call = &record.call;
    let mut all = Vec::new();
    for (what, wants, has) in [
        (
            "leadId",
            format!("{:?}", wanted.lead),
            format!("{:?}", Some(call.lead_id)),
        ),
        (
            "employeeId",
            format!("{:?}", wanted.employee),
            format!("{:?}", call.employee_id),
        ),
        (
            "direction",
            wanted.direction.clone(),
            call.direction.clone(),
        ),
        (
            "answered",
            wanted.answered.to_string(),
            call.answered.to_string(),
        ),
        (
            "startedAt",
            wanted.started_at.to_string(),
            call.started_at.to_string(),
        ),
        (
            "clientPhone",
            "None".to_owned(),
            format!("{:?}", call.client_phone),
        ),
        (
            "other fields",
            "{}".to_owned(),
            Value::from(call.others.clone()).to_string(),
        ),
    ] {
        if wants != has {
            all.push(format!("{what}: {has} instead of {wants}"));
        }
    }
    let talk = call.talk_time_sec.unwrap_or(-9);
    for (what, wants, has) in [
        ("durationSec", wanted.duration, call.duration_sec),
        ("talkTimeSec", wanted.talk, talk),
    ] {
        if (wants - has as f64).abs() > 1.0 {
            all.push(format!("{what}: {has} instead of {wants}"));
        }
    }
    all
}

/// Returns all errors in the journal and in the dead letters.
pub fn compare(crm: &Server, letters: &[Value], expected: &[Expected]) -> Vec<String> {
    let journal = crm.journal();
    let mut records: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut wrong = Vec::new();
    for record in &journal {
        if records.insert(&record.call.uuid, record).is_some() {
            wrong.push(format!("{} is there twice", record.call.uuid));
        }
    }
    let mut letters: BTreeMap<&str, &str> = letters
        .iter()
        .map(|letter| {
            let linkedid = letter["linkedid"].as_str().expect("text");
            let reason = letter["reason"].as_str().expect("text");
            (linkedid, reason)
        })
        .collect();
    for call in expected {
        let record = records.remove(call.uuid.as_str());
        let letter = letters.remove(call.linkedid.as_str());
        let differences = match (record, letter, call.reason.as_deref()) {
            (Some(record), None, None) => differences(call, record),
            (None, Some(has), Some(wants)) if has == wants => Vec::new(),
            (None, None, _) => vec!["is missing".to_owned()],
            (Some(_), Some(reason), _) => vec![format!("is journaled and a dead letter {reason}")],
            (Some(_), None, Some(wants)) => vec![format!("is journaled instead of {wants}")],
            (None, Some(has), wants) => vec![format!("is a dead letter {has}, not {wants:?}")],
        };
        let named = differences.iter();
        wrong.extend(named.map(|words| format!("{}: {words}", call.linkedid)));
    }
    let extra = records.values();
    wrong.extend(extra.map(|record| format!("nobody expected {:?}", record.call)));
    let extra = letters.iter();
    wrong.extend(extra.map(|(id, reason)| format!("nobody expected {id} as {reason}")));
    wrong
}

/// Fails if the journal, the dead letters, or the client's requests have errors.
pub fn judge(crm: &Server, letters: &[Value], expected: &[Expected]) {
    let mut wrong = compare(crm, letters, expected);
    wrong.extend(conduct(crm, |_| false));
    assert!(wrong.is_empty(), "{}\n{letters:#?}", wrong.join("\n"));
}

/// Number of requests that can be under way when another request is refused. On a busy machine,
/// these requests can arrive long after the refusal. A client that ignores the refusal while calls
/// wait sends more requests.
const UNDER_WAY: usize = 3;

/// Returns `true` if the violations of this kind can be requests that were under way during a
/// refusal.
fn can_be_under_way(breaches: &[Violation], kind: ViolationKind) -> bool {
    let refusal = matches!(
        kind,
        ViolationKind::RepeatAfter401 | ViolationKind::RepeatAfter403
    );
    let same = breaches.iter().filter(|breach| breach.kind == kind);
    refusal && same.count() <= UNDER_WAY
}

/// Returns the client's violations of the document, except the allowed ones.
pub fn conduct(crm: &Server, allowed: impl Fn(ViolationKind) -> bool) -> Vec<String> {
    let breaches = crm.violations();
    let mut wrong: Vec<String> = breaches
        .iter()
        .filter(|breach| !allowed(breach.kind) && !can_be_under_way(&breaches, breach.kind))
        .map(|breach| format!("{:?} {}: {}", breach.kind, breach.rule, breach.words))
        .collect();
    crm.admin(|core, _| {
        let fullest = core.fullest().in_a_window;
        if fullest > RATE.requests {
            wrong.push(format!("{fullest} requests in a window"));
        }
        let refused = core
            .counts()
            .iter()
            .filter(|((_, status), _)| *status == 429);
        wrong.extend(refused.map(|((endpoint, _), n)| format!("429 from {endpoint:?} × {n}")));
    });
    wrong
}
