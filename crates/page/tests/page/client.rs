//! A minimal browser that sends raw HTTP, so that tests control every header.

use crate::fake::Fake;
use argon2::password_hash::PasswordHasher as _;
use argon2::{Argon2, Params};
use callbridge_admin::PageRole;
use callbridge_model::{Zone, clock};
use callbridge_page::page::Page;
use callbridge_page::passwords::Passwords;
use callbridge_page::server;
use callbridge_page::settings::Settings;
use callbridge_page::{Links, Sessions};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// The password of all users.
pub const PASSWORD: &str = "correct horse";

/// Makes a line of the password file whose hash is cheap to verify.
pub fn password_line(name: &str, role: &str) -> String {
    let cheap = Params::new(8, 1, 1, None).expect("parameters");
    let hash = Argon2::from(cheap).hash_password(PASSWORD.as_bytes());
    format!("{name}:{role}:{}\n", hash.expect("a hash"))
}

/// A page that is being served.
pub struct Served {
    pub address: SocketAddr,
    pub links: Links,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

/// The settings of a served page.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    pub passwords: String,
    pub behind_proxy: bool,
    pub names: Vec<String>,
    pub lead_url: Option<&'static str>,
}

impl Served {
    pub async fn new(fake: Arc<Fake>, manner: Manner) -> Self {
        Self::bind("127.0.0.1:0", fake, manner).await
    }

    /// Serves the page at this address.
    pub async fn bind(address: &str, fake: Arc<Fake>, manner: Manner) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let proxies: Option<&[std::net::IpAddr]> = manner.behind_proxy.then_some(&[]);
        let settings = Settings::new(address, None, proxies, &manner.names);
        let passwords = Passwords::parse(&manner.passwords).expect("passwords");
        let (_, passwords) = watch::channel(passwords);
        let mut settings = settings.expect("settings");
        settings.people = passwords;
        settings.zone = Zone::from_name("Asia/Tashkent").expect("a zone");
        settings.instance = "tashkent 1".to_owned();
        settings.lead_url = manner.lead_url.map(Arc::from);
        let links = settings.links.clone();
        let page = Page::new(settings, fake, Sessions::default());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server::serve(listener, page, async {
            drop(stopped.await);
        }));
        Self {
            address,
            links,
            stop: Some(stop),
            serving,
        }
    }

    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.await.expect("it ends");
    }

    /// Returns a browser that has logged in with a link for this role.
    pub async fn visitor(&self, role: PageRole) -> Browser {
        let mut browser = Browser::new(self.address);
        let path = self
            .links
            .issue(clock::now().boot, "anna", role)
            .expect("a link");
        let opened = browser.post(&path, &[]).await;
        assert_eq!(opened.status, 303, "{}", opened.body);
        browser
    }
}

#[derive(Clone, Debug)]
pub struct PageAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl PageAnswer {
    /// Returns a header by its name in lowercase.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the token in the forms of this page.
    pub fn token(&self) -> String {
        let (_, after) = self
            .body
            .split_once("name=\"token\" value=\"")
            .expect("a form");
        after.split('"').next().expect("a value").to_owned()
    }
}

/// A browser with its cookies.
#[derive(Clone, Debug)]
pub struct Browser {
    pub address: SocketAddr,
    pub cookie: String,
    pub language: &'static str,
}

pub fn encode_form(fields: &[(&str, &str)]) -> String {
    fields
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect::<Vec<_>>()
        .join("&")
}

fn escape_byte(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    }
}

fn escape(text: &str) -> String {
    text.bytes().map(escape_byte).collect()
}

impl Browser {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            cookie: String::new(),
            language: "en",
        }
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request, and reads the answer to its end.
    pub async fn send(&self, request: &str) -> PageAnswer {
        let mut stream = TcpStream::connect(self.address).await.expect("connected");
        // The page can answer before it has read the whole request.
        drop(stream.write_all(request.as_bytes()).await);
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes).await);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let chunked = head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked");
        PageAnswer {
            status: status.unwrap_or(0),
            body: if chunked {
                join_chunks(&bytes[head.len() + 4..])
            } else {
                body.to_owned()
            },
            head: head.to_owned(),
        }
    }

    /// Returns the head of a request as a browser would write it, without the last empty line.
    pub fn head(&self, method: &str, path: &str) -> String {
        let cookie = if self.cookie.is_empty() {
            String::new()
        } else {
            format!("Cookie: {}\r\n", self.cookie)
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept-Language: {}\r\n{cookie}",
            self.address, self.language
        )
    }

    pub async fn get(&self, path: &str) -> PageAnswer {
        self.send(&format!("{}\r\n", self.head("GET", path))).await
    }

    /// Posts a form with the page's own origin, and stores cookies from the answer.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let origin = format!("Origin: {}\r\n", self.origin());
        self.post_as(path, fields, &origin).await
    }

    /// Posts a form with these headers in addition to the ordinary ones.
    pub async fn post_as(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &str,
    ) -> PageAnswer {
        let body = encode_form(fields);
        let request = format!(
            "{}{headers}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\
             \r\n{body}",
            self.head("POST", path),
            body.len()
        );
        let answer = self.send(&request).await;
        if let Some(cookie) = answer.header("set-cookie") {
            self.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        }
        answer
    }

    /// Posts a form with the token of the page that contains the form.
    pub async fn act(&mut self, form: &str, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let token = self.get(form).await.token();
        let mut all = vec![("token", token.as_str())];
        all.extend_from_slice(fields);
        self.post(path, &all).await
    }
}

/// Joins the pieces of a chunked body.
fn join_chunks(mut bytes: &[u8]) -> String {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        let from = end + 2;
        whole.extend_from_slice(&bytes[from..(from + size).min(bytes.len())]);
        bytes = bytes.get(from + size + 2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&whole).into_owned()
}
