//! A call as `explain` and `calls` tell it: as JSON, as text and as a picture.
//!
//! | module | what lives there |
//! |---|---|
//! | [`shape`] | the JSON of one call |
//! | [`mod@line`] | a call in one line |
//! | [`story`] | what happened, step by step |
//! | [`text`] | the same for people |
//! | [`picture`] | the same as SVG |

pub(crate) mod line;
pub(crate) mod picture;
pub(crate) mod shape;
pub(crate) mod story;
pub(crate) mod text;

/// The PBX's id where no flag gives one: the uuids are then not those of `run`.
pub(crate) const PBX: &str = "explain";
