use super::*;

fn shell(language: Language) -> PageShell {
    PageShell {
        language,
        zone: Zone::from_name("Asia/Tashkent").expect("a zone"),
        now: 1_795_158_000,
        viewer: None,
        target: "/letters?reason=failed".to_owned(),
        badges: Badges::default(),
        pbx: "office".to_owned(),
        lead_url: None,
        notice: None,
    }
}

#[test]
fn moment_is_shortened_and_shown_in_pbx_time_zone() {
    let (english, uzbek) = (shell(Language::English), shell(Language::Uzbek));
    let russian = shell(Language::Russian);
    assert_eq!(english.moment(1_795_157_000), "11:43");
    assert_eq!(english.moment(1_795_058_000), "19 Nov 08:13");
    assert_eq!(russian.moment(1_795_058_000), "19 нояб. 08:13");
    assert_eq!(uzbek.moment(1_795_058_000), "19-noyabr 08:13");
    assert_eq!(english.moment(1_700_000_000), "15 Nov 2023 03:13");
    let html = english.time(&1_795_157_000).to_string();
    assert!(
        html.contains("datetime=\"2026-11-20T11:43:20+05:00\""),
        "{html}"
    );
}

#[test]
fn span_is_shown_in_two_units_at_most() {
    let english = shell(Language::English);
    let local_text = [0, 12, 60, 200, 7500, 100_000].map(|seconds| english.span(seconds));
    assert_eq!(
        local_text,
        [
            "0 s",
            "12 s",
            "1 min",
            "3 min 20 s",
            "2 h 05 min",
            "1 d 3 h"
        ]
    );
    assert_eq!(english.time_since(&(english.now - 599)), "9 min 59 s");
    assert_eq!(english.time_since(&(english.now - 659)), "10 min");
    assert_eq!(english.time_since(&(english.now + 5)), "0 s");
    assert_eq!(english.measured_span(&Some(2.44)).to_string(), "2.4 s");
    let russian = shell(Language::Russian);
    assert_eq!(russian.measured_span(&Some(2.44)).to_string(), "2,4 с");
    assert_eq!(english.measured_span(&Some(61.6)).to_string(), "1 min 02 s");
    assert!(
        english
            .measured_span(&Some(f64::NAN))
            .to_string()
            .contains("none")
    );
}

#[test]
fn value_that_looks_like_a_placeholder_is_not_replaced() {
    let english = shell(Language::English);
    let said = english.text_with_two("jobs.done", "{b}", "{a}");
    assert_eq!(said, "{b} of {a}");
}

#[test]
fn nav_marks_current_view_and_language_switch_keeps_view() {
    let english = shell(Language::English);
    let here: Vec<_> = english
        .nav()
        .into_iter()
        .filter(|entry| entry.here)
        .collect();
    assert_eq!(here.len(), 1);
    assert_eq!(here[0].path, "/letters");
    let (_, _, chosen, link) = english.languages().remove(1);
    assert!(!chosen);
    assert_eq!(link, "/language/ru?back=%2Fletters%3Freason%3Dfailed");
}
