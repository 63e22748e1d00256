//! Controls Chromium over WebDriver (W3C) with `chromedriver`, and over DevTools if WebDriver has
//! no command.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use callbridge_testbed::port::free_port;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A request to the browser that takes this long has failed.
const WITHIN: Duration = Duration::from_secs(60);
/// A browser that does not end within this time ends with its driver.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A size of the window, in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub name: &'static str,
    pub width: u32,
    pub height: u32,
}

/// A browser with one window.
pub struct Browser {
    http: reqwest::Client,
    base: String,
    driver: Child,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // If only the driver were killed, its browser would continue. An error means that the
        // driver has already ended.
        let _ = self.end_session();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Makes the driver end its browser, and waits for the answer. The request is written by hand,
    /// because `drop` cannot await.
    fn end_session(&self) -> std::io::Result<()> {
        let base = self.base.trim_start_matches("http://");
        let Some((host, session)) = base.split_once('/') else {
            return Ok(()); // no session was opened
        };
        let mut line = TcpStream::connect(host)?;
        line.set_read_timeout(Some(ENDS_WITHIN))?;
        // With HTTP/1.0, the driver closes the connection early.
        let head = format!("DELETE /{session} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        write!(line, "{head}\r\n")?;
        // The driver answers when its browser has ended.
        line.read(&mut [0; 64]).map(drop)
    }

    /// Starts a browser with this language (`ru`).
    pub async fn start(language: &str) -> Result<Self> {
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("chromedriver: apt-get install chromium-driver (tests/run page does it)")?;
        let mut browser = Self {
            http: reqwest::Client::builder()
                .no_proxy()
                .timeout(WITHIN)
                .build()?,
            base: format!("http://127.0.0.1:{port}"),
            driver,
        };
        browser.wait_until_ready().await?;
        let options = json!({
            "args": [
                "--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                format!("--lang={language}"), "--hide-scrollbars",
            ],
            "prefs": {"intl.accept_languages": language, "intl.selected_languages": language},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = browser.post("/session", &wanted).await?;
        let id = session["sessionId"].as_str().context("a session")?;
        browser.base = format!("{}/session/{id}", browser.base);
        Ok(browser)
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let mut looks = tokio::time::interval(Duration::from_millis(50));
        let ready = async {
            loop {
                looks.tick().await;
                let response = self.http.get(format!("{}/status", self.base)).send().await;
                if response.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
            }
        };
        let waited = tokio::time::timeout(WITHIN, ready).await;
        waited.context("chromedriver did not get ready")
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let request = self.http.post(format!("{}{path}", self.base)).json(body);
        let answer: Value = request.send().await?.json().await?;
        let value = answer.get("value").cloned().unwrap_or_default();
        if let Some(error) = value.get("error").and_then(Value::as_str) {
            let words = value["message"].as_str().unwrap_or_default();
            bail!("{path}: {error}: {words}");
        }
        Ok(value)
    }

    /// Sends a DevTools command.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        let body = json!({"cmd": command, "params": parameters});
        self.post("/goog/cdp/execute", &body).await
    }

    pub async fn go(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({"url": url})).await.map(drop)
    }

    /// Runs a script and returns its result.
    pub async fn execute(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
            .await
    }

    /// Runs a script and returns the value with which it calls its last argument.
    pub async fn execute_later(&self, script: &str) -> Result<Value> {
        self.post("/execute/async", &json!({"script": script, "args": []}))
            .await
    }

    /// Presses keys in the focused element.
    pub async fn press(&self, keys: &str) -> Result<()> {
        let each = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let source = json!({
            "type": "key", "id": "keyboard", "actions": each.collect::<Vec<_>>(),
        });
        self.post("/actions", &json!({"actions": [source]}))
            .await
            .map(drop)
    }

    pub async fn resize(&self, size: Size) -> Result<()> {
        let parameters = json!({
            "width": size.width, "height": size.height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", parameters)
            .await
            .map(drop)
    }

    /// Sets the color scheme, light or dark.
    pub async fn prefer(&self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}))
            .await
            .map(drop)
    }

    pub async fn scripts_off(&self, off: bool) -> Result<()> {
        self.devtools(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": off}),
        )
        .await
        .map(drop)
    }

    /// Returns a screenshot of the whole page as PNG.
    pub async fn screenshot(&self) -> Result<Vec<u8>> {
        let parameters = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.devtools("Page.captureScreenshot", parameters).await?;
        let text = shot["data"].as_str().context("a picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
    }

    /// Returns the console messages since the last call.
    pub async fn console(&self) -> Result<Vec<String>> {
        let entries = self.post("/se/log", &json!({"type": "browser"})).await?;
        let entries = entries.as_array().cloned().unwrap_or_default();
        let messages = entries.iter().filter_map(|entry| entry["message"].as_str());
        Ok(messages.map(str::to_owned).collect())
    }
}
