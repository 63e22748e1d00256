//! Tests that no one can bypass logins and permissions.

use crate::client::{Browser, Manner, PASSWORD, Served, password_line};
use crate::fake::{Fake, Known};
use crate::morning::morning;
use callbridge_admin::PageRole;
use callbridge_model::clock;
use std::sync::Arc;

pub async fn serve_page(manner: Manner) -> (Arc<Fake>, Served) {
    let fake = Fake::new(morning("Savdo", 1_795_158_000));
    let served = Served::new(Arc::clone(&fake), manner).await;
    (fake, served)
}

pub fn with_anna() -> Manner {
    Manner {
        passwords: password_line("anna", "admin") + &password_line("bek", "view"),
        ..Manner::default()
    }
}

const GIVE: [(&str, &str); 2] = [("phone", "+998935550101"), ("lead", "4001")];

fn token_field(token: &str) -> Vec<(String, String)> {
    vec![("token".to_owned(), token.to_owned())]
}

#[tokio::test]
async fn forged_post_is_refused_and_genuine_form_accepted() {
    let (fake, served) = serve_page(Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let token = anna.get("/numbers").await.token();
    let own = format!("Origin: {}\r\n", anna.origin());
    let (port, other) = (served.address.port(), served.address.port() ^ 1);
    let forged = [
        ("no origin", token_field(&token), String::new()),
        (
            "another origin",
            token_field(&token),
            "Origin: http://evil.example\r\n".to_owned(),
        ),
        (
            "another port",
            token_field(&token),
            format!("Origin: http://127.0.0.1:{other}\r\n"),
        ),
        (
            "another scheme",
            token_field(&token),
            format!("Origin: https://127.0.0.1:{port}\r\n"),
        ),
        (
            "a hidden origin",
            token_field(&token),
            "Origin: null\r\n".to_owned(),
        ),
        (
            "cross-site",
            token_field(&token),
            format!("{own}Sec-Fetch-Site: cross-site\r\n"),
        ),
        (
            "same-site",
            token_field(&token),
            "Sec-Fetch-Site: same-site\r\n".to_owned(),
        ),
        ("no token", Vec::new(), own.clone()),
        ("a made-up token", token_field(&"0".repeat(64)), own.clone()),
        ("part of the token", token_field(&token[..32]), own.clone()),
    ];
    for (what, fields, headers) in forged {
        let mut all: Vec<(&str, &str)> = fields.iter().map(|(a, b)| (&**a, &**b)).collect();
        all.extend(GIVE);
        let refused = anna.post_as("/numbers/give", &all, &headers).await;
        assert_eq!(refused.status, 403, "{what}");
        assert!(
            refused.body.contains("Nothing was done"),
            "{what}: {}",
            refused.body
        );
        assert_eq!(fake.known().given.len(), 1, "{what}");
    }
    let mut all = vec![("token", token.as_str())];
    all.extend(GIVE);
    let same = "Origin: null\r\nSec-Fetch-Site: same-origin\r\n";
    let done = anna.post_as("/numbers/give", &all, same).await;
    assert_eq!(done.status, 303, "{}", done.body);
    let given = fake.known().given.last().cloned().expect("a lead");
    assert_eq!((given.lead_id.get(), given.who.as_str()), (4001, "anna"));
    served.stop().await;
}

#[tokio::test]
async fn request_for_foreign_host_is_refused_on_every_path() {
    let manner = Manner {
        names: vec!["calls.example.uz".to_owned()],
        ..with_anna()
    };
    let (_, served) = serve_page(manner).await;
    let anna = served.visitor(PageRole::Admin).await;
    for host in [
        "evil.example",
        "evil.example:9000",
        "127.0.0.1.evil.example",
        "192.0.2.1",
    ] {
        for path in ["/", "/login", "/letters", "/nowhere"] {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\n\r\n",
                anna.cookie
            );
            let refused = anna.send(&request).await;
            assert_eq!(refused.status, 403, "{host} {path}");
            assert!(
                refused.body.contains("calls.example.uz"),
                "{}",
                refused.body
            );
            assert!(!refused.body.contains("+998"), "{}", refused.body);
        }
    }
    for host in [
        "localhost:1",
        "127.0.0.1",
        "[::1]:7",
        "CALLS.example.uz:443",
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\n\r\n",
            anna.cookie
        );
        assert_eq!(anna.send(&request).await.status, 200, "{host}");
    }
    served.stop().await;
}

