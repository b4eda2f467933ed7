//! Embeddings from `/embeddings` of OpenAI and compatible servers.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::Model;
use crate::error::{ModelError, ModelErrorKind, excerpt};
use crate::limits::RetryState;

/// The path of embeddings.
pub(crate) const PATH: &str = "/embeddings";

/// How many texts are sent in one request: all servers accept this many.
const AT_ONCE: usize = 64;

impl Model {
    /// One vector for each text, all of one dimension, in the order of the texts.
    pub async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, ModelError> {
        let _turn = self.turn().await;
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(AT_ONCE) {
            let more = self.embed_batch(batch).await?;
            let dimension = vectors.first().or(more.first()).map(Vec::len);
            if more.iter().any(|vector| Some(vector.len()) != dimension) {
                return Err(self.failure(ModelErrorKind::Foreign("vectors of different lengths".to_owned())));
            }
            vectors.extend(more);
        }
        Ok(vectors)
    }

    async fn embed_batch(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, ModelError> {
        let request = json!({ "model": self.provider.model, "input": texts, "encoding_format": "float" });
        let body: Bytes = request.to_string().into();
        let mut tries = RetryState::new(&self.limits);
        loop {
            let error = match self.embed_once(body.clone(), texts.len()).await {
                Ok(vectors) => return Ok(vectors),
                Err(error) => error,
            };
            tries.again(error).await.map_err(|error| self.failure(error))?;
        }
    }

    async fn embed_once(&self, body: Bytes, count: usize) -> Result<Vec<Vec<f32>>, ModelErrorKind> {
        let Some(requests) = &self.embeddings else {
            return Err(ModelErrorKind::BadAddress("this provider has no embeddings".to_owned()));
        };
        let length = body.len();
        let reply = self.send(requests, body).await?;
        let answer = self.whole(reply).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| ModelErrorKind::Foreign(excerpt(&String::from_utf8_lossy(&answer))))?;
        let tokens = answer.pointer("/usage/total_tokens").and_then(Value::as_u64);
        self.budget.spend(tokens.unwrap_or(length as u64 / 4));
        vectors(&answer, count).map_err(ModelErrorKind::Foreign)
    }
}

/// The vectors of a response, in order.
fn vectors(answer: &Value, count: usize) -> Result<Vec<Vec<f32>>, String> {
    let data = answer.get("data").and_then(Value::as_array).ok_or("no vectors")?;
    if data.len() != count {
        return Err(format!("{} vectors for {count} texts", data.len()));
    }
    let mut ordered: Vec<Option<Vec<f32>>> = vec![None; count];
    for (place, entry) in data.iter().enumerate() {
        let index = entry.get("index").and_then(Value::as_u64).map_or(Some(place), |index| usize::try_from(index).ok());
        let slot = index.and_then(|index| ordered.get_mut(index)).ok_or("a vector without a text")?;
        *slot = Some(numbers(entry.get("embedding").unwrap_or(&Value::Null))?);
    }
    ordered.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| "two vectors for one text".to_owned())
}

#[expect(clippy::cast_possible_truncation, reason = "vectors are single precision")]
fn numbers(vector: &Value) -> Result<Vec<f32>, String> {
    let numbers = vector.as_array().ok_or("a vector that is not a list of numbers")?;
    let numbers: Option<Vec<f32>> = numbers.iter().map(|number| number.as_f64().map(|number| number as f32)).collect();
    let numbers = numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite()));
    numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| "a vector that is not a list of numbers".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_in_the_order_of_their_texts_or_not_at_all() {
        let entry = |index: usize, vector: Value| json!({ "index": index, "embedding": vector });
        let two = json!({ "data": [entry(1, json!([0.5])), entry(0, json!([1, 2]))] });
        assert_eq!(vectors(&two, 2), Ok(vec![vec![1.0, 2.0], vec![0.5]]));
        for (answer, count) in [
            (json!({}), 0),
            (two, 3),
            (json!({ "data": [entry(7, json!([1]))] }), 1),
            (json!({ "data": [entry(0, json!([1])), entry(0, json!([1]))] }), 2),
            (json!({ "data": [entry(0, json!("base64"))] }), 1),
            (json!({ "data": [entry(0, json!([]))] }), 1),
            (json!({ "data": [entry(0, json!([1e300]))] }), 1),
        ] {
            assert!(vectors(&answer, count).is_err(), "{answer}");
        }
    }
}
