//! Reads framed raw messages from PBXs. Its input is the bytes of a TCP or TLS connection, a
//! WebSocket, a broker's queue, or a growing file, and its output is [`Item`]s in a single bounded
//! [`Ring`]. After the commit, the intake sends back [`FrameVerdict`]s. Since frames aren't decoded
//! until after the ring, this crate only uses the decoders' framing, the dialogues with PBXs, and
//! the surveys for `check`.
//!
//! ```text
//! url        --source, checked
//! source     one source from start to finish, which reconnects with `backoff`
//!   live       a connection that doesn't resend events, read and kept alive until it dies, over:
//!     ami        AMI over TCP and TLS
//!     esl        FreeSWITCH's event socket
//!     websocket  AMI as JSON; `unmask` turns text frames into binary ones before tungstenite
//!   amqp       a queue, with messages acknowledged after the commit or rejected
//!   file       a file that grows, is renamed, truncated, or replaced
//! connect    opens TCP and TLS connections, and describes why one failed (`error`)
//! session    a source's output, i.e., `item`s with numbers, states, and gaps, and its counts
//! ring       the bounded buffer to the intake;  verdict  the verdicts sent back
//! ```

#![warn(missing_docs)]

mod ami;
pub mod amqp;
mod backoff;
mod connect;
mod error;
mod esl;
mod file;
mod item;
mod live;
mod ring;
mod session;
mod settings;
mod source;
pub mod url;
mod verdict;
mod websocket;

pub use backoff::{Backoff, Bounds, chance};
pub use callbridge_call::EventTime;
pub use error::{Error, Fix, LineError};
pub use file::{FilesAgain, sample};
pub use item::{FilePosition, Frame, Item, Outage, RECORD_IN_FILE, RecordDetails, SourceId};
pub use ring::{Gone, Intake, Limits, Ring, RingEnds, ring};
pub use session::{Counts, CountsNow};
pub use settings::{Clock, Secret, Settings};
pub use source::Source;
pub use url::{BrokerUrl, SourceUrl, Transport};
pub use verdict::{FrameVerdict, VerdictReader, Verdicts, verdicts};

pub(crate) use connect::{NO_REASON, Stream, Target};
pub(crate) use live::{LiveLine, Pings, TcpLine, listen, send_within};
pub(crate) use session::{Access, Context, FrameContent, SourceFeed, Stop};
pub(crate) use url::{QueueSource, TcpEndpoint};
