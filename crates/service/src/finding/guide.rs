//! The search for MCP clients that see the small surface.

use std::sync::{Arc, PoisonError};

use aggregator::surface::{Finding, Found, Guide, Wish};

use super::{Finder, Strategy, USUAL_SKILL_THRESHOLD, Wanted};

/// What [`aggregator`] asks when a client looks for something.
pub(crate) struct Usher(pub(crate) Arc<Finder>);

impl Guide for Usher {
    fn find(&self, wish: Wish) -> Finding {
        let finder = Arc::clone(&self.0);
        Box::pin(async move {
            let mut shops = finder.shops();
            shops.retain(|_, shop| wish.server.is_none_or(|server| server == shop.place));
            let wanted = Wanted {
                query: wish.query,
                limit: wish.limit,
                servers: Vec::new(),
                skills: wish.skill.into_iter().collect(),
                strategy: Strategy::Direct,
                skill_threshold: USUAL_SKILL_THRESHOLD,
                threshold: wish.least,
                include_schemas: false,
            };
            let looked = finder.look(&wanted, &shops).await.map_err(|error| error.to_string())?;
            let found = looked.hits.into_iter().filter_map(|(hit, book)| {
                let shop = shops.get(&book.server)?;
                Some(Found { server: shop.place, tool: book.original_name, score: hit.score })
            });
            Ok(found.collect())
        })
    }

    fn skills(&self, server: Option<usize>) -> Vec<(String, usize)> {
        let mut shops = self.0.shops();
        shops.retain(|_, shop| server.is_none_or(|server| server == shop.place));
        let library = self.0.library.read().unwrap_or_else(PoisonError::into_inner);
        let counted = library.skills(&|book| shops.contains_key(&book.server));
        let skills = self.0.skills();
        counted.into_iter().map(|(id, count)| (skills.name_of(&id).to_owned(), count)).collect()
    }

    fn pinned(&self) -> Arc<[String]> {
        self.0.house.settings.now().pinned_tools.as_slice().into()
    }
}
