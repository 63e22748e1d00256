//! The administrator's page, including who may see it, what it shows, and what can be done there.
//!
//! The daemon supplies [`settings::Settings`] and a [`backend::Backend`], from which a
//! [`page::Page`] is created and then served by [`server::serve`]. Each request is checked in the
//! following order: host, path, origin (for a POST), session, the form's token, and role. After
//! that, a view responds to it.
//!
//! | module | content |
//! |---|---|
//! | [`backend`] | the interface to the daemon, with its result types |
//! | [`settings`] | the page's URL, names, TLS, and users |
//! | [`server`] | sockets and limits, and how a request gets to its response |
//! | [`page`] | the page's shared state, and a logged-in user's request |
//! | `request`, `answer` | hosts, origins, and fields of requests; HTML and headers of responses |
//! | `login`, `sessions`, `throttle`, `random` | logging in by password or link |
//! | [`passwords`] | the password file |
//! | `views`, `chart`, `csv`, `markup`, `shell` | the pages' content, with `templates` |
//! | `background`, `live` | jobs, checks, and live updates |
//! | `language` | localized messages, with one file per language in `texts` |
//! | `assets` | the style and script from `static` |

mod answer;
mod assets;
pub mod backend;
mod background;
mod chart;
mod csv;
mod language;
mod live;
mod login;
mod markup;
pub mod page;
pub mod passwords;
mod random;
mod request;
pub mod server;
mod sessions;
pub mod settings;
mod shell;
mod throttle;
mod views;

pub use sessions::{Links, Sessions};
