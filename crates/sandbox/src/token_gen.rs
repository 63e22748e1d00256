//! New values: tokens, codes, secrets. The same settings and changes give the same ones; a start
//! of the command adds a salt of its own, so that nobody can foretell them.

use super::config::Settings;
use super::core::Sandbox;

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x27d4_e0b1_9c35_4f68_8a1e_64f0_b3c9_517d);

/// A token or a code: what it begins with, and 32 hexadecimal digits.
pub(super) fn mint(sandbox: &mut Sandbox, begins: &str) -> String {
    // The number survives a restart with the state file, and never repeats.
    sandbox.minted += 1;
    let Settings { seed, oauth, .. } = &sandbox.settings;
    let name = format!("{seed}\n{}\n{}\n{begins}", oauth.salt, sandbox.minted);
    let digits = uuid::Uuid::new_v5(&NAMESPACE, name.as_bytes());
    format!("{begins}{}", digits.simple())
}

/// A signing key: 64 lowercase hexadecimal digits (§4.1.1, §6.4.5).
pub(super) fn mint_key(sandbox: &mut Sandbox) -> String {
    mint(sandbox, "") + &mint(sandbox, "")
}
