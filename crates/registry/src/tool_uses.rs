//! How often tools were called after searches, by user and by word of the search.

use std::time::Duration;

use crate::database::{Mismatch, Row, values};
use crate::error::Error;
use crate::{Store, Timestamp, ToolId};

/// Counts that did not grow for this long are deleted.
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// More counts than this are deleted, those that did not grow for longest first.
const MAX_ROWS: u64 = 20_000;
/// When there are too many, so many more are deleted, so that this is rare.
const SLACK: u64 = 1_000;

/// How often a user has called a tool after searches with a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The id of the principal; empty for the local user.
    pub user: String,
    /// The word, as the search compares it.
    pub word: String,
    /// The tool.
    pub tool: ToolId,
    /// How often.
    pub uses: u32,
}

impl Store {
    /// All counts, those that grew last first.
    pub async fn tool_uses(&self) -> Result<Vec<ToolUse>, Error> {
        let mut session = self.read("read uses of tools").await?;
        let sql = "SELECT u.user_name, u.word, t.id, u.uses FROM mcp.tool_uses AS u \
            JOIN mcp.tools AS t ON t.source_server_id = u.server_id AND t.original_name = u.tool \
            ORDER BY u.used_at DESC, t.id, u.word, u.user_name";
        session.all(sql, values![], from_row).await
    }

    /// Adds counts, all or none; those of unknown tools are left out. Old and surplus ones are deleted, as are those of
    /// tools that are gone. Returns how many were deleted.
    pub async fn add_tool_uses(&self, uses: Vec<ToolUse>, max_uses: u32) -> Result<u64, Error> {
        let mut session = self.write("store uses of tools").await?;
        let now = Timestamp::now();
        let sql = "INSERT INTO mcp.tool_uses (user_name, word, server_id, tool, uses, used_at) \
            SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), t.source_server_id, t.original_name, CAST($4 AS BIGINT), \
            CAST($5 AS TIMESTAMPTZ) FROM mcp.tools AS t \
            WHERE t.id = $3 AND t.source_server_id IS NOT NULL ON CONFLICT (server_id, tool, word, user_name) \
            DO UPDATE SET uses = CASE WHEN tool_uses.uses + excluded.uses > $6 THEN $6 \
            ELSE tool_uses.uses + excluded.uses END, used_at = excluded.used_at";
        let each = uses.into_iter().map(|it| values![it.user, it.word, it.tool, it.uses, now, max_uses]);
        session.execute_each(sql, each.collect()).await?;
        let old = values![now.earlier_by(LIFETIME)];
        let mut deleted = session.execute("DELETE FROM mcp.tool_uses WHERE used_at < $1", old).await?;
        let gone = "DELETE FROM mcp.tool_uses WHERE NOT EXISTS (SELECT 1 FROM mcp.tools AS t \
            WHERE t.source_server_id = tool_uses.server_id AND t.original_name = tool_uses.tool)";
        deleted += session.execute(gone, values![]).await?;
        let count = session.number("SELECT count(*) AS n FROM mcp.tool_uses", values![]).await?;
        if count > MAX_ROWS {
            let surplus = "DELETE FROM mcp.tool_uses WHERE used_at <= (SELECT used_at FROM mcp.tool_uses \
                ORDER BY used_at LIMIT 1 OFFSET $1)";
            deleted += session.execute(surplus, values![count - MAX_ROWS + SLACK - 1]).await?;
        }
        session.commit().await?;
        Ok(deleted)
    }

    /// Deletes all counts.
    pub async fn forget_tool_uses(&self) -> Result<(), Error> {
        let mut session = self.write("forget uses of tools").await?;
        session.execute("DELETE FROM mcp.tool_uses", values![]).await?;
        session.commit().await
    }
}

fn from_row(row: &mut Row) -> Result<ToolUse, Mismatch> {
    Ok(ToolUse {
        user: row.take("user_name")?,
        word: row.take("word")?,
        tool: row.take("id")?,
        uses: row.take("uses")?,
    })
}
