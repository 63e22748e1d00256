//! The expected results of a call, from the `expected.json` of its recording.

use serde_json::Value;
use uuid::Uuid;

/// Namespace of the UUIDs of all calls.
const NAMESPACE: Uuid = Uuid::from_u128(0x7960_997f_d1f6_4443_b29d_16fa_e6d2_7ae1);

/// A call as it took place.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Its id in the PBX.
    pub linkedid: String,
    /// Its id in the CRM's journal.
    pub uuid: String,
    pub lead: Option<i64>,
    /// Why it is a dead letter. `None` for a call that is journaled.
    pub reason: Option<String>,
    pub employee: Option<i64>,
    /// `INBOUND` or `OUTBOUND`, as in `expected.json`.
    pub direction: String,
    /// Someone answered and talked.
    pub answered: bool,
    /// Epoch seconds.
    pub started_at: i64,
    /// Exact seconds.
    pub duration: f64,
    /// Exact seconds.
    pub talk: f64,
}

impl Expected {
    /// Reads an entry of `expected.json`, on the PBX `pbx1`.
    pub fn of(call: &Value) -> Self {
        let linkedid = text(call, "linkedid").expect("a linkedid");
        let lead = call["leadId"].as_i64();
        let mut reason = text(call, "reason");
        if reason.is_none() && lead.is_none() {
            reason = Some("no_lead".to_owned());
        }
        Self {
            uuid: uuid("pbx1", &linkedid),
            linkedid,
            lead,
            reason,
            employee: call["employee"].as_str().map(employee),
            direction: text(call, "direction").expect("a direction"),
            answered: call["answered"].as_bool().expect("answered or not"),
            started_at: call["startedAt"].as_i64().expect("an epoch"),
            duration: seconds(call, "durationSec"),
            talk: seconds(call, "talkTimeSec"),
        }
    }

    /// Returns the call as another PBX reports it.
    pub fn on(self, pbx: &str) -> Self {
        let uuid = uuid(pbx, &self.linkedid);
        Self { uuid, ..self }
    }
}

fn text(call: &Value, name: &str) -> Option<String> {
    call[name].as_str().map(str::to_owned)
}

fn seconds(call: &Value, name: &str) -> f64 {
    call[name].as_f64().expect("seconds")
}

/// Returns the employee of an extension: `101` is 501, `105-desk` is 505.
fn employee(extension: &str) -> i64 {
    let digits = extension.split('-').next().unwrap_or_default();
    digits.parse::<i64>().expect("an extension") + 400
}

/// Returns the UUIDv5 of the PBX's id, a NUL, and the linkedid.
pub fn uuid(pbx: &str, linkedid: &str) -> String {
    Uuid::new_v5(&NAMESPACE, format!("{pbx}\0{linkedid}").as_bytes()).to_string()
}
