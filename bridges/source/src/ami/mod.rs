//! AMI over TCP and TLS.
use crate::error::Error;
use crate::source::Context;
use crate::url::Endpoint;

pub(crate) struct Ami {
    endpoint: Endpoint,
    #[allow(dead_code)]
    user: String,
}

impl Ami {
    pub(crate) fn new(endpoint: Endpoint, user: String) -> Self {
        Self { endpoint, user }
    }

    pub(crate) async fn session(&mut self, context: &mut Context) -> Error {
        context.target(&self.endpoint).not_that("not yet")
    }
}
