//! The surroundings of callbridge in its tests: PBXs, a broker, a certificate authority, a
//! database, and bad connections. Other crates use it only in their tests. Test code without
//! sockets is in `testkit`.
//!
//! | module | what it contains |
//! |---|---|
//! | [`agents`] | the telephones that a queue of AMI 1.x rings, added to a recording |
//! | [`authority`] | a certificate authority, and certificates that must be refused |
//! | [`broker`] | a private RabbitMQ node |
//! | [`calls`] | a recorded call with other ids, times, numbers, and leads |
//! | [`cel_rows`] | CEL events of AMI as rows of `cel_custom` |
//! | [`commit_proxy`] | a proxy to PostgreSQL that loses a COMMIT or its answer |
//! | [`expected`] | the expected results of a recorded call |
//! | `keeper` | a shell that ends the programs of a test, however the test ends |
//! | [`messengers`] | a chat and an SMTP server |
//! | [`patroni`] | a Patroni cluster of three nodes in network namespaces |
//! | [`mounts`] | small disks for a test |
//! | [`pbx`] | PBXs on loopback, over AMI and over a WebSocket |
//! | [`pooler`] | a private PgBouncer in front of a PostgreSQL server |
//! | [`port`] | a port that no other process takes |
//! | [`postgres`] | a private PostgreSQL server |
//! | [`proxy`] | a TCP proxy that can stop forwarding |
//! | [`switch`] | a FreeSWITCH on loopback, over its event socket |
//! | [`wait`] | waiting for a condition with a deadline |

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
