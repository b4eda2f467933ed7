//! In which way tools are looked for.

use std::str::FromStr;

use serde::Serialize;

/// How tools are looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Among all.
    #[default]
    Direct,
    /// Skills first, then among the tools that have them and those whose skills are not known.
    Hierarchical,
}

impl Strategy {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Hierarchical];

    /// What it is called.
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
