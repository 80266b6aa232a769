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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_modules_with_methods_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| std::fs::write(folder.path().join(path), text).unwrap();
        std::fs::create_dir(folder.path().join("session")).unwrap();
        write("lib.rs", "mod session; mod other;");
        write("other.rs", "pub struct Session; impl Session { fn f() {} }");
        write("session/mod.rs", "mod part; pub struct Session { a: u8, b: u8 } impl Session { fn f() {} }");
        write("session/part.rs", "use super::Session; impl Clone for Session { fn clone(&self) -> Self { todo!() } }");
        let measured = |folder: &std::path::Path| {
            measure(&ModuleTree::parse(&folder.join("lib.rs")).unwrap(), "session", "Session")
        };
        let one = TypeExtent { fields: 2, impl_modules: vec!["session".into()] };
        assert_eq!(measured(folder.path()), Some(one), "trait implementations and other types do not count");
        write("session/part.rs", "use super::Session; impl Session { fn g() {} }");
        assert_eq!(measured(folder.path()).unwrap().impl_modules, ["session", "session::part"]);
    }
}
