//! Stores vectors of tools in Qdrant, which compares them.
//!
//! - here: a Qdrant collection as a [`VectorStore`]
//! - `address`: the address of a collection
//! - `payload`: converts what is stored with a vector
//!
//! Each model has its own collection, whose name contains a digest of the model's id. An alias without the digest
//! refers to the collection that was filled last. So a new model fills a new collection while others still read the old
//! one, and the alias moves when it is complete. Old collections are not deleted, because other programs may use them.

mod address;
mod payload;

use std::time::Duration;

use qdrant_client::qdrant::points_update_operation::{Operation, OverwritePayload};
use qdrant_client::qdrant::{
    Condition, CountPointsBuilder, CreateAliasBuilder, CreateCollectionBuilder, CreateFieldIndexCollectionBuilder,
    DeletePointsBuilder, Distance, Filter, PointStruct, PointsIdsList, PointsSelector, PointsUpdateOperation,
    QueryBatchPointsBuilder, QueryPoints, QueryPointsBuilder, ScrollPointsBuilder, SearchParamsBuilder,
    UpdateBatchPointsBuilder, UpsertPointsBuilder, VectorParamsBuilder, points_selector,
};
use qdrant_client::{Qdrant, QdrantError};
use search::{Payload, Point, PointId, Request, StoreError, StoreFilter, VectorStore};
use sha2::{Digest, Sha256};

pub use address::{Address, BadAddress};

/// The timeout of one request. Writes wait until they are applied.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How many points are read at once.
const PAGE: u32 = 1000;

/// A collection of Qdrant with the vectors of one model.
pub struct Collection {
    client: Qdrant,
    address: Address,
    name: String,
    dimension: usize,
}

impl Collection {
    /// The collection for the vectors of a model. Does not connect yet.
    ///
    /// # Errors
    /// If the client rejects the address.
    pub fn new(address: Address, key: Option<String>, model: &str, dimension: usize) -> Result<Self, StoreError> {
        let client = Qdrant::from_url(&address.url)
            .api_key(key)
            .timeout(REQUEST_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // The check would run synchronously and print to stdout.
            .skip_compatibility_check()
            .build()
            .map_err(|error| failed("failed to create a client for", &address, &error))?;
        let name = format!("{}-{}", address.collection, digest(model));
        Ok(Self { client, address, name, dimension })
    }

    fn failed(&self, operation: &'static str) -> impl Fn(QdrantError) -> StoreError {
        let address = self.address.clone();
        move |error| failed(operation, &address, &error)
    }

    async fn make(&self) -> Result<(), StoreError> {
        let failed = self.failed("failed to create a collection in");
        if !self.client.collection_exists(&self.name).await.map_err(&failed)? {
            // Vectors have length one, so this is the same comparison as in the program.
            let size = self.dimension as u64;
            let collection =
                CreateCollectionBuilder::new(&self.name).vectors_config(VectorParamsBuilder::new(size, Distance::Dot));
            let made = self.client.create_collection(collection).await;
            // Another program may have created it in the meantime.
            if let Err(error) = made
                && !self.client.collection_exists(&self.name).await.map_err(&failed)?
            {
                return Err(failed(error));
            }
        }
        for (field, kind) in payload::INDEXED {
            let index = CreateFieldIndexCollectionBuilder::new(&self.name, field, kind).wait(true);
            self.client.create_field_index(index).await.map_err(&failed)?;
        }
        Ok(())
    }

    async fn everything(&self) -> Result<Vec<(PointId, Payload)>, StoreError> {
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let mut page = ScrollPointsBuilder::new(&self.name).limit(PAGE).with_payload(true).with_vectors(false);
            if let Some(next) = next {
                page = page.offset::<qdrant_client::qdrant::PointId>(next);
            }
            let page = self.client.scroll(page).await.map_err(self.failed("failed to read from"))?;
            // Points of other programs have other ids, and are ignored.
            let ours =
                page.result.into_iter().filter_map(|point| Some((ours(point.id?)?, payload::read(&point.payload))));
            found.extend(ours);
            next = page.next_page_offset;
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    async fn compare(
        &self,
        to: Vec<Vec<f32>>,
        within: StoreFilter,
        count: usize,
    ) -> Result<Vec<Vec<(PointId, f32)>>, StoreError> {
        let filter = filter(within);
        let query = |vector: Vec<f32>| -> QueryPoints {
            QueryPointsBuilder::new(&self.name)
                .query(vector)
                .filter(filter.clone())
                .limit(count as u64)
                // An approximation could miss the tool that the user is looking for.
                .params(SearchParamsBuilder::default().exact(true))
                .with_payload(false)
                .build()
        };
        let queries: Vec<QueryPoints> = to.into_iter().map(query).collect();
        let asked = QueryBatchPointsBuilder::new(&self.name, queries);
        let answers = self.client.query_batch(asked).await.map_err(self.failed("failed to search in"))?;
        let near = |points: Vec<qdrant_client::qdrant::ScoredPoint>| {
            points.into_iter().filter_map(|point| Some((ours(point.id?)?, point.score))).collect()
        };
        Ok(answers.result.into_iter().map(|answer| near(answer.result)).collect())
    }
}

impl VectorStore for Collection {
    fn name(&self) -> &'static str {
        "qdrant"
    }

    fn address(&self) -> &str {
        &self.address.url
    }

    fn prepare(&self) -> Request<'_, ()> {
        Box::pin(self.make())
    }