#[tokio::test]
async fn request_of_another_site_is_refused_on_every_path() {
    let (_, served) = serve_page(with_anna()).await;
    let anna = served.visitor(PageRole::Admin).await;
    let own = format!("http://{}", served.address);
    for header in [
        "Sec-Fetch-Site: cross-site",
        "Origin: null",
        "Origin: https://evil.example",
        &format!("Origin: {own}\r\nOrigin: https://evil.example"),
    ] {
        for path in ["/", "/login", "/letters", "/open/made-up", "/nowhere"] {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n{header}\r\n\r\n",
                served.address, anna.cookie
            );
            let refused = anna.send(&request).await;
            assert_eq!(refused.status, 403, "{header} {path}");
            assert!(!refused.body.contains("+998"), "{}", refused.body);
        }
    }
    let same = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nOrigin: {own}\r\n\r\n",
        served.address, anna.cookie
    );
    assert_eq!(anna.send(&same).await.status, 200);
    served.stop().await;
}

#[tokio::test]
async fn login_link_works_once_and_viewing_does_not_use_it() {
    let (_, served) = serve_page(Manner::default()).await;
    let mut browser = Browser::new(served.address);
    let path = served
        .links
        .issue(clock::now().boot, "root", PageRole::Admin)
        .expect("a link");
    for _ in 0..3 {
        let looked = browser.get(&path).await;
        assert_eq!(looked.status, 200);
        assert!(looked.header("set-cookie").is_none());
    }
    let foreign = "Origin: http://evil.example\r\n";
    assert_eq!(browser.post_as(&path, &[], foreign).await.status, 403);
    assert_eq!(browser.post(&path, &[]).await.status, 303);
    let inside = browser.get("/").await;
    assert!(inside.body.contains("root"), "{}", inside.body);
    let mut other = Browser::new(served.address);
    let replayed = other.post(&path, &[]).await;
    assert_eq!(replayed.status, 410);
    assert!(
        replayed.body.contains("callbridge page"),
        "{}",
        replayed.body
    );
    assert_eq!(other.get("/").await.status, 303);
    assert_eq!(other.get(&path).await.status, 410);
    served.stop().await;
}

#[tokio::test]
async fn pages_and_files_are_never_shown_without_a_login() {
    let (_, served) = serve_page(with_anna()).await;
    let nobody = Browser::new(served.address);
    for path in crate::views::PATHS {
        let answer = nobody.get(path).await;
        assert!(
            matches!(answer.status, 303 | 404),
            "{path}: {}",
            answer.status
        );
        assert!(!answer.body.contains("+998"), "{path}");
    }
    let files = [
        "/missed.csv",
        "/numbers.csv",
        "/employees.csv",
        "/letters/export",
    ];
    for path in files {
        assert_eq!(nobody.get(path).await.status, 303, "{path}");
    }
    assert_eq!(nobody.get("/live").await.status, 401);
    let to = nobody.get("/letters?reason=failed").await;
    let next = to.header("location").expect("a way");
    assert_eq!(next, "/login?next=%2Fletters%3Freason%3Dfailed");
    served.stop().await;
}

