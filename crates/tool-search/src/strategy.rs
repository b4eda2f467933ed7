//! Search strategies.

use std::str::FromStr;

use serde::Serialize;

/// How tools are searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// All tools.
    #[default]
    Direct,
    /// Skills first, then the tools with these skills and unclassified ones.
    Hierarchical,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Hierarchical];

    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hierarchical => "hierarchical",
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(text));
        known.ok_or_else(|| "use `direct` or `hierarchical`".to_owned())
    }
}
