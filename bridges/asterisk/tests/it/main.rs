//! Tests of the decoders, with bytes of a PBX, and with bytes that none should send.

mod ami1;
mod cdr_csv;
mod cel;
mod events;
mod hostile;
mod old_releases;
mod recordings;
mod wazo;