    fn list(&self) -> Request<'_, Vec<(PointId, Payload)>> {
        Box::pin(self.everything())
    }

    fn count(&self) -> Request<'_, usize> {
        Box::pin(async {
            let counting = self.client.count(CountPointsBuilder::new(&self.name).exact(true));
            let counted = counting.await.map_err(self.failed("failed to count vectors in"))?;
            Ok(usize::try_from(counted.result.map_or(0, |result| result.count)).unwrap_or(usize::MAX))
        })
    }

    fn put(&self, points: Vec<Point>) -> Request<'_, ()> {
        Box::pin(async move {
            let points: Vec<PointStruct> = points
                .into_iter()
                .map(|point| PointStruct::new(theirs(point.id), point.vector, payload::written(point.payload)))
                .collect();
            let putting = self.client.upsert_points(UpsertPointsBuilder::new(&self.name, points).wait(true));
            putting.await.map_err(self.failed("failed to store vectors in")).map(drop)
        })
    }

    fn relabel(&self, payloads: Vec<(PointId, Payload)>) -> Request<'_, ()> {
        Box::pin(async move {
            let operations: Vec<PointsUpdateOperation> = payloads
                .into_iter()
                .map(|(point, payload)| PointsUpdateOperation {
                    operation: Some(Operation::OverwritePayload(OverwritePayload {
                        points_selector: Some(selected(vec![point])),
                        payload: payload::written(payload).into(),
                        ..OverwritePayload::default()
                    })),
                })
                .collect();
            let changes = UpdateBatchPointsBuilder::new(&self.name, operations).wait(true);
            let changing = self.client.update_points_batch(changes);
            changing.await.map_err(self.failed("failed to change vectors in")).map(drop)
        })
    }

    fn delete(&self, points: Vec<PointId>) -> Request<'_, ()> {
        Box::pin(async move {
            let deletion = DeletePointsBuilder::new(&self.name).points(ids(points)).wait(true);
            self.client.delete_points(deletion).await.map_err(self.failed("failed to delete from")).map(drop)
        })
    }

    fn publish(&self) -> Request<'_, ()> {
        Box::pin(async {
            // An existing alias moves to another collection in one step.
            let naming = self.client.create_alias(CreateAliasBuilder::new(&self.name, &self.address.collection));
            naming.await.map_err(self.failed("failed to name the collection in")).map(drop)
        })
    }

    fn nearest(&self, to: Vec<Vec<f32>>, within: StoreFilter, count: usize) -> Request<'_, Vec<Vec<(PointId, f32)>>> {
        Box::pin(self.compare(to, within, count))
    }
}

/// The filter in Qdrant's types.
fn filter(within: StoreFilter) -> Filter {
    let mut must = vec![Condition::matches(payload::SERVER, within.servers)];
    if !within.skills.is_empty() {
        must.push(Condition::matches(payload::SKILLS, within.skills));
    }
    if let Some(skills) = within.by_skills {
        let unknown = Condition::matches(payload::IS_CLASSIFIED, false);
        must.push(Filter::should([Condition::matches(payload::SKILLS, skills), unknown]).into());
    }
    if let Some(points) = within.among {
        must.push(Condition::has_id(points.into_iter().map(theirs)));
    }
    Filter::must(must)
}

fn selected(points: Vec<PointId>) -> PointsSelector {
    PointsSelector { points_selector_one_of: Some(points_selector::PointsSelectorOneOf::Points(ids(points))) }
}

fn ids(points: Vec<PointId>) -> PointsIdsList {
    PointsIdsList { ids: points.into_iter().map(theirs).collect() }
}

fn theirs(point: PointId) -> qdrant_client::qdrant::PointId {
    uuid::Uuid::from_u128(point.0).to_string().into()
}

/// The id of a point, if it is ours: ours are UUIDs.
fn ours(point: qdrant_client::qdrant::PointId) -> Option<PointId> {
    use qdrant_client::qdrant::point_id::PointIdOptions;
    let PointIdOptions::Uuid(uuid) = point.point_id_options? else { return None };
    Some(PointId(uuid::Uuid::parse_str(&uuid).ok()?.as_u128()))
}

/// A digest that distinguishes models and fits into a name.
fn digest(model: &str) -> String {
    Sha256::digest(model.as_bytes())[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An error on one line; the client's own errors have several.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Plain(String);

/// The operating system's reason for a failed connection, extracted from the debug text of the client's error.
fn unreachable_by(words: &str) -> Option<&str> {
    let (_, rest) = words.split_once("Failed to connect to ")?;
    let (_, message) = rest.split_once("message: \"")?;
    message.split_once('"').map(|(message, _)| message)
}

fn failed(operation: &str, address: &Address, error: &QdrantError) -> StoreError {
    const LONGEST: usize = 300;
    let mut words = match error {
        QdrantError::ResponseError { status } | QdrantError::ResourceExhaustedError { status, .. } => {
            format!("{}: {}", status.code(), status.message())
        }
        other => other.to_string(),
    };
    if let Some(reason) = unreachable_by(&words) {
        words = format!("it is unreachable: {reason}");
    }
    words.truncate(words.floor_char_boundary(LONGEST));
    StoreError { what: format!("{operation} Qdrant at {}", address.url), source: Some(Box::new(Plain(words))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_connection_is_reported_in_plain_words() {
        let message = "Internal error: Failed to connect to http://127.0.0.1:6/: tonic::transport::Error(Transport, ConnectError(\
                    ConnectError(\"tcp connect error\", 127.0.0.1:6, Os { code: 111, kind: ConnectionRefused, message: \
                    \"Connection refused\" })))";
        assert_eq!(unreachable_by(message), Some("Connection refused"));
        assert_eq!(unreachable_by("NotFound: no collection"), None);
    }
}
