//! Statements are written for PostgreSQL. This module converts them for SQLite.

use std::borrow::Cow;

/// Converts a statement. In what we use there are three differences: SQLite has no schema, its parameters are `?1`, and
/// its writers lock the whole database anyway.
pub(super) fn for_sqlite(sql: &str) -> String {
    let sql: Cow<'_, str> = if sql.contains(" FOR ") {
        sql.replace(" FOR UPDATE", "").replace(" FOR SHARE", "").into()
    } else {
        sql.into()
    };
    sql.replace("mcp.", "").replace('$', "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_for_postgresql_becomes_one_for_sqlite() {
        assert_eq!(
            for_sqlite("SELECT name FROM mcp.tools WHERE id = $1 AND name = $2 FOR UPDATE"),
            "SELECT name FROM tools WHERE id = ?1 AND name = ?2"
        );
    }
}
