//! The trace exporter, configured by the variables of OpenTelemetry.
//!
//! An invalid variable causes a warning and is ignored: these variables are often set for many programs at once, and
//! must not prevent a program from starting.

use std::env::VarError;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use executions::traces::{Collector, ExportError, Root, Sampler, TraceSetup};
use remote::BodySender;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The default timeout of a collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The exporter that the variables define; `None` unless they name a collector.
pub(crate) fn from_environment() -> Option<TraceSetup> {
    setup(&|name| match std::env::var(name) {
        Ok(value) => Some(value).filter(|value| !value.trim().is_empty()),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(_)) => {
            tracing::warn!("{name} is not valid UTF-8, and is ignored");
            None
        }
    })
}

/// Looks up a variable; an empty one counts as absent.
type Lookup<'l> = &'l dyn Fn(&str) -> Option<String>;

fn setup(lookup: Lookup<'_>) -> Option<TraceSetup> {
    let url = endpoint(lookup)?;
    if lookup("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
        return None;
    }
    match lookup("OTEL_TRACES_EXPORTER").as_deref().map(str::trim) {
        None | Some("otlp") => {}
        Some("none") => return None,
        Some(other) => {
            tracing::warn!(exporter = other, "calls are not traced: OTEL_TRACES_EXPORTER may be `otlp` or `none`");
            return None;
        }
    }
    if let Some(protocol) = of_traces(lookup, "PROTOCOL").filter(|protocol| protocol.trim() != "http/protobuf") {
        tracing::warn!(%protocol, "calls are not traced: only `http/protobuf` of OTLP is supported (usually port 4318)");
        return None;
    }
    let headers = of_traces(lookup, "HEADERS").map(|list| pairs(&list)).unwrap_or_default();
    let sender = BodySender::new(&url, headers, "application/x-protobuf", timeout(lookup));
    match sender {
        Ok(sender) => Some(TraceSetup {
            collector: Arc::new(HttpCollector(sender)),
            resource: resource(lookup),
            sampler: sampler(lookup),
        }),
        Err(why) => {
            tracing::warn!(why, "calls are not traced: the address or headers of the collector are invalid");
            None
        }
    }
}

/// The timeout of a collector.
fn timeout(lookup: Lookup<'_>) -> Duration {
    let Some(written) = of_traces(lookup, "TIMEOUT") else { return EXPORT_TIMEOUT };
    written.trim().parse().map(Duration::from_millis).unwrap_or_else(|_| {
        tracing::warn!(timeout = written, "the timeout of the collector is not a number of milliseconds; using 10 s");
        EXPORT_TIMEOUT
    })
}

/// The variable for traces is used unchanged; a path is appended to the one for all signals.
fn endpoint(lookup: Lookup<'_>) -> Option<String> {
    let below = |base: String| format!("{}/v1/traces", base.trim().trim_end_matches('/'));
    lookup(TRACES_ENDPOINT).map(|url| url.trim().to_owned()).or_else(|| lookup(ENDPOINT).map(below))
}

/// The variable for traces takes precedence over the one for all signals.
fn of_traces(lookup: Lookup<'_>, what: &str) -> Option<String> {
    lookup(&format!("OTEL_EXPORTER_OTLP_TRACES_{what}")).or_else(|| lookup(&format!("OTEL_EXPORTER_OTLP_{what}")))
}

fn resource(lookup: Lookup<'_>) -> Vec<(String, String)> {
    let mut attributes = lookup("OTEL_RESOURCE_ATTRIBUTES").map(|list| pairs(&list)).unwrap_or_default();
    if let Some(name) = lookup("OTEL_SERVICE_NAME") {
        attributes.retain(|(key, _)| key != "service.name");
        attributes.push(("service.name".to_owned(), name));
    }
    for (key, value) in [("service.name", "mcp-aggregator"), ("service.version", env!("CARGO_PKG_VERSION"))] {
        if !attributes.iter().any(|(known, _)| known == key) {
            attributes.push((key.to_owned(), value.to_owned()));
        }
    }
    attributes
}

fn sampler(lookup: Lookup<'_>) -> Sampler {
    let Some(name) = lookup("OTEL_TRACES_SAMPLER") else { return Sampler::default() };
    let (follows_parent, root) = match name.trim().strip_prefix("parentbased_") {
        Some(root) => (true, root),
        None => (false, name.trim()),
    };
    let root = match root {
        "always_on" => Root::Always,
        "always_off" => Root::Never,
        "traceidratio" => Root::Ratio(ratio(lookup)),
        _ => {
            tracing::warn!(sampler = %name, "OTEL_TRACES_SAMPLER is unknown; every call is traced");
            return Sampler::default();
        }
    };
    Sampler { follows_parent, root }
}

