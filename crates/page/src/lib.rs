//! The page of the administrator: who may see it, what it shows, what can be done there.
//!
//! The daemon hands over [`settings::Settings`] and a [`backend::Backend`]; [`page::Page`] is made
//! of them, and [`server::serve`] serves it. A request passes, in this order: its host, its path,
//! its origin (of a POST), its session, its form's token, the role; then a view answers.
//!
//! | module | what lives there |
//! |---|---|
//! | [`backend`] | what the page asks of the daemon, and the shapes of its answers |
//! | [`settings`] | where it listens, under which names, with whom |
//! | [`server`] | sockets and limits; from a request to its answer |
//! | [`page`] | the page itself, and a visit of somebody who is logged in |
//! | `request`, `answer` | hosts, origins and fields; HTML and headers |
//! | `login`, `sessions`, `throttle`, `random` | who comes in, by password or link |
//! | [`passwords`] | the password file |
//! | `views`, `chart`, `csv`, `markup`, `shell` | what is shown; templates lie in `templates` |
//! | `background`, `live` | what goes on in the background |
//! | `language` | texts, a file a language in `texts` |
//! | `assets` | style and script of `static` |

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
