//! The authorization page as HTML. Every text from outside is escaped, nothing is loaded, no
//! script runs.

use super::super::envelope::{Delivery, Response};
use super::application::ConsentRequest;
use std::fmt::Write;

/// The content type of a page.
pub(super) const HTML: &str = "text/html; charset=utf-8";

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
<meta name=\"referrer\" content=\"no-referrer\">\
<meta http-equiv=\"Content-Security-Policy\" \
content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'\">\
<title>Connect an application</title><style>\
body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem}\
fieldset{border:1px solid #ccc;border-radius:.5rem;margin:1rem 0}label{display:block}\
code{background:#f4f4f4}button{font:inherit;padding:.4rem 1.2rem;margin-right:.5rem}\
small{color:#555}</style></head><body>\n";

/// A page that leaves at once.
pub(super) fn html(status: u16, body: String) -> Response {
    Response {
        status,
        content_type: HTML,
        location: None,
        body: body.into_bytes(),
        delivery: Delivery::Now,
    }
}

/// The question, for a person.
pub(super) fn consent(asked: &ConsentRequest, companies: &[(i64, String)]) -> Response {
    let mut page = String::from(HEAD);
    let name = escaped(&asked.application.name);
    let _ = writeln!(page, "<h1>Connect {name}?</h1>");
    let client = escaped(&asked.application.client_id);
    let _ = writeln!(
        page,
        "<p><code>{client}</code> asks for access to a company of this sandbox.</p>"
    );
    // Without an action the form goes to this page's own address, parameters included.
    page.push_str("<form method=\"post\">\n<fieldset><legend>Company</legend>\n");
    for (nth, (id, name)) in companies.iter().enumerate() {
        let checked = if nth == 0 { " checked" } else { "" };
        let name = escaped(name);
        let _ = writeln!(
            page,
            "<label><input type=\"radio\" name=\"company\" value=\"{id}\"{checked}> \
             {name} ({id})</label>"
        );
    }
    page.push_str("</fieldset>\n<fieldset><legend>It may</legend>\n");
    page.push_str("<input type=\"hidden\" name=\"picked\" value=\"yes\">\n");
    for grant in &asked.scope {
        let grant = escaped(grant.as_str());
        let _ = writeln!(
            page,
            "<label><input type=\"checkbox\" name=\"grant\" value=\"{grant}\" checked> \
             {grant}</label>"
        );
    }
    page.push_str("</fieldset>\n");
    page.push_str("<button name=\"decision\" value=\"approve\">Approve</button>\n");
    page.push_str("<button name=\"decision\" value=\"decline\">Decline</button>\n</form>\n");
    let to = escaped(&asked.redirect_uri);
    let _ = writeln!(
        page,
        "<p><small>You will return to <code>{to}</code>.</small></p>\n</body></html>"
    );
    html(200, page)
}

/// Why there is nothing to decide.
pub(super) fn refused(title: &str, words: &str) -> String {
    let (title, words) = (escaped(title), escaped(words));
    format!("{HEAD}<h1>{title}</h1>\n<p>{words}</p>\n</body></html>\n")
}

/// Text that cannot end an element or an attribute.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}
