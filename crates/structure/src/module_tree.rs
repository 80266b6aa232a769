//! The modules of one crate, as parsed from its sources: their items, imports and paths. Modules and imports that
//! exist only in tests are left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::TokenTree;
use syn::visit::{self, Visit};

use crate::StructureError;

/// Index of a module in [`ModuleTree::modules`].
pub type ModuleId = usize;

/// All modules of a crate.
#[derive(Debug, Default)]
pub struct ModuleTree {
    /// The modules; the crate's root is the first.
    pub modules: Vec<Module>,
}

/// One module: a file, or an inline module within a file.
#[derive(Debug)]
pub struct Module {
    /// Path from the crate's root, such as `session::desync`; `crate` for the root.
    pub path: String,
    /// The source file.
    pub file: PathBuf,
    /// The enclosing module; `None` for the root.
    pub parent: Option<ModuleId>,
    /// Child modules by name.
    pub children: BTreeMap<String, ModuleId>,
    /// Names of the items that the module defines itself.
    pub items: Vec<String>,
    /// Imports by the name that they bring into scope.
    pub imports: BTreeMap<String, Vec<String>>,
    /// Paths whose items are all imported.
    pub glob_imports: Vec<Vec<String>>,
    /// Paths that the module refers to, with the line of each. Public re-exports are left out: they pass a name on
    /// without using it.
    pub references: Vec<(Vec<String>, usize)>,
    /// Number of `impl` blocks by the name of the type, trait implementations excepted.
    pub inherent_impls: BTreeMap<String, usize>,
    /// Number of fields by the name of the struct.
    pub struct_fields: BTreeMap<String, usize>,
}

impl ModuleTree {
    /// Parses a crate, starting with its root file.
    pub fn parse(root: &Path) -> Result<Self, StructureError> {
        let mut tree = Self::default();
        let folder = root.parent().unwrap_or(Path::new(".")).to_owned();
        tree.parse_file(root, folder, "crate".into(), None)?;
        Ok(tree)
    }

    fn parse_file(
        &mut self,
        file: &Path,
        folder: PathBuf,
        path: String,
        parent: Option<ModuleId>,
    ) -> Result<ModuleId, StructureError> {
        let text = std::fs::read_to_string(file).map_err(|error| StructureError::Read(file.to_owned(), error))?;
        let parsed = syn::parse_file(&text).map_err(|error| StructureError::Parse(file.to_owned(), error))?;
        self.add_module(file, folder, path, parent, &parsed.items)
    }

    /// Adds a module with these items. `folder` is where the files of its child modules are.
    fn add_module(
        &mut self,
        file: &Path,
        folder: PathBuf,
        path: String,
        parent: Option<ModuleId>,
        items: &[syn::Item],
    ) -> Result<ModuleId, StructureError> {
        let id = self.modules.len();
        self.modules.push(Module::new(path.clone(), file.to_owned(), parent));
        let mut visitor = ItemVisitor { module: &mut self.modules[id], submodules: Vec::new() };
        items.iter().for_each(|item| visitor.visit_item(item));
        for submodule in visitor.submodules {
            let name = submodule.ident.to_string();
            let path = if path == "crate" { name.clone() } else { format!("{path}::{name}") };
            let child_folder = folder.join(&name);
            let child = match &submodule.content {
                Some((_, items)) => self.add_module(file, child_folder, path, Some(id), items)?,
                None => {
                    let nested = child_folder.join("mod.rs");
                    let flat = folder.join(format!("{name}.rs"));
                    let child_file = if flat.exists() { flat } else { nested };
                    self.parse_file(&child_file, child_folder, path, Some(id))?
                }
            };
            self.modules[id].children.insert(name, child);
        }
        Ok(id)
    }

    /// Returns the module that defines what a path refers to, or the module itself if the path names a module;
    /// `None` if the path leaves the crate or names something local.
    pub fn resolve(&self, from: ModuleId, path: &[String]) -> Option<PathTarget> {
        self.resolve_within(from, path, 0)
    }

    fn resolve_within(&self, from: ModuleId, path: &[String], depth: usize) -> Option<PathTarget> {
        // Imports that refer to each other in a circle do not compile; the bound only guards this function.
        if depth > 32 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let module = &self.modules[from];
        match first.as_str() {
            "crate" => self.descend(0, rest, depth),
            "self" => self.descend(from, rest, depth),
            "super" => self.descend(module.parent?, rest, depth),
            _ => self.descend(from, path, depth),
        }
    }

    /// Resolves a path inside a module.
    fn descend(&self, module: ModuleId, path: &[String], depth: usize) -> Option<PathTarget> {
        let Some((first, rest)) = path.split_first() else { return Some(PathTarget::Module(module)) };
        let scope = &self.modules[module];
        if first == "super" {
            return self.descend(scope.parent?, rest, depth);
        }
        if let Some(child) = scope.children.get(first) {
            return self.descend(*child, rest, depth);
        }
        if scope.items.contains(first) {
            return Some(PathTarget::Item(module));
        }
        if let Some(import) = scope.imports.get(first) {
            let whole: Vec<String> = import.iter().chain(rest).cloned().collect();
            // An import such as `use libm;` names an external crate.
            return (whole != path).then(|| self.resolve_within(module, &whole, depth + 1)).flatten();
        }
        scope.glob_imports.iter().find_map(|glob| {
            let PathTarget::Module(target) = self.resolve_within(module, glob, depth + 1)? else { return None };
            (target != module).then(|| self.descend(target, path, depth + 1)).flatten()
        })
    }
}

