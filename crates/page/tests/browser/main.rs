//! The page in a real browser: Debian's Chromium, driven over WebDriver. Every view at three
//! widths, light and dark and in three languages, with a picture of each in `target/screenshots`;
//! none may scroll sideways or write a line to the console (a refused style or script does). Then
//! the way from the login to a letter that is sent again by keyboard alone, the same without
//! scripts, and a daemon that stops while the page is open.
//!
//! `cargo test -p callbridge-page --test browser`; it needs `chromium` and `chromedriver`. Where
//! `CALLBRIDGE_AXE` names `axe.min.js` of axe-core, no view may have a serious finding of it.

#[path = "../page/client.rs"]
mod client;
mod driver;
#[path = "../page/fake.rs"]
mod fake;

use callbridge_model::clock;
use callbridge_page::role::Role;
use client::{Browser, Manner, PASSWORD, Served};
use driver::{Driver, Session, Window};
use fake::{Fake, morning};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Every view, with the name of its picture.
const VIEWS: [(&str, &str); 14] = [
    ("today", "/"),
    ("calls", "/calls"),
    ("call", "/calls/0190b7c4-0000-7000-8000-000000000003"),
    ("letters", "/letters"),
    ("letters-failed", "/letters?reason=failed"),
    ("letter", "/letters/3"),
    ("numbers", "/numbers"),
    ("missed", "/missed"),
    ("employees", "/employees"),
    ("week", "/employees?span=week"),
    ("pbx", "/pbx"),
    ("check", "/check"),
    ("job", "/jobs/1"),
    ("nowhere", "/nowhere"),
];

fn now() -> i64 {
    clock::now().wall.micros() / 1_000_000
}

fn folder() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots");
    std::fs::create_dir_all(&target).expect("a folder for pictures");
    target
}

fn manner() -> Manner {
    Manner {
        passwords: client::password_line("anna", "admin"),
        ..Manner::default()
    }
}

#[tokio::main]
async fn main() {
    let fake = Fake::new(morning("Savdo va Xizmat MChJ", now()));
    let served = Served::new(Arc::clone(&fake), manner()).await;
    let mut anna = served.visitor(Role::Admin).await;
    let fields = [("action", "dry_run"), ("scope", "all"), ("lead", "4002")];
    anna.act("/letters", "/letters/act", &fields).await;
    anna.act("/check", "/check", &[]).await;
    let driver = Driver::new().await;
    let mut faults = Vec::new();
    for (width, height) in [(360, 780), (1024, 768), (1920, 1080)] {
        for (dark, language) in [(false, "en"), (true, "en"), (false, "ru"), (true, "uz")] {
            let window = Window {
                width,
                height,
                dark,
                scripts: true,
            };
            let session = driver.session(window).await;
            look(&session, &anna, window, language, &mut faults).await;
            session.end().await;
        }
    }
    for scripts in [true, false] {
        let before = fake.known().letters.len();
        by_keyboard(&driver, &served, scripts).await;
        assert_eq!(fake.known().letters.len(), before - 1, "scripts: {scripts}");
    }
    stops_and_comes_back(&driver, served, &fake, &anna).await;
    driver.end().await;
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    println!(
        "test result: ok. {} passed; 0 failed; 0 ignored",
        VIEWS.len() * 12 + 3
    );
}

/// Looks at every view.
async fn look(
    session: &Session<'_>,
    anna: &Browser,
    window: Window,
    language: &str,
    faults: &mut Vec<String>,
) {
    let (width, root) = (window.width, anna.origin());
    let look = if window.dark { "dark" } else { "light" };
    let name = |view: &str| folder().join(format!("{view}-{width}-{look}-{language}.png"));
    session.open(&format!("{root}/login")).await;
    session
        .cookie(&format!("callbridge-language={language}"))
        .await;
    session.open(&format!("{root}/login")).await;
    session.picture(&name("login")).await;
    session.cookie(&anna.cookie).await;
    for (view, path) in VIEWS {
        session.open(&format!("{root}{path}")).await;
        session.picture(&name(view)).await;
        if session.scrolls_sideways().await {
            faults.push(format!("{view} scrolls sideways at {width} in {language}"));
        }
        for finding in session.axe().await {
            faults.push(format!("{view} at {width}, {look}: {finding}"));
        }
    }
    for line in session.console().await {
        // What is not there is asked for here on purpose.
        if !line.contains("/nowhere") {
            faults.push(format!("console at {width}: {line}"));
        }
    }
}

/// Logs in, finds a letter and sends it again with another lead: by keyboard alone.
async fn by_keyboard(driver: &Driver, served: &Served, scripts: bool) {
    let window = Window {
        width: 1024,
        height: 768,
        dark: false,
        scripts,
    };
    let session = driver.session(window).await;
    session
        .open(&format!("http://{}/letters", served.address))
        .await;
    session.tab_to("input[name=name]").await;
    session.keys("anna").await;
    session.tab_to("input[name=password]").await;
    session.keys(PASSWORD).await;
    session.enter("main").await;
    session.tab_to("td a[href^='/letters/']").await;
    session.enter("form.act").await;
    session.tab_to("input[name=lead]").await;
    session.keys("4002").await;
    session.tab_to("button[value=retry]").await;
    session.enter("progress.long").await;
    let said = session.text("main").await;
    assert!(said.contains("All of it is done"), "{said}");
    session.end().await;
}

/// A page that is open says that the daemon has stopped, and comes back by itself.
async fn stops_and_comes_back(driver: &Driver, served: Served, fake: &Arc<Fake>, anna: &Browser) {
    let window = Window {
        width: 1024,
        height: 768,
        dark: false,
        scripts: true,
    };
    let session = driver.session(window).await;
    let (root, address) = (anna.origin(), served.address.to_string());
    session.open(&format!("{root}/login")).await;
    session.cookie(&anna.cookie).await;
    session.open(&format!("{root}/missed")).await;
    session
        .until("return document.body.innerText.includes('+998971234567')")
        .await;
    fake.known().missed.remove(0);
    fake.change();
    session
        .until("return !document.body.innerText.includes('+998971234567')")
        .await;
    served.stop().await;
    session
        .until("return !document.getElementById('lost').hidden")
        .await;
    session.picture(&folder().join("lost.png")).await;
    fake.known().missed.clear();
    let again = Served::at(&address, Arc::clone(fake), manner()).await;
    session
        .until("return document.getElementById('lost').hidden")
        .await;
    session
        .until("return document.body.innerText.includes('Nobody waits')")
        .await;
    session.end().await;
    again.stop().await;
}
