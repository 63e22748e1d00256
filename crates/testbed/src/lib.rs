//! What stands around the program in its tests: a PBX, a broker, an authority, a bad line. No crate
//! uses it but in its tests; what tests need without sockets lives in `testkit`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`agents`] | the telephones that a queue of AMI 1.x rings, put into a recording |
//! | [`authority`] | a certificate authority, and certificates to refuse |
//! | [`broker`] | a private RabbitMQ node |
//! | [`calls`] | a recorded call with other ids, times, numbers and leads |
//! | [`cel_rows`] | CEL events of AMI as rows of `cel_custom` |
//! | [`commit_proxy`] | a line to PostgreSQL that loses a COMMIT or its answer |
//! | [`expected`] | what has to become of a recorded call |
//! | `keeper` | a shell that ends the programs of a test, however the test ends |
//! | [`messengers`] | a chat and a mailbox |
//! | [`patroni`] | a Patroni cluster of three nodes in network namespaces |
//! | [`mounts`] | small disks of a test |
//! | [`pbx`] | PBXs on loopback, over AMI and over a WebSocket |
//! | [`pooler`] | a private PgBouncer before a PostgreSQL server |
//! | [`port`] | a port that nobody else takes |
//! | [`postgres`] | a private PostgreSQL server |
//! | [`proxy`] | a line that goes dead |
//! | [`switch`] | a FreeSWITCH on loopback, over its event socket |
//! | [`wait`] | waiting for the event itself |

pub mod agents;
pub mod authority;
pub mod broker;
pub mod calls;
pub mod cel_rows;
pub mod commit_proxy;
pub mod expected;
mod keeper;
pub mod messengers;
pub mod mounts;
pub mod patroni;
pub mod pbx;
pub mod pooler;
pub mod port;
pub mod postgres;
pub mod proxy;
pub mod switch;
pub mod wait;