/// What a path refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathTarget {
    /// A module.
    Module(ModuleId),
    /// An item of this module.
    Item(ModuleId),
}

impl Module {
    fn new(path: String, file: PathBuf, parent: Option<ModuleId>) -> Self {
        Self {
            path,
            file,
            parent,
            children: BTreeMap::new(),
            items: Vec::new(),
            imports: BTreeMap::new(),
            glob_imports: Vec::new(),
            references: Vec::new(),
            inherent_impls: BTreeMap::new(),
            struct_fields: BTreeMap::new(),
        }
    }
}

/// Collects the items, imports and references of one module, without those of its child modules.
struct ItemVisitor<'a> {
    module: &'a mut Module,
    submodules: Vec<syn::ItemMod>,
}

impl ItemVisitor<'_> {
    fn import(&mut self, prefix: &[String], tree: &syn::UseTree, is_reexport: bool, line: usize) {
        match tree {
            syn::UseTree::Path(path) => {
                let prefix: Vec<String> = prefix.iter().cloned().chain([path.ident.to_string()]).collect();
                self.import(&prefix, &path.tree, is_reexport, line);
            }
            syn::UseTree::Name(name) => self.import_name(prefix, &name.ident, &name.ident, is_reexport, line),
            syn::UseTree::Rename(name) => self.import_name(prefix, &name.ident, &name.rename, is_reexport, line),
            syn::UseTree::Glob(_) => {
                self.module.glob_imports.push(prefix.to_vec());
                if !is_reexport {
                    self.module.references.push((prefix.to_vec(), line));
                }
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(prefix, tree, is_reexport, line));
            }
        }
    }

    fn import_name(
        &mut self,
        prefix: &[String],
        name: &syn::Ident,
        visible_name: &syn::Ident,
        is_reexport: bool,
        line: usize,
    ) {
        let mut path = prefix.to_vec();
        let mut visible_name = visible_name.to_string();
        if name == "self" {
            if visible_name == "self" {
                visible_name = prefix.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(name.to_string());
        }
        if !is_reexport {
            self.module.references.push((path.clone(), line));
        }
        self.module.imports.insert(visible_name, path);
    }

    fn define(&mut self, name: &syn::Ident) {
        self.module.items.push(name.to_string());
    }
}

impl<'ast> Visit<'ast> for ItemVisitor<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test_only(attributes(item)) {
            return;
        }
        match item {
            syn::Item::Mod(module) => return self.submodules.push(module.clone()),
            syn::Item::Use(import) => {
                let is_reexport = !matches!(import.vis, syn::Visibility::Inherited);
                let line = import.use_token.span.start().line;
                return self.import(&[], &import.tree, is_reexport, line);
            }
            syn::Item::Struct(item) => {
                self.define(&item.ident);
                self.module.struct_fields.insert(item.ident.to_string(), item.fields.len());
            }
            syn::Item::Enum(item) => self.define(&item.ident),
            syn::Item::Union(item) => self.define(&item.ident),
            syn::Item::Trait(item) => self.define(&item.ident),
            syn::Item::Type(item) => self.define(&item.ident),
            syn::Item::Fn(item) => self.define(&item.sig.ident),
            syn::Item::Const(item) => self.define(&item.ident),
            syn::Item::Static(item) => self.define(&item.ident),
            syn::Item::Macro(item) => item.ident.iter().for_each(|name| self.define(name)),
            syn::Item::Impl(item) if item.trait_.is_none() => {
                if let syn::Type::Path(path) = &*item.self_ty
                    && let Some(name) = path.path.segments.last()
                {
                    *self.module.inherent_impls.entry(name.ident.to_string()).or_default() += 1;
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Const(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test_only(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let references = &mut self.module.references;
        paths_in_tokens(call.tokens.clone(), &mut |path, line| references.push((path, line)));
        visit::visit_macro(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.module.references.push((names, line));
        visit::visit_path(self, path);
    }
}

/// Calls `found` with each path of two or more names in the tokens of a macro call, and its line.
fn paths_in_tokens(tokens: proc_macro2::TokenStream, found: &mut impl FnMut(Vec<String>, usize)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => paths_in_tokens(group.stream(), found),
            TokenTree::Ident(first) if !continues_path(&tokens[..at]) => {
                let path = path_at(&tokens[at..]);
                if path.len() > 1 {
                    found(path, first.span().start().line);
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a name after these tokens is a later part of a path.
fn continues_path(before: &[TokenTree]) -> bool {
    matches!(before, [.., TokenTree::Punct(colon)] if colon.as_char() == ':')
}

/// Returns the names of the path with which these tokens begin.
fn path_at(tokens: &[TokenTree]) -> Vec<String> {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    let mut names = Vec::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(name), after @ ..] = rest {
        names.push(name.to_string());
        match after {
            [first, second, next @ ..] if is_colon(first) && is_colon(second) => rest = next,
            _ => break,
        }
    }
    names
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item is compiled for tests only.
fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
        attribute.path().is_ident("cfg") && matches!(&attribute.meta, syn::Meta::List(list) if is_test(list))
    })
}
