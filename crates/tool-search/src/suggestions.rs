//! Skills that a language model proposed, for an administrator to accept or reject.

use registry::{Actor, AuditNote, SuggestionRecord, Timestamp};

use super::Finder;
use super::llm_prompt::Suggested;
use super::skill_edits::{SkillChange, SkillView, Suggestion, not_found};
use super::tool_index::LlmCandidate;
use crate::Error;

/// The limits of pending suggestions, and of tools named for one.
const MAX_PENDING: usize = 100;
const MAX_TOOLS: usize = 20;

impl Finder {
    /// The pending suggestions, by id.
    pub async fn suggestions(&self) -> Result<Vec<SuggestionRecord>, Error> {
        let all = self.store.suggestions().await?;
        Ok(all.into_iter().filter(|suggestion| !suggestion.rejected).collect())
    }

    /// Turns a suggestion into a skill. Tools are classified again in the background.
    pub async fn accept_suggestion(&self, by: &Actor, id: &str) -> Result<SkillView, Error> {
        let waiting = self.waiting(id).await?;
        let change =
            SkillChange { name: Some(waiting.name), description: Some(waiting.description), ..SkillChange::default() };
        let (skill, _) = self.put_skill_and(by, id, change, Suggestion::Accepted).await?;
        Ok(skill)
    }

    /// Rejects a suggestion. It is not made again.
    pub async fn reject_suggestion(&self, by: &Actor, id: &str) -> Result<(), Error> {
        let waiting = self.waiting(id).await?;
        let mut change = self.store.transaction("reject a suggestion").await?;
        change.put_suggestion(&SuggestionRecord { rejected: true, ..waiting }).await?;
        Ok(change.commit_audited(AuditNote::new(by, "skill.reject", Some(id), None)).await?)
    }

    async fn waiting(&self, id: &str) -> Result<SuggestionRecord, Error> {
        let all = self.suggestions().await?;
        all.into_iter().find(|suggestion| suggestion.id == id).ok_or_else(|| not_found(id))
    }

    /// Stores suggestions, except rejected ones.
    pub(super) async fn suggest(&self, asked: &[LlmCandidate], suggested: Vec<Suggested>) -> Result<(), Error> {
        if suggested.is_empty() {
            return Ok(());
        }
        let mut all = self.store.suggestions().await?;
        for Suggested { id, name, description, tools } in suggested {
            let name_of = |place: &usize| asked.get(*place).map(|tool| format!("{}.{}", tool.server_name, tool.name));
            let tools: Vec<String> = tools.iter().filter_map(name_of).collect();
            let record = match all.iter().position(|known| known.id == id) {
                Some(place) if all[place].rejected => continue,
                Some(place) => {
                    let mut known = all.swap_remove(place);
                    let more: Vec<String> = tools.into_iter().filter(|tool| !known.tools.contains(tool)).collect();
                    known.tools.extend(more);
                    known.tools.truncate(MAX_TOOLS);
                    known
                }
                None if all.iter().filter(|known| !known.rejected).count() >= MAX_PENDING => continue,
                None => {
                    SuggestionRecord { id, name, description, tools, rejected: false, suggested_at: Timestamp::now() }
                }
            };
            self.store.put_suggestion(&record).await?;
            tracing::info!(
                skill = record.id,
                "a new skill was suggested; `mcp-aggregator skills suggestions` shows it"
            );
            all.push(record);
        }
        Ok(())
    }
}
