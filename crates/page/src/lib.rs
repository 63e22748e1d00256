//! The page of the administrator: who may see it, what it shows, what can be done there.
//!
//! The daemon hands over [`settings::Settings`] and a [`backend::Backend`]; [`page::Page`] is made
//! of them, and [`server::serve`] serves it. A request passes, in this order: its host, its path,
//! its origin (of a POST), its session, its form's token, the role; then a view answers.
//!
//! | module | what lives there |
//! |---|---|
//! | [`backend`] | what the page asks of the daemon, and the shapes of its answers |
//! | [`cause`] | what letters have in common |
//! | [`settings`] | where it listens, under which names, with whom |
//! | [`server`] | sockets and limits |
//! | [`page`], `router` | the page itself; from a request to its answer |
//! | `request`, `answer` | hosts, origins and fields; HTML and headers |
//! | `login`, `authenticator`, `sessions`, `throttle`, `random` | who comes in |
//! | [`links`], [`passwords`] | the link of `callbridge page`; the password file |
//! | `views`, `chart`, `csv`, `markup`, `shell` | what is shown; templates lie in `templates` |
//! | `jobs`, `checks`, `live` | what goes on in the background |
//! | `language` | texts, a file a language in `texts` |
//! | `assets`, `icons` | style and script of `static`; drawings |

mod answer;
mod assets;
mod authenticator;
pub mod backend;
pub mod cause;
mod chart;
mod checks;
mod csv;
mod icons;
mod jobs;
mod language;
pub mod links;
mod live;
mod login;
mod markup;
pub mod page;
pub mod passwords;
mod random;
mod request;
mod router;
pub mod server;
mod sessions;
pub mod settings;
mod shell;
mod throttle;
mod views;

pub use sessions::SessionCount;
