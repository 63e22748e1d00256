//! A call as `explain` and `calls` show it: as JSON, as text, and as a picture.
//!
//! | module | what it contains |
//! |---|---|
//! | [`reading`] | converts a recording to finished calls |
//! | [`shape`] | the JSON of one call |
//! | [`mod@line`] | a call in one line |
//! | [`story`] | the events of a call, step by step |
//! | [`text`] | a call as text for people |
//! | [`picture`] | a call as SVG |

pub mod line;
pub mod picture;
pub mod reading;
pub mod shape;
pub mod story;
pub mod text;

/// The PBX id that is used if no flag sets one. The uuids then differ from the uuids of `run`.
pub const PBX: &str = "explain";
