//! Provides the image: an existing one, or pulled, with progress reports.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use catalog::{Container, Pull};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use crate::engine::Engine;
use crate::error::{ContainerError, in_words, status};

/// How long a pull may make no progress at all.
const PULL_STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Ensures that the image exists. Cancel safe.
pub(crate) async fn provide(engine: &Engine, wanted: &Container, report: impl Fn(&str)) -> Result<(), ContainerError> {
    let image = &wanted.image;
    let is_here = match engine.docker.inspect_image(&image.value).await {
        Ok(_) => true,
        Err(error) if status(&error) == Some(404) => false,
        Err(error) => return Err(ContainerError::Refused { operation: "inspect the image", words: in_words(&error) }),
    };
    match (wanted.pull, is_here) {
        (Pull::Never, false) => Err(ContainerError::NoImage { image: image.shown().to_owned() }),
        (Pull::Never | Pull::Missing, true) => Ok(()),
        (Pull::Missing, false) | (Pull::Always, _) => pull(engine, wanted, report).await,
    }
}

async fn pull(engine: &Engine, wanted: &Container, report: impl Fn(&str)) -> Result<(), ContainerError> {
    let shown = wanted.image.shown();
    let failed = |words: String| ContainerError::NotPulled { image: shown.to_owned(), words };
    let (name, tag) = with_tag(&wanted.image.value);
    let options = CreateImageOptionsBuilder::new().from_image(name);
    let options = tag.map_or(options.clone(), |tag| options.tag(tag)).build();
    let mut steps = engine.docker.create_image(Some(options), None, None);
    let mut layers = Layers::default();
    report(&format!("pulling {shown}"));
    let mut reported_at = Instant::now();
    loop {
        let step = match timeout(PULL_STALL_TIMEOUT, steps.next()).await {
            Ok(Some(Ok(step))) => step,
            Ok(Some(Err(error))) => return Err(failed(in_words(&error))),
            Ok(None) => break,
            Err(_) => return Err(failed(format!("no data for {} s", PULL_STALL_TIMEOUT.as_secs()))),
        };
        if let Some(problem) = step.error_detail.as_ref().and_then(|detail| detail.message.clone()) {
            return Err(failed(problem));
        }
        layers.note(&step);
        if reported_at.elapsed() >= PROGRESS_INTERVAL {
            reported_at = Instant::now();
            report(&format!("pulling {shown}: {}", layers.in_words()));
        }
    }
    report(&format!("pulled {shown}"));
    Ok(())
}

/// A name without a tag means the latest, but an engine would pull all tags.
fn with_tag(image: &str) -> (&str, Option<&'static str>) {
    let last = image.rsplit('/').next().unwrap_or(image);
    let is_exact = last.contains([':', '@']);
    (image, (!is_exact).then_some("latest"))
}

/// The progress of the layers of an image.
#[derive(Default)]
struct Layers(HashMap<String, (i64, i64)>);

impl Layers {
    fn note(&mut self, step: &CreateImageInfo) {
        let (Some(id), Some(status)) = (&step.id, &step.status) else { return };
        let detail = step.progress_detail.as_ref();
        let (current, total) = (detail.and_then(|it| it.current), detail.and_then(|it| it.total));
        match (status.as_str(), current, total) {
            ("Downloading", Some(current), Some(total)) => {
                self.0.insert(id.clone(), (current, total));
            }
            ("Download complete" | "Pull complete" | "Already exists", ..) => {
                let layer = self.0.entry(id.clone()).or_default();
                layer.0 = layer.1;
            }
            ("Pulling fs layer" | "Waiting", ..) => {
                self.0.entry(id.clone()).or_default();
            }
            _ => {}
        }
    }

    fn in_words(&self) -> String {
        let (done, all) = self.0.values().fold((0, 0), |(done, all), (current, total)| (done + current, all + total));
        match self.0.len() {
            0 => "resolving".to_owned(),
            layers if all == 0 => format!("{layers} layer{}", if layers == 1 { "" } else { "s" }),
            layers => {
                format!("{} of {} MB, {layers} layer{}", done >> 20, all >> 20, if layers == 1 { "" } else { "s" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ProgressDetail;

    #[test]
    fn only_a_name_without_a_tag_gets_one() {
        for (image, tag) in [
            ("mcp/time", Some("latest")),
            ("localhost:5000/time", Some("latest")),
            ("time:2", None),
            ("localhost:5000/time:2", None),
            ("time@sha256:abc", None),
        ] {
            assert_eq!(with_tag(image), (image, tag));
        }
    }

    #[test]
    fn progress_is_the_sum_of_all_layers() {
        let step = |id: &str, status: &str, current, total| CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: Some(ProgressDetail { current, total }),
            ..CreateImageInfo::default()
        };
        let mut layers = Layers::default();
        assert_eq!(layers.in_words(), "resolving");
        layers.note(&step("a", "Pulling fs layer", None, None));
        assert_eq!(layers.in_words(), "1 layer");
        layers.note(&step("a", "Downloading", Some(1 << 20), Some(4 << 20)));
        layers.note(&step("b", "Downloading", Some(1 << 20), Some(2 << 20)));
        assert_eq!(layers.in_words(), "2 of 6 MB, 2 layers");
        layers.note(&step("b", "Download complete", None, None));
        assert_eq!(layers.in_words(), "3 of 6 MB, 2 layers");
    }
}
