//! How good the search is on a data set, by each of its parts and by all together.

use search::reference::table_vector;
use search::{EmbedError, Embedder, Hit, Index, Limits, Query, words_of_use};

use crate::data::{DataSet, Request};
use crate::quality::{MEASURES, Quality, measures};
use crate::{indexed, say};

const TEN: Limits = Limits { count: 10, least_score: 0.0 };
/// What the small surface returns by default, and how far below the best score it returns tools.
const MAX_SHOWN_TOOLS: usize = 8;
const SCORE_CUTOFF_RATIO: f32 = 0.4;
/// Shares of the encoder and of the table in a vector of both.
const OF_ENCODER: f32 = 0.65;
/// A set with fewer requests for each tool says nothing about use.
const MIN_REQUESTS_OF_A_TOOL: usize = 4;

/// The encoder and the table in one vector.
struct Both<'m>(&'m dyn Embedder);

impl Embedder for Both<'_> {
    fn id(&self) -> &'static str {
        "encoder and table"
    }

    fn dimension(&self) -> usize {
        self.0.dimension() + table_vector("").map_or(0, |vector| vector.len())
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let encoded = self.0.embed(texts)?;
        let both = encoded.into_iter().zip(texts).map(|(encoded, text)| {
            let length = encoded.iter().map(|number| number * number).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
            let encoded = encoded.iter().map(|number| number / length * OF_ENCODER.sqrt());
            let table = table_vector(text).unwrap_or_default();
            encoded.chain(table.into_iter().map(|number| number * (1.0 - OF_ENCODER).sqrt())).collect()
        });
        Ok(both.collect())
    }
}

/// Prints how well tools are found, in each way and compared. Returns the index with the vectors of the model.
pub(crate) fn judge(set: &DataSet, model: &dyn Embedder) -> anyhow::Result<Index<usize>> {
    let documents = || set.tools.iter().map(|tool| tool.document.clone());
    let (mut index, _) = indexed(documents(), model)?;
    let mut rough = Index::new(0).with_rough_vectors();
    for (key, document) in documents().enumerate() {
        rough.insert(key, document);
    }
    let both = Both(model);
    let (of_both, _) = indexed(documents(), &both)?;
    let all: Vec<&Request> = set.requests.iter().collect();
    let words = ranked(&all, |text| Ok(found(&index, &Query::new(text))))?;
    let table = ranked(&all, |text| Ok(found(&rough, &Query::new(text).with_rough_vectors())))?;
    let encoder = ranked(&all, |text| Ok(found(&index, &embedded(text, model)?)))?;
    let together = ranked(&all, |text| Ok(found(&of_both, &embedded(text, &both)?)))?;
    let rows = [
        ("words", &words),
        ("words, table", &table),
        ("words, encoder", &encoder),
        ("words, encoder, table", &together),
    ];
    print_head(&format!("{}: {} tools, {} requests", set.name, set.tools.len(), set.requests.len()));
    rows.iter().for_each(|(way, quality)| say(&format!("| {way} | {} |", quality.cells())));
    for (way, quality, other) in [
        ("table instead of nothing", &table, &words),
        ("encoder instead of nothing", &encoder, &words),
        ("encoder instead of table", &encoder, &table),
        ("table with the encoder", &together, &encoder),
    ] {
        say(&format!("| *{way}* | {} |", quality.differences_from(other)));
    }
    judge_use(set, &mut index, model)?;
    Ok(index)
}

/// Half of the requests of each tool are made by a user who calls the right tool if it is shown; the other half judges.
fn judge_use(set: &DataSet, index: &mut Index<usize>, model: &dyn Embedder) -> anyhow::Result<()> {
    let mut seen = vec![0_usize; set.tools.len()];
    let (mut made, mut judged) = (Vec::new(), Vec::new());
    for request in &set.requests {
        let count = &mut seen[request.right[0]];
        if count.is_multiple_of(2) {
            made.push(request);
        } else {
            judged.push(request);
        }
        *count += 1;
    }
    if set.requests.len() < MIN_REQUESTS_OF_A_TOOL * seen.iter().filter(|count| **count > 0).count() {
        return Ok(());
    }
    let by = |user: &str, index: &Index<usize>| {
        ranked(&judged, |text| Ok(found(index, &embedded(text, model)?.by_user(user.into()))))
    };
    let before = by("one", index)?;
    for request in made {
        let query = embedded(&request.text, model)?.by_user("one".into());
        let shown = index.search(&query, Limits { count: MAX_SHOWN_TOOLS, least_score: 0.0 }, |_| true);
        let best = shown.first().map_or(0.0, |hit| hit.score);
        let called = shown
            .iter()
            .filter(|hit| hit.score >= best * SCORE_CUTOFF_RATIO)
            .find(|hit| request.right.contains(&hit.key));
        if let Some(Hit { key, .. }) = called {
            words_of_use(&request.text).iter().for_each(|word| index.add_uses("one", word, key, 1));
        }
    }
    let (own, others) = (by("one", index)?, by("another", index)?);
    index.forget_uses();
    print_head(&format!(
        "{}: use, {} requests made, {} judged",
        set.name,
        set.requests.len() - judged.len(),
        judged.len()
    ));
    for (way, quality) in [("before", &before), ("the same user", &own), ("another user", &others)] {
        say(&format!("| {way} | {} |", quality.cells()));
    }
    for (way, quality) in [("the same user", &own), ("another user", &others)] {
        say(&format!("| *gain for {way}* | {} |", quality.differences_from(&before)));
    }
    Ok(())
}

fn print_head(what: &str) {
    say(&format!("\n| {what} | {} |\n|---|---|---|---|---|", MEASURES.join(" | ")));
}

fn ranked(requests: &[&Request], find: impl Fn(&str) -> anyhow::Result<Vec<usize>>) -> anyhow::Result<Quality> {
    let one = |request: &&Request| Ok(measures(&find(&request.text)?, &request.right));
    requests.iter().map(one).collect::<anyhow::Result<_>>().map(Quality)
}

fn embedded(text: &str, model: &dyn Embedder) -> anyhow::Result<Query> {
    let mut query = Query::new(text);
    query.embed(model)?;
    Ok(query)
}

fn found(index: &Index<usize>, query: &Query) -> Vec<usize> {
    index.search(query, TEN, |_| true).into_iter().map(|hit| hit.key).collect()
}
