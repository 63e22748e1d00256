//! What a file would lose and gain, line by line.

use similar::{Algorithm, ChangeTag, capture_diff_slices};

/// Lines that go with `-` before them, lines that come with `+`, in the order of both files; empty
/// where the texts are the same.
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

    #[test]
    fn what_goes_and_what_comes_is_shown_and_nothing_else() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), "");
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\nd\n"), "- b\n+ x\n+ d\n");
        assert_eq!(difference("", "a\n"), "+ a\n");
        assert_eq!(difference("a\n", ""), "- a\n");
    }
}
