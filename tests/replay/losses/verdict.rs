//! Judges a recording's calls after messages were lost.

use callbridge_call::{FinishedCall, UniqueId};
use std::time::Duration;

/// Times may differ by up to this much without being wrong.
const NEAR: Duration = Duration::from_secs(1);

/// What a loss did to a recording's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Wrong values in complete calls.
    pub wrong: Vec<String>,
    /// Calls that could no longer be found.
    pub lost: Vec<String>,
    /// Number of calls that became incomplete.
    pub incomplete: usize,
}

/// Compares the calls after a loss with the complete calls before it.
pub fn judge(before: &[FinishedCall], after: &[FinishedCall]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut found = vec![false; after.len()];
    for call in before {
        let mut places = after.iter();
        let place = places
            .position(|other| other.linkedid == call.linkedid)
            .or_else(|| after.iter().position(|other| is_same_call(call, other)));
        let Some(place) = place else {
            verdict.lost.push(text(call));
            continue;
        };
        found[place] = true;
        let other = &after[place];
        if other.incomplete.is_some() {
            verdict.incomplete += usize::from(call.incomplete.is_none());
        } else if call.incomplete.is_some() || !has_same_values(call, other) {
            verdict
                .wrong
                .push(format!("{} became {}", text(call), text(other)));
        }
    }
    for (call, found) in after.iter().zip(found) {
        if !found && call.incomplete.is_none() {
            verdict
                .wrong
                .push(format!("{} did not take place", text(call)));
        }
    }
    verdict
}

/// Returns `true` if the two have an ID in common by which the journal would recognize them as the
/// same call.
fn is_same_call(a: &FinishedCall, b: &FinishedCall) -> bool {
    a.linkedid == b.linkedid || shares_id(a, b, &b.linkedid) || shares_id(b, a, &a.linkedid)
}

/// Returns `true` if `id`, the ID of `b`, is one of the other IDs of `a`.
fn shares_id(a: &FinishedCall, b: &FinishedCall, id: &UniqueId) -> bool {
    a.also_known_as.contains(id) && a.started.apart(b.started) <= NEAR
}

fn has_same_values(call: &FinishedCall, other: &FinishedCall) -> bool {
    let is_near = |a: Duration, b: Duration| a.abs_diff(b) <= NEAR;
    let number = phone(other);
    call.direction == other.direction
        && call.answered == other.answered
        && call.trunk == other.trunk
        && (number.is_none() || number == phone(call))
        && (other.employee.is_none() || other.employee == call.employee)
        && call.started.apart(other.started) <= NEAR
        && is_near(
            call.ended.since(call.started),
            other.ended.since(other.started),
        )
        && is_near(call.talk, other.talk)
}

/// Returns the last digits of the first number that may be a customer's, without prefixes.
fn phone(call: &FinishedCall) -> Option<String> {
    const EXTENSION_MAX: usize = 5;
    const NUMBER_MAX: usize = 12;
    call.number
        .iter()
        .chain(&call.more_numbers)
        .find_map(|raw| {
            let digits: String = raw.text.chars().filter(char::is_ascii_digit).collect();
            let start = digits.len().saturating_sub(NUMBER_MAX);
            (digits.len() > EXTENSION_MAX).then(|| digits[start..].to_owned())
        })
}

fn text(call: &FinishedCall) -> String {
    format!(
        "{} {:?} answered={} {:?} {:?} {:?} from {} for {:.1} s, talk {:.1} s {:?}",
        call.linkedid,
        call.direction,
        call.answered,
        call.trunk,
        phone(call),
        call.employee,
        call.started,
        call.ended.since(call.started).as_secs_f64(),
        call.talk.as_secs_f64(),
        call.incomplete,
    )
}
