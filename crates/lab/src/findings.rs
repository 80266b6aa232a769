//! What comes of an experiment.

use crate::plot::Figure;
use crate::table::DataTable;

/// What comes of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What it was run with, by name.
    pub parameters: Vec<(String, String)>,
    /// What was measured.
    pub tables: Vec<DataTable>,
    /// The same, to look at.
    pub figures: Vec<Figure>,
    /// What follows from it.
    pub claims: Vec<Claim>,
    /// Where the paper is silent, what was chosen and why.
    pub notes: Vec<String>,
}

/// Something that is said of the numbers, and whether it is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is claimed.
    pub statement: String,
    /// What the paper reached.
    pub paper: String,
    /// What we reached.
    pub ours: String,
    /// Whether it is so.
    pub holds: bool,
}

impl Findings {
    /// One more parameter.
    pub fn add_parameter(&mut self, name: &str, value: impl Into<String>) {
        self.parameters.push((name.into(), value.into()));
    }

    /// One more claim.
    pub fn add_claim(&mut self, what: &str, paper: &str, ours: impl Into<String>, holds: bool) {
        self.claims.push(Claim { statement: what.into(), paper: paper.into(), ours: ours.into(), holds });
    }

    /// One more choice of ours.
    pub fn add_note(&mut self, words: &str) {
        self.notes.push(words.into());
    }

    /// Whether all claims hold.
    pub fn all_claims_hold(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

impl Claim {
    /// As one line.
    pub fn to_line(&self) -> String {
        let verdict = if self.holds { "holds" } else { "DOES NOT HOLD" };
        format!("{verdict}: {}; paper: {}; ours: {}", self.statement, self.paper, self.ours)
    }
}
