//! New values: tokens, codes, secrets. The same settings and changes give the same ones; a start
//! of the command adds a salt of its own, so that nobody can foretell them.

use super::core::Sandbox;

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x27d4_e0b1_9c35_4f68_8a1e_64f0_b3c9_517d);

/// A token or a code: what it begins with, and 32 hexadecimal digits. A change has to follow
/// before the next of the same beginning.
pub(super) fn mint(sandbox: &Sandbox, begins: &str) -> String {
    format!("{begins}{}", digits(sandbox, begins))
}

/// A signing key: 64 lowercase hexadecimal digits (§4.1.1, §6.4.5).
pub(super) fn mint_key(sandbox: &Sandbox, what: &str) -> String {
    let (first, second) = (format!("{what} 1"), format!("{what} 2"));
    format!("{}{}", digits(sandbox, &first), digits(sandbox, &second))
}

fn digits(sandbox: &Sandbox, what: &str) -> uuid::fmt::Simple {
    // The number of changes survives a restart with the state file, and never repeats.
    let name = format!(
        "{}\n{}\n{}\n{what}",
        sandbox.settings.seed, sandbox.settings.oauth.salt, sandbox.log.made
    );
    uuid::Uuid::new_v5(&NAMESPACE, name.as_bytes()).simple()
}
