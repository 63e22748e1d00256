//! Where the token comes from: one of a file or variable, a command, a connection by consent.

use super::crm::Tokens;
use crate::config::faults::Faults;
use crate::config::options::CrmFlags;
use callbridge_model::environment::Environment;
use callbridge_model::secret_source as secrets;
use callbridge_model::secret_source::SecretPlace;
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

/// The one that is given; none or several are faults.
pub(super) fn check(
    flags: &CrmFlags,
    file: Option<&Path>,
    Tokens { needed, connected }: Tokens,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<TokenFrom> {
    let place = SecretPlace::find(secrets::SecretKind::Token, file, environment);
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

    fn checked(
        command: Option<&str>,
        file: Option<&str>,
        connected: bool,
    ) -> Result<TokenFrom, String> {
        let flags = CrmFlags {
            token_command: command.map(str::to_owned),
            ..CrmFlags::default()
        };
        let mut faults = Faults::default();
        let environment = Environment::default();
        let file = file.map(Path::new);
        let tokens = Tokens {
            needed: true,
            connected,
        };
        let found = check(&flags, file, tokens, &environment, &mut faults);
        faults.or(()).map_err(|faults| faults.to_string())?;
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
