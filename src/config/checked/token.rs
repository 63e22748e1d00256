//! Where the token comes from: one of a file or variable, a command, a connection by consent.

use super::Checking;
use crate::config::options::CrmFlags;
use callbridge_model::{SecretKind, SecretPlace};
use std::path::Path;

/// Where the token comes from.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// A file, a credential or a variable.
    Place(SecretPlace),
    /// `--token-command`
    Command(String),
    /// The connection in the state folder.
    Connection,
}

/// The one that is given; none, where one is needed, or several are faults. The state folder may
/// hold a connection.
pub(super) fn check(
    flags: &CrmFlags,
    file: Option<&Path>,
    (needed, connected): (bool, bool),
    checking: &mut Checking<'_>,
) -> Option<TokenFrom> {
    let place = SecretPlace::find(SecretKind::Token, file, checking.environment);
    let faults = &mut checking.faults;
    let command = flags.token_command.as_deref();
    if command.is_some_and(|text| text.trim().is_empty()) {
        faults.add("--token-command", "is empty: give a command for /bin/sh");
    }
    let source = match &place {
        Ok(SecretPlace::File(_) | SecretPlace::Held(..)) if file.is_some() => "--token-file",
        Ok(SecretPlace::File(_) | SecretPlace::Held(..)) => "the credential `token`",
        Ok(SecretPlace::Variable(_)) => "CALLBRIDGE_TOKEN",
        Err(_) => "--token-command",
    };
    if let (Ok(_), Some(_)) = (&place, command) {
        faults.add(
            "--token-command",
            format!("{source} gives a token, too: keep one of them"),
        );
    }
    let given = place.is_ok() || command.is_some();
    if given && connected {
        faults.add(
            source,
            "the state folder holds a connection by consent, too: leave the token out to use it, \
             or end it with `callbridge disconnect`",
        );
    }
    match (place, command) {
        (Ok(place), _) => Some(TokenFrom::Place(place)),
        (Err(_), Some(command)) => Some(TokenFrom::Command(command.to_owned())),
        (Err(_), None) if connected => Some(TokenFrom::Connection),
        (Err(words), None) => {
            if needed {
                let words = words.replacen("no secret", "no token", 1);
                let words = format!("{words}; or --token-command, or run `callbridge connect`");
                faults.add("--token-file", words);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::faults::Faults;
    use callbridge_model::environment::Environment;

    fn checked(
        command: Option<&str>,
        file: Option<&str>,
        connected: bool,
    ) -> Result<TokenFrom, String> {
        let flags = CrmFlags {
            token_command: command.map(str::to_owned),
            ..CrmFlags::default()
        };
        let environment = Environment::default();
        let mut checking = Checking::new(&environment, Faults::default());
        let file = file.map(Path::new);
        let found = check(&flags, file, (true, connected), &mut checking);
        checking
            .faults
            .or(())
            .map_err(|faults| faults.to_string())?;
        Ok(found.expect("one"))
    }

    #[test]
    fn one_way_to_a_token_is_taken() {
        assert!(matches!(
            checked(None, Some("/t"), false),
            Ok(TokenFrom::Place(_))
        ));
        assert!(matches!(
            checked(None, None, true),
            Ok(TokenFrom::Connection)
        ));
        assert!(matches!(
            checked(Some("vault read"), None, false),
            Ok(TokenFrom::Command(_))
        ));
    }

    #[test]
    fn two_ways_or_none_are_refused_in_clear_words() {
        for (command, file, connected, words) in [
            (
                None,
                Some("/t"),
                true,
                "--token-file: the state folder holds a connection",
            ),
            (
                Some("x"),
                None,
                true,
                "--token-command: the state folder holds a connection",
            ),
            (
                Some("x"),
                Some("/t"),
                false,
                "--token-command: --token-file gives a token, too",
            ),
            (Some(" "), None, false, "--token-command: is empty"),
            (None, None, false, "or run `callbridge connect`"),
        ] {
            let error = checked(command, file, connected).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
