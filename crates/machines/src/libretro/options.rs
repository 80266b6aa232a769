//! Options of a core: declared by the core, requested by the caller, and answered to the core.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use super::error::CoreOpenError;

/// Maximum number of declared options and former values together. Further declarations are ignored.
const MAX_DECLARED_OPTIONS: usize = 4_096;

/// An option declared by the core.
struct DeclaredOption {
    values: Vec<String>,
    default: String,
    value: CString,
}

/// The options of one instance.
#[derive(Default)]
pub(super) struct CoreOptions {
    requested: BTreeMap<String, String>,
    declared: BTreeMap<String, DeclaredOption>,
    /// Former values of redeclared options. The core may still hold pointers to them.
    retired_values: Vec<CString>,
}

impl CoreOptions {
    pub(super) fn new(requested: &[(String, String)]) -> Self {
        Self { requested: requested.iter().cloned().collect(), ..Self::default() }
    }

    /// Adds or updates an option declared by the core. Without an explicit default, the first value is the default. The
    /// option gets the requested value if that is among `values`, otherwise the default.
    pub(super) fn declare(&mut self, key: String, values: Vec<String>, default: Option<String>) {
        let default = default.or_else(|| values.first().cloned()).unwrap_or_default();
        let value = self.requested.get(&key).filter(|value| values.contains(value)).unwrap_or(&default);
        let Ok(value) = CString::new(value.as_str()) else { return };
        if self.declared.len() + self.retired_values.len() >= MAX_DECLARED_OPTIONS {
            return;
        }
        match self.declared.get_mut(&key) {
            Some(known) => {
                if known.value != value {
                    self.retired_values.push(std::mem::replace(&mut known.value, value));
                }
                (known.values, known.default) = (values, default);
            }
            None => drop(self.declared.insert(key, DeclaredOption { values, default, value })),
        }
    }

    /// Returns the current value of an option; `None` if the core declared no such option. The text stays valid for the
    /// lifetime of the instance.
    pub(super) fn value(&self, key: &str) -> Option<&CStr> {
        self.declared.get(key).map(|option| option.value.as_c_str())
    }

    /// Checks that the core declared every requested option with the requested value.
    pub(super) fn validate(&self) -> Result<(), CoreOpenError> {
        for (key, value) in &self.requested {
            let Some(option) = self.declared.get(key) else {
                return Err(CoreOpenError::UnknownOption {
                    key: key.clone(),
                    known_options: self.declared.keys().cloned().collect(),
                });
            };
            if !option.values.contains(value) {
                let (key, value, values) = (key.clone(), value.clone(), option.values.clone());
                return Err(CoreOpenError::InvalidOptionValue { key, value, valid_values: values });
            }
        }
        Ok(())
    }

    /// Returns the options that differ from their default as key and value, sorted by key.
    pub(super) fn non_default(&self) -> impl Iterator<Item = (&str, &str)> {
        self.declared.iter().filter_map(|(key, option)| {
            let value = option.value.to_str().ok()?;
            (value != option.default).then_some((key.as_str(), value))
        })
    }

    /// Returns all options, sorted by key: key, current value, and valid values.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.declared
            .iter()
            .filter_map(|(key, option)| Some((key.as_str(), option.value.to_str().ok()?, &option.values[..])))
    }
}

/// Returns the values in a declaration of the oldest form, "Description; first|second|third".
pub(super) fn parse_legacy_values(declaration: &str) -> Vec<String> {
    let values = declaration.split_once(';').map_or(declaration, |(_, values)| values);
    values.trim_start().split('|').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn requested_value_overrides_default_and_is_listed_as_non_default() {
        let mut options = CoreOptions::new(&[("speed".into(), "fast".into())]);
        options.declare("speed".into(), to_strings(&["slow", "fast"]), None);
        options.declare("palette".into(), to_strings(&["grey", "green"]), Some("green".into()));
        assert_eq!(options.value("speed"), Some(c"fast"));
        assert_eq!(options.value("palette"), Some(c"green"));
        assert_eq!(options.value("sound"), None);
        assert_eq!(options.non_default().collect::<Vec<_>>(), [("speed", "fast")]);
        assert!(options.validate().is_ok());
    }

    #[test]
    fn unknown_option_or_value_is_rejected() {
        let mut options = CoreOptions::new(&[("speed".into(), "faster".into())]);
        assert!(matches!(options.validate(), Err(CoreOpenError::UnknownOption { .. })));
        options.declare("speed".into(), to_strings(&["slow", "fast"]), None);
        assert_eq!(options.value("speed"), Some(c"slow"));
        assert!(matches!(options.validate(), Err(CoreOpenError::InvalidOptionValue { .. })));
    }

    #[test]
    fn option_value_pointer_stays_valid_when_redeclared() {
        let mut options = CoreOptions::default();
        options.declare("a".into(), to_strings(&["x", "y"]), None);
        let before = options.value("a").unwrap().as_ptr();
        options.declare("a".into(), to_strings(&["x", "y"]), None);
        assert_eq!(options.value("a").unwrap().as_ptr(), before);
        options.declare("a".into(), to_strings(&["x", "y"]), Some("y".into()));
        assert_eq!(options.retired_values[0].as_ptr(), before);
    }

    #[test]
    fn legacy_option_declaration_is_parsed() {
        assert_eq!(parse_legacy_values("Speed; slow|fast"), ["slow", "fast"]);
        assert_eq!(parse_legacy_values("slow"), ["slow"]);
    }
}
