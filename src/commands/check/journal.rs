//! What the CRM's journal shows of the calls that were sent, and who else writes calls of ours.

use super::finding::{CheckFinding, advice, well};
use callbridge_model::Status;
use callbridge_model::status::{FindingKind, JournalField};

/// What `status` says of it, and how many calls it was compared by where all is well.
pub(crate) fn told(status: &Status) -> Vec<CheckFinding> {
    let found = status.todo.iter().filter_map(|todo| {
        let cure = match todo.kind {
            FindingKind::FieldNotShown => {
                "ask the CRM's support for the name of this field, and give it as --field"
            }
            FindingKind::ForeignCalls => {
                "switch the call journal of that telephony off in the CRM, or give the trunk \
                 journal=no"
            }
            _ => return None,
        };
        Some(advice("journal", &todo.what, cure))
    });
    let found: Vec<CheckFinding> = found.collect();
    let compared = status
        .journal_fields
        .iter()
        .map(|it: &JournalField| it.compared)
        .max();
    match compared {
        Some(compared) if found.is_empty() => {
            let what = format!("it shows what was sent (calls compared: {compared})");
            vec![well("journal", what)]
        }
        Some(_) | None => found,
    }
}
