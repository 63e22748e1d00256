//! Removes everything from the CRM's texts that a dialplan could interpret. Anyone can choose a
//! lead's name, because web forms accept any text, and a dialplan interprets commas, quotes,
//! brackets, `$`, and `|`. There's also no telling how a display shows a line break.

use regex::Regex;
use std::sync::LazyLock;

/// Maximum length of a name in characters, which is more than any phone shows.
const CHARACTERS_MAX: usize = 64;
/// Maximum length of an extension in bytes. Endpoint names are always shorter.
const EXTENSION_BYTES_MAX: usize = 64;

/// Everything except letters, marks, digits, spaces, periods, apostrophes, and hyphens.
static OTHERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[^\p{L}\p{M}\p{Nd} .'-]+").expect("a good pattern"));

/// Returns a name for display that only contains letters, marks, digits, spaces, and `.-'`. Each
/// run of other characters becomes a single space.
pub fn name(text: &str) -> String {
    let apostrophes = ['\u{2018}', '\u{2019}', '\u{b4}', '`'];
    let text = text.replace(apostrophes, "'");
    let text = OTHERS.replace_all(&text, " ");
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let name: String = words.join(" ").chars().take(CHARACTERS_MAX).collect();
    name.trim_end().to_owned()
}

/// Returns an extension that a dialplan can safely dial, which only contains ASCII letters and
/// digits, `_`, and `-`. An extension with any other character is rejected, because without that
/// character, it would be a different extension.
pub fn extension(text: &str) -> Option<&str> {
    let mut bytes = text.bytes();
    let is_plain = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_plain && (1..=EXTENSION_BYTES_MAX).contains(&text.len()) {
        Some(text)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_people_keep_their_letters() {
        for kept in [
            "Anna Petrova",
            "Jean-Luc O'Neill jr.",
            "Ғуломов Ўткир",
            "Müller 2",
        ] {
            assert_eq!(name(kept), kept);
        }
        assert_eq!(
            name("Oʻktam Gʻulomov"),
            "Oʻktam Gʻulomov",
            "U+02BB is a letter"
        );
        assert_eq!(name("O‘ktam  G’ulom`ov "), "O'ktam G'ulom'ov");
        assert_eq!(name("Zoe\u{308}"), "Zoe\u{308}");
    }

    #[test]
    fn dialplan_and_display_control_characters_become_spaces() {
        for (hostile, harmless) in [
            ("a,b|c\"d", "a b c d"),
            ("${SHELL(rm -rf /)}", "SHELL rm -rf"),
            ("$[1+1] {x}(y)<sip:z@w>", "1 1 x y sip z w"),
            (
                "line\r\nbreak\u{2028}and\u{85}more\0",
                "line break and more",
            ),
            ("\u{202e}evil\u{200b}name\u{feff}", "evil name"),
            ("a&Local/1@b\\;c=d%20", "a Local 1 b c d 20"),
            ("\u{1b}[31mred", "31mred"),
            ("☎ 😀", ""),
            (",,,", ""),
        ] {
            assert_eq!(name(hostile), harmless, "{hostile:?}");
        }
        let long = "я".repeat(500);
        assert_eq!(name(&long).chars().count(), CHARACTERS_MAX);
        let cut = format!("{} b", "a".repeat(CHARACTERS_MAX - 1));
        assert!(!name(&cut).ends_with(' '));
    }

    #[test]
    fn extension_is_kept_whole_or_dropped() {
        for good in ["101", "sip-101", "anna_2", "A1"] {
            assert_eq!(extension(good), Some(good));
        }
        for bad in [
            "",
            "10 1",
            "101,r",
            "101&PJSIP/1",
            "101@x",
            "1٠1",
            "${X}",
            "10\n1",
        ] {
            assert_eq!(extension(bad), None, "{bad:?}");
        }
        assert_eq!(extension(&"1".repeat(65)), None);
    }

    fn is_harmless(c: char) -> bool {
        c.is_alphanumeric() || " .'-".contains(c) || !c.is_ascii() && !c.is_control()
    }

    fn is_extension_byte(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
    }

    proptest! {
        #[test]
        fn name_and_extension_contain_only_harmless_characters(
            text in any::<String>(),
            hostile in r#"[,"|\[\](){}$\r\n;&\\<>a-c ]{0,40}"#,
        ) {
            for text in [&text, &hostile, &format!("{text}{hostile}")] {
                let shown = name(text);
                prop_assert!(shown.chars().all(is_harmless), "{shown:?}");
                prop_assert!(!OTHERS.is_match(&shown));
                prop_assert!(shown.chars().count() <= CHARACTERS_MAX);
                prop_assert_eq!(&name(&shown), &shown, "harmless once and for all");
                let extension = extension(text).unwrap_or_default();
                prop_assert!(extension.bytes().all(is_extension_byte));
            }
        }
    }
}
