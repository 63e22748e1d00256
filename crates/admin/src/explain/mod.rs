//! A call as `explain` and `calls` show it: as JSON, as text, and as a picture.
//!
//! | module | what it contains |
//! |---|---|
//! | [`reading`] | reads a recording into finished calls, by its own time |
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

/// The PBX's id if no flag gives one. The uuids then differ from those of `run`.
pub const PBX: &str = "explain";
