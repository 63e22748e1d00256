//! The administrator's page: who can see it, what it shows, and what people can do there.
//!
//! The daemon supplies [`settings::Settings`] and a [`backend::Backend`]. [`page::Page`] is made
//! from them, and [`server::serve`] serves it. Each request is checked in this order: host, path,
//! origin (for a POST), session, the form's token, and role. Then a view answers it.
//!
//! | module | content |
//! |---|---|
//! | [`backend`] | the interface to the daemon, with the types of its answers |
//! | [`settings`] | the page's address, names, TLS, and users |
//! | [`server`] | sockets and limits, and the path from a request to its answer |
//! | [`page`] | the page's shared state, and the request of a logged-in user |
//! | `request`, `answer` | hosts, origins, and fields of requests; HTML and headers of answers |
//! | `login`, `sessions`, `throttle`, `random` | login by password or link |
//! | [`passwords`] | the password file |
//! | `views`, `chart`, `csv`, `markup`, `shell` | the content of pages, with `templates` |
//! | `background`, `live` | jobs, checks, and live updates |
//! | `language` | translated texts, one file per language in `texts` |
//! | `assets` | the style and script in `static` |

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
