use super::*;
use crate::backend::{Bar, Outcomes};
use crate::chart::Chart;
use callbridge_model::Reason;
use callbridge_model::status::verdict::DETAILS;
use callbridge_model::status::{FindingKind, PAUSES};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the keys that end in a word from a fixed list, such as `role.admin` and `month.1`.
fn family_keys() -> BTreeSet<String> {
    let fixed = [
        ("role", &["admin", "view"][..]),
        ("direction", &["INBOUND", "OUTBOUND", "UNKNOWN"]),
        ("cause", &["lead", "employee", "phone", "extension"]),
        ("finding", &["ok", "doubt", "failed"]),
        ("branch.state", &["never", "reports", "silent", "stopped"]),
        ("remedy", &["lead_missing", "employee_missing"]),
        ("field", &["lead", "employee", "phone", "id", "reason"]),
        (
            "result",
            &[
                "ready",
                "looked_for",
                "would_send",
                "dead",
                "counted",
                "known",
                "discarded",
                "refused",
            ],
        ),
        (
            "token",
            &[
                "ok",
                "missing",
                "refused",
                "wrong_company",
                "no_grant",
                "unknown",
                "reconnect",
                "client_refused",
            ],
        ),
        (
            "state",
            &[
                "ready",
                "sending",
                "submitted",
                "journaled",
                "dead",
                "waiting",
                "discarded",
                "forwarded",
                "letters",
            ],
        ),
    ];
    let mut keys = BTreeSet::new();
    for (family, words) in fixed {
        keys.extend(words.iter().map(|word| format!("{family}.{word}")));
    }
    let tried = ENGLISH.keys().filter_map(|key| key.strip_prefix("tried."));
    for kind in tried {
        keys.extend(["tried", "mend"].map(|family| format!("{family}.{kind}")));
    }
    for &reason in Reason::ALL {
        keys.insert(format!("reason.{}", reason.word()));
        keys.insert(format!("remedy.{}", reason.word()));
        keys.insert(format!("why.{}", reason.word()));
    }
    for &kind in FindingKind::ALL {
        keys.insert(format!("kind.{}", kind.word()));
        keys.insert(format!("fix.{}", kind.word()));
        // For all other kinds, the details use the kind itself as their key.
        use FindingKind::{Employees, LeadDirectory, Lists, NoSource, Paused, Token};
        let by_codes = [Employees, LeadDirectory, Lists, NoSource, Paused, Token];
        if !by_codes.contains(&kind) {
            keys.insert(format!("detail.{}", kind.word()));
        }
    }
    let details = DETAILS.iter().chain(&PAUSES);
    keys.extend(details.map(|code| format!("detail.{code}")));
    keys.extend((1..=12).map(|month| format!("month.{month}")));
    keys.extend((1..=7).map(|day| format!("weekday.{day}")));
    keys
}

fn read_texts(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            read_texts(&path, all);
        } else if !name.ends_with("_tests.rs") {
            all.push_str(&fs::read_to_string(&path).expect("text"));
        }
    }
}

fn is_key(word: &str) -> bool {
    let mut characters = word.chars();
    !word.is_empty() && characters.all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
}

/// Returns every quoted word in templates and sources that looks like a key.
fn quoted_keys() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    read_texts(&root.join("src"), &mut all);
    read_texts(&root.join("templates"), &mut all);
    let mut keys = BTreeSet::new();
    for word in all.lines().flat_map(|line| line.split('"')) {
        if is_key(word) {
            // A problem's text has the same key as its title, followed by `.words`.
            keys.extend([word.to_owned(), format!("{word}.words")]);
        }
    }
    keys
}

/// Returns the keys passed to `c.t(…)` and similar functions.
fn requested_keys() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    read_texts(&root.join("src/views"), &mut all);
    read_texts(&root.join("templates"), &mut all);
    let mut keys = BTreeSet::new();
    for call in [
        "c.t(\"",
        "c.n(\"",
        "c.text_with(\"",
        "c.text_with_two(\"",
        "shell.t(\"",
        "shell.n(\"",
    ] {
        for after in all.split(call).skip(1) {
            keys.insert(after.split('"').next().expect("a key").to_owned());
        }
    }
    keys
}

