//! Discovery: which authorization server protects the server, and what it can do.

use std::collections::VecDeque;

use url::{Host, Url};

use crate::error::{FlowError, FlowErrorKind, Step};
use crate::fetch::{FetchError, HttpResponse};
use crate::flow::challenge::Challenge;
use crate::flow::metadata::{self, ResourceMetadata, ServerMetadata};
use crate::flow::{Next, get};
use crate::protected::Protected;

/// What discovery has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) resource: Option<ResourceMetadata>,
    pub(crate) server: ServerMetadata,
    /// How its metadata was found.
    pub(crate) evidence: Evidence,
}

/// How the authorization server was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The user named it.
    Pinned,
    /// It publishes metadata.
    Published,
    /// Nothing is published: these are the addresses that 2025-03-26 assumes.
    Assumed,
}

/// The state of a discovery.
pub(crate) struct Discovery<'a> {
    protected: &'a Protected,
    server: Url,
    looking_for: LookingFor,
    resource: Option<ResourceMetadata>,
    tried: Vec<String>,
    /// The first answer that may be different later. Without a better one, it is why there is no metadata.
    temporary_error: Option<FlowError>,
}

enum LookingFor {
    Resource {
        /// The address of the challenge, and then the well-known ones.
        addresses: VecDeque<Url>,
        is_named: bool,
    },
    Server {
        addresses: VecDeque<Url>,
        expected: Issuer,
    },
}

/// What `issuer` must be in the metadata.
enum Issuer {
    /// Exactly this.
    Exactly(String),
    /// The origin of the server, which was not written down by anybody: with or without the slash.
    Origin(String),
    /// Whatever the document says, because the user gave its address.
    Any,
}

impl<'a> Discovery<'a> {
    /// Starts with what the server said in its 401.
    pub(crate) fn begin(protected: &'a Protected, challenge: &Challenge) -> Result<(Self, Next<Found>), FlowError> {
        let server = Url::parse(&protected.url).map_err(|error| {
            FlowError::new(Step::ResourceMetadata, format!("the URL of the server is not valid: {error}"))
        })?;
        let mut addresses = VecDeque::from(metadata::resource_metadata_addresses(&server));
        let is_named = challenge.resource_metadata.is_some();
        if let Some(named) = &challenge.resource_metadata {
            let named = checked(named, &server).map_err(|problem| {
                FlowError::new(Step::ResourceMetadata, format!("the server names an address that {problem}")).at(named)
            })?;
            addresses.retain(|address| *address != named);
            addresses.push_front(named);
        }
        let looking_for = LookingFor::Resource { addresses, is_named };
        let mut discovery =
            Self { protected, server, looking_for, resource: None, tried: Vec::new(), temporary_error: None };
        let next = discovery.next()?;
        Ok((discovery, next))
    }

    /// Takes the response to the request it wanted.
    pub(crate) fn step(&mut self, response: Result<HttpResponse, FetchError>) -> Result<Next<Found>, FlowError> {
        match &mut self.looking_for {
            LookingFor::Resource { addresses, is_named } => {
                let address = addresses.pop_front().expect("it was asked for");
                let is_named = std::mem::take(is_named);
                self.take_resource(&address, is_named, response)
            }
            LookingFor::Server { addresses, .. } => {
                let address = addresses.pop_front().expect("it was asked for");
                self.take_server(&address, response)
            }
        }
    }

    fn next(&mut self) -> Result<Next<Found>, FlowError> {
        if let LookingFor::Resource { addresses, .. } = &self.looking_for {
            match addresses.front() {
                Some(address) => return Ok(Next::Send(get(address, self.protected.network))),
                None => self.look_for_server()?,
            }
        }
        let LookingFor::Server { addresses, expected } = &self.looking_for else { unreachable!("it was set above") };
        if let Some(address) = addresses.front() {
            return Ok(Next::Send(get(address, self.protected.network)));
        }
        if let Some(temporary_error) = self.temporary_error.take() {
            return Err(temporary_error);
        }
        let tried = self.tried.join(", ");
        match expected {
            Issuer::Origin(origin) => {
                let server = ServerMetadata::at_origin(origin);
                Ok(Next::Done(Found { resource: self.resource.take(), server, evidence: Evidence::Assumed }))
            }
            Issuer::Exactly(issuer) => {
                let problem = format!("there is no metadata of the authorization server {issuer} (tried {tried})");
                let hint = "if it is elsewhere, set `oauth.authServerMetadataUrl` to its address";
                Err(FlowError::new(Step::ServerMetadata, problem).hint(hint))
            }
            Issuer::Any => {
                let problem = format!("there is no metadata of the authorization server (tried {tried})");
                Err(FlowError::new(Step::ServerMetadata, problem).hint("correct `oauth.authServerMetadataUrl`"))
            }
        }
    }

