//! A call as `explain` and `calls` tell it: as JSON, as text and as a picture.
//!
//! | module | what lives there |
//! |---|---|
//! | [`reading`] | a recording to finished calls, by its own time |
//! | [`shape`] | the JSON of one call |
//! | [`mod@line`] | a call in one line |
//! | [`story`] | what happened, step by step |
//! | [`text`] | the same for people |
//! | [`picture`] | the same as SVG |

pub mod line;
pub mod picture;
pub mod reading;
pub mod shape;
pub mod story;
pub mod text;

/// The PBX's id if no flag gives one. The uuids then differ from those of `run`.
pub const PBX: &str = "explain";
