//! Violations that a checker has found.

/// Largest number of violations reported per property.
const MAX_REPORTS_PER_PROPERTY: usize = 3;

/// Violations as text, each `property: description`, the first few of each property.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Vec<String>);

impl Violations {
    pub(crate) fn report(&mut self, property: &str, description: impl FnOnce() -> String) {
        let reported = self.0.iter().filter(|reported| reported.starts_with(property)).count();
        if reported < MAX_REPORTS_PER_PROPERTY {
            self.0.push(format!("{property}: {}", description()));
        }
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }
}
