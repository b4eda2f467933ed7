//! Connection tests: of registered servers, of changes to them, and of what is not registered.

use std::sync::Arc;

use catalog::ServerSpec;
use oauth::Protected;
use tokio::sync::oneshot;
use upstream::Connector;

use super::{Registration, TestReport, Update, operations, to_the_end};
use crate::{Error, Service, spec, test_connection};

impl Service {
    /// Tests a separate connection besides the existing one.
    pub async fn test(&self, id_or_name: &str) -> Result<TestReport, Error> {
        let spec = spec::resolve(&self.context.find(id_or_name)?.current().record);
        Ok(self.test_server(spec, self.context.remote.clone()).await)
    }

    /// Tests a server that is not registered. Nothing of a sign-in in the course of the test is kept.
    pub async fn test_unregistered(&self, new: Registration) -> Result<TestReport, Error> {
        let problems = operations::problems_with(&new);
        if !problems.is_empty() {
            return Err(Error::Validation { problems });
        }
        let spec = spec::resolve_parts(&new.name, new.transport_type, &new.connection_config);
        let mut report = self.test_server(spec, self.context.test_connector()).await;
        if report.sign_in_required {
            // There is no server of this name to sign in to yet.
            let advice = format!("; run `{}`", catalog::login_command(&new.name));
            report.error = report.error.map(|error| error.replace(&advice, "; add it first, then sign in"));
        }
        Ok(report)
    }

    /// Tests a server as it would be after a change of its connection. Members that contain the mask have their stored
    /// value. The stored sign-in is used, unless the change is about where or how to sign in.
    pub async fn test_update(&self, id_or_name: &str, update: &Update) -> Result<TestReport, Error> {
        let record = self.context.find(id_or_name)?.current().record.clone();
        let config = match &update.connection_config {
            Some(config) => record.connection_config.updated_with(config.clone().into()).reveal().clone(),
            None => record.connection_config.reveal().clone(),
        };
        let transport_type = update.transport_type.unwrap_or(record.transport);
        let new = Registration {
            name: record.name.clone(),
            description: None,
            transport_type,
            deployment_type: None,
            connection_config: config,
            health_check_url: None,
            auto_connect: false,
            enabled: true,
        };
        let problems = operations::problems_with(&new);
        if !problems.is_empty() {
            return Err(Error::Validation { problems });
        }
        let spec = spec::resolve_parts(&new.name, transport_type, &new.connection_config);
        let spec = spec.map(|spec| spec::with_grant_of(&record, spec));
        let is_same_sign_in = match (&spec, spec::resolve(&record)) {
            (Ok(after), Ok(before)) => Protected::of(after) == Protected::of(&before),
            _ => false,
        };
        let remote = if is_same_sign_in { self.context.remote.clone() } else { self.context.test_connector() };
        Ok(self.test_server(spec, remote).await)
    }

    /// Runs a connection test. If its result is no longer awaited it ends in the background.
    async fn test_server(&self, spec: Result<ServerSpec, String>, remote: Option<Connector>) -> TestReport {
        let context = Arc::clone(&self.context);
        let (asking, asker) = oneshot::channel();
        let testing = async move { test_connection::test_connection(&context, spec, remote, asker).await };
        let report = to_the_end(testing).await;
        drop(asking);
        report
    }
}
