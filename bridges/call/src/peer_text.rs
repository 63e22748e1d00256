//! Makes error texts from a PBX or a broker safe for messages and logs.

use crate::redact::Redactor;

/// Maximum length of the result in characters.
const CHARS_MAX: usize = 300;

/// Turns a peer's text into a single line of at most 300 characters, replacing control characters,
/// escape sequences, and characters that hide or reorder text with `\u{fffd}`, along with anything
/// that isn't valid UTF-8.
pub fn peer_text(bytes: &[u8]) -> String {
    // No character takes more than four bytes, so anything beyond that needn't be decoded.
    let beginning = &bytes[..bytes.len().min(4 * (CHARS_MAX + 1))];
    let text = String::from_utf8_lossy(beginning);
    let mut line = String::new();
    for (count, c) in text.trim().chars().enumerate() {
        if count == CHARS_MAX {
            line.push('…');
            break;
        }
        line.push(if is_unsafe(c) { '\u{fffd}' } else { c });
    }
    line
}

/// Turns a peer's text into one line like [`peer_text`], and also removes the secrets that
/// `redactor` knows about.
pub fn redacted_peer_text(bytes: &[u8], redactor: &Redactor) -> String {
    let text = String::from_utf8_lossy(bytes);
    peer_text(redactor.redact(&text).as_bytes())
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_kept_without_its_line_end() {
        assert_eq!(
            peer_text(b"Authentication failed\r\n"),
            "Authentication failed"
        );
        assert_eq!(peer_text("Доступ запрещён".as_bytes()), "Доступ запрещён");
    }

    #[test]
    fn long_text_is_cut_at_300_characters() {
        let text = peer_text("я".repeat(100_000).as_bytes());
        assert_eq!(text.chars().count(), 301);
        assert!(text.ends_with("я…"), "{text}");
        assert_eq!(peer_text("я".repeat(300).as_bytes()).chars().count(), 300);
    }

    #[test]
    fn escape_sequences_and_hidden_marks_are_replaced() {
        let hostile = "\u{1b}]0;title\u{7}\u{1b}[2Jgone\nnew line\u{202e}\u{200b}\u{9b}31m";
        let text = peer_text(hostile.as_bytes());
        assert!(!text.chars().any(is_unsafe), "{text:?}");
        assert!(text.contains("gone") && text.contains("new line"));
        assert_eq!(peer_text(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn secret_across_the_length_limit_is_fully_redacted() {
        let text = format!("{}verysecret", "x".repeat(295));
        let shown = redacted_peer_text(text.as_bytes(), &Redactor::new(["verysecret"]));
        assert_eq!(shown, format!("{}[reda…", "x".repeat(295)));
    }
}
