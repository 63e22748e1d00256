//! Asterisk formats.
