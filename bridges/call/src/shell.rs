//! Quotes text as a single POSIX shell word, for the commands shown in messages.

use std::path::Path;

/// Returns the text as a single POSIX shell word, in single quotes if necessary.
pub fn quoted(text: &str) -> String {
    let is_plain = text
        .chars()
        .all(|c| c.is_alphanumeric() || "-_./:=@,+%".contains(c));
    if is_plain && !text.is_empty() {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Returns the path as a single POSIX shell word.
pub fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_text_is_quoted_unless_it_is_a_plain_word() {
        for (text, word) in [
            ("name=dead_letters", "name=dead_letters"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a;b", "'a;b'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }
}