#[tokio::test]
async fn session_cookie_is_per_instance_and_invalid_after_logout() {
    let (fake, served) = serve_page(with_anna()).await;
    let mut browser = Browser::new(served.address);
    let fields = [
        ("name", "anna"),
        ("password", PASSWORD),
        ("next", "/missed"),
    ];
    let entered = browser.post("/login", &fields).await;
    assert_eq!(entered.status, 303, "{}", entered.body);
    assert_eq!(entered.header("location"), Some("/missed"));
    let cookie = entered.header("set-cookie").expect("a cookie").to_owned();
    for part in [
        "callbridge-tashkent-1=",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "plain HTTP on loopback");
    let token = browser
        .cookie
        .split('=')
        .nth(1)
        .expect("a token")
        .to_owned();
    let kept = fake.known().sessions.clone().expect("kept");
    assert!(kept.contains("anna") && !kept.contains(&token), "{kept}");
    let stolen = browser.clone();
    assert_eq!(stolen.get("/").await.status, 200);
    let out = browser.act("/", "/logout", &[]).await;
    assert_eq!(out.header("location"), Some("/login"));
    assert_eq!(stolen.get("/").await.status, 303);
    assert!(
        !fake
            .known()
            .sessions
            .clone()
            .expect("kept")
            .contains("anna")
    );
    served.stop().await;
}

#[tokio::test]
async fn session_cookie_is_secure_behind_a_proxy() {
    let manner = Manner {
        behind_proxy: true,
        ..with_anna()
    };
    let (_, served) = serve_page(manner).await;
    let mut browser = Browser::new(served.address);
    let right = [("name", "anna"), ("password", PASSWORD)];
    let entered = browser.post("/login", &right).await;
    assert_eq!(entered.status, 303);
    assert!(
        entered
            .header("set-cookie")
            .expect("a cookie")
            .contains("; Secure")
    );
    served.stop().await;
}

#[tokio::test]
async fn login_works_after_five_failures_and_form_keeps_name() {
    let (_, served) = serve_page(with_anna()).await;
    let mut browser = Browser::new(served.address);
    for name in ["anna", "nobody", "anna", "bek", "anna"] {
        let refused = browser
            .post("/login", &[("name", name), ("password", "not this one")])
            .await;
        assert_eq!(refused.status, 403);
        let typed = format!("name=\"name\" value=\"{name}\"");
        assert!(refused.body.contains(&typed), "{}", refused.body);
        assert!(
            !refused.body.contains("not this one"),
            "no password comes back"
        );
    }
    let entered = browser
        .post("/login", &[("name", "anna"), ("password", PASSWORD)])
        .await;
    assert_eq!(entered.status, 303, "it waits, and is not refused");
    served.stop().await;
}

#[tokio::test]
async fn sessions_survive_a_restart() {
    let (fake, served) = serve_page(Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    served.stop().await;
    let again = Served::new(fake, Manner::default()).await;
    anna.address = again.address;
    assert_eq!(anna.get("/").await.status, 200);
    let done = anna.act("/numbers", "/numbers/give", &GIVE).await;
    assert_eq!(done.status, 303, "its forms go on, too");
    again.stop().await;
}

#[tokio::test]
async fn view_role_has_no_forms_and_cannot_act() {
    let (fake, served) = serve_page(Manner::default()).await;
    let mut bek = served.visitor(PageRole::View).await;
    for path in ["/letters", "/letters/3", "/numbers", "/check"] {
        let page = bek.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        let forms = page.body.matches("method=\"post\"").count();
        let letters = page.body.contains("name=\"action\"");
        assert!(!letters && forms <= 2, "{path}: {forms} forms");
        assert!(!page.body.contains("/numbers/give"), "{path}");
    }
    for path in [
        "/letters/act",
        "/numbers/give",
        "/numbers/take",
        "/check",
        "/letters/export",
    ] {
        let fields = [
            ("id", "3"),
            ("action", "retry"),
            ("phone", "+998935550101"),
            ("lead", "1"),
        ];
        let refused = bek.act("/", path, &fields).await;
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.body.contains("admin"), "{}", refused.body);
    }
    assert!(fake.known().actions.is_empty() && fake.known().given.len() == 1);
    served.stop().await;
}

