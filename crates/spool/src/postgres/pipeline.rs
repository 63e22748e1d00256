//! Statements that were sent but whose results haven't been read yet. Each statement is written
//! immediately and its result is read later, so that many results arrive in a single round trip.

use super::error;
use crate::Error;
use crate::value::{OwnedValue, Value};
use futures_util::TryStreamExt as _;
#[cfg(test)]
use std::cell::Cell;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row, Statement};

/// The server's response to a statement.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) rows: Vec<Row>,
    /// Number of rows changed or read.
    pub(super) changed: u64,
}

type Answering = Pin<Box<dyn Future<Output = Result<Answer, tokio_postgres::Error>> + Send>>;

/// Where a statement's result is put.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<Result<Answer, Error>>>>);

impl Slot {
    pub(super) fn take(&self) -> Option<Result<Answer, Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, answer: Result<Answer, Error>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

/// What happens with a result.
pub(super) enum Purpose {
    /// A caller reads it.
    Asked(Slot),
    /// Only errors are kept. If a number is given, it's an error if a different number of rows was
    /// changed.
    Run(Option<u64>),
}

/// A value bound to a statement.
#[derive(Debug)]
pub(super) enum Parameter {
    One(OwnedValue),
    /// An array, with one element per row.
    Many(Vec<OwnedValue>),
}

struct UnderWay {
    answering: Answering,
    purpose: Purpose,
}

/// Statements whose results haven't been read yet, in the order in which they were written.
#[derive(Default)]
pub(super) struct Pipeline {
    queue: RefCell<VecDeque<UnderWay>>,
    /// The first error from a statement that no caller is waiting for.
    failed: RefCell<Option<Error>>,
    /// Number of times that we have waited for results so far.
    #[cfg(test)]
    pub(super) round_trips: Cell<u64>,
    /// Number of rows in the results read so far.
    #[cfg(test)]
    pub(super) rows_read: Cell<u64>,
}

impl Pipeline {
    /// Writes a statement, which the runtime sends once the thread waits for a result.
    pub(super) fn write(
        &self,
        runtime: &Runtime,
        client: &Arc<Client>,
        statement: Statement,
        values: Vec<Parameter>,
        purpose: Purpose,
    ) {
        let client = Arc::clone(client);
        let mut answering: Answering = Box::pin(async move {
            let mut stream = pin!(client.query_raw(&statement, values).await?);
            let mut rows = Vec::new();
            while let Some(row) = stream.try_next().await? {
                rows.push(row);
            }
            let changed = stream.rows_affected().unwrap_or(0);
            Ok(Answer { rows, changed })
        });
        let _context = runtime.enter();
        let first = answering
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(answer) = first {
            answering = Box::pin(async { answer });
        }
        let under_way = UnderWay { answering, purpose };
        self.queue.borrow_mut().push_back(under_way);
    }

    /// Waits for the results of all statements, up to `deadline` for each. They're read in order,
    /// because the connection can't read a result before the earlier ones. Once the session is
    /// lost, every further result is its error.
    pub(super) fn wait(&self, runtime: &Runtime, deadline: Duration, place: &Path) {
        let queue = self.queue.take();
        if queue.is_empty() {
            return;
        }
        #[cfg(test)]
        self.round_trips.set(self.round_trips.get() + 1);
        let mut lost: Option<Error> = None;
        runtime.block_on(async {
            for UnderWay { answering, purpose } in queue {
                let answer = match &lost {
                    Some(error) => Err(error.clone()),
                    None => match tokio::time::timeout(deadline, answering).await {
                        Ok(answer) => answer.map_err(|error| error::of_statement(place, &error)),
                        Err(_) => Err(error::no_answer(place, deadline)),
                    },
                };
                if let Err(error @ Error::SessionLost(..)) = &answer {
                    lost = Some(error.clone());
                }
                self.deliver(answer, purpose, place);
            }
        });
    }

    fn deliver(&self, answer: Result<Answer, Error>, purpose: Purpose, place: &Path) {
        let error = match (purpose, answer) {
            (Purpose::Asked(slot), answer) => {
                slot.put(answer);
                return;
            }
            (Purpose::Run(Some(rows)), Ok(answer)) if answer.changed != rows => {
                let why = format!("{} rows were changed, not {rows}", answer.changed);
                Error::Sql(place.to_path_buf(), why)
            }
            (Purpose::Run(_), Ok(_)) => return,
            (Purpose::Run(_), Err(error)) => error,
        };
        self.failed.borrow_mut().get_or_insert(error);
    }

    #[cfg(test)]
    pub(super) fn note_rows(&self, rows: usize) {
        self.rows_read.set(self.rows_read.get() + rows as u64);
    }

    /// Takes the first error from a statement that no caller was waiting for.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.failed.take()
    }
}

impl ToSql for OwnedValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.value().to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <Value<'_> as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

impl ToSql for Parameter {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::One(value) => value.to_sql(kind, out),
            Self::Many(values) => values.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
