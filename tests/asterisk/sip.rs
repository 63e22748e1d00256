//! Parses and writes the SIP messages (RFC 3261) that a phone on loopback needs.

use anyhow::{Context, Result, bail};
use std::fmt::Write as _;

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The first line.
    pub first: String,
    /// Header names in lower case and their values, in order. Repeated headers are kept.
    headers: Vec<(String, String)>,
}

/// Returns the header's name in lower case and its value.
fn parse_header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

impl Message {
    /// Parses a datagram. Ignores its body, because the phone sends no sound.
    pub fn read(datagram: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(datagram);
        let head = text.split("\r\n\r\n").next().unwrap_or_default();
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        if !first.contains("SIP/2.0") {
            bail!("not SIP: {first}");
        }
        let headers = lines.filter_map(parse_header).collect();
        Ok(Self { first, headers })
    }

    /// Returns the status of an answer, or `None` for a request.
    pub fn status(&self) -> Option<u16> {
        let code = self.first.strip_prefix("SIP/2.0 ")?;
        code.split(' ').next()?.parse().ok()
    }

    /// Returns the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(its, _)| its == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a header that every message has.
    pub fn must(&self, name: &str) -> Result<&str> {
        self.header(name)
            .with_context(|| format!("no {name} in `{}`", self.first))
    }

    /// Returns number and method of `CSeq`.
    pub fn cseq(&self) -> Result<(u32, &str)> {
        let cseq = self.must("cseq")?;
        let (number, method) = cseq.split_once(' ').context("a CSeq of one word")?;
        Ok((number.parse()?, method.trim()))
    }

    /// Returns the address between `<` and `>` in `Contact`.
    pub fn contact(&self) -> Option<&str> {
        let (_, rest) = self.header("contact")?.split_once('<')?;
        rest.split('>').next()
    }

    /// Returns the answer to a request: its headers, with `tag` added to `To` if that has none.
    pub fn answer(&self, status: &str, tag: &str, contact: &str, body: Option<&str>) -> String {
        let mut text = format!("SIP/2.0 {status}\r\n");
        for (name, value) in &self.headers {
            let tagged = name == "to" && !value.contains(";tag=");
            match name.as_str() {
                "to" if tagged => line(&mut text, name, &format!("{value};tag={tag}")),
                "via" | "from" | "to" | "call-id" | "cseq" | "record-route" => {
                    line(&mut text, name, value);
                }
                _ => {}
            }
        }
        line(&mut text, "Contact", contact);
        finish(text, body.map(|body| ("application/sdp", body)))
    }
}

/// Returns a request with its first line, headers in order, and a body with its type.
pub fn request(
    method: &str,
    address: &str,
    headers: &[(&str, &str)],
    body: Option<(&str, &str)>,
) -> String {
    let mut text = format!("{method} {address} SIP/2.0\r\n");
    for (name, value) in headers {
        line(&mut text, name, value);
    }
    line(&mut text, "Max-Forwards", "70");
    finish(text, body)
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, "{name}: {value}\r\n");
}

fn finish(mut text: String, body: Option<(&str, &str)>) -> String {
    if let Some((kind, body)) = body {
        line(&mut text, "Content-Type", kind);
        line(&mut text, "Content-Length", &body.len().to_string());
        return text + "\r\n" + body;
    }
    line(&mut text, "Content-Length", "0");
    text + "\r\n"
}

/// Returns the description of a sound stream that is never sent. `direction` is `sendrecv` or
/// `sendonly`.
pub fn sdp(port: u16, direction: &str) -> String {
    format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na={direction}\r\n"
    )
}
