//! `fleet owner`: a PBX whose calls come as messages belongs to another user of the broker; and
//! `state forward-again`: what a collector has forwarded goes out once more.

use super::conversation::print_items;
use crate::config::command::Asking;
use crate::failure::Failure;
use callbridge_admin::protocol::ControlRequest;
use callbridge_call::EventTime;
use callbridge_model::Zone;
use callbridge_model::safe::safe;
use serde_json::Value;

/// Hands the PBX over.
///
/// # Errors
/// 69 without daemon and state.
pub(crate) async fn owner(pbx: String, user: String, at: &Asking) -> Result<(), Failure> {
    let told = |item: &Value, _: &Zone| {
        let text = |name: &str| safe(item[name].as_str().unwrap_or("nobody"));
        format!(
            "{} belongs to the broker's user {} (before: {}); what was refused until now is read \
             again by `callbridge dead retry --reason unreadable`",
            text("pbx"),
            text("user"),
            text("before"),
        )
    };
    let ask = ControlRequest::FleetOwner { pbx, user };
    print_items(at, ask, "", told).await.map(drop)
}

/// Publishes again what was forwarded since then.
///
/// # Errors
/// 69 without daemon and state.
pub(crate) async fn forward_again(since: EventTime, at: &Asking) -> Result<(), Failure> {
    let told = |item: &Value, zone: &Zone| {
        let moment = |name: &str| zone.second(item[name].as_i64().unwrap_or_default());
        format!(
            "what was forwarded from {} to {} is published again by the daemon",
            moment("since"),
            moment("until"),
        )
    };
    let since = since.micros();
    print_items(at, ControlRequest::ForwardAgain { since }, "", told)
        .await
        .map(drop)
}
