//! The last look before a request is written: its connection is made, and leave to send is asked
//! for once more. hyper writes the request right after it, on a connection that no other uses.

use callbridge_model::{NotPermitted, Permit};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_layer::{Layer, layer_fn};
use tower_service::Service;

type BoxError = Box<dyn Error + Send + Sync>;

/// A connector whose connections are given out only while requests may leave.
#[derive(Clone, Debug)]
pub(crate) struct Gated<S> {
    connector: S,
    permit: Permit,
}

impl<S> Gated<S> {
    /// Puts this around a connector.
    pub(crate) fn layer(permit: Permit) -> impl Layer<S, Service = Self> + Clone {
        layer_fn(move |connector| Self {
            connector,
            permit: permit.clone(),
        })
    }
}

impl<S, R> Service<R> for Gated<S>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: R) -> Self::Future {
        let permit = self.permit.clone();
        // what surely cannot leave makes no connection
        let connecting = permit.is_held().then(|| self.connector.call(to));
        Box::pin(async move {
            let Some(connecting) = connecting else {
                return Err(NotPermitted.into());
            };
            let connection = connecting.await.map_err(Into::into)?;
            permit
                .is_held()
                .then_some(connection)
                .ok_or_else(|| NotPermitted.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Ready, ready};
    use std::time::Duration;

    /// A connector in whose time leave ends, or does not.
    #[derive(Clone)]
    struct Connector(Option<Permit>);

    impl Service<()> for Connector {
        type Response = &'static str;
        type Error = BoxError;
        type Future = Ready<Result<&'static str, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            if let Some(ending) = &self.0 {
                ending.set(callbridge_model::clock::now(), None);
            }
            ready(Ok("a connection"))
        }
    }

    fn called(permit: &Permit, connector: Connector) -> Result<&'static str, String> {
        let mut gated = Gated::layer(permit.clone()).layer(connector);
        let mut calling = gated.call(());
        let mut context = Context::from_waker(std::task::Waker::noop());
        match calling.as_mut().poll(&mut context) {
            Poll::Ready(done) => done.map_err(|error| {
                assert!(error.is::<NotPermitted>());
                error.to_string()
            }),
            Poll::Pending => panic!("nothing is waited for"),
        }
    }

    #[test]
    fn a_connection_is_given_out_only_if_leave_lasts_until_it_is_made() {
        let (permit, far) = (Permit::withheld(), Some(Duration::from_secs(1 << 40)));
        assert!(called(&permit, Connector(None)).is_err());
        permit.set(callbridge_model::clock::now(), far);
        assert_eq!(called(&permit, Connector(None)), Ok("a connection"));
        let ended = called(&permit, Connector(Some(permit.clone())));
        assert!(ended.expect_err("it ended").contains("the lease"));
    }
}