fn ratio(lookup: Lookup<'_>) -> f64 {
    let Some(argument) = lookup("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
    match argument.trim().parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
        _ => {
            tracing::warn!(%argument, "OTEL_TRACES_SAMPLER_ARG is not a number between 0 and 1; every call is traced");
            1.0
        }
    }
}

/// A list such as `key=value,other=some%20words`.
fn pairs(list: &str) -> Vec<(String, String)> {
    let pair = |item: &str| {
        let (key, value) = item.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_owned(), percent_decoded(value.trim())))
    };
    list.split(',').filter_map(pair).collect()
}

fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A collector over HTTP.
struct HttpCollector(BodySender);

impl Collector for HttpCollector {
    fn post(&self, body: Bytes) -> Pin<Box<dyn Future<Output = Result<(), ExportError>> + Send + '_>> {
        Box::pin(async move {
            self.0.send(body).await.map_err(|error| {
                let remote::SendError { why, may_pass, pause } = error;
                ExportError { why, may_pass, pause }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks variables up in a list.
    fn given<T>(variables: &[(&str, &str)], ask: impl Fn(Lookup<'_>) -> T) -> T {
        ask(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn calls_are_traced_only_where_a_collector_is_named_and_not_forbidden() {
        let is_traced = |variables: &[(&str, &str)]| given(variables, setup).is_some();
        let collector = (ENDPOINT, "http://127.0.0.1:4318");
        assert!(is_traced(&[collector]));
        assert!(is_traced(&[collector, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]));
        assert!(is_traced(&[
            collector,
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        ]));
        assert!(!is_traced(&[]));
        assert!(!is_traced(&[(ENDPOINT, "no address")]));
        assert!(!is_traced(&[collector, ("OTEL_SDK_DISABLED", "true")]));
        assert!(!is_traced(&[collector, ("OTEL_TRACES_EXPORTER", "none")]));
        assert!(!is_traced(&[collector, ("OTEL_TRACES_EXPORTER", "console")]));
        assert!(!is_traced(&[collector, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]));
    }

    #[test]
    fn the_address_for_traces_is_used_unchanged() {
        let both = [(ENDPOINT, "http://a:4318/base/"), (TRACES_ENDPOINT, "http://b/mine")];
        assert_eq!(given(&both, endpoint).as_deref(), Some("http://b/mine"));
        assert_eq!(given(&both[..1], endpoint).as_deref(), Some("http://a:4318/base/v1/traces"));
    }

    #[test]
    fn lists_are_read_with_what_is_escaped_in_them() {
        let read = pairs("api-key=a%20b%3D, x = 1=2 ,broken,=y,z=%zz,é=%C3%A9");
        let expected = [("api-key", "a b="), ("x", "1=2"), ("z", "%zz"), ("é", "é")];
        assert_eq!(read, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn the_service_has_a_name() {
        let name = |variables: &[(&str, &str)]| {
            let attributes = given(variables, resource);
            let names: Vec<_> = attributes.iter().filter(|(key, _)| key == "service.name").collect();
            assert_eq!(names.len(), 1);
            names[0].1.clone()
        };
        let listed = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=listed,a=b");
        assert_eq!(name(&[]), "mcp-aggregator");
        assert_eq!(name(&[listed]), "listed");
        assert_eq!(name(&[listed, ("OTEL_SERVICE_NAME", "named")]), "named");
    }

    #[test]
    fn samplers_are_known_by_their_names() {
        let named =
            |name, argument| given(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", argument)], sampler);
        let is = |follows_parent, root| Sampler { follows_parent, root };
        assert_eq!(named("always_on", ""), is(false, Root::Always));
        assert_eq!(named("parentbased_always_off", ""), is(true, Root::Never));
        assert_eq!(named("traceidratio", "0.5"), is(false, Root::Ratio(0.5)));
        assert_eq!(named("parentbased_traceidratio", "0.25"), is(true, Root::Ratio(0.25)));
        assert_eq!(named("parentbased_traceidratio", "7"), is(true, Root::Ratio(1.0)));
        assert_eq!(named("jaeger_remote", ""), Sampler::default());
    }
}
