//! Tests that the page's messages follow the style rules in all languages. Each test first applies
//! its rule to a text that breaks it.

use super::*;

/// Returns words that the glossary replaces with plain terms, as lowercase prefixes.
fn banned_words(language: Language) -> &'static str {
    match language {
        Language::English => {
            "told, tells, hear, heard, hears, errand, orphan, sweep, bury, stranger, \
             twin, last word, beside, meanwhile, speak, nobody listen, lies, epoch, mend, leaves, \
             calls leave, all is well, forgotten"
        }
        Language::Russian => {
            "письм, удалит, удалён, удалени, аренд, пропуски, пропусков, слыш, \
             последние слов, последнее слов, флаг, парк, эпох, коллектор, станци, уйдут, уйдёт, \
             уходит, уходят, номер в crm, всё в порядке"
        }
        Language::Uzbek => {
            "xatlar, xatni, xatga, xatda, ijara, soʻzlar, soʻzimiz, oxirgi soʻz, \
             bayro, shakl, eshit, epoxa, tasi ichida, kollektor, stansiya, joʻna, maxfiy soʻz, \
             hammasi joyida"
        }
    }
}

/// Names and abbreviations that are capitalized anywhere in a sentence.
const NAMES: [&str; 5] = ["Origin", "Sec", "CRM", "ATS", "PostgreSQL"];

/// Returns `true` if any word of the text starts with `start`.
fn has_word_beginning(text: &str, start: &str) -> bool {
    text.match_indices(start)
        .any(|(at, _)| !text[..at].ends_with(char::is_alphabetic))
}

fn has_banned(language: Language, text: &str) -> bool {
    let text = text.to_lowercase();
    banned_words(language)
        .split(", ")
        .any(|word| has_word_beginning(&text, word))
}

/// Returns `true` if a text contains epoch seconds, since times should be shown in the PBX's time
/// zone.
fn has_epoch_seconds(text: &str) -> bool {
    let digits = text.split(|c: char| !c.is_ascii_digit());
    digits.into_iter().any(|number| number.len() >= 10)
}

/// Returns `true` if the word is a name or an abbreviation, which may be capitalized within a
/// sentence.
fn is_name(word: &str) -> bool {
    let is_abbreviation = !word.contains(char::is_lowercase);
    is_abbreviation || NAMES.iter().any(|name| word.starts_with(name))
}

fn begins_sentence(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && !is_name(word)
}

/// Returns `true` if two messages were joined, i.e., if a sentence starts before the previous one
/// has ended, or if the last of several sentences has no end.
fn is_double(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let runs_on = words.windows(2).any(|pair| {
        let goes_on = pair[0].ends_with(|c: char| c.is_lowercase() || c.is_numeric() || c == '}');
        goes_on && begins_sentence(pair[1])
    });
    let several = words
        .windows(2)
        .any(|pair| pair[0].ends_with(['.', '!', '?']) && begins_sentence(pair[1]));
    // After a label, a value may end the text without a period.
    let is_label = text.ends_with('}')
        && words
            .iter()
            .rev()
            .nth(1)
            .is_some_and(|word| word.ends_with(':'));
    runs_on || several && !is_label && !text.ends_with(['.', '!', '?', ':', '…'])
}

/// Returns `true` if an Uzbek text has a wrong apostrophe. `ʻ` is only right after `o` and `g`, and
/// `ʼ` (tutuq) only after other letters. Other characters merely look similar.
fn has_wrong_apostrophe(text: &str) -> bool {
    let mut before = ' ';
    text.chars().any(|c| {
        let of_letter = "oOgG".contains(std::mem::replace(&mut before, c));
        match c {
            '\'' | '‘' | '’' | '`' => true,
            'ʻ' => !of_letter,
            'ʼ' => of_letter,
            _ => false,
        }
    })
}

/// Returns `true` if an Uzbek text separates a suffix from its abbreviation, which should be
/// written as in `CRMda`.
fn has_loose_suffix(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let suffixes = ["da", "dan", "dagi", "ga", "ni", "ning", "lar"];
    words.windows(2).any(|pair| {
        let suffix = pair[1].trim_end_matches(|c: char| !c.is_alphabetic());
        matches!(pair[0], "CRM" | "ATS") && suffixes.contains(&suffix)
    })
}

fn forms(entry: &TextEntry) -> Vec<&str> {
    match entry {
        TextEntry::One(text) => vec![text],
        TextEntry::Forms(forms) => [&forms.few, &forms.many, &forms.other]
            .into_iter()
            .flatten()
            .chain([&forms.one])
            .map(String::as_str)
            .collect(),
    }
}

fn texts() -> impl Iterator<Item = (Language, &'static str, &'static str)> {
    Language::ALL.into_iter().flat_map(|language| {
        let all = language.texts().iter();
        all.flat_map(move |(key, entry)| {
            forms(entry)
                .into_iter()
                .map(move |text| (language, key.as_str(), text))
        })
    })
}

/// Returns the messages for which `rule` returns `true`.
fn texts_that_break(rule: impl Fn(Language, &str) -> bool) -> Vec<String> {
    let broken = texts().filter(|(language, _, text)| rule(*language, text));
    broken
        .map(|(language, key, text)| format!("{language:?} {key}: {text}"))
        .collect()
}

#[test]
fn texts_use_no_word_that_the_glossary_replaces() {
    assert!(has_banned(
        Language::English,
        "Our last words are not taken"
    ));
    assert!(has_banned(Language::Russian, "Письмо 7"));
    assert!(has_banned(Language::Uzbek, "Ijara"));
    assert!(!has_banned(Language::English, "There is no retelling"));
    assert_eq!(texts_that_break(has_banned), [""; 0]);
}

#[test]
fn texts_contain_no_timestamp_in_epoch_seconds() {
    assert!(has_epoch_seconds("events may be missing from 1795324858"));
    assert!(!has_epoch_seconds("the last 20 of 2026"));
    assert_eq!(texts_that_break(|_, text| has_epoch_seconds(text)), [""; 0]);
}

#[test]
fn texts_punctuate_every_sentence() {
    assert!(is_double("The number is not in {a} The call waits."));
    assert!(is_double("The call waits. It leaves by itself"));
    assert!(!is_double("Ask the CRM. It answers."));
    assert_eq!(texts_that_break(|_, text| is_double(text)), [""; 0]);
}

#[test]
fn uzbek_texts_use_the_correct_apostrophes() {
    for wrong in ["qo‘ng‘iroq", "ma'lum", "eʻtibor", "boʼlim"] {
        assert!(has_wrong_apostrophe(wrong), "{wrong}");
    }
    assert!(!has_wrong_apostrophe("maʼlum qoʻngʻiroq"));
    let broken = texts_that_break(|language, text| {
        language == Language::Uzbek && has_wrong_apostrophe(text)
    });
    assert_eq!(broken, [""; 0]);
}

#[test]
fn uzbek_suffixes_are_joined_to_their_abbreviations() {
    assert!(has_loose_suffix("Qoʻngʻiroq CRM da yoʻq"));
    assert!(!has_loose_suffix("CRM danaklari CRMda"));
    let broken =
        texts_that_break(|language, text| language == Language::Uzbek && has_loose_suffix(text));
    assert_eq!(broken, [""; 0]);
}
