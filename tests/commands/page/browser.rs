//! A browser without scripts: it keeps a cookie, follows forms, and says where it comes from.

use crate::commands::sidecar::{Place, soon};
use regex::Regex;
use reqwest::{Client, Method, RequestBuilder, StatusCode, redirect};

/// What came back.
#[derive(Debug)]
pub struct Shown {
    pub status: StatusCode,
    pub location: Option<String>,
    pub cookie: Option<String>,
    pub text: String,
}

/// Somebody at the page.
pub struct Browser {
    client: Client,
    /// `http://127.0.0.1:9470`
    pub origin: String,
    /// `name=value` of the session.
    pub cookie: Option<String>,
}

impl Browser {
    /// Outside, at the page that the daemon of this place shows; and its link.
    pub async fn outside(place: &Place) -> (Self, String) {
        let said = place.ask("page").await.well();
        let url = said.trim().strip_prefix("open: ").expect("a link");
        let path = url.find("/open/").expect("a path of the page");
        let (origin, path) = url.split_at(path);
        let client = Client::builder().no_proxy();
        let client = client.redirect(redirect::Policy::none());
        let browser = Self {
            client: client.build().expect("a client"),
            origin: origin.to_owned(),
            cookie: None,
        };
        (browser, path.to_owned())
    }

    /// Inside, as the user who runs the tests.
    pub async fn inside(place: &Place) -> Self {
        let (mut browser, path) = Self::outside(place).await;
        let shown = browser.post(&path, &[]).await;
        assert_eq!(shown.status, StatusCode::SEE_OTHER, "{}", shown.text);
        browser.cookie = shown.cookie;
        browser
    }

    /// A request with the cookie, and nothing else that a browser would say.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.origin));
        match &self.cookie {
            Some(cookie) => request.header("Cookie", cookie),
            None => request,
        }
    }

    pub async fn send(&self, request: RequestBuilder) -> Shown {
        let answer = soon("an answer of the page", request.send()).await;
        let answer = answer.expect("an answer");
        let header = |name: &str| {
            let value = answer.headers().get(name)?;
            Some(value.to_str().expect("text").to_owned())
        };
        let cookie = header("set-cookie");
        let cookie = cookie.and_then(|it| it.split(';').next().map(str::to_owned));
        let (status, location) = (answer.status(), header("location"));
        let text = soon("its end", answer.text()).await.expect("text");
        Shown {
            status,
            location,
            cookie,
            text,
        }
    }

    pub async fn get(&self, path: &str) -> Shown {
        self.send(self.request(Method::GET, path)).await
    }

    /// A page that must be there.
    pub async fn page(&self, path: &str) -> String {
        let shown = self.get(path).await;
        assert_eq!(shown.status, StatusCode::OK, "{path}: {}", shown.text);
        shown.text
    }

    /// As a form of the page itself sends it.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let request = self.form(path, fields).header("Origin", &self.origin);
        self.send(request).await
    }

    /// A form that says nothing of where it comes from.
    pub fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let body: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
            .collect();
        self.request(Method::POST, path)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(body.join("&"))
    }

    /// The token that the forms of this page carry.
    pub async fn token(&self, path: &str) -> String {
        let text = self.page(path).await;
        let field = Regex::new(r#"name="token"\s+value="([^"]+)""#).expect("a pattern");
        let found = field.captures(&text).and_then(|it| it.get(1));
        found
            .unwrap_or_else(|| panic!("no form in {path}: {text}"))
            .as_str()
            .to_owned()
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
