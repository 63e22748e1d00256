//! Sources against listeners of the tests' own: what goes over the line, what is told of it.

mod ami;
mod esl;
mod file;
mod hearing;
mod listener;
mod ring;
mod stage;
mod tls;
mod url;
mod websocket;