    /// The resource metadata is known, or there is none.
    fn look_for_server(&mut self) -> Result<(), FlowError> {
        let settings = &self.protected.settings;
        let named = self.resource.as_ref().and_then(|resource| resource.authorization_servers.first().cloned());
        let origin = metadata::origin(&self.server);
        let expected = match (&settings.issuer, named) {
            (Some(pinned), _) => Issuer::Exactly(pinned.clone()),
            (None, _) if settings.server_metadata_url.is_some() => Issuer::Any,
            (None, Some(named)) => Issuer::Exactly(named),
            (None, None) => Issuer::Origin(origin),
        };
        let bad = |address: &str, problem: &str| {
            FlowError::new(Step::ServerMetadata, format!("the address of the authorization server {problem}"))
                .at(address)
        };
        let addresses = match (&settings.server_metadata_url, &expected) {
            (Some(address), _) => {
                vec![checked(address, &self.server).map_err(|problem| bad(address, problem))?]
            }
            (None, Issuer::Exactly(issuer) | Issuer::Origin(issuer)) => {
                let issuer = checked(issuer, &self.server).map_err(|problem| bad(issuer, problem))?;
                metadata::server_metadata_addresses(&issuer)
            }
            (None, Issuer::Any) => Vec::new(),
        };
        self.tried.clear();
        self.looking_for = LookingFor::Server { addresses: addresses.into(), expected };
        Ok(())
    }

    fn take_resource(
        &mut self,
        address: &Url,
        is_named: bool,
        response: Result<HttpResponse, FetchError>,
    ) -> Result<Next<Found>, FlowError> {
        let step = Step::ResourceMetadata;
        let response = response.map_err(|error| FlowError::fetch(step, address.as_str(), &error))?;
        let parsed = metadata::object(&response.body).and_then(|members| ResourceMetadata::parse(&members));
        let Some(found) = parsed.filter(|_| response.is_success()) else {
            // The address of a challenge must work; elsewhere it is a guess.
            if is_named && !matches!(response.status, 404 | 410) {
                let error = FlowError::response(step, address.as_str(), &response);
                let problem = format!("no resource metadata came back ({})", error.problem);
                return Err(FlowError { problem, ..error });
            }
            self.note_temporary_error(step, address, &response);
            return self.next();
        };
        if !found.covers(&self.server) && !self.is_expected_resource(&found.resource) {
            let problem = format!(
                "the metadata is about the resource {}, not about {}",
                crate::error::shown_address(&found.resource),
                crate::error::shown_address(&self.protected.url)
            );
            let hint = "correct the URL of the server, or set `oauth.resource` if the other resource is right";
            return Err(FlowError::new(step, problem).at(address.as_str()).hint(hint));
        }
        (self.resource, self.temporary_error) = (Some(found), None);
        self.look_for_server()?;
        self.next()
    }

    fn note_temporary_error(&mut self, step: Step, address: &Url, response: &HttpResponse) {
        let error = FlowError::response(step, address.as_str(), response);
        if error.kind == FlowErrorKind::Temporary && self.temporary_error.is_none() {
            self.temporary_error = Some(error);
        }
    }

    fn is_expected_resource(&self, resource: &str) -> bool {
        matches!(&self.protected.settings.resource, catalog::ResourceParameter::Exactly(expected) if expected == resource)
    }

    fn take_server(
        &mut self,
        address: &Url,
        response: Result<HttpResponse, FetchError>,
    ) -> Result<Next<Found>, FlowError> {
        let step = Step::ServerMetadata;
        let fail = |problem: String| FlowError::new(step, problem).at(address.as_str());
        let response = response.map_err(|error| FlowError::fetch(step, address.as_str(), &error))?;
        let Some(members) = metadata::object(&response.body).filter(|_| response.is_success()) else {
            self.note_temporary_error(step, address, &response);
            self.tried.push(address.to_string());
            return self.next();
        };
        let found = ServerMetadata::parse(&members).map_err(|problem| fail(problem.to_owned()))?;
        let LookingFor::Server { expected, .. } = &self.looking_for else { unreachable!("it looks for the server") };
        let expected_text = match expected {
            Issuer::Exactly(issuer) => (found.issuer != *issuer).then_some(issuer),
            Issuer::Origin(origin) => {
                let is_same = found.issuer.strip_suffix('/').unwrap_or(&found.issuer) == origin;
                (!is_same).then_some(origin)
            }
            Issuer::Any => None,
        };
        if let Some(expected) = expected_text {
            let problem = format!("its `issuer` is {}, not {expected}, so it must not be used", found.issuer);
            let hint = format!(
                "if {} is the authorization server you expect, set `oauth.issuer` to it, and \
                 `oauth.authServerMetadataUrl` to {address}",
                found.issuer
            );
            return Err(fail(problem).hint(hint));
        }
        for (name, endpoint) in found.endpoints() {
            checked(endpoint, &self.server).map_err(|problem| fail(format!("its `{name}` {problem}")))?;
        }
        let is_pinned =
            self.protected.settings.issuer.is_some() || self.protected.settings.server_metadata_url.is_some();
        let evidence = if is_pinned { Evidence::Pinned } else { Evidence::Published };
        Ok(Next::Done(Found { resource: self.resource.take(), server: found, evidence }))
    }
}

/// An address to send something to: over TLS, except on this machine or if the server itself is reached without.
fn checked(address: &str, server: &Url) -> Result<Url, &'static str> {
    let url = Url::parse(address).map_err(|_| "is not a URL")?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => return Err("has no host"),
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback || server.scheme() == "http" => Ok(url),
        "http" => Err("is not encrypted (http)"),
        _ => Err("is not an HTTP address"),
    }
}
