//! The scope requested by `connect` (§2.3), which consists of the required and useful grants, and
//! what doesn't work without each.

use callbridge_model::Grant;
use std::collections::BTreeSet;

/// The grant without which nothing can be journaled.
const NEEDED: Grant = Grant::CallSave;

/// The required and useful grants, and what doesn't work without each.
const USUAL: [(Grant, &str); 4] = [
    (NEEDED, "no call can be journaled without it"),
    (
        Grant::CallRead,
        "the journal cannot be read: each call is polled separately, which halves the calls that \
         fit into a minute",
    ),
    (
        Grant::LeadRead,
        "leads cannot be looked up: the directory knows only what webhooks report, and a dead \
         letter `failed` does not say whether the lead or the employee is missing",
    ),
    (
        Grant::LeadSave,
        "leads do not show their last call (--lead-field, lead set)",
    ),
];

/// The default for `--scope`, which is the required and useful grants.
pub fn default_scope() -> String {
    USUAL.map(|(grant, _)| grant.word()).join(" ")
}

/// Checks the value of `--scope`, and returns the grants separated by single spaces.
///
/// # Errors
/// Returns an error message about `--scope`.
pub fn parse(text: &str) -> Result<String, String> {
    let grants: Vec<&str> = text.split_whitespace().collect();
    if grants.is_empty() {
        return Err("is empty: give PERMISSION:SCOPE, separated by spaces".to_owned());
    }
    for grant in &grants {
        let parts = grant.split_once(':');
        if !parts.is_some_and(|(permission, scope)| is_word(permission) && is_word(scope)) {
            return Err(format!("`{grant}` is not PERMISSION:SCOPE"));
        }
    }
    if !grants.contains(&NEEDED.word()) {
        return Err(format!(
            "lacks {NEEDED}, without which no call can be journaled"
        ));
    }
    Ok(grants.join(" "))
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// How the grants given by the company compare with the required and requested ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantComparison {
    /// Whether the given grants include the one required to journal calls.
    pub enough: bool,
    /// One sentence for each grant that was requested but not given, saying what doesn't work
    /// without it.
    pub lacks: Vec<String>,
}

/// Compares the given grants with the requested and required ones. `asked` and `granted` are
/// scopes.
pub fn compare(asked: &str, granted: &str) -> GrantComparison {
    let granted: BTreeSet<&str> = granted.split_whitespace().collect();
    let mut lacks = Vec::new();
    for grant in asked.split_whitespace() {
        if granted.contains(grant) {
            continue;
        }
        let usual = USUAL.iter().find(|(name, _)| name.word() == grant);
        lacks.push(match usual {
            Some((_, less)) => format!("{grant} was not granted: {less}"),
            None => format!("{grant} was not granted"),
        });
    }
    GrantComparison {
        enough: granted.contains(NEEDED.word()),
        lacks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_scope_is_valid_and_sufficient() {
        assert_eq!(parse(&default_scope()), Ok(default_scope()));
        let all = compare(&default_scope(), &default_scope());
        assert_eq!((all.enough, all.lacks.len()), (true, 0));
    }

    #[test]
    fn narrower_grant_names_each_missing_scope_and_its_effect() {
        let given = compare(&default_scope(), "PERMISSION_OPEN_API_CALL:SAVE");
        assert!(given.enough);
        assert_eq!(given.lacks.len(), 3);
        assert!(given.lacks[0].contains("halves the calls that fit into a minute"));
        let given = compare(&default_scope(), "PERMISSION_OPEN_API_CALL:READ");
        assert!(!given.enough);
        assert!(given.lacks[0].contains("no call can be journaled"));
        assert!(!compare(&default_scope(), "").enough);
    }

    #[test]
    fn invalid_scope_or_scope_without_needed_grant_is_refused() {
        for (text, words) in [
            ("", "is empty"),
            (
                "PERMISSION_OPEN_API_CALL:SAVE,X:Y",
                "is not PERMISSION:SCOPE",
            ),
            ("CALL", "is not PERMISSION:SCOPE"),
            (
                "PERMISSION_OPEN_API_LEAD:READ",
                "lacks PERMISSION_OPEN_API_CALL:SAVE",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let spaced = parse("  PERMISSION_OPEN_API_CALL:SAVE   X:Y ");
        assert_eq!(spaced.as_deref(), Ok("PERMISSION_OPEN_API_CALL:SAVE X:Y"));
    }
}
