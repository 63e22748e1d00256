//! The authorization page as HTML. Every text from outside is escaped, nothing is loaded, no
//! script runs.

use super::super::envelope::Response;
use super::application::ConsentRequest;

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
    Response::new(status, HTML, body)
}

/// The question, for a person.
pub(super) fn consent(asked: &ConsentRequest, companies: &[(i64, String)]) -> Response {
    let [name, client, to] = [
        &asked.application.name,
        &asked.application.client_id,
        &asked.redirect_uri,
    ]
    .map(|text| escaped(text));
    let (mut choices, mut grants) = (String::new(), String::new());
    for (nth, (id, name)) in companies.iter().enumerate() {
        let checked = if nth == 0 { " checked" } else { "" };
        let name = escaped(name);
        choices += &format!(
            "<label><input type=\"radio\" name=\"company\" value=\"{id}\"{checked}> \
             {name} ({id})</label>\n"
        );
    }
    for grant in &asked.scope {
        let grant = escaped(grant.as_str());
        grants += &format!(
            "<label><input type=\"checkbox\" name=\"grant\" value=\"{grant}\" checked> \
             {grant}</label>\n"
        );
    }
    // Without an action the form goes to this page's own address, parameters included.
    let page = format!(
        "{HEAD}<h1>Connect {name}?</h1>\n\
<p><code>{client}</code> asks for access to a company of this sandbox.</p>\n\
<form method=\"post\">\n<fieldset><legend>Company</legend>\n\
{choices}</fieldset>\n<fieldset><legend>It may</legend>\n\
<input type=\"hidden\" name=\"picked\" value=\"yes\">\n\
{grants}</fieldset>\n\
<button name=\"decision\" value=\"approve\">Approve</button>\n\
<button name=\"decision\" value=\"decline\">Decline</button>\n</form>\n\
<p><small>You will return to <code>{to}</code>.</small></p>\n</body></html>\n"
    );
    html(200, page)
}

/// Why there is nothing to decide.
pub(super) fn refused(status: u16, title: &str, words: &str) -> Response {
    let (title, words) = (escaped(title), escaped(words));
    let page = format!("{HEAD}<h1>{title}</h1>\n<p>{words}</p>\n</body></html>\n");
    html(status, page)
}

/// Text that cannot end an element or an attribute.
fn escaped(text: &str) -> String {
    let special = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&#39;"),
    ];
    let safe = |text: String, (letter, name): (char, &str)| text.replace(letter, name);
    special.into_iter().fold(text.to_owned(), safe)
}
