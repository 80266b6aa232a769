//! Limits on single types.

use crate::module_tree::ModuleTree;

/// Largest number of fields of the engine's `Session`.
pub const MAX_SESSION_FIELDS: usize = 15;

/// The place and size of a type in a crate.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeExtent {
    /// Number of fields.
    pub fields: usize,
    /// Modules with inherent methods of the type.
    pub impl_modules: Vec<String>,
}

/// Measures a struct that the module `module` defines.
pub fn measure(tree: &ModuleTree, module: &str, name: &str) -> Option<TypeExtent> {
    let fields = tree.modules.iter().find(|known| known.path == module)?.struct_fields.get(name)?;
    let is_within = |path: &str| path == module || path.starts_with(&format!("{module}::"));
    let implements =
        tree.modules.iter().filter(|known| is_within(&known.path) && known.inherent_impls.contains_key(name));
    Some(TypeExtent { fields: *fields, impl_modules: implements.map(|known| known.path.clone()).collect() })
}
