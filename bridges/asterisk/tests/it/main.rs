//! Decoders: what the bytes of a PBX tell, and what none should send.

mod ami1;
mod cdr_csv;
mod cel;
mod events;
mod hostile;
mod old_releases;
mod recordings;
mod wazo;
