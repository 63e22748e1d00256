//! `fleet owner`: a PBX whose calls come as messages belongs to another user of the broker; and
//! `state forward-again`: what a collector has forwarded goes out once more.

use super::conversation::print_items;
use crate::Failure;
use crate::config::Asking;
use callbridge_admin::ControlRequest;
use callbridge_model::Zone;
use callbridge_model::safe::safe;
use serde_json::Value;

/// Hands the PBX over.
///
/// # Errors
/// 69 without daemon and state.
pub(crate) async fn owner(ask: ControlRequest, at: &Asking) -> Result<(), Failure> {
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
    print_items(at, ask, "", told).await
}

/// Publishes again what was forwarded since then.
///
/// # Errors
/// 69 without daemon and state.
pub(crate) async fn forward_again(ask: ControlRequest, at: &Asking) -> Result<(), Failure> {
    let told = |item: &Value, zone: &Zone| {
        let moment = |name: &str| zone.second(item[name].as_i64().unwrap_or_default());
        format!(
            "what was forwarded from {} to {} is published again by the daemon",
            moment("since"),
            moment("until"),
        )
    };
    print_items(at, ask, "", told).await
}
