//! A browser without scripts, which keeps a cookie, submits forms, and sends an `Origin` header.

use crate::commands::sidecar::{Place, wait_for};
use regex::Regex;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};

/// An answer of the page to one request.
#[derive(Debug)]
pub struct PageAnswer {
    pub status: StatusCode,
    pub location: Option<String>,
    pub cookie: Option<String>,
    pub text: String,
}

fn header(answer: &Response, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?;
    Some(value.to_str().expect("text").to_owned())
}

/// The browser of one user of the page.
pub struct Browser {
    client: Client,
    /// The origin of the page, such as `http://127.0.0.1:9470`.
    pub origin: String,
    /// The session cookie, as `name=value`.
    pub cookie: Option<String>,
}

impl Browser {
    /// Opens the page of the daemon in this place, without a login. Also returns the path of the
    /// login link.
    pub async fn without_login(place: &Place) -> (Self, String) {
        let output = place.run_on_state("page").await.expect_success();
        let url = output.trim().strip_prefix("open: ").expect("a link");
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

    /// Opens the page, logged in as the user who runs the tests.
    pub async fn with_login(place: &Place) -> Self {
        let (mut browser, path) = Self::without_login(place).await;
        let answer = browser.post(&path, &[]).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        browser.cookie = answer.cookie;
        browser
    }

    /// Returns a request that has the cookie, and no other header that a browser sends.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.origin));
        match &self.cookie {
            Some(cookie) => request.header("Cookie", cookie),
            None => request,
        }
    }

    pub async fn send(&self, request: RequestBuilder) -> PageAnswer {
        let answer = wait_for("an answer of the page", request.send()).await;
        let answer = answer.expect("an answer");
        let cookie = header(&answer, "set-cookie");
        let cookie = cookie.and_then(|text| text.split(';').next().map(str::to_owned));
        let (status, location) = (answer.status(), header(&answer, "location"));
        let text = wait_for("the end of the answer", answer.text())
            .await
            .expect("text");
        PageAnswer {
            status,
            location,
            cookie,
            text,
        }
    }

    pub async fn get(&self, path: &str) -> PageAnswer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Returns the text of a page. Panics if the status is not 200.
    pub async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        answer.text
    }

    /// Submits a form with the page's own `Origin` header, as a browser does.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let request = self.form(path, fields).header("Origin", &self.origin);
        self.send(request).await
    }

    /// Returns a form request without an `Origin` header.
    pub fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let body: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
            .collect();
        self.request(Method::POST, path)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(body.join("&"))
    }

    /// Returns the token against forged requests in the forms of this page.
    pub async fn token(&self, path: &str) -> String {
        let text = self.page(path).await;
        let field = Regex::new(r#"name="token"\s+value="([^"]+)""#).expect("a pattern");
        let found = field.captures(&text).and_then(|groups| groups.get(1));
        found
            .unwrap_or_else(|| panic!("no form in {path}: {text}"))
            .as_str()
            .to_owned()
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
