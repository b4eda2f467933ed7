//! Errors of searches and of changes to skills.

/// A problem with a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillProblem {
    /// The invalid member: `id`, `name`, `description` or `examples`; empty if the problem concerns all skills
    /// together.
    pub field: Option<&'static str>,
    /// What is wrong and what is expected.
    pub msg: String,
    /// A stable code, such as `missing`, `string_pattern_mismatch` or `value_error`.
    pub kind: &'static str,
}

/// Why a search or a change failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such server.
    #[error("there is no server `{key}`")]
    ServerNotFound {
        /// The id or name in the request.
        key: String,
    },
    /// There is no such skill, or it is disabled.
    #[error("there is no skill `{key}`")]
    SkillNotFound {
        /// The id or name in the request.
        key: String,
    },
    /// The skill is invalid.
    #[error("{}", problems.first().map_or("the skill is not valid", |problem| &problem.msg))]
    InvalidSkill {
        /// All problems.
        problems: Vec<SkillProblem>,
    },
    /// An internal error.
    #[error("{what}")]
    Internal {
        /// The cause.
        what: String,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] registry::Error),
}
