//! Checks that the program used in `--notify-command` exists. The command itself isn't run, because
//! that would send a notification.

use super::{CheckFinding, fault, well};
use crate::config::Config;
use callbridge_model::Code;
use tokio::process::Command;

const NAME: &str = "--notify-command";

/// Looks up the program in `--notify-command` the way the shell would.
pub(crate) async fn check(config: &Config) -> Option<CheckFinding> {
    let settings = config.notify.as_ref()?;
    let Some(program) = program(&settings.command) else {
        return Some(well(
            NAME,
            "the command begins with shell syntax, so its program was not looked up",
        ));
    };
    let looked_up = Command::new("/bin/sh")
        .args([
            "-c",
            r#"command -v -- "$1" >/dev/null 2>&1"#,
            "sh",
            &program,
        ])
        .status()
        .await;
    if looked_up.is_ok_and(|status| status.success()) {
        return Some(well(NAME, format!("{program} exists and can be run")));
    }
    let message = format!("{program} does not exist or cannot be run: no notice would be sent");
    let fix = "correct the path, or make the file executable (chmod +x)";
    Some(fault(Code::Configuration, NAME, message, fix))
}

/// Returns the program that a shell command line runs, or `None` if only a shell can tell.
fn program(command: &str) -> Option<String> {
    let mut rest = command.trim_start();
    // Skip assignments before the program, as in `CHAT=1 notify`.
    while let Some((word, after)) = rest.split_once(char::is_whitespace) {
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        if !is_assignment || word.contains(['\'', '"', '`', '$']) {
            break;
        }
        rest = after.trim_start();
    }
    let first = rest.chars().next()?;
    let word = if first == '\'' || first == '"' {
        rest[1..].split(first).next()?
    } else {
        rest.split(char::is_whitespace).next()?
    };
    let is_plain = !word.contains([
        '$', '`', '(', ')', '{', '}', ';', '|', '&', '<', '>', '\\', '\'', '"', '*', '?', '~', '=',
    ]);
    (is_plain && !word.is_empty()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_a_command_line_is_its_first_word() {
        assert_eq!(program("/opt/notify -x"), Some("/opt/notify".to_owned()));
        assert_eq!(program("  CHAT=1 A=b mail root"), Some("mail".to_owned()));
        assert_eq!(
            program("'/opt/my notify' x"),
            Some("/opt/my notify".to_owned())
        );
        for shell in [
            "$HOME/notify",
            "(a; b)",
            "~/notify",
            "a|b",
            "X='1 2' notify",
            "",
            "\"$X\"",
        ] {
            assert_eq!(program(shell), None, "{shell}");
        }
    }
}
