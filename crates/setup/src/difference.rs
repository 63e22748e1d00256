//! What a file would lose and gain, line by line.

/// Longer files are shown by their ends alone: a flags file has some forty lines.
const LINES_MAX: usize = 2_000;

/// Lines that go with `-` before them, lines that come with `+`, in the order of both files; empty
/// where the texts are the same.
pub fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (
        old.lines().take(LINES_MAX).collect(),
        new.lines().take(LINES_MAX).collect(),
    );
    // The longest common lines from each pair of places on, from the end.
    let width = new.len() + 1;
    let mut same = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            same[i * width + j] = match old[i] == new[j] {
                true => same[(i + 1) * width + j + 1] + 1,
                false => same[(i + 1) * width + j].max(same[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j < new.len()
            && (i == old.len() || same[i * width + j + 1] > same[(i + 1) * width + j])
        {
            text.push_str(&format!("+ {}\n", new[j]));
            j += 1;
        } else {
            text.push_str(&format!("- {}\n", old[i]));
            i += 1;
        }
    }
    text
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