/// Promise: The page is complete in English, Russian, and Uzbek.
#[test]
fn page_texts_are_complete_and_used_in_every_language() {
    let (families, quoted, requested) = (family_keys(), quoted_keys(), requested_keys());
    assert!(
        requested.len() > 200,
        "only {} keys are requested",
        requested.len()
    );
    let english: BTreeSet<&String> = ENGLISH.keys().collect();
    for language in Language::ALL {
        let known: BTreeSet<&String> = language.texts().keys().collect();
        assert_eq!(known, english, "{language:?}");
        for key in families.iter().chain(&requested) {
            assert!(language.has(key), "{language:?} has no {key}");
        }
    }
    for key in english {
        let used = families.contains(key) || quoted.contains(key);
        assert!(used, "{key} is not used");
    }
}

fn placeholders(entry: &TextEntry) -> BTreeSet<&'static str> {
    let texts = match entry {
        TextEntry::One(text) => vec![text],
        TextEntry::Forms(Forms {
            one,
            few,
            many,
            other,
        }) => [few, many, other]
            .into_iter()
            .flatten()
            .chain([one])
            .collect(),
    };
    ["{a}", "{b}", "{c}", "{n}"]
        .into_iter()
        .filter(|mark| texts.iter().any(|text| text.contains(*mark)))
        .collect()
}

#[test]
fn placeholders_are_the_same_in_every_language() {
    for (key, entry) in &*ENGLISH {
        for language in [Language::Russian, Language::Uzbek] {
            assert_eq!(
                placeholders(&language.texts()[key]),
                placeholders(entry),
                "{language:?} {key}"
            );
        }
    }
}

#[test]
fn plural_forms_are_correct_in_every_language() {
    for (key, entry) in &*RUSSIAN {
        if let TextEntry::Forms(forms) = entry {
            assert!(forms.few.is_some() && forms.many.is_some(), "{key}");
        }
    }
    let said = [0, 1, 2, 5, 11, 12, 21, 22, 25, 111, 112, 121]
        .map(|count| Language::Russian.text_for_count("chart.calls", count));
    let words: Vec<&str> = said
        .iter()
        .map(|text| text.rsplit(' ').next().expect("a word"))
        .collect();
    assert_eq!(
        words,
        [
            "звонков",
            "звонок",
            "звонка",
            "звонков",
            "звонков",
            "звонков",
            "звонок",
            "звонка",
            "звонков",
            "звонков",
            "звонков",
            "звонок"
        ]
    );
    assert_eq!(Language::English.text_for_count("chart.calls", 1), "1 call");
    assert_eq!(
        Language::English.text_for_count("chart.calls", 12_345),
        "12,345 calls"
    );
    assert_eq!(
        Language::Uzbek.text_for_count("chart.calls", 3),
        "3 ta qoʻngʻiroq"
    );
}

#[test]
fn preferred_available_language_of_the_browser_is_chosen() {
    for (accept, language) in [
        ("ru-RU,ru;q=0.9,en;q=0.8", Language::Russian),
        ("de,uz;q=0.5,en;q=0.4", Language::Uzbek),
        ("en;q=0.1,ru;q=0.9", Language::Russian),
        ("uz-Latn-UZ", Language::Uzbek),
        ("de", Language::English),
        ("ru;q=0", Language::English),
        ("ru;q=x", Language::English),
        ("", Language::English),
    ] {
        assert_eq!(Language::preferred(accept), language, "{accept}");
    }
}

#[test]
fn chart_outcome_classes_have_a_color_in_the_style() {
    let style = crate::assets::STYLE;
    let outcomes = Outcomes {
        journaled: 1,
        queued: 1,
        waiting: 1,
        letters: 1,
        discarded: 1,
        forwarded: 1,
    };
    let chart = Chart::from_bars(&[Bar { from: 0, outcomes }]);
    let pieces = &chart.columns[0].pieces;
    assert_eq!(pieces.len(), 6, "{pieces:?}");
    for piece in pieces {
        let class = piece.class;
        assert!(style.contains(&format!("rect.{class}")), "{class}");
    }
}