#[tokio::test]
async fn answers_have_strict_security_headers() {
    let (_, served) = serve_page(Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    let style = anna.get("/").await.body;
    let style = style
        .split("href=\"")
        .find(|part| part.contains("page.css"))
        .expect("a style");
    let style = style.split('"').next().expect("a path").to_owned();
    for path in ["/", "/nowhere", "/missed.csv", &style] {
        let answer = anna.get(path).await;
        let policy = answer.header("content-security-policy").expect("a policy");
        let mut rules: Vec<&str> = policy.split("; ").collect();
        rules.sort_unstable();
        let expected = [
            "base-uri 'none'",
            "connect-src 'self'",
            "default-src 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "img-src 'self'",
            "script-src 'self'",
            "style-src 'self'",
        ];
        assert_eq!(rules, expected, "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let kept = answer.header("cache-control").expect("said");
        assert_eq!(kept.contains("immutable"), path == style, "{path}: {kept}");
        if path == "/" {
            for inline in [" style=", "<style", "<script>", "javascript:", " onclick"] {
                assert!(!answer.body.contains(inline), "{inline}");
            }
        }
    }
    let put = anna
        .send(&format!("{}\r\n", anna.head("PUT", "/letters")))
        .await;
    assert_eq!((put.status, put.header("allow")), (405, Some("GET,HEAD")));
    served.stop().await;
}

/// Returns a POST of the browser to `/letters/act` with a body of this content type.
fn letters_post(browser: &Browser, content_type: &str, body: &str) -> String {
    format!(
        "{}Origin: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        browser.head("POST", "/letters/act"),
        browser.origin(),
        body.len()
    )
}

#[tokio::test]
async fn body_that_is_no_form_or_too_long_is_refused() {
    let (_, served) = serve_page(Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    let json = anna
        .send(&letters_post(&anna, "application/json", "{}"))
        .await;
    assert_eq!(json.status, 415);
    let long = "a=".to_owned() + &"x".repeat(100_000);
    let form = "application/x-www-form-urlencoded";
    let refused = anna.send(&letters_post(&anna, form, &long)).await;
    assert_eq!(refused.status, 413);
    served.stop().await;
}

#[tokio::test]
async fn form_values_survive_expired_session_and_new_login() {
    let manner = with_anna();
    let (fake, served) = serve_page(manner.clone()).await;
    let mut browser = Browser::new(served.address);
    let ended = browser.post("/numbers/give", &GIVE).await;
    assert_eq!(ended.status, 401);
    assert!(ended.body.contains("4001"), "{}", ended.body);
    let carried = "phone=%2B998935550101&lead=4001";
    let shown = format!("value=\"{}\"", carried.replace('&', "&#38;"));
    assert!(ended.body.contains(&shown), "{}", ended.body);
    let fields = [
        ("name", "anna"),
        ("password", PASSWORD),
        ("next", "/numbers/give"),
        ("carried", carried),
    ];
    let back = browser.post("/login", &fields).await;
    assert_eq!(back.status, 200, "{}", back.body);
    assert_eq!(fake.known().given.len(), 1, "nothing happens by itself");
    let mut all = vec![("token", back.token())];
    all.extend(GIVE.map(|(name, value)| (name, value.to_owned())));
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, &**value)).collect();
    assert_eq!(browser.post("/numbers/give", &all).await.status, 303);
    assert_eq!(fake.known().given.len(), 2);
    served.stop().await;
}

#[tokio::test]
async fn missing_or_invalid_sessions_let_no_one_in() {
    let known = Known {
        sessions: Some("nonsense".to_owned()),
        ..Known::default()
    };
    let served = Served::new(Fake::new(known), Manner::default()).await;
    let mut browser = Browser::new(served.address);
    for cookie in [
        "",
        "callbridge-tashkent-1=",
        "callbridge-tashkent-1=nonsense",
    ] {
        cookie.clone_into(&mut browser.cookie);
        assert_eq!(browser.get("/").await.status, 303, "{cookie}");
    }
    served.stop().await;
}
