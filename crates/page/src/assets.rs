//! The page's style, script, and icon, which are built in. Their paths contain a hash of their
//! content, so browsers can cache them permanently.

use callbridge_listener::body::{self, Body};
use hyper::{Response, StatusCode, header::HeaderValue};
use ring::digest::{SHA256, digest};
use std::sync::LazyLock;

/// The style of all pages, followed by the styles of individual views.
pub(crate) const STYLE: &str = concat!(
    include_str!("../static/page.css"),
    include_str!("../static/views.css")
);
/// Each asset's path, media type, and text.
static ASSETS: LazyLock<[(String, &str, &str); 3]> = LazyLock::new(|| {
    let sign = include_str!("../static/sign.svg");
    let script = include_str!("../static/page.js");
    let assets = [
        ("page.css", "text/css; charset=utf-8", STYLE),
        ("page.js", "text/javascript; charset=utf-8", script),
        ("sign.svg", "image/svg+xml", sign),
    ];
    assets.map(|(name, content_type, text)| {
        let hash = crate::random::hex(&digest(&SHA256, text.as_bytes()).as_ref()[..8]);
        (format!("/static/{hash}/{name}"), content_type, text)
    })
});

/// Returns the paths of the style, the script, and the icon.
pub(crate) fn paths() -> [&'static str; 3] {
    ASSETS.each_ref().map(|(path, ..)| path.as_str())
}

/// Returns the asset at this path, to be cached permanently, or `None` for any other path.
pub(crate) fn find(path: &str) -> Option<Response<Body>> {
    let (_, content_type, text) = ASSETS.iter().find(|(known, ..)| known == path)?;
    let mut asset = body::response(StatusCode::OK, content_type, body::whole(*text));
    let for_good = HeaderValue::from_static("public, max-age=31536000, immutable");
    asset.headers_mut().insert("cache-control", for_good);
    Some(asset)
}
