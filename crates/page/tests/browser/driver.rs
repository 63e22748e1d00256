//! WebDriver: JSON over plain HTTP to `chromedriver`.

use callbridge_testbed::port::free_port;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A running `chromedriver`.
pub struct Driver {
    address: SocketAddr,
    child: Child,
}

/// How a browser is opened.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub width: u32,
    pub height: u32,
    pub dark: bool,
    pub scripts: bool,
}

/// One browser.
pub struct Session<'a> {
    driver: &'a Driver,
    id: String,
}

impl Driver {
    pub async fn new() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let child = Command::new("chromedriver")
            .arg(format!("--port={}", address.port()))
            .arg("--log-level=OFF")
            .stdout(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver: apt-get install chromium chromium-driver");
        let driver = Self { address, child };
        while TcpStream::connect(driver.address).await.is_err() {
            tokio::task::yield_now().await;
        }
        driver
    }

    pub async fn end(mut self) {
        self.child.kill().await.expect("it ends");
    }

    /// One command; its value.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = match method {
            "POST" => body.to_string(),
            _ => String::new(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let json = answer(&mut stream).await;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let value = json["value"].clone();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    /// Opens a browser.
    pub async fn session(&self, window: Window) -> Session<'_> {
        let size = format!("--window-size={},{}", window.width, window.height);
        let scripts = if window.scripts { 1 } else { 2 };
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size],
            "prefs": {"profile.managed_default_content_settings.javascript": scripts},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let value = self.ask("POST", "/session", &wanted).await;
        let id = value["sessionId"].as_str().expect("a session").to_owned();
        let session = Session { driver: self, id };
        let look = if window.dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": look});
        let media = json!({"features": [feature]});
        session.cdp("Emulation.setEmulatedMedia", media).await;
        let metrics = json!({"width": window.width, "height": window.height,
            "deviceScaleFactor": 1, "mobile": false});
        session
            .cdp("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        session
    }
}

impl Session<'_> {
    async fn ask(&self, what: &str, body: Value) -> Value {
        let path = format!("/session/{}/{what}", self.id);
        self.driver.ask("POST", &path, &body).await
    }

    /// A command of the browser's own protocol.
    async fn cdp(&self, command: &str, params: Value) -> Value {
        let body = json!({"cmd": command, "params": params});
        self.ask("goog/cdp/execute", body).await
    }

    pub async fn open(&self, url: &str) {
        self.ask("url", json!({"url": url})).await;
    }

    pub async fn cookie(&self, cookie: &str) {
        let (name, value) = cookie.split_once('=').expect("a cookie");
        let cookie = json!({"name": name, "value": value, "path": "/"});
        self.ask("cookie", json!({"cookie": cookie})).await;
    }

    /// Runs a script that returns something.
    pub async fn run(&self, script: &str) -> Value {
        self.ask("execute/sync", json!({"script": script, "args": []}))
            .await
    }

    pub async fn scrolls_sideways(&self) -> bool {
        let script = "return document.documentElement.scrollWidth > window.innerWidth";
        self.run(script).await == true
    }

    /// A picture of the whole page.
    pub async fn picture(&self, file: &Path) {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.cdp("Page.captureScreenshot", params).await;
        let bytes = decoded(shot["data"].as_str().expect("a picture"));
        std::fs::write(file, bytes).expect("written");
    }

    /// Presses keys where the cursor is.
    pub async fn keys(&self, text: &str) {
        for key in text.chars() {
            let press = |kind: &str| json!({"type": kind, "value": key.to_string()});
            let keys = json!([press("keyDown"), press("keyUp")]);
            let action = json!([{"type": "key", "id": "keys", "actions": keys}]);
            self.ask("actions", json!({"actions": action})).await;
        }
    }

    /// Goes on by Tab until the cursor is on this.
    pub async fn tab_to(&self, selector: &str) {
        let quoted = Value::from(selector);
        let there = format!("return document.activeElement.matches({quoted})");
        for _ in 0..200 {
            if self.run(&there).await == true {
                return;
            }
            self.keys("\u{e004}").await;
        }
        panic!("no way to {selector} by keyboard");
    }

    /// Presses Enter, and waits for a page that has this.
    pub async fn enter(&self, selector: &str) {
        self.run("window.before = true").await;
        self.keys("\u{e007}").await;
        let quoted = Value::from(selector);
        self.until(&format!(
            "return !window.before && !!document.querySelector({quoted})"
        ))
        .await;
    }

    /// Asks until it is so; the whole test has an end of its own.
    pub async fn until(&self, script: &str) {
        let limit = std::time::Duration::from_secs(60);
        let asking = async { while self.run(script).await != true {} };
        let in_time = tokio::time::timeout(limit, asking).await;
        assert!(in_time.is_ok(), "it never was so: {script}");
    }

    /// The text of an element, as it is read.
    pub async fn text(&self, selector: &str) -> String {
        let quoted = Value::from(selector);
        let script = format!("return document.querySelector({quoted}).innerText");
        self.run(&script)
            .await
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Serious findings of axe-core, where `CALLBRIDGE_AXE` names it.
    pub async fn axe(&self) -> Vec<String> {
        let Some(path) = std::env::var_os("CALLBRIDGE_AXE") else {
            return Vec::new();
        };
        let axe = std::fs::read_to_string(path).expect("axe.min.js");
        self.run(&axe).await;
        let script = "const done = arguments[arguments.length - 1]; \
             axe.run().then((found) => done(found.violations.filter((it) => \
             ['serious', 'critical'].includes(it.impact)).map((it) => it.id + ': ' + \
             it.nodes.map((node) => node.html).join(' | ').slice(0, 400))), \
             (error) => done([String(error)]));";
        let body = json!({"script": script, "args": []});
        let found = self.ask("execute/async", body).await;
        let found = found.as_array().expect("findings").iter();
        found
            .map(|it| it.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// What the console was told.
    pub async fn console(&self) -> Vec<String> {
        let lines = self.ask("se/log", json!({"type": "browser"})).await;
        let lines = lines.as_array().expect("lines").iter();
        lines.map(|line| line["message"].to_string()).collect()
    }

    pub async fn end(self) {
        let path = format!("/session/{}", self.id);
        self.driver.ask("DELETE", &path, &Value::Null).await;
    }
}

/// The body of an answer: the connection may stay open after it.
async fn answer(stream: &mut TcpStream) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 64 * 1024]);
    loop {
        let count = stream.read(&mut piece).await.expect("an answer");
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(count > 0, "the answer was cut");
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length:").nth(1);
        let length = length.and_then(|it| it.lines().next()?.trim().parse().ok());
        if count == 0 || length.is_some_and(|length: usize| body.len() >= length) {
            return body.to_owned();
        }
    }
}

fn decoded(base64: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in base64.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | u32::from(value(byte));
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).expect("a byte"));
        }
    }
    bytes
}
