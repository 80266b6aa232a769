//! A core's options: what it declares, what the caller wants, and what it is told.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use super::error::OpenError;

/// The most options of a core that are looked at.
const MAX_DECLARED: usize = 4_096;

/// One option as the core declared it.
struct Declared {
    values: Vec<String>,
    default: String,
    value: CString,
}

/// The options of one instance.
#[derive(Default)]
pub(super) struct Options {
    wanted: BTreeMap<String, String>,
    declared: BTreeMap<String, Declared>,
    /// Values that were in force and no longer are. A core may still hold a pointer to one.
    retired: Vec<CString>,
}

impl Options {
    pub(super) fn new(wanted: &[(String, String)]) -> Self {
        Self { wanted: wanted.iter().cloned().collect(), ..Self::default() }
    }

    /// The core has such an option. Its default is the first value unless it names one.
    pub(super) fn declare(&mut self, key: String, values: Vec<String>, default: Option<String>) {
        let default = default.or_else(|| values.first().cloned()).unwrap_or_default();
        let value = self.wanted.get(&key).filter(|value| values.contains(value)).unwrap_or(&default);
        let Ok(value) = CString::new(value.as_str()) else { return };
        if self.declared.len() + self.retired.len() >= MAX_DECLARED {
            return;
        }
        match self.declared.get_mut(&key) {
            Some(known) => {
                if known.value != value {
                    self.retired.push(std::mem::replace(&mut known.value, value));
                }
                (known.values, known.default) = (values, default);
            }
            None => drop(self.declared.insert(key, Declared { values, default, value })),
        }
    }

    /// What the core is told. The text stays where it is for as long as the instance lives.
    pub(super) fn value(&self, key: &str) -> Option<&CStr> {
        self.declared.get(key).map(|option| option.value.as_c_str())
    }

    /// Whether everything that was wanted exists.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        for (key, value) in &self.wanted {
            let Some(option) = self.declared.get(key) else {
                return Err(OpenError::NoOption { key: key.clone(), known: self.declared.keys().cloned().collect() });
            };
            if !option.values.contains(value) {
                let (key, value, values) = (key.clone(), value.clone(), option.values.clone());
                return Err(OpenError::NoValue { key, value, values });
            }
        }
        Ok(())
    }

    /// Options that are not at their default, by key.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.declared.iter().filter_map(|(key, option)| {
            let value = option.value.to_str().ok()?;
            (value != option.default).then_some((key.as_str(), value))
        })
    }

    /// All options: key, value in force, and possible values.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.declared
            .iter()
            .filter_map(|(key, option)| Some((key.as_str(), option.value.to_str().ok()?, &option.values[..])))
    }
}

/// Takes apart the oldest form, "Description; first|second|third".
pub(super) fn values_of(declaration: &str) -> Vec<String> {
    let values = declaration.split_once(';').map_or(declaration, |(_, values)| values);
    values.trim_start().split('|').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn the_caller_overrides_and_only_what_differs_is_told() {
        let mut options = Options::new(&[("speed".into(), "fast".into())]);
        options.declare("speed".into(), owned(&["slow", "fast"]), None);
        options.declare("palette".into(), owned(&["grey", "green"]), Some("green".into()));
        assert_eq!(options.value("speed"), Some(c"fast"));
        assert_eq!(options.value("palette"), Some(c"green"));
        assert_eq!(options.value("sound"), None);
        assert_eq!(options.changed().collect::<Vec<_>>(), [("speed", "fast")]);
        assert!(options.check().is_ok());
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        let mut options = Options::new(&[("speed".into(), "faster".into())]);
        assert!(matches!(options.check(), Err(OpenError::NoOption { .. })));
        options.declare("speed".into(), owned(&["slow", "fast"]), None);
        assert_eq!(options.value("speed"), Some(c"slow"));
        assert!(matches!(options.check(), Err(OpenError::NoValue { .. })));
    }

    #[test]
    fn a_value_that_a_core_holds_stays_where_it_is() {
        let mut options = Options::default();
        options.declare("a".into(), owned(&["x", "y"]), None);
        let before = options.value("a").unwrap().as_ptr();
        options.declare("a".into(), owned(&["x", "y"]), None);
        assert_eq!(options.value("a").unwrap().as_ptr(), before);
        options.declare("a".into(), owned(&["x", "y"]), Some("y".into()));
        assert_eq!(options.retired[0].as_ptr(), before);
    }

    #[test]
    fn the_oldest_form_is_understood() {
        assert_eq!(values_of("Speed; slow|fast"), ["slow", "fast"]);
        assert_eq!(values_of("slow"), ["slow"]);
    }
}
