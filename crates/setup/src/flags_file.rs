//! The text of `NAME.flags`: one argument per line, with a comment above each group. Also shows how
//! a new text differs from an existing file.

use similar::{Algorithm, ChangeTag, capture_diff_slices};
use std::fmt::Write as _;

/// A flag with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFlag {
    /// The flag's name without the dashes: `crm-url`.
    pub long: String,
    /// The text after the `=`. `None` for a switch.
    pub value: Option<String>,
}

/// The flags' groups in the order of the file, each with the comment above it.
const GROUPS: [(&str, &str); 3] = [
    (
        "The PBX. Its name is part of every call's id: never change it.",
        "pbx-id pbx-timezone source catch-up columns",
    ),
    (
        "The trunks: a name, and the part of its channels' names before the suffix.",
        "trunk country strip lead lead-directory employees unanswered require-employee",
    ),
    ("The CRM.", "crm-url auth-url token-file token-command rate"),
];

/// Returns the text of the flags file. `notes` become comments after the trunks. Every line is a
/// flag that was given or a comment, because no value, name, or note can begin a new line.
///
/// # Errors
/// A message if a value, the name, or a note does not fit on one line.
pub fn text(name: &str, flags: &[WrittenFlag], notes: &[String]) -> Result<String, String> {
    let values = flags.iter().map(|flag| {
        let value = flag.value.as_deref().unwrap_or_default();
        (format!("--{}: its value", flag.long), value)
    });
    let comments = notes.iter().map(|note| ("a comment".to_owned(), &**note));
    let named = [("--name: it".to_owned(), name)];
    for (what, value) in values.chain(comments).chain(named) {
        if value.contains(char::is_control) {
            let shown = value.escape_debug();
            return Err(format!("{what} cannot be written on one line: {shown}"));
        }
    }
    let mut text = format!(
        "# callbridge@{name}: one argument a line, no quoting. Do not write secrets here.\n\
         # After a change:  callbridge check @FILE, then restart the service.\n"
    );
    let known = GROUPS.iter().flat_map(|(_, longs)| longs.split(' '));
    let rest = flags
        .iter()
        .filter(|flag| !known.clone().any(|long| long == flag.long));
    for (at, (heading, longs)) in GROUPS.iter().enumerate() {
        let names = longs.split(' ');
        let group = names.flat_map(|long| flags.iter().filter(move |flag| flag.long == long));
        write_group(&mut text, heading, group);
        if at == 1 {
            for note in notes {
                let _ = writeln!(text, "# {note}");
            }
        }
    }
    write_group(&mut text, "Other flags.", rest);
    Ok(text)
}

fn write_group<'a>(text: &mut String, heading: &str, flags: impl Iterator<Item = &'a WrittenFlag>) {
    let mut flags = flags.peekable();
    if flags.peek().is_some() {
        let _ = write!(text, "\n# {heading}\n");
    }
    for flag in flags {
        let _ = match &flag.value {
            Some(value) => writeln!(text, "--{}={value}", flag.long),
            None => writeln!(text, "--{}", flag.long),
        };
    }
}

/// Returns removed lines with `-` and added lines with `+`, in the order of both files. Empty if
/// the texts are equal.
pub fn difference(old: &str, new: &str) -> String {
    let [old, new]: [Vec<&str>; 2] = [old, new].map(|text| text.lines().collect());
    let parts = capture_diff_slices(Algorithm::Myers, &old, &new);
    let lines = parts.iter().flat_map(|part| part.iter_changes(&old, &new));
    let changes = lines.filter(|line| line.tag() != ChangeTag::Equal);
    let shown = changes.map(|line| format!("{} {}\n", line.tag(), line.value()));
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(long: &str, value: &str) -> WrittenFlag {
        let value = (!value.is_empty()).then(|| value.to_owned());
        let long = long.to_owned();
        WrittenFlag { long, value }
    }

    #[test]
    fn flags_file_has_every_flag_in_ordered_groups() {
        let flags = [
            flag("listen", "127.0.0.1:9469"),
            flag("country", "UZ"),
            flag("trunk", "x7=PJSIP/x7"),
            flag("lead-directory", ""),
            flag("crm-url", "https://crm.example.com"),
            flag("pbx-id", "pbx1"),
        ];
        let notes = ["telephones: 101".to_owned()];
        insta::assert_snapshot!(text("pbx1", &flags, &notes).expect("lines"), @"
        # callbridge@pbx1: one argument a line, no quoting. Do not write secrets here.
        # After a change:  callbridge check @FILE, then restart the service.

        # The PBX. Its name is part of every call's id: never change it.
        --pbx-id=pbx1

        # The trunks: a name, and the part of its channels' names before the suffix.
        --trunk=x7=PJSIP/x7
        --country=UZ
        --lead-directory
        # telephones: 101

        # The CRM.
        --crm-url=https://crm.example.com

        # Other flags.
        --listen=127.0.0.1:9469
        ");
    }

    #[test]
    fn flag_value_with_a_line_break_is_refused() {
        let message = text("pbx1", &[flag("lead", "csv:/a\n--rebind")], &[]);
        assert!(message.is_err_and(|message| message.contains("--lead")));
    }

    proptest::proptest! {
        #[test]
        fn value_name_or_note_never_adds_an_argument_line(
            name in "(.|\n|\r){0,9}",
            value in "(.|\\PC|\n|\r|\u{85}|--|#|=){0,9}",
            note in "(.|\n|\r|\u{b}|\u{85}|--x=y){0,9}",
        ) {
            if let Ok(text) = text(&name, &[flag("lead", &value)], std::slice::from_ref(&note)) {
                let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
                let lines: Vec<&str> = lines.collect();
                let wanted =
                    if value.is_empty() { "--lead".to_owned() } else { format!("--lead={value}") };
                proptest::prop_assert_eq!(lines, [wanted]);
            }
        }
    }

    #[test]
    fn difference_shows_only_removed_and_added_lines() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), "");
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\nd\n"), "- b\n+ x\n+ d\n");
        assert_eq!(difference("", "a\n"), "+ a\n");
        assert_eq!(difference("a\n", ""), "- a\n");
    }
}
