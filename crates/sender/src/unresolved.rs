//! What becomes of a call whose outcome cannot be asked for: the journal itself was asked.

use callbridge_model::Reason;
use callbridge_spool::{IfAbsent, OutcomeSource, Step, Unconfirmed};
use serde_json::Value;

/// Resubmissions after a lost requestId before a call is given up as `unconfirmed`.
pub const RESUBMITS_MAX: u32 = 3;

/// The journal shows the unresolved call.
pub fn found(call: &Unconfirmed) -> Step {
    match call.if_absent {
        IfAbsent::Resubmit | IfAbsent::ServerError => Step::Journaled(OutcomeSource::Confirmation),
        IfAbsent::Changed => Step::too_late(&call.message),
    }
}

/// The journal does not show the unresolved call. `seen` is false if it could not be asked.
pub fn absent(call: &Unconfirmed, seen: bool) -> Step {
    let how = match seen {
        true => "no page of the journal that was read shows it",
        false => "the journal cannot be read",
    };
    match call.if_absent {
        IfAbsent::ServerError => died(Reason::ServerError, call.message.clone()),
        IfAbsent::Changed if !seen => died(
            Reason::Unconfirmed,
            format!(
                "it may stand in the journal as it was first sent: {}; the journal cannot be \
                 read to make sure: grant that to the token, or retry it without --lead",
                call.message
            ),
        ),
        IfAbsent::Resubmit if call.resubmits >= RESUBMITS_MAX => died(
            Reason::Unconfirmed,
            format!(
                "sent {} times, and each time its outcome could not be asked for before it was \
                 settled; the last time: {}; {how}",
                RESUBMITS_MAX + 1,
                call.message
            ),
        ),
        IfAbsent::Resubmit | IfAbsent::Changed => Step::Resubmit {
            why: how.to_owned(),
        },
    }
}

/// The CRM accepted the call, and neither polls, pages, nor webhooks showed it during the lifetime
/// of its requestId. It counts as journaled and is not sent again.
pub fn unobservable(call: &Unconfirmed) -> Step {
    died(
        Reason::Unconfirmed,
        format!(
            "the CRM took it, and for a day nothing could show whether it is journaled ({}): look \
             in the CRM; with webhooks, or PERMISSION_OPEN_API_CALL:READ, later ones are confirmed",
            call.message
        ),
    )
}

/// A dead letter for a reason of ours. It has no errors from the CRM.
pub(crate) fn died(reason: Reason, message: String) -> Step {
    Step::Died {
        reason,
        message,
        errors: Value::Null,
    }
}
