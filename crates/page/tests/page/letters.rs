//! Tests of actions on dead letters: some or all, dry runs, ten thousand at once, and invalid
//! input.

use crate::client::{Browser, Manner, PageAnswer, Served};
use crate::fake::Fake;
use crate::morning::{letter, morning};
use callbridge_admin::{LetterChange, PageRole};
use callbridge_mapping::{EmployeeChoice, RetryValues};
use callbridge_model::{LeadId, Reason, SuppliedFacts};
use callbridge_spool::RowId;
use std::sync::Arc;

const NOW: i64 = 1_795_158_000;

async fn serve_letters(letters: i64) -> (Arc<Fake>, Served, Browser) {
    let mut known = morning("Savdo", NOW);
    known.letters = (1..=letters)
        .map(|id| (RowId(id), letter("Savdo", NOW, id)))
        .collect();
    let fake = Fake::new(known);
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    (fake, served, anna)
}

/// Loads the page of a job until `condition` returns `true`. Returns that page.
async fn load_until(
    browser: &Browser,
    path: &str,
    condition: impl Fn(&PageAnswer) -> bool,
) -> PageAnswer {
    loop {
        let seen = browser.get(path).await;
        assert_eq!(seen.status, 200, "{}", seen.body);
        if condition(&seen) {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

fn progress(page: &PageAnswer) -> &str {
    let bar = page
        .body
        .split("<progress class=\"long\"")
        .nth(1)
        .expect("a progress");
    bar.split('>').next().expect("its figures")
}

#[tokio::test]
async fn chosen_dead_letters_are_retried_with_the_typed_lead() {
    let (fake, served, mut anna) = serve_letters(60).await;
    let fields = [
        ("action", "retry"),
        ("scope", "chosen"),
        ("id", "3"),
        ("id", "7"),
        ("lead", " 4002 "),
        ("employee", "none"),
    ];
    let begun = anna.act("/letters", "/letters/act", &fields).await;
    assert_eq!(begun.status, 303, "{}", begun.body);
    let job = anna.get(begun.header("location").expect("a job")).await;
    assert!(job.body.contains("The job is done"), "{}", job.body);
    let actions = fake.known().actions.clone();
    let change = LetterChange::Retry {
        wish: RetryValues {
            lead: LeadId::new(4002),
            employee: Some(EmployeeChoice::None),
            said: None,
        },
        dry_run: false,
    };
    assert_eq!(actions, [("anna".to_owned(), change, 2)]);
    assert_eq!(fake.known().letters.len(), 58);
    served.stop().await;
}

/// Returns the form fields that retry dead letter 2 with this length of talk.
fn retry_fields(talk: &str) -> [(&str, &str); 5] {
    [
        ("action", "retry"),
        ("id", "2"),
        ("one", "2"),
        ("answered", "yes"),
        ("talk", talk),
    ]
}

#[tokio::test]
async fn incomplete_dead_letter_shows_values_and_can_be_corrected() {
    let (fake, served, mut anna) = serve_letters(2).await;
    let plain = anna.get("/letters/2").await.body;
    assert!(!plain.contains("name=\"talk\""), "its facts are known");
    fake.known()
        .letters
        .get_mut(&RowId(2))
        .expect("a letter")
        .reason = Reason::Incomplete;
    let page = anna.get("/letters/2").await.body;
    for shown in [
        "<dt>Length</dt><dd>",
        "<dt>Talk</dt><dd>",
        "name=\"answered\"",
        "name=\"talk\"",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let wrong = anna
        .act("/letters/2", "/letters/act", &retry_fields("long"))
        .await;
    assert_eq!(wrong.status, 422);
    assert!(
        wrong.body.contains("is not a length of talk"),
        "{}",
        wrong.body
    );
    assert!(
        wrong.body.contains("<option value=\"yes\" selected>"),
        "{}",
        wrong.body
    );
    let begun = anna
        .act("/letters/2", "/letters/act", &retry_fields("80"))
        .await;
    assert_eq!(begun.status, 303, "{}", begun.body);
    let (_, action, _) = fake.known().actions.pop().expect("an act");
    let LetterChange::Retry { wish, .. } = action else {
        panic!("{action:?}");
    };
    let expected = SuppliedFacts {
        answered: Some(true),
        talk_sec: Some(80),
        direction: None,
    };
    assert_eq!(wish.said, Some(expected));
    served.stop().await;
}

/// Returns the text after the first `mark`, up to the next one.
fn text_after<'a>(page: &'a str, mark: &str) -> &'a str {
    page.split(mark).nth(1).expect("what is behind it")
}

#[tokio::test]
async fn dead_letter_count_is_equal_in_menu_tile_books_and_list() {
    let (fake, served, anna) = serve_letters(51).await;
    {
        // Only one of the 51 dead letters is of today.
        let mut known = fake.known();
        known.figures.today.letters = 1;
    }
    let today = anna.get("/").await.body;
    let menu = text_after(&today, "href=\"/letters\"");
    assert!(
        menu.split("</a>")
            .next()
            .is_some_and(|part| part.contains(">51<")),
        "{menu}"
    );
    let tile = text_after(&today, "<div class=\"letters\">");
    assert!(
        tile.split("</div>")
            .next()
            .is_some_and(|part| part.contains("<dd>51</dd>")),
        "{tile}"
    );
    let books = text_after(&today, "<i class=\"dot letters\"");
    assert!(
        books
            .split("</tr>")
            .next()
            .is_some_and(|part| part.contains(">51<")),
        "{books}"
    );
    assert!(!today.contains("dot waiting"), "no call waits");
    let list = anna.get("/letters").await.body;
    assert!(list.contains("all 51 of this list"), "{list}");
    served.stop().await;
}

#[tokio::test]
async fn bulk_retry_runs_in_batches_of_100_with_linked_progress() {
    let (fake, served, mut anna) = serve_letters(10_000).await;
    fake.permits.forget_permits(usize::MAX);
    fake.permits.add_permits(3);
    let fields = [("action", "retry"), ("scope", "all"), ("lead", "4002")];
    let begun = anna.act("/letters", "/letters/act", &fields).await;
    let path = begun.header("location").expect("a job").to_owned();
    let seen = load_until(&anna, &path, |page| {
        progress(page).contains("value=\"300\"")
    })
    .await;
    assert!(
        progress(&seen).contains("max=\"10000\""),
        "{}",
        progress(&seen)
    );
    assert!(
        seen.body.contains("http-equiv=\"refresh\""),
        "it moves without scripts"
    );
    let listed = anna.get("/letters").await;
    assert!(
        listed.body.contains(&format!("href=\"{path}\"")),
        "the way back"
    );
    fake.permits.add_permits(1000);
    let done = load_until(&anna, &path, |page| {
        progress(page).contains("value=\"10000\"")
    })
    .await;
    let done = if done.body.contains("The job is done") {
        done
    } else {
        load_until(&anna, &path, |page| page.body.contains("The job is done")).await
    };
    assert!(!done.body.contains("http-equiv=\"refresh\""));
    assert!(done.body.contains("10,000"), "{}", done.body);
    assert!(fake.known().letters.is_empty());
    assert!(
        fake.known()
            .actions
            .iter()
            .all(|(_, _, count)| *count == 100)
    );
    served.stop().await;
}

#[tokio::test]
async fn dry_run_shows_the_effect_and_changes_nothing() {
    let (fake, served, mut anna) = serve_letters(5).await;
    let fields = [("action", "dry_run"), ("scope", "all"), ("lead", "4002")];
    let begun = anna.act("/letters", "/letters/act", &fields).await;
    let job = anna.get(begun.header("location").expect("a job")).await;
    assert!(job.body.contains("would be sent"), "{}", job.body);
    assert!(job.body.contains("4002"));
    assert_eq!(fake.known().letters.len(), 5);
    served.stop().await;
}

#[tokio::test]
async fn discard_asks_for_confirmation_first() {
    let (fake, served, mut anna) = serve_letters(5).await;
    let fields = [("action", "discard"), ("id", "2"), ("id", "4")];
    let asked = anna.act("/letters", "/letters/act", &fields).await;
    assert_eq!(asked.status, 200);
    assert!(
        asked.body.contains("Discard 2 dead letters?"),
        "{}",
        asked.body
    );
    assert_eq!(fake.known().letters.len(), 5);
    let token = asked.token();
    let sure = [
        ("token", token.as_str()),
        ("action", "discard"),
        ("confirmed", "yes"),
        ("scope", "chosen"),
        ("id", "2"),
        ("id", "4"),
    ];
    assert_eq!(anna.post("/letters/act", &sure).await.status, 303);
    assert_eq!(fake.known().letters.len(), 3);
    served.stop().await;
}

#[tokio::test]
async fn typed_values_are_kept_when_the_form_is_refused() {
    let (fake, served, mut anna) = serve_letters(60).await;
    for (lead, says) in [
        ("4001x", "“4001x” is not a lead"),
        ("666", "the CRM has no lead 666"),
    ] {
        let fields = [
            ("action", "retry"),
            ("id", "59"),
            ("lead", lead),
            ("employee", "501"),
            ("reason", "failed"),
        ];
        let refused = anna.act("/letters", "/letters/act", &fields).await;
        assert_eq!(refused.status, 422, "{lead}");
        assert!(refused.body.contains(says), "{lead}: {}", refused.body);
        for kept in [
            format!("name=\"lead\" inputmode=\"numeric\" autocomplete=\"off\" value=\"{lead}\""),
            "autocomplete=\"off\" value=\"501\"".to_owned(),
            "name=\"reason\" value=\"failed\"".to_owned(),
        ] {
            assert!(refused.body.contains(&kept), "{kept}");
        }
        let row = refused
            .body
            .split("value=\"59\"")
            .nth(1)
            .expect("the letter");
        assert!(
            row.split('>').next().expect("its box").contains("checked"),
            "{lead}"
        );
    }
    let none = anna
        .act("/letters", "/letters/act", &[("action", "retry")])
        .await;
    assert_eq!(none.status, 422);
    assert!(none.body.contains("No dead letter is chosen"));
    let one = [
        ("action", "retry"),
        ("id", "3"),
        ("one", "3"),
        ("lead", "x"),
    ];
    let one = anna.act("/letters/3", "/letters/act", &one).await;
    assert!(
        one.body.contains("Dead letter 3") && one.body.contains("value=\"x\""),
        "{}",
        one.body
    );
    assert_eq!(fake.known().letters.len(), 60);
    served.stop().await;
}

#[tokio::test]
async fn export_has_one_line_per_dead_letter() {
    let (_, served, mut anna) = serve_letters(130).await;
    let all = anna.get("/letters/export?reason=failed").await;
    let kind = all.header("content-disposition").expect("a file");
    assert!(kind.contains("attachment"), "{kind}");
    assert_eq!(all.body.lines().count(), 87);
    for line in all.body.lines() {
        let json: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(json["id"].is_u64(), "{line}");
    }
    let chosen = [("id", "5"), ("id", "9"), ("scope", "chosen")];
    let some = anna.act("/letters", "/letters/export", &chosen).await;
    assert_eq!(some.body.lines().count(), 2, "{}", some.body);
    served.stop().await;
}
